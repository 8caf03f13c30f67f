"""
A page's blocks, played by bash as its reader would.

All `sh` blocks of a page run in one shell and one folder, in their order, so that variables and background jobs live on. A block with
a file name is written to that file at its place. A `console` block is what the `sh` block before it prints: line by line in this order,
other lines may stand between, and `...` stands for anything.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.docs.pages import Block, Page

_MARK = "\x1e"  # no program prints it


async def play(page: Page, folder: Path, environment: Mapping[str, str], timeout: float) -> None:
    """Run the page; AssertionError names the block that failed or printed something else."""
    output = await _run(_script(page), folder, environment, timeout)
    printed: dict[int, str] = {}
    for part in output.split(_MARK)[1:]:
        line, _, text = part.partition("\n")
        printed[int(line)] = text
    ended = printed.pop(0, None)
    assert ended is not None, f"{page.name}:{max(printed, default=0)} failed:\n{output.replace(_MARK, '--- line ')}"
    before: Block | None = None
    for block in page.blocks:
        if block.language == "console":
            assert before is not None, f"{block}: no sh block before it"
            compare(block, printed[before.line])
        elif block.language == "sh":
            before = block


def compare(expected: Block, printed: str) -> None:
    """AssertionError unless each expected line is among the printed ones, in this order."""
    lines = iter(_squeezed(printed))
    for wanted in _squeezed(expected.text):
        pattern = re.compile(".*".join(re.escape(part) for part in wanted.split("...")))
        assert any(pattern.fullmatch(line) for line in lines), f"{expected}: no line {wanted!r} in:\n{printed}"


def _squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _script(page: Page) -> str:
    parts = ["set -euo pipefail", "exec 2>&1"]
    for block in page.blocks:
        if block.language == "sh":
            parts += [f"printf '\\n{_MARK}{block.line}\\n'", block.text]
        elif block.file is not None:
            # noclobber: a file of the page's own, never one that is there already.
            parts += [
                f"set -C; cat > {block.file} <<'END-OF-{block.line}'",
                block.text + f"END-OF-{block.line}",
                "set +C",
            ]
    return "\n".join([*parts, f"printf '\\n{_MARK}0\\n'", ""])


async def _run(script: str, folder: Path, environment: Mapping[str, str], timeout: float) -> str:
    """What the script printed, also when it failed or was cut off; whatever it left running is killed."""
    path = folder / ".script.sh"
    path.write_text(script)
    with (folder / ".output").open("w+b") as output:
        # A file and not a pipe: jobs that the page leaves running would hold a pipe open.
        bash = await asyncio.create_subprocess_exec(
            *("bash", str(path)), cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(timeout):
                await bash.wait()
        except TimeoutError:
            output.seek(0, os.SEEK_END)
            output.write(f"\nstopped after {timeout:g} s\n".encode())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)
            await bash.wait()
        output.seek(0)
        return output.read().decode(errors="replace")


def environment(folder: Path, tools: Sequence[Path], **variables: str) -> dict[str, str]:
    """What a page's shell sees: `tools` in PATH, a home of its own, no proxy before loopback; nothing else of ours but the locale."""
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "TMPDIR")}
    path = ":".join([*map(str, tools), os.environ["PATH"]])
    return {**kept, "PATH": path, "HOME": str(folder), **variables}
