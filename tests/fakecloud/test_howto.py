"""docs/howto/fakecloud.md, typed by a newcomer into a shell."""

import os
import sys
from pathlib import Path

import pytest

from tests.docs import pages, script


@pytest.mark.timeout(120)
async def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    await script.play(pages.read("docs/howto/fakecloud.md"), tmp_path, {**os.environ, "PATH": path}, 100)
