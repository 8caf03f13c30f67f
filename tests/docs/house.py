"""The picture of the folders, drawn from the contracts that hold them: docs/pictures/house.svg."""

import configparser
from collections.abc import Sequence
from html import escape

from tests.docs.pages import ROOT

PICTURE = ROOT / "docs" / "pictures" / "house.svg"
CONTRACTS = {"ccm_lb": "importlinter:contract:controller", "fakecloud": "importlinter:contract:fakecloud"}

_ROW, _GAP, _TOP, _LEFT, _WIDE, _BETWEEN = 34, 8, 84, 24, 420, 112
_STYLE = """
    .paper { fill: #ffffff; stroke: #c9d1d9 } .floor { fill: #f3f6f9; stroke: #8c98a4 } .cloud { fill: #e8f1fb; stroke: #2f6fb3 }
    .arrow { stroke: #57606a; stroke-width: 1.8 } .head { fill: #57606a } .seam { stroke: #b35900; stroke-width: 2; stroke-dasharray: 5 4 }
    text { fill: #1f2328 } .name { font-weight: 600 } .note { font-size: 13px; fill: #57606a } .orange { fill: #b35900; font-size: 13px }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #3d444d } .floor { fill: #161b22; stroke: #6e7681 } .cloud { fill: #10233a; stroke: #6cb0f5 }
      .arrow { stroke: #9198a1 } .head { fill: #9198a1 } .seam { stroke: #f0883e } .orange { fill: #f0883e }
      text { fill: #e6edf3 } .note { fill: #9198a1 }
    }
"""


def floors(package: str) -> list[list[str]]:
    """From the top down; what stands on one floor does not import each other."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts[CONTRACTS[package]]["layers"].split("\n")
    return [[name.strip() for name in layer.split("|")] for layer in layers if layer.strip()]


def is_folder(package: str, name: str) -> bool:
    return (ROOT / package / name).is_dir()


def drawn() -> str:
    """The whole picture."""
    left, right = floors("ccm_lb"), floors("fakecloud")
    height = _TOP + max(len(left), len(right)) * (_ROW + _GAP) + 28
    width = 2 * (_LEFT + _WIDE) + _BETWEEN
    second = _LEFT + _WIDE + _BETWEEN
    middle = _LEFT + _WIDE + _BETWEEN / 2
    described = "; ".join(f"{package}: {_said(rows)}" for package, rows in (("ccm_lb", left), ("fakecloud", right)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc"',
        "     font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif\" font-size=\"15\">",
        '  <title id="title">The folders of ccm_lb and fakecloud, each above those that it may import</title>',
        f'  <desc id="desc">Two columns, from the top down. {escape(described)}. The two share no code: HTTP is between them.</desc>',
        f"  <style>{_STYLE}  </style>",
        f'  <rect class="paper" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10"/>',
        *_column("ccm_lb", "the controller", left, _LEFT, "floor"),
        *_column("fakecloud", "the cloud", right, second, "cloud"),
        f'  <path class="seam" d="M{middle} 58V{height - 40}"/>',
        f'  <text class="orange" x="{middle}" y="44" text-anchor="middle">HTTP</text>',
        f'  <text class="note" x="{middle}" y="{height - 18}" text-anchor="middle">imports go down only</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def write() -> None:
    PICTURE.write_text(drawn(), encoding="utf-8")


def _column(package: str, what: str, rows: Sequence[Sequence[str]], x: float, style: str) -> list[str]:
    parts = [
        f'  <text class="name" x="{x}" y="44">{package}</text>',
        f'  <text class="note" x="{x + _WIDE}" y="44" text-anchor="end">{what}</text>',
    ]
    for number, row in enumerate(rows):
        y = _TOP - 20 + number * (_ROW + _GAP)
        wide = (_WIDE - (len(row) - 1) * _GAP) / len(row)
        for place, name in enumerate(row):
            start = x + place * (wide + _GAP)
            shown = f"{name}/" if is_folder(package, name) else f"{name}.py"
            parts += [
                f'  <rect class="{style}" x="{start:g}" y="{y}" width="{wide:g}" height="{_ROW}" rx="6"/>',
                f'  <text x="{start + wide / 2:g}" y="{y + 22}" text-anchor="middle">{shown}</text>',
            ]
    return parts


def _said(rows: Sequence[Sequence[str]]) -> str:
    return ", ".join(" and ".join(row) for row in rows)
