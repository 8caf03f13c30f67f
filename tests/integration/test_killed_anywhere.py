"""
Killed at every request: whatever the controller was about to send, or had sent without learning of the answer, the next start
goes on from there, and nothing is doubled or left behind.
"""

import asyncio
from collections.abc import Awaitable

import pytest

from tests.faultproxy.proxy import FaultProxy
from tests.harness import objects
from tests.harness.cloud import targets
from tests.harness.killing import Killer, Write, revived, write_of
from tests.harness.stack import FINALIZER, Stack

MOST = 60  # more requests than a Service's life takes; reached only if something never ends


async def live(stack: Stack, name: str) -> None:
    """Make a Service, change its nodes, delete it; after each step everything is exactly as it should be."""
    uid = (await stack.create(objects.service(name)))["metadata"]["uid"]
    service = await stack.wait_served(name)
    (load_balancer,) = await stack.cloud.load_balancers()
    assert load_balancer["owner"]["uid"] == uid
    assert objects.ingress(service) == [{"ip": load_balancer["addresses"][0]["address"], "ipMode": "Proxy"}]
    assert service["metadata"]["finalizers"] == [FINALIZER]

    await stack.add_node("n2")
    await stack.wait_balanced(uid, lambda lb: targets(lb) == stack.servers("n1", "n2"))
    await stack.remove_node("n2")
    await stack.wait_balanced(uid, lambda lb: targets(lb) == stack.servers("n1"))
    assert [one["id"] for one in await stack.cloud.load_balancers()] == [load_balancer["id"]]

    await stack.delete(name)
    await stack.wait_gone(name)
    await stack.wait_unbalanced()


async def writes_of(life: Awaitable[None], stack: Stack) -> set[Write]:
    """What a life makes the controller write, by the servers' own records."""
    position, journal = stack.plane.audit_position(), len(await stack.cloud.journal())
    await life
    verbs = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
    found = {
        write_of(verbs[event["verb"]], event["requestURI"].partition("?")[0])
        for event in stack.plane.audit_events(position)
        if event["verb"] in verbs and event["user"]["username"] == "system:serviceaccount:kube-system:ccm-lb"
    }
    calls = (await stack.cloud.journal())[journal:]
    return found | {write_of(call["method"], call["path"]) for call in calls if call["method"] != "GET"}


SIDES = pytest.mark.parametrize(
    "applied", [False, True], ids=["before the request arrives", "before its answer arrives"]
)


@pytest.mark.timeout(1800)
@SIDES
async def test_killed_at_any_request_it_repairs_everything(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, *, applied: bool
) -> None:
    await stack.add_node("n1")
    # Alone, it need not wait for its own last Lease to expire; the Lease has tests of its own.
    flags = ("--leader-elect=false", "--node-sync-debounce=0")
    async with stack.controller(*flags, kubeconfig=stack.through(api_proxy), cloud_url=cloud_proxy.url) as controller:
        await controller.start_ready()
        all_writes = await writes_of(live(stack, "unkilled"), stack)
        killer = Killer(controller, applied=applied)
        killer.watch_over(api_proxy)
        killer.watch_over(cloud_proxy)
        killed_at: set[Write] = set()
        async with revived(controller):
            for nth in range(1, MOST):
                await controller.wait_ready(revived=True)
                killer.arm(nth)
                await live(stack, f"life-{nth}")
                exchange = killer.disarm()
                if exchange is None:
                    break
                killed_at.add(write_of(exchange.request.method, exchange.request.path))
            assert nth < MOST - 1, "no life ended without a kill"
            # Events are written beside the work, so the n-th request is not the same one in each life: what was missed is aimed at.
            for number, write in enumerate(sorted(all_writes - killed_at)):
                await controller.wait_ready(revived=True)
                killer.arm(write=write)
                await live(stack, f"aimed-{number}")
                if killer.disarm() is not None:
                    killed_at.add(write)
        assert len(all_writes) >= 6, f"a life writes more than {all_writes}"
        assert all_writes <= killed_at, f"never killed at {all_writes - killed_at}"


@pytest.mark.timeout(1200)
@SIDES
async def test_a_service_deleted_while_its_killed_controller_is_away_leaves_nothing_in_the_cloud(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, *, applied: bool
) -> None:
    await stack.add_node("n1")
    kubeconfig = stack.through(api_proxy)
    async with stack.controller("--leader-elect=false", kubeconfig=kubeconfig, cloud_url=cloud_proxy.url) as controller:
        killer = Killer(controller, applied=applied)
        killer.watch_over(api_proxy)
        killer.watch_over(cloud_proxy)
        for nth in range(1, MOST):
            await controller.start_ready()
            name = f"made-{nth}"
            killer.arm(nth)
            await stack.create(objects.service(name))
            await stack.wait(name, lambda service: killer.at() is not None or objects.ingress(service))
            if killer.disarm() is None:
                break
            while controller.pid is not None:
                await asyncio.sleep(0.01)
            await stack.delete(name)
            await controller.start_ready()
            await stack.wait_gone(name)
            await stack.wait_unbalanced()
            await controller.terminate()
        assert nth >= 5, "making a load balancer takes more requests than that"
