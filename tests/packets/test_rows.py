"""
What ipMode does, for each way in which a cloud delivers: the four rows, in both proxy modes, both families, TCP and UDP.

Each row's assertion holds for its mode, and fails for the other one.
"""

from contextlib import AbstractAsyncContextManager

import pytest

from tests.packets.lab import Lab, Served
from tests.packets.rows import ROWS, other, view

FAMILIES = {"ipv4": ("IPv4",), "ipv6": ("IPv6",), "dual": ("IPv6", "IPv4")}
ROW_IDS = [f"{cloud}-publishes-{ip_mode}" for cloud, ip_mode in ROWS]

families = pytest.mark.parametrize("families", FAMILIES.values(), ids=FAMILIES)
rows = pytest.mark.parametrize(("cloud", "ip_mode"), ROWS, ids=ROW_IDS)


def published(lab: Lab, cloud: str, ip_mode: str, families: tuple[str, ...]) -> AbstractAsyncContextManager[Served]:
    """A Service for TCP and UDP; a cloud that opens connections of its own says in a header whose they are."""
    header = "v1" if cloud == "balancer" else "none"
    # Local, because else kube-proxy hides the clients' addresses from the pods.
    policy = "Local" if cloud == "router" else "Cluster"
    return lab.service(
        ip_mode,
        cloud=cloud,
        families=families,
        protocols=("TCP", "UDP"),
        proxy_protocol=header,
        externalTrafficPolicy=policy,
    )


@rows
@families
async def test_the_row_holds(lab: Lab, cloud: str, ip_mode: str, families: tuple[str, ...]) -> None:
    async with published(lab, cloud, ip_mode, families) as served:
        ROWS[cloud, ip_mode](await view(served))


@rows
@families
async def test_the_rows_assertion_fails_for_the_other_mode(
    lab: Lab, cloud: str, ip_mode: str, families: tuple[str, ...]
) -> None:
    async with published(lab, cloud, other(ip_mode), families) as served:
        found = await view(served)
        with pytest.raises(AssertionError):
            ROWS[cloud, ip_mode](found)


WARNED = {
    ("balancer", "Proxy"): None,
    ("balancer", "VIP"): "clients inside the cluster bypass the load balancer",
    ("router", "VIP"): None,
    ("router", "Proxy"): "clients outside the cluster are not served",
}


@pytest.mark.parametrize(("cloud", "ip_mode"), WARNED, ids=ROW_IDS)
async def test_the_controller_warns_where_what_was_asked_for_breaks_traffic(lab: Lab, cloud: str, ip_mode: str) -> None:
    async with published(lab, cloud, ip_mode, ("IPv4",)) as served:
        expected = WARNED[cloud, ip_mode]
        if expected is None:
            assert await served.warnings() == []
        else:
            await served.wait_warning(expected)
