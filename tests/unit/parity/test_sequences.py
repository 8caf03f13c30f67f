"""Random sequences are the same for the same seed, and are made short."""

from collections.abc import Sequence

import pytest

from tests.parity import sequences
from tests.parity.sequences import Move, Shared
from tests.parity.shrink import shrink


def test_a_seed_makes_the_same_sequences_each_time_and_another_seed_others() -> None:
    assert sequences.made(7, 20) == sequences.made(7, 20)
    assert sequences.made(7, 20) != sequences.made(8, 20)


def test_the_sequences_of_a_seed_share_nodes_and_one_restart() -> None:
    many = sequences.made(3, 30)
    shared = {tuple(item for item in one.items() if isinstance(item, Shared)) for one in many}
    (only,) = shared
    assert only.count(Shared(sequences.RESTART)) == 1
    assert len({one.items()[0] for one in many if isinstance(one.items()[0], Move)}) > 5


def test_every_kind_of_step_comes_in_300_sequences() -> None:
    items = [item for seed in range(1, 6) for one in sequences.made(seed, 60) for item in one.items()]
    moves = {item.kind for item in items if isinstance(item, Move)}
    shared = {item.kind for item in items if isinstance(item, Shared)}
    assert moves == set(sequences.OF_SERVICES)
    assert len(shared) > 5
    assert {item.name for item in items if isinstance(item, Move)} == set(sequences.NAMES)


def test_played_alone_a_sequence_has_a_round_for_each_thing_that_is_shared() -> None:
    first, node, second = Move("create", "a"), Shared("n4 joins"), Move("delete", "a")
    assert sequences.alone("x", [first, node, second]).rounds == ((first,), (node, second))
    assert sequences.alone("x", [node]).items() == [node]


@pytest.mark.parametrize(
    ("needed", "size"),
    [({3}, 20), ({0, 19}, 20), ({5, 6, 7}, 20), ({0}, 1), (set(range(4)), 4)],
    ids=["one", "both-ends", "neighbours", "nothing-else", "all"],
)
async def test_what_the_failure_does_not_need_is_left_out(needed: set[int], size: int) -> None:
    async def fails(steps: Sequence[int]) -> bool:
        return needed <= set(steps)

    assert await shrink(range(size), fails) == sorted(needed)


async def test_shrinking_ends_after_so_many_tries() -> None:
    asked = []

    async def fails(steps: Sequence[int]) -> bool:
        asked.append(steps)
        return 13 in steps

    left = await shrink(range(100), fails, tries=5)
    assert len(asked) == 5
    assert 13 in left
