"""Random sequences: whatever comes, in whatever order, ours ends as the API promises."""

from pathlib import Path

import pytest

from tests.parity import randomly, sequences

SEEDS = range(1, 6)  # of BATCH sequences each


@pytest.mark.timeout(900)
async def test_ours_is_right_in_every_sequence(binaries: dict[str, Path], tmp_path: Path) -> None:
    assert len(SEEDS) * randomly.BATCH >= 300
    wrong = 0
    async with randomly.both(binaries, tmp_path) as pair:
        for seed in SEEDS:
            outcomes = await randomly.played(pair, sequences.made(seed, randomly.BATCH))
            wrong += sum(1 for one in outcomes if one.theirs.faults)
            for failed in [one for one in outcomes if one.failed]:
                short = await randomly.shortened(pair, failed)
                pytest.fail(f"seed {seed}: {failed}\nmade short: {short}", pytrace=False)
    assert wrong, "the Go controller ends wrong in some; if it does not, the faults are not what they seem"
