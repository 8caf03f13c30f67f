"""Two sides' records of one scenario, field by field; pure."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

Fields = Mapping[str, str]
NOTHING = "-"  # shown for an empty text


@dataclasses.dataclass(frozen=True, order=True)
class Difference:
    """One field of one step (from 1 on; the end comes after the last) in which the sides differ."""

    scenario: str
    step: int
    field: str
    theirs: str
    ours: str

    @property
    def place(self) -> tuple[str, int, str]:
        return self.scenario, self.step, self.field


def differences(scenario: str, theirs: Sequence[Fields], ours: Sequence[Fields]) -> Iterator[Difference]:
    """In the order of the steps, and of the fields' names within."""
    for number, (left, right) in enumerate(zip(theirs, ours, strict=True), 1):
        for field in sorted({*left, *right}):
            one, other = left.get(field, ""), right.get(field, "")
            if one != other:
                yield Difference(scenario, number, field, one or NOTHING, other or NOTHING)
