"""
A node that the cluster autoscaler takes away, with the genuine kube-proxy: who asks it drains the node, who does not takes it out.

`python -m tests.bench.scaledown` measures more ways than these; docs/decisions.md has its figures.
"""

from pathlib import Path

import pytest

from tests.packets import scaledown
from tests.packets.lab import Lab
from tests.packets.topology import NODES

once = pytest.mark.parametrize("lab", ["nftables"], indirect=True)
CUTS = 0.05  # seconds after which this cloud ends what passes a target that was removed


@once
async def test_where_the_cloud_asks_kube_proxy_connections_go_on_until_the_machine_ends(
    lab: Lab, kubeconfig: Path, tmp_path: Path
) -> None:
    async with (
        scaledown.draining_controller(lab, kubeconfig, tmp_path),
        lab.service("Proxy", pods=("server2",), loadBalancerClass=scaledown.CLASS) as served,
    ):
        check = (await served.balancer())["healthCheck"]
        assert {name: check[name] for name in scaledown.KUBE_PROXY} == scaledown.KUBE_PROXY
        await scaledown.ready(served, drain_seconds=CUTS)
        outcome = await scaledown.scaled_down(served, label=False, leaving=12.0, gone=4.0)
        assert outcome.through > 0
        assert (outcome.cut, outcome.late, outcome.failed) == (0, 0, 0), outcome
        assert outcome.left_after is not None, "new connections leave it all the same"


@once
async def test_another_change_does_not_take_the_node_out_either(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    async with (
        scaledown.draining_controller(lab, kubeconfig, tmp_path),
        lab.service("Proxy", loadBalancerClass=scaledown.CLASS) as served,
        scaledown.tainted(lab),
    ):
        await served.patch({"spec": {"sessionAffinity": "ClientIP"}})
        balancer = await served.wait_balancer(lambda one: one["sessionAffinity"] is not None)
        assert targets(balancer) == set(NODES)


@once
async def test_where_node_ports_are_asked_the_node_is_taken_out_at_once(lab: Lab) -> None:
    async with lab.service("Proxy") as served:
        await scaledown.ready(served, drain_seconds=None)
        async with scaledown.tainted(lab):
            await served.wait_balancer(lambda one: targets(one) == set(NODES) - {scaledown.GOING})
        await served.wait_balancer(lambda one: targets(one) == set(NODES))


@once
async def test_with_policy_local_kube_proxy_is_asked_without_a_setting(lab: Lab) -> None:
    async with lab.service("Proxy", externalTrafficPolicy="Local") as local, lab.service("Proxy") as cluster:
        await scaledown.ready(local, drain_seconds=None)
        async with scaledown.tainted(lab):
            # The other Service says that the taint has been seen.
            await cluster.wait_balancer(lambda one: targets(one) == set(NODES) - {scaledown.GOING})
            assert targets(await local.balancer()) == set(NODES)


def targets(balancer: dict[str, list[dict[str, object]]]) -> set[object]:
    return {one["server"] for one in balancer["targets"]}
