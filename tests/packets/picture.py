"""
The page about VIP and Proxy (docs/ipmode-picture.md), made from what was measured.

`python -m tests.packets.picture` takes over the measurements of the last `make test-packets` and draws the picture anew.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from tests.packets import facts
from tests.packets.facts import ROOT, Row, Sight
from tests.packets.panels import drawing

SVG: Final = ROOT / "docs" / "pictures" / "ipmode.svg"
DELIVERIES: Final = {
    "balancer": "connects to a node port (Proxy)",
    "router": "keeps the destination (VIP)",
}
# As the issue of the rows has them: what fits the delivery first.
ORDER: Final = (("balancer", "Proxy"), ("balancer", "VIP"), ("router", "VIP"), ("router", "Proxy"))


def ordered(rows: Sequence[Row]) -> list[Row]:
    """All four, in the order of the page. Raises KeyError for one that was not measured."""
    by = {(row.cloud, row.ip_mode): row for row in rows}
    return [by[key] for key in ORDER]


def table() -> str:
    """The committed measurements in Markdown."""
    head = [
        "the cloud",
        "ipMode",
        "client",
        "served",
        "passes the load balancer",
        "the server sees",
        "PROXY header",
        "kube-proxy",
    ]
    lines = [head, ["---"] * len(head)]
    lines += [cells for row in ordered(facts.read(facts.COMMITTED)) for cells in _cells(row)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _cells(row: Row) -> Iterator[list[str]]:
    rules = ", ".join(f"{mode}: {number or 'none'}" for mode, number in sorted(row.rules.items()))
    for sight in row.sights:
        before, after = sight.counter
        yield [
            DELIVERIES[row.cloud],
            f"`{row.ip_mode}`",
            sight.client,
            "yes" if sight.served else "**no**",
            f"{'yes' if sight.passed else 'no'} ({before} → {after})",
            _host(sight, sight.peer),
            _host(sight, sight.header) if row.announces else "not asked for",
            rules,
        ]


def _host(sight: Sight, host: str | None) -> str:
    if host is None:
        return "none" if sight.served else ""
    return f"the {host}'s address"


def svg() -> str:
    """The committed measurements as a picture."""
    return drawing(ordered(facts.read(facts.COMMITTED)))


def main() -> int:
    rows = facts.read(facts.MEASURED)
    try:
        facts.write(facts.COMMITTED, ordered(rows))
    except KeyError as error:
        print(f"{facts.MEASURED}: no measurement of {error}; expected all four rows; run: sudo make test-packets")
        return 1
    SVG.write_text(svg(), encoding="utf-8")
    print("drawn; now: python -m tests.docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
