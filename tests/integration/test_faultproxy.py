"""The fault proxy before the genuine API server, with TLS on both sides and a ServiceAccount's credentials."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.controlplane.kube import Kube, KubeError
from tests.controlplane.server import ControlPlane
from tests.faultproxy import Act, Answer, DropField, Exchange, FaultProxy, Match, Rule

SERVICE = {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
STATUS = {"status": {"loadBalancer": {"ingress": [{"ip": "127.84.0.1", "ipMode": "Proxy"}]}}}


@pytest.fixture
async def proxy(control_plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    tls = (control_plane.certificate, control_plane.private_key)
    async with FaultProxy(control_plane.url, ca=control_plane.ca, tls=tls) as served:
        yield served


@pytest.fixture
async def through(control_plane: ControlPlane, proxy: FaultProxy) -> AsyncIterator[Kube]:
    async with Kube(proxy.url, control_plane.token, control_plane.ca) as client:
        yield client


async def test_a_derived_kubeconfig_carries_the_credentials_and_the_ca(
    control_plane: ControlPlane, proxy: FaultProxy, tmp_path: Path
) -> None:
    content = yaml.safe_load(proxy.kubeconfig(control_plane.kubeconfig, tmp_path / "kubeconfig").read_text())
    original = yaml.safe_load(control_plane.kubeconfig.read_text())
    assert content["clusters"][0]["cluster"]["server"] == proxy.url
    original["clusters"][0]["cluster"]["server"] = proxy.url
    assert content == original


async def test_an_old_server_can_be_played_that_knows_no_ip_mode(
    kube: Kube, proxy: FaultProxy, through: Kube, namespace: str
) -> None:
    proxy.add(Rule(DropField("status.loadBalancer.ingress[].ipMode")))
    await through.create("services", SERVICE, namespace)
    await through.patch("services", "web", STATUS, namespace, kind="strategic", subresource="status")
    old, new = await through.get("services", "web", namespace), await kube.get("services", "web", namespace)
    assert old["status"]["loadBalancer"]["ingress"] == [{"ip": "127.84.0.1"}]
    assert new["status"]["loadBalancer"]["ingress"] == [{"ip": "127.84.0.1", "ipMode": "Proxy"}]
    (listed,) = await through.list("services", namespace)
    assert "ipMode" not in listed["status"]["loadBalancer"]["ingress"][0]


async def test_a_watch_goes_silent_comes_back_and_expires(
    kube: Kube, proxy: FaultProxy, through: Kube, namespace: str
) -> None:
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def follow() -> None:
        async for event in through.watch("services", namespace):
            events.put_nowait(event)

    follower = asyncio.create_task(follow())
    await proxy.wait_for_open(Match(watch=True))
    await kube.create("services", SERVICE, namespace)
    assert (await asyncio.wait_for(events.get(), 60))["type"] == "ADDED"

    assert proxy.stall(Match(watch=True)) == 1
    await kube.delete("services", "web", namespace)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(events.get(), 0.2)
    proxy.resume()
    assert (await asyncio.wait_for(events.get(), 60))["type"] == "DELETED"

    assert await proxy.expire() == 1
    assert (await asyncio.wait_for(events.get(), 60))["object"]["code"] == 410
    await asyncio.wait_for(follower, 60)


async def test_a_lost_reply_leaves_the_work_done(kube: Kube, proxy: FaultProxy, through: Kube, namespace: str) -> None:
    seen: list[int | None] = []

    async def note(exchange: Exchange) -> None:
        seen.append(exchange.upstream_status)

    await kube.create("services", SERVICE, namespace)
    proxy.add(
        Rule(Act(note, applied=True, pass_on=False), Match(method="PATCH", path="/services/web/status$"), times=1)
    )
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await through.patch("services", "web", STATUS, namespace, kind="strategic", subresource="status")
    assert seen == [200]
    service = await kube.get("services", "web", namespace)
    assert service["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "Proxy"
    assert proxy.matching(Match(mutating=True))[0].json == STATUS


async def test_an_ordered_401_does_not_reach_the_server(
    control_plane: ControlPlane, proxy: FaultProxy, through: Kube, namespace: str
) -> None:
    proxy.add(Rule(Answer(401), times=1))
    since = control_plane.audit_position()
    with pytest.raises(KubeError, match="401 Unauthorized"):
        await through.list("services", namespace)
    mine = [one for one in control_plane.audit_events(since) if one.get("objectRef", {}).get("namespace") == namespace]
    assert mine == []
    assert await through.list("services", namespace) == []


async def test_a_restarted_server_is_met_again_through_the_same_proxy(
    control_plane: ControlPlane, through: Kube
) -> None:
    await control_plane.kill_apiserver()
    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        await through.get("namespaces", "kube-system")
    await control_plane.start_apiserver()
    assert await through.get("namespaces", "kube-system")
