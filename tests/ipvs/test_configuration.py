"""Azure's file, translated by `ccm-lb dataplane convert`, given to the genuine kube-proxy: what the kernel then uses."""

import json

import pytest
import yaml

from tests.ipvs.site import TIMEOUT, Site
from tests.packets import serviceproxies
from tests.packets.serviceproxies import AZURE_EXAMPLE

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


async def test_the_kernel_has_the_scheduler_and_the_timeouts_of_the_file(site: Site) -> None:
    await site.configure(AZURE_EXAMPLE)
    # The guest had other timeouts before kube-proxy came.
    assert await used(site) == ({"lc"}, "900 120 300")


async def test_another_file_changes_them_when_kube_proxy_is_started_with_it(site: Site) -> None:
    await site.configure(AZURE_EXAMPLE)
    await site.configure(json.dumps(ROUND_ROBIN))
    assert await used(site) == ({"rr"}, "300 30 45")


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
