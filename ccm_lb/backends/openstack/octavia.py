"""Load balancers over Octavia's API v2."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ccm_lb.backends.openstack.model import Json, Step, Tree
from ccm_lb.backends.openstack.session import LOAD_BALANCER, RefusedError, Session
from ccm_lb.backends.openstack.steps import BASE
from ccm_lb.errors import CCMError, RetryAfterError, TerminalError

IMMUTABLE_PAUSE = 2.0  # seconds until a load balancer is tried again that somebody else is changing
_IMMUTABLE = re.compile("immutable|Invalid state", re.IGNORECASE)
_QUOTA = re.compile("quota", re.IGNORECASE)


class Octavia:
    """The requests; what they mean for a Service is not known here."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def version(self) -> tuple[int, int]:
        """The newest version of the API that this cloud has."""
        response = await self._session.request(LOAD_BALANCER, "GET", "/", accept=(200, 300))
        found = [re.fullmatch(r"v(\d+)\.(\d+)", str(one["id"])) for one in response.json()["versions"]]
        return max(((int(one[1]), int(one[2])) for one in found if one), default=(2, 0))

    async def providers(self) -> list[str]:
        return [str(one["name"]) for one in await self._all("providers", {})]

    async def tagged(self, tags: tuple[str, ...]) -> list[Json]:
        """Those that have all of the tags, the oldest first."""
        found = await self._all("loadbalancers", {"tags": ",".join(tags)})
        return sorted(found, key=lambda one: (str(one["created_at"]), str(one["id"])))

    async def load_balancer(self, identifier: str) -> Json | None:
        response = await self._session.request(
            LOAD_BALANCER, "GET", f"{BASE}/loadbalancers/{identifier}", accept=(200, 404)
        )
        return None if response.status == 404 else response.json()["loadbalancer"]

    async def tree(self, load_balancer: Json) -> Tree:
        """The load balancer with everything in it."""
        where = {"loadbalancer_id": str(load_balancer["id"])}
        listeners, pools = await asyncio.gather(self._all("listeners", where), self._all("pools", where))
        members = await asyncio.gather(*(self._all(f"pools/{pool['id']}/members", {}) for pool in pools))
        monitors = await asyncio.gather(*(self._monitor(pool) for pool in pools))
        ids = [str(pool["id"]) for pool in pools]
        return Tree(
            load_balancer,
            tuple(listeners),
            tuple(pools),
            {identifier: tuple(found) for identifier, found in zip(ids, members, strict=True)},
            {identifier: found for identifier, found in zip(ids, monitors, strict=True) if found is not None},
        )

    async def create(self, body: Json) -> Json:
        """Raises TerminalError: the cloud will not make it as it is asked for."""
        response = await self._write(Step("POST", f"{BASE}/loadbalancers", body))
        found: Json = response["loadbalancer"]
        return found

    async def carry_out(self, step: Step) -> None:
        """Raises RetryAfterError where somebody else is changing the load balancer; what a delete does not find is gone."""
        await self._write(step)

    async def delete(self, identifier: str) -> None:
        """With everything in it; absent is success."""
        path = f"{BASE}/loadbalancers/{identifier}?cascade=true"
        await self._write(Step("DELETE", path))

    async def fail_over(self, identifier: str) -> None:
        """Have its machines made anew; most clouds allow this to their operators alone."""
        await self._write(Step("PUT", f"{BASE}/loadbalancers/{identifier}/failover"))

    async def _monitor(self, pool: Json) -> Json | None:
        if not pool.get("healthmonitor_id"):
            return None
        path = f"{BASE}/healthmonitors/{pool['healthmonitor_id']}"
        response = await self._session.request(LOAD_BALANCER, "GET", path, accept=(200, 404))
        return None if response.status == 404 else response.json()["healthmonitor"]

    async def _write(self, step: Step) -> Any:
        accept = (200, 201, 202, 204, 404) if step.method == "DELETE" else (200, 201, 202, 204)
        try:
            response = await self._session.request(LOAD_BALANCER, step.method, step.path, step.body, accept=accept)
        except RefusedError as error:
            raise _meaning(error) from error
        return response.json()

    async def _all(self, what: str, params: Mapping[str, str]) -> list[Json]:
        """All pages of a list."""
        name = what.rpartition("/")[2]
        found: list[Json] = []
        page: Mapping[str, str] = {}
        while True:
            response = await self._session.request(
                LOAD_BALANCER, "GET", f"{BASE}/{what}", params={**params, **page}, accept=(200,)
            )
            content = response.json()
            found += content[name]
            links = content.get(f"{name}_links") or ()
            following = next((str(link["href"]) for link in links if link["rel"] == "next"), None)
            if following is None:
                return found
            # Only where to go on is taken from it: its host is the one that the service believes to have.
            query = parse_qs(urlsplit(following).query)
            page = {key: query[key][0] for key in ("marker", "limit") if key in query}


def _meaning(error: RefusedError) -> CCMError:
    """What a refused write says about trying again."""
    if error.status == 409 and _IMMUTABLE.search(error.said):
        return RetryAfterError(f"the load balancer is being changed: {error.said}", IMMUTABLE_PAUSE)
    if error.status in (400, 409, 413) or (error.status == 403 and _QUOTA.search(error.said)):
        return TerminalError(str(error))
    return error
