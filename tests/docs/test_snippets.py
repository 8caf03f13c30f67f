"""The commands of the pages, typed by a reader who has what the page says he has."""

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controlplane.server import free_ports
from tests.demo.scene import Scene
from tests.docs import pages
from tests.docs.conftest import Reader, install
from tests.harness import deployed, objects, traffic
from tests.harness.stack import Stack, answer, apply_upstream_access

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


async def test_fakecloud_in_tests(reader: Reader, checkout: Path) -> None:
    await reader.follow("docs/howto/fakecloud-in-tests.md", checkout)


async def test_a_backend_of_your_own(reader: Reader, empty_folder: Path) -> None:
    name = "docs/howto/write-a-backend.md"
    (pyproject,) = pages.read(name).blocks_of("toml")
    install(pyproject.text, empty_folder)
    await reader.follow(name, empty_folder, PYTHONPATH=str(empty_folder))


async def test_operating_the_controller(stack: Stack, reader: Reader, checkout: Path) -> None:
    async with stack.controller() as controller:  # in place of the pod that the page's Deployment asks for
        await controller.start_ready()
        url, config = f"http://127.0.0.1:{controller.port}", str(stack.cloud.config())
        await reader.follow("docs/howto/operate.md", checkout, CONTROLLER_URL=url, CLOUD_CONFIG=config)


async def test_moving_from_the_go_controller_and_back(
    stack: Stack, reader: Reader, peer: Path, checkout: Path, tmp_path: Path
) -> None:
    names = [f"s{number}" for number in range(20)]
    for node in ("n1", "n2"):
        await stack.add_node(node)
    await apply_upstream_access(stack.kube)
    kubeconfig = await stack.plane.service_account_kubeconfig("kube-system", "cloud-controller-manager")
    args = ["--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}", "--cluster-name=kubernetes"]
    args += ["--controllers=service-lb-controller", "--use-service-account-credentials=false", "--v=2"]
    args += ["--concurrent-service-syncs=5", "--authentication-skip-lookup", "--bind-address=127.0.0.1"]
    args += ["--configure-cloud-routes=false"]
    # What a pod has of its own: an address, so that two processes have the same port, an account and a disk.
    environment = ["/usr/bin/env", "CCM_LB_PORT=0", "CCM_LB_ALLOW_ADDRESSES=loopback"]
    programs = {
        "/cloud-controller-manager": [str(peer), f"--secure-port={free_ports(1)[0]}", f"--cert-dir={tmp_path}"],
        "ccm-lb": [*environment, sys.executable, "-m", "ccm_lb"],
    }
    more = [f"--kubeconfig={kubeconfig}"]
    container = {"name": "ccm", "image": "registry.example.com/ccm:1.37.2", "command": ["/cloud-controller-manager"]}
    await stack.kube.create(deployed.DEPLOYMENTS, _deployment({**container, "args": args}), "kube-system")
    async with deployed.running(stack.kube, "cloud-controller-manager", programs, tmp_path, more) as processes:
        await asyncio.gather(*(stack.create(objects.service(name)) for name in names))
        services = [await stack.wait_served(name) for name in names]
        await asyncio.gather(*(stack.serve(service, "n1", "n2") for service in services))
        await asyncio.gather(*(answer(service) for service in services))
        served = [(objects.ingress(one)[0]["ip"], one["spec"]["ports"][0]["port"]) for one in services]
        balancers = sorted(one["id"] for one in await stack.cloud.load_balancers())
        async with traffic.going_on(served) as connections:
            await reader.follow("docs/howto/migrate.md", checkout)
        assert sorted(one["id"] for one in await stack.cloud.load_balancers()) == balancers
        assert [one.name for one in processes] == ["/cloud-controller-manager", "ccm-lb", "/cloud-controller-manager"]
    calls = await stack.cloud.journal()
    assert not [one for one in calls if one["method"] == "DELETE"]
    assert len([one for one in calls if one["method"] == "POST" and one["path"] == "/v1/load-balancers"]) == len(names)
    assert connections.failures == []
    assert connections.answered > 20 * len(names)
    await stack.kube.delete(deployed.DEPLOYMENTS, "cloud-controller-manager", "kube-system")


def _deployment(container: dict[str, object]) -> dict[str, object]:
    labels = {"app": "cloud-controller-manager"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "cloud-controller-manager"},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }


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
