"""The map is the territory: what it names exists, what exists is named, and its picture is drawn from the contracts."""

import re

import pytest

from tests.docs import house
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_and_folder_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:ccm_lb|fakecloud|tests)/[\w./]*)`", PAGE))
    assert len(named) > 40
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("package", house.CONTRACTS)
def test_every_folder_and_file_at_the_top_has_a_line(package: str) -> None:
    table = PAGE.partition(f"| `{package}/` |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([\w.]+)/?`", table))
    there = {one for row in house.floors(package) for one in row if not one.startswith("__")}
    assert {name.removesuffix(".py") for name in named} >= there


def test_the_picture_is_drawn_from_the_contracts() -> None:
    assert house.PICTURE.read_text(encoding="utf-8") == house.drawn(), "run: python -m tests.docs"
