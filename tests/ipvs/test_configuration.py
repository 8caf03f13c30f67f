"""Azure's file, translated by `ccm-lb dataplane convert`, given to the genuine kube-proxy: what the kernel then uses."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
import yaml

from tests.ipvs.site import PATIENCE, TIMEOUT, Site
from tests.packets import cluster, serviceproxies
from tests.packets.cluster import NAMESPACE, SLICES
from tests.packets.serviceproxies import AZURE_EXAMPLE
from tests.packets.topology import pod_addresses

pytestmark = pytest.mark.timeout(TIMEOUT)

ROUND_ROBIN = {
    "mode": "IPVS",
    "ipvsConfig": {
        "scheduler": "RoundRobin",
        "tcpTimeoutSeconds": 300,
        "tcpFinTimeoutSeconds": 30,
        "udpTimeoutSeconds": 45,
    },
}


SERVERS = {"one": 8081, "two": 8082}


async def test_the_kernel_has_the_scheduler_and_the_timeouts_of_the_file(site: Site) -> None:
    await site.configure(AZURE_EXAMPLE)
    # The guest had other timeouts before kube-proxy came.
    assert await used(site) == ({"lc"}, "900 120 300")


async def test_another_file_changes_them_and_how_connections_are_spread_when_kube_proxy_is_started_with_it(
    site: Site,
) -> None:
    await site.configure(AZURE_EXAMPLE)
    async with spread_over_two(site) as address:
        busy = await keep_one_busy(site, address)
        assert busy not in await served_by(site, address), "LeastConnection: all go to the idle one"

        await site.configure(json.dumps(ROUND_ROBIN))
        assert await used(site) == ({"rr"}, "300 30 45")
        assert sorted(await served_by(site, address)) == ["one", "one", "two", "two"], "RoundRobin: each in turn"


async def test_with_an_unknown_scheduler_kube_proxy_ends_and_validate_has_said_so_before(site: Site) -> None:
    configuration = await serviceproxies.translated(AZURE_EXAMPLE)
    configuration["ipvs"]["scheduler"] = "bogus"
    text = yaml.safe_dump(configuration)
    said = await serviceproxies.dataplane("validate", "-", stdin=text)
    assert said.code == 1
    assert 'ipvs.scheduler: "bogus": not a scheduler of Linux' in said.out

    await site.machine.write(
        "/tmp/bogus", yaml.safe_dump({**configuration, "clientConnection": {"kubeconfig": "/tmp/kubeconfig"}})
    )
    code, output = await site.machine.run("timeout 150 kube-proxy --config /tmp/bogus")
    assert code == 1, output
    assert "can't use the IPVS proxier" in output


async def used(site: Site) -> tuple[set[str], str]:
    """The schedulers of all virtual servers, and the timeouts for TCP, TCP after a FIN and UDP, in seconds."""
    servers = [line.split() for line in (await site.machine.do("ipvsadm -L -n")).splitlines()]
    timeouts = (await site.machine.do("ipvsadm -L --timeout")).strip()
    head, _, numbers = timeouts.partition(": ")
    assert head == "Timeout (tcp tcpfin udp)"
    return {words[2] for words in servers if words[:1] in (["TCP"], ["UDP"])}, numbers


@contextlib.asynccontextmanager
async def spread_over_two(site: Site) -> AsyncIterator[str]:
    """The cluster's address of a Service with two servers, which say `one` and `two`, in one pod."""
    pod = pod_addresses("server1")[0]
    for name, port in SERVERS.items():
        await site.machine.do(f"mkdir -p /srv/{name}")
        await site.machine.write(f"/srv/{name}/index.html", name)
        await site.machine.do(f"ip netns exec server1 httpd -p {pod}:{port} -h /srv/{name}")
        (body,) = cluster.endpoint_slices("spread", cluster.slice_ports(["TCP"], port), {"IPv4": ["server1"]})
        body["metadata"]["name"] = f"spread-{name}"
        await site.kube.create(SLICES, body, NAMESPACE)
    spec = {"ports": cluster.slice_ports(["TCP"], 80)}
    made = await site.kube.create("services", {"metadata": {"name": "spread"}, "spec": spec}, NAMESPACE)
    try:
        await site.settle()
        yield made["spec"]["clusterIP"]
    finally:
        await site.kube.delete("services", "spread", NAMESPACE)
        for name in SERVERS:
            await site.kube.delete(SLICES, f"spread-{name}", NAMESPACE)


async def keep_one_busy(site: Site, address: str) -> str:
    """Hold a connection for a minute; which server has it."""
    await site.machine.do(f"(sleep 60 | nc {address} 80 >/dev/null 2>&1) &")
    async with asyncio.timeout(PATIENCE):
        while True:
            for line in (await site.machine.do(f"ipvsadm -L -n -t {address}:80")).splitlines():
                words = line.split()  # -> 10.244.1.2:8081 Masq 1 1 0
                if words[:1] == ["->"] and words[4] not in ("ActiveConn", "0"):
                    return next(name for name, port in SERVERS.items() if words[1].endswith(f":{port}"))
            await asyncio.sleep(0.2)


async def served_by(site: Site, address: str) -> list[str]:
    """Who answers four requests, one after the other."""
    return [(await site.machine.do(f"wget -q -O - http://{address}/")).strip() for _ in range(4)]
