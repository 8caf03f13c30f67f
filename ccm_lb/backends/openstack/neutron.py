"""Floating IPs and subnets over Neutron's API v2.0."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from ccm_lb.backends.openstack.model import Json
from ccm_lb.backends.openstack.session import NETWORK, RefusedError, Session
from ccm_lb.errors import TerminalError

_BASE = "/v2.0"


class Neutron:
    """The requests; what they mean for a Service is not known here."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def subnet(self, identifier: str) -> Json | None:
        response = await self._session.request(NETWORK, "GET", f"{_BASE}/subnets/{identifier}", accept=(200, 404))
        return None if response.status == 404 else response.json()["subnet"]

    async def subnets_of(self, addresses: Sequence[str]) -> list[Json]:
        """The subnets that hold any of the addresses."""
        found = await self._list("subnets", {})
        numbers = [ipaddress.ip_address(one) for one in addresses]
        return [one for one in found if any(number in ipaddress.ip_network(one["cidr"]) for number in numbers)]

    async def floating_ips(self, **where: str) -> list[Json]:
        """Those of which all of this is so."""
        return await self._list("floatingips", where)

    async def make_floating_ip(self, body: Json) -> Json:
        """Raises TerminalError: the quota is met, no address is left, or the wanted one is in use or not given to us."""
        found: Json = await self._write("POST", f"{_BASE}/floatingips", {"floatingip": body})
        return found

    async def attach(self, identifier: str, port: str | None, address: str | None = None) -> Json:
        """Lead a floating IP to one address of a port, or with None to nowhere."""
        fixed = {"fixed_ip_address": address} if address else {}
        found: Json = await self._write(
            "PUT", f"{_BASE}/floatingips/{identifier}", {"floatingip": {"port_id": port, **fixed}}
        )
        return found

    async def free(self, identifier: str) -> None:
        """Absent is success."""
        await self._session.request(NETWORK, "DELETE", f"{_BASE}/floatingips/{identifier}", accept=(204, 404))

    async def _write(self, method: str, path: str, body: Json) -> Json:
        try:
            response = await self._session.request(NETWORK, method, path, body)
        except RefusedError as error:
            if error.status in (400, 403, 404, 409):
                raise TerminalError(str(error)) from error
            raise
        found: Json = response.json()["floatingip"]
        return found

    async def _list(self, what: str, where: Mapping[str, str]) -> list[Json]:
        found: list[Json] = (await self._session.request(NETWORK, "GET", f"{_BASE}/{what}", params=where)).json()[what]
        return found
