"""The commands of the pages, typed by a reader who has what the page says he has."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demo.scene import Scene
from tests.docs import pages
from tests.docs.conftest import Reader, install
from tests.harness.stack import Stack

pytestmark = pytest.mark.timeout(400)


async def test_the_first_steps(stack: Stack, reader: Reader, checkout: Path, admin: Path) -> None:
    demo = checkout / "build" / "demo"
    demo.mkdir(parents=True)
    shutil.copy(admin, demo / "kubeconfig")
    scene = Scene(stack)
    async with stack.controller() as controller:
        await controller.start_ready()
        async with scene.going_on():
            await scene.set_up()
            await until(scene.complete)
            await reader.follow(
                "docs/tutorial.md", checkout, FAKECLOUD_URL=stack.cloud.url, FAKECLOUD_TOKEN=stack.cloud.token
            )


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


@pytest.mark.parametrize(
    "page", ["README.md", "docs/reference/backends.md", "docs/reference/fakecloud-api.md", "docs/howto/fakecloud.md"]
)
async def test_a_page_that_needs_no_cluster(page: str, reader: Reader, empty_folder: Path) -> None:
    await reader.follow(page, empty_folder)


async def test_the_annotations(stack: Stack, reader: Reader, empty_folder: Path) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await reader.follow("docs/reference/annotations.md", empty_folder)


# tests/integration/test_dataplane_docs.py runs this page: what it shows is not all for the API server.
RUN_ELSEWHERE = {"docs/service-proxies.md"}


async def test_objects_that_pages_show_are_taken_by_the_api_server(kubectl: Path, admin: Path) -> None:
    names = [name for name in pages.names() if name not in RUN_ELSEWHERE]
    objects = [block for name in names for block in pages.read(name).blocks_of("yaml") if block.file is None]
    assert objects
    for block in objects:
        apply = await asyncio.create_subprocess_exec(
            *(str(kubectl), f"--kubeconfig={admin}", "apply", "--dry-run=server", "--filename=-"),
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        _, complaint = await apply.communicate(block.text.encode())
        assert apply.returncode == 0, f"{block}: {complaint.decode()}"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not holds():
            await asyncio.sleep(0.1)
