"""The commands of the pages, typed by a reader who has what the page says he has."""

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.conftest import Reader, install
from tests.harness.stack import Stack

pytestmark = pytest.mark.timeout(120)


async def test_fakecloud_in_a_pipeline(reader: Reader, checkout: Path) -> None:
    await reader.follow("docs/howto/ci.md", checkout)


async def test_a_backend_of_your_own(reader: Reader, empty_folder: Path) -> None:
    name = "docs/howto/write-a-backend.md"
    (pyproject,) = pages.read(name).blocks_of("toml")
    install(pyproject.text, empty_folder)
    await reader.follow(name, empty_folder, PYTHONPATH=str(empty_folder))


async def test_operating_the_controller(stack: Stack, reader: Reader, checkout: Path) -> None:
    async with stack.controller() as controller:  # in place of the pod that the page's Deployment asks for
        await controller.start_ready()
        await reader.follow("docs/howto/operate.md", checkout, CCM_LB_URL=f"http://127.0.0.1:{controller.port}")
