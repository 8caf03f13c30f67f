"""Every test that the threat model relies on exists."""

import re

import pytest

from tests.docs import pages

ROWS = pages.table(pages.read("docs/threat-model.md").prose, "What they can try")


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_what_stops_somebody_has_its_test(row: list[str]) -> None:
    path, _, name = row[-1].strip("`").partition("::")
    text = (pages.ROOT / path).read_text()
    assert re.search(rf"^(async )?def {name}\(" if name else "def test_", text, re.MULTILINE), row[-1]
