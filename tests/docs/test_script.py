"""The player of pages sees what is wrong with a page."""

from pathlib import Path

import pytest

from tests.docs import pages, script


async def play(text: str, folder: Path, timeout: float = 50.0) -> None:
    await script.play(pages.parse("page.md", text), folder, script.environment(folder, []), timeout)


def page(*blocks: tuple[str, str]) -> str:
    return "\n".join(f"```{info}\n{text}\n```\n" for info, text in blocks)


async def test_variables_files_and_jobs_live_from_block_to_block(tmp_path: Path) -> None:
    await play(
        page(
            ("sh", "a=1; sleep 60 &"),
            ("yaml b.yaml", "b: 2"),
            ("sh", "echo $a; cat b.yaml; kill %1"),
            ("console", "1\nb: 2"),
        ),
        tmp_path,
    )


async def test_a_failing_command_is_named_by_its_block(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:5 failed(.|\n)*no-such-command"):
        await play(page(("sh", "true"), ("sh", "no-such-command"), ("sh", "true")), tmp_path)


async def test_an_undefined_variable_and_a_failure_inside_a_pipe_are_failures(tmp_path: Path) -> None:
    for text in ("echo $nothing", "false | cat"):
        with pytest.raises(AssertionError, match=r"page\.md:1 failed"):
            await play(page(("sh", text)), tmp_path)


async def test_a_command_that_hangs_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"stopped after 0\.3 s"):
        await play(page(("sh", "sleep 60")), tmp_path, timeout=0.3)


@pytest.mark.parametrize("expected", ["two\none", "three", "on", "one two"])
async def test_output_that_differs_is_seen(tmp_path: Path, expected: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:5: no line"):
        await play(page(("sh", "echo one; echo two"), ("console", expected)), tmp_path)


@pytest.mark.parametrize("expected", ["one\ntwo", "two", "o...\n...o", "one  \n\n two"])
async def test_blanks_and_lines_in_between_and_dots_do_not_matter(tmp_path: Path, expected: str) -> None:
    await play(page(("sh", "echo one; echo; echo '   two'"), ("console", expected)), tmp_path)


async def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("old")
    with pytest.raises(AssertionError, match="precious"):
        await play(page(("sh", "true"), ("yaml precious", "new: 1"), ("sh", "true")), tmp_path)
    assert (tmp_path / "precious").read_text() == "old"


def test_headings_have_github_s_anchors() -> None:
    found = pages.parse("page.md", "# A b\n\n## `ccm-lb.dev/ip-mode`\n\n## What, when?\n\n# A b\n").anchors
    assert found == {"a-b", "ccm-lbdevip-mode", "what-when", "a-b-1"}


def test_what_stands_in_blocks_is_neither_heading_nor_link() -> None:
    found = pages.parse("page.md", "```sh\n# no\n[no](nowhere)\n```\n[yes,\nit is](there)\n")
    assert (found.anchors, found.links) == (frozenset(), ((6, "there"),))


def test_a_block_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"page\.md:1: this block is never closed"):
        pages.parse("page.md", "```sh\ntrue\n")
