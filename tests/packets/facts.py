"""What was measured of the four rows of delivery and ipMode, as the page about them shows it. No I/O but the file's."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
COMMITTED: Final = ROOT / "docs" / "pictures" / "ipmode.json"
MEASURED: Final = ROOT / "build" / "ipmode.json"


@dataclasses.dataclass(frozen=True)
class Sight:
    """
    One request of one client: outside, node or pod.

    `peer` and `header` name hosts (client, load balancer, node, pod): whose address the server saw, and whose was in the PROXY header;
    None where there was none. `counter` is the load balancer's count of connections before and after.
    """

    client: str
    served: bool
    passed: bool
    peer: str | None
    header: str | None
    counter: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Row:
    """One cloud with one published ipMode. `rules` says for each mode of kube-proxy how many of its rules name the address."""

    cloud: str
    ip_mode: str
    announces: bool  # the load balancer was asked to send a PROXY header
    sights: Sequence[Sight]
    rules: Mapping[str, int]

    def essence(self) -> Any:
        """What has to be the same in every run: counters only as far as they grew, rules only as far as there are any."""
        sights = [dataclasses.replace(one, counter=(0, int(one.passed))) for one in self.sights]
        return self.cloud, self.ip_mode, self.announces, sights, sorted({number > 0 for number in self.rules.values()})


def read(path: Path) -> list[Row]:
    """The rows of a file; none where there is no file."""
    if not path.exists():
        return []
    return [_row(one) for one in json.loads(path.read_text(encoding="utf-8"))]


def write(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps([dataclasses.asdict(row) for row in rows], indent=1)
    path.write_text(content + "\n", encoding="utf-8")


def merged(rows: Sequence[Row], new: Row) -> list[Row]:
    """`new` in the place of what was known of it; what other modes of kube-proxy had for rules is kept."""
    same = [row for row in rows if (row.cloud, row.ip_mode) == (new.cloud, new.ip_mode)]
    known = {mode: number for row in same for mode, number in row.rules.items()}
    joined = dataclasses.replace(new, rules={**known, **new.rules})
    return sorted([*(row for row in rows if row not in same), joined], key=lambda row: (row.cloud, row.ip_mode))


def _row(found: Mapping[str, Any]) -> Row:
    sights = [Sight(**{**one, "counter": tuple(one["counter"])}) for one in found["sights"]]
    return Row(**{**found, "sights": sights})
