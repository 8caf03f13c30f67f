"""The picture: a panel for each row, with the way that each client's connection took."""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.packets.facts import Row, Sight

_WIDTH: Final = 1000
_HEIGHT: Final = 596
_PANEL: Final = (476, 250)
_TOPS: Final = {"outside": 64, "node": 100, "pod": 136}
_LANES: Final = {"outside": 190, "node": 190, "pod": 213}  # the ways around the load balancer, below it
_OUTS: Final = {"outside": 138, "node": 138, "pod": 122}
_ENDS: Final = {"outside": 400, "node": 400, "pod": 428}
_HEADINGS: Final = {
    "balancer": "The cloud connects to a node port",
    "router": "The cloud keeps the destination address and routes to a node",
}
_STYLE: Final = """
    .paper { fill: #ffffff; stroke: #c9d1d9 } .zone { fill: #f3f6f9; stroke: #8c98a4 } .box { fill: #ffffff; stroke: #57606a }
    .cloud { fill: #e8f1fb; stroke: #2f6fb3 } .way { fill: none; stroke: #1a7f37; stroke-width: 2.4; marker-end: url(#wayhead) }
    .bypass { fill: none; stroke: #b35900; stroke-width: 2.4; stroke-dasharray: 7 4; marker-end: url(#bypasshead) }
    .lost { fill: none; stroke: #c5221f; stroke-width: 2.4 } .wayhead { fill: #1a7f37 } .bypasshead { fill: #b35900 }
    text { fill: #1f2328 } .name { font-weight: 600 } .note { font-size: 13px; fill: #57606a }
    .good { fill: #1a7f37 } .odd { fill: #b35900 } .bad { fill: #c5221f } .small { font-size: 12px }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #3d444d } .zone { fill: #161b22; stroke: #6e7681 } .box { fill: #0d1117; stroke: #9198a1 }
      .cloud { fill: #10233a; stroke: #6cb0f5 } .way { stroke: #3fb950 } .wayhead { fill: #3fb950 } .bypass { stroke: #f0883e }
      .bypasshead { fill: #f0883e } .lost { stroke: #ff7b72 } text { fill: #e6edf3 } .note { fill: #9198a1 }
      .good { fill: #3fb950 } .odd { fill: #f0883e } .bad { fill: #ff7b72 }
    }
  """
_MARKERS: Final = "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse"'
    f' orient="auto"><path class="{name}" d="M0 0 8 4 0 8z"/></marker>'
    for name in ("wayhead", "bypasshead")
)


def verdict(row: Row) -> tuple[str, str]:
    """What the row shows, in a line, and how good that is: good, odd or bad."""
    unserved = [one.client for one in row.sights if not one.served]
    around = [one.client for one in row.sights if one.served and not one.passed]
    bare = [one.client for one in row.sights if row.announces and one.served and one.header is None]
    if unserved:
        return f"{_and(unserved)}: not served", "bad"
    if bare:
        return f"{_and(bare)} go around the load balancer: no PROXY header", "bad"
    if around:
        return f"{_and(around)} take the short cut, all are served", "good"
    return "all pass the load balancer", "good"


def drawing(rows: Sequence[Row]) -> str:
    """An SVG document of four rows."""
    spoken = " ".join(f"{_HEADINGS[row.cloud]}, ipMode {row.ip_mode}: {verdict(row)[0]}." for row in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="title desc"',
        "     font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" font-size=\"15\">",
        '  <title id="title">What VIP and Proxy do</title>',
        f'  <desc id="desc">{spoken}</desc>',
        f"  <style>{_STYLE}</style>",
        f"  <defs>{_MARKERS}</defs>",
        f'  <rect class="paper" x="1" y="1" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" rx="10"/>',
    ]
    for number, row in enumerate(rows):
        x, y = 16 + number % 2 * (_PANEL[0] + 16), 40 + number // 2 * (_PANEL[1] + 40)
        if number % 2 == 0:
            lines.append(f'  <text class="name" x="{x}" y="{y - 12}">{_HEADINGS[row.cloud]}</text>')
        lines += [f'  <g transform="translate({x} {y})">', *(f"    {line}" for line in _panel(row)), "  </g>"]
    return "\n".join([*lines, "</svg>", ""])


def _panel(row: Row) -> Iterator[str]:
    said, kind = verdict(row)
    yield f'<rect class="zone" x="0" y="0" width="{_PANEL[0]}" height="{_PANEL[1]}" rx="8"/>'
    yield f'<text class="name" x="16" y="26">ipMode: {row.ip_mode}</text>'
    yield f'<text class="small {kind}" x="16" y="46">{said}</text>'
    yield _box("cloud", 176, 60, 104, 108)
    yield '<text x="228" y="110" text-anchor="middle">load</text><text x="228" y="128" text-anchor="middle">balancer</text>'
    yield _box("box", 380, 60, 80, 108)
    yield '<text x="420" y="119" text-anchor="middle">server</text>'
    for sight in row.sights:
        top = _TOPS[sight.client]
        yield _box("box", 16, top, 84, 28)
        yield f'<text x="58" y="{top + 19}" text-anchor="middle">{sight.client}</text>'
        yield from _way(sight, top + 14, told=_told(row, sight))
    rules = "knows" if any(row.rules.values()) else "has no rule for"
    yield f'<text class="note" x="16" y="{_PANEL[1] - 10}">kube-proxy {rules} the address</text>'


def _way(sight: Sight, y: int, told: str) -> Iterator[str]:
    if not sight.served:
        x = 322 if sight.passed else 138
        start = f"M100 {y}H174M280 {y}H{x - 6}" if sight.passed else f"M100 {y}H{x - 6}"
        yield f'<path class="lost" d="{start}M{x - 6} {y - 6}l12 12m0 -12l-12 12"/>'
    elif sight.passed:
        yield f'<path class="way" d="M100 {y}H174"/><path class="way" d="M280 {y}H378"/>'
        yield f'<text class="small" x="328" y="{y - 5}" text-anchor="middle">{told}</text>'
    else:
        lane, end, out = _LANES[sight.client], _ENDS[sight.client], _OUTS[sight.client]
        yield f'<path class="bypass" d="M100 {y}H{out}V{lane}H{end}V170"/>'
        yield f'<text class="small" x="{out + 14}" y="{lane - 5}">{told}</text>'


def _told(row: Row, sight: Sight) -> str:
    """What the server learns of the client."""
    if sight.header is not None:
        return f"header: {sight.header}"
    return f"from: {sight.peer}" + (", no header" if row.announces else "")


def _box(kind: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
