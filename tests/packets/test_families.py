"""A family that a Service gets or loses while it is in use is no affair of its other address."""

import pytest

from tests.harness import objects
from tests.packets import cluster
from tests.packets.clients import Held, Stream, ask, unserved
from tests.packets.cluster import NAMESPACE, SLICES
from tests.packets.lab import Lab
from tests.packets.rows import OUTSIDE

SERVERS = ("server1", "server2")


@pytest.mark.parametrize(("cloud", "ip_mode"), [("balancer", "Proxy"), ("balancer", "VIP"), ("router", "VIP")])
@pytest.mark.parametrize(("first", "second"), [("IPv4", "IPv6"), ("IPv6", "IPv4")])
async def test_a_family_that_comes_and_goes_leaves_the_other_address_and_its_traffic_alone(
    lab: Lab, cloud: str, ip_mode: str, first: str, second: str
) -> None:
    async with lab.service(ip_mode, cloud=cloud, families=(first,)) as served:
        (address,) = await served.addresses()
        for each in cluster.endpoint_slices(served.name, cluster.slice_ports(["TCP"]), {second: SERVERS}):
            await lab.kube.create(SLICES, each, NAMESPACE)
        client = lab.hosts[OUTSIDE]
        async with Held(client, address, 80) as held, Stream(client, address, 80) as stream:
            before, lost = await held.ask(), client.lost_first_packets()
            await served.patch({"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": [first, second]}})
            both = [one["ip"] for one in objects.ingress(await served.wait(lambda one: len(objects.ingress(one)) == 2))]
            await lab.settle()
            assert both[0] == address
            assert (await ask(client, both[1], 80)).pod in lab.pods

            await stream.wait_for(5)
            assert client.lost_first_packets() == lost
            await served.patch({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": [first]}})
            await served.wait(lambda one: [each["ip"] for each in objects.ingress(one)] == [address])
            await lab.settle()
            assert await unserved(client, both[1], 80)
            await stream.wait_for(5)
            assert await held.ask() == before
        assert stream.failures == []
