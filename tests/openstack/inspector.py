"""A look at Octavia past the backend: the administrator's, over all projects, by an HTTP client of its own."""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import aiohttp

from ccm_lb.testing.bench import Seen
from tests.openstack.cloud import OpenStack

Json = dict[str, Any]


class Client:
    """Requests to the services under one entry of clouds.yaml; `async with` logs in."""

    def __init__(self, cloud: OpenStack, name: str = "admin") -> None:
        self._cloud, self._name = cloud, name
        self._session: aiohttp.ClientSession | None = None
        self.token = ""

    async def __aenter__(self) -> Self:
        auth = self._cloud.cloud(self._name)["auth"]
        user = {"name": auth["username"], "domain": {"id": "default"}, "password": auth["password"]}
        project = {"name": auth["project_name"], "domain": {"id": "default"}}
        identity = {"methods": ["password"], "password": {"user": user}}
        self._session = aiohttp.ClientSession()
        body = {"auth": {"identity": identity, "scope": {"project": project}}}
        async with self._session.post(f"{auth['auth_url']}/auth/tokens", json=body) as answer:
            assert answer.status == 201, await answer.text()
            self.token = answer.headers["X-Subject-Token"]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(self, service: str, method: str, path: str, body: object = None, **params: str) -> Json:
        """One request, its answer's JSON; AssertionError for an error status."""
        status, content = await self.answer(service, method, path, body, **params)
        assert status < 400, f"{method} {path}: {status} {content}"
        return content

    async def answer(
        self, service: str, method: str, path: str, body: object = None, **params: str
    ) -> tuple[int, Json]:
        """Status and JSON, whatever they are."""
        assert self._session is not None, "use `async with`"
        url, headers = self._cloud.url(service) + path, {"X-Auth-Token": self.token}
        async with self._session.request(method, url, json=body, params=params, headers=headers) as answer:
            return answer.status, (await answer.json() if await answer.read() else {})

    async def load_balancers(self, **where: str) -> list[Json]:
        """All of them, of all projects."""
        found: list[Json] = (await self.request("octavia", "GET", "/v2/lbaas/loadbalancers", **where))["loadbalancers"]
        return found

    async def floating_ips(self, **where: str) -> list[Json]:
        found: list[Json] = (await self.request("neutron", "GET", "/v2.0/floatingips", **where))["floatingips"]
        return found

    async def parts(self, kind: str, load_balancer: str) -> list[Json]:
        """The listeners or pools of a load balancer."""
        found = await self.request("octavia", "GET", f"/v2/lbaas/{kind}", loadbalancer_id=load_balancer)
        parts: list[Json] = found[kind]
        return parts

    async def members(self, pool: str) -> list[Json]:
        found: list[Json] = (await self.request("octavia", "GET", f"/v2/lbaas/pools/{pool}/members"))["members"]
        return found

    async def monitor(self, pool: Mapping[str, Any]) -> Json | None:
        if not pool["healthmonitor_id"]:
            return None
        path = f"/v2/lbaas/healthmonitors/{pool['healthmonitor_id']}"
        found: Json = (await self.request("octavia", "GET", path))["healthmonitor"]
        return found

    async def remove_everything(self) -> None:
        """Delete all load balancers and floating IPs, and wait until they are gone."""
        for one in await self.floating_ips():
            await self.request("neutron", "DELETE", f"/v2.0/floatingips/{one['id']}")
        async with asyncio.timeout(90):
            while left := await self.load_balancers():
                for one in left:
                    await self.answer("octavia", "DELETE", f"/v2/lbaas/loadbalancers/{one['id']}", cascade="true")
                await asyncio.sleep(0.2)


class OctaviaInspector:
    """For the conformance kit."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def load_balancers(self, cluster_id: str) -> list[Seen]:
        found = await self._client.load_balancers()
        ours = [one for one in found if f"ccm-lb.dev/cluster={cluster_id}" in one["tags"]]
        living = [one for one in ours if one["provisioning_status"] not in ("PENDING_DELETE", "DELETED")]
        return [await self._seen(one) for one in living]

    async def _seen(self, load_balancer: Json) -> Seen:
        prefix = "ccm-lb.dev/service-uid="
        (uid,) = [tag.removeprefix(prefix) for tag in load_balancer["tags"] if tag.startswith(prefix)]
        pools = {one["id"]: one for one in await self._client.parts("pools", load_balancer["id"])}
        listeners, targets, ranges = set(), set(), set()
        for one in await self._client.parts("listeners", load_balancer["id"]):
            members = await self._client.members(one["default_pool_id"]) if one["default_pool_id"] in pools else []
            node_ports = {member["protocol_port"] for member in members} or {None}
            listeners |= {(one["protocol"], one["protocol_port"], node_port) for node_port in node_ports}
            targets |= {member["address"] for member in members}
            ranges |= set(one["allowed_cidrs"] or ())
        return Seen(uid, frozenset(listeners), frozenset(targets), frozenset(ranges))
