"""The form of the pages: every block is known, every link leads somewhere, every table from the code is the code's."""

import importlib
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.docs import pages, reference

# Blocks that are shown and not run, by page and first line, and what is done about them instead.
SHOWN: dict[tuple[str, str], str] = {
    ("README.md", "make demo"): "make test-demo runs it",
    ("README.md", "make test"): "it is what runs this",
    ("CONTRIBUTING.md", "make setup"): "what runs this has done it",
    ("CONTRIBUTING.md", "make lint test-unit"): "it is part of what runs this",
    ("docs/tutorial.md", "make demo"): "the test plays the demo's scene on its own API server",
    ("docs/tutorial.md", "┏"): "what a terminal shows",
    ("docs/tutorial.md", "export FAKECLOUD_URL="): "the values are the demo's; the test sets them",
    ("docs/howto/operate.md", "docker build "): "needs Docker",
    ("docs/howto/operate.md", "AGE "): "the page has no orphan; tests/integration/test_orphans.py makes some",
    ("docs/howto/operate.md", "helm install "): "tests/manifests installs the chart",
    ("docs/howto/operate.md", "kubectl -n kube-system rollout status "): "needs a kubelet",
    ("docs/howto/operate.md", "kubectl -n kube-system port-forward "): "needs a kubelet; the test sets the variable",
    ("docs/howto/upgrade.md", "kubectl apply "): "tests/cluster applies the overlay, and rolls it out again",
    ("docs/howto/upgrade.md", "helm upgrade "): "tests/cluster upgrades the chart",
    ("docs/howto/upgrade.md", "cluster: rolling restart"): "what tests/cluster prints",
    ("docs/reference/e2e.md", "make test-e2e"): "takes ten minutes, on demand",
    (
        "docs/howto/write-a-backend.md",
        "pip install ",
    ): "needs a registry; the test makes the entry point from pyproject.toml",
}
RUN = {"sh", "console"}  # by script.play
FILES = {"python", "yaml", "toml"}  # written to the file that they name, and used from there
SNIPPETS = Path(__file__).with_name("test_snippets.py")

every_page = pytest.mark.parametrize("name", pages.names())


def shown(block: pages.Block) -> list[tuple[str, str]]:
    return [key for key in SHOWN if key[0] == block.page and block.text.startswith(key[1])]


@every_page
def test_every_block_is_run_checked_or_listed_with_its_reason(name: str) -> None:
    page = pages.read(name)
    for block in page.blocks:
        if block.language == "text":
            assert shown(block), f"{block}: a text block is not run; give its reason in SHOWN"
        elif block.language in FILES:
            uses = [one for one in page.blocks if one.language == "sh" and _mentions(block, one)]
            assert uses or (block.file is None and block.language == "yaml"), f"{block}: no sh block uses this file"
        else:
            assert block.language in RUN, f"{block}: {block.language!r}: expected one of {sorted(RUN | FILES)} or text"
    if page.blocks_of("sh"):
        assert f'"{name}"' in SNIPPETS.read_text(), f"{name}: nothing runs its commands; add it to test_snippets.py"


def _mentions(block: pages.Block, user: pages.Block) -> bool:
    """By its name, by its folder (kubectl -k), or as a module that a test or an entry point imports."""
    if block.file is None:
        return False
    path = Path(block.file)
    known_to_tools = path.name in ("conftest.py", "pyproject.toml") or path.stem in user.text
    return block.file in user.text or (len(path.parts) > 1 and str(path.parent) in user.text) or known_to_tools


def test_every_reason_belongs_to_a_block() -> None:
    used = {key for name in pages.names() for block in pages.read(name).blocks_of("text") for key in shown(block)}
    assert used == set(SHOWN)


@every_page
def test_links_lead_to_files_and_headings_that_exist(name: str) -> None:
    page = pages.read(name)
    for line, target in page.links:
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (pages.ROOT / name).parent / path if path else pages.ROOT / name
        assert file.exists(), f"{name}:{line}: {target}: there is no such file"
        if anchor:
            assert anchor in pages.read(str(file.resolve().relative_to(pages.ROOT))).anchors, (
                f"{name}:{line}: no heading {anchor}"
            )


@every_page
def test_targets_of_make_exist(name: str) -> None:
    makefile = (pages.ROOT / "Makefile").read_text()
    text = (pages.ROOT / name).read_text()
    for target in set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{name}: make {target}: no such target"


@pytest.mark.parametrize("name", reference.TABLES)
def test_tables_made_from_the_code_are_up_to_date(name: str) -> None:
    assert (pages.ROOT / name).read_text() == reference.renewed(name), "run: python -m tests.docs"


def test_everything_that_provider_authors_may_import_says_what_it_is() -> None:
    silent = [
        f"{module}.{name}"
        for module in reference.PUBLIC
        for name in importlib.import_module(module).__all__
        if reference.kind(thing := getattr(importlib.import_module(module), name)) != "value"
        and not reference.promise(thing)
    ]
    assert silent == []


def test_the_table_of_metrics_knows_the_labels_of_every_metric() -> None:
    assert [family.name for family in reference.families() if not family.samples] == []


@pytest.mark.parametrize("picture", sorted((pages.ROOT / "docs").rglob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_described_and_adapt_to_dark_pages(picture: Path) -> None:
    text = picture.read_text()
    root = ET.fromstring(text)  # noqa: S314 - our own file
    svg = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{svg}title") is not None
    assert root.find(f"{svg}desc") is not None
    assert "prefers-color-scheme: dark" in text
