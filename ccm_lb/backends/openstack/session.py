"""
A token of Keystone and the services of its catalogue, over the core's transport.

Plain HTTP instead of keystoneauth: two requests are all that it would do here, and it would do them in threads, past the transport's
limits, pauses and fence (docs/decisions.md has the measurements).
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from ccm_lb.backends.base import Clock, Response, Transport
from ccm_lb.backends.openstack.clouds import Cloud
from ccm_lb.errors import CCMError, ConfigError
from ccm_lb.redaction import Secrets

LOAD_BALANCER, NETWORK = "load-balancer", "network"
_RENEW_BEFORE = 0.1  # of a token's life: it is renewed when less than that is left
_REST_AFTER_REFUSAL = 10.0  # seconds for which refused credentials are not tried again, or each Service would try them
_VERSION = re.compile(r"/v\d+(\.\d+)?$")


@dataclasses.dataclass(frozen=True)
class _Token:
    value: str = dataclasses.field(repr=False)
    good_until: float  # monotonic
    catalogue: tuple[Mapping[str, Any], ...]


class Session:
    """One login for all calls; any number of them at a time."""

    def __init__(self, cloud: Cloud, transport: Transport, clock: Clock, secrets: Secrets) -> None:
        self._cloud, self._transport, self._clock, self._secrets = cloud, transport, clock, secrets
        self._token: _Token | None = None
        self._lock = asyncio.Lock()
        self._refused: tuple[float, str] | None = None
        secrets.add(*cloud.secrets)

    async def request(
        self,
        service: str,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        accept: Collection[int] = (200, 201, 202, 204),
    ) -> Response:
        """
        One request to a service of the catalogue; a token that is no longer taken is renewed, once.

        Raises CCMError for a status that is not in `accept`; the errors of `Transport.request` besides.
        """
        token = await self._valid_token()
        response = await self._send(token, service, method, path, body, params)
        if response.status == 401:
            token = await self._valid_token(instead_of=token)
            response = await self._send(token, service, method, path, body, params)
        if response.status not in accept:
            raise refusal(service, method, path, response)
        return response

    async def login(self) -> None:
        """Get a token now, to see whether the credentials are taken."""
        await self._valid_token()

    def endpoint(self, service: str) -> str:
        """
        The address of a service, without the version at its end; only after `login`.

        Raises ConfigError: the catalogue does not have it, or has several where clouds.yaml names no region.
        """
        if override := self._cloud.overrides.get(service):
            return _VERSION.sub("", override.rstrip("/"))
        if self._token is None:
            raise RuntimeError("the session has not logged in")
        found = [
            (str(one.get("region_id") or one.get("region")), str(one["interface"]), str(one["url"]))
            for entry in self._token.catalogue
            if entry["type"] == service
            for one in entry["endpoints"]
        ]
        wanted = {
            region: url
            for region, interface, url in found
            if interface == self._cloud.interface and self._cloud.region in (None, region)
        }
        said = f"cloud {self._cloud.name!r}: its catalogue has"
        if not wanted:
            known = ", ".join(f"{interface} in {region}" for region, interface, _ in found) or "no such service"
            asked = f"{self._cloud.interface} in {self._cloud.region or 'any region'}"
            raise ConfigError(
                f"{said} no endpoint {asked} for {service}, but: {known}; set region_name and interface in clouds.yaml"
            )
        if len(wanted) > 1:
            raise ConfigError(
                f"{said} {service} in several regions ({', '.join(wanted)}): set region_name in clouds.yaml"
            )
        return _VERSION.sub("", next(iter(wanted.values())).rstrip("/"))

    async def _send(
        self, token: _Token, service: str, method: str, path: str, body: object, params: Mapping[str, str] | None
    ) -> Response:
        url = self.endpoint(service) + path
        headers = {"X-Auth-Token": token.value}
        return await self._transport.request(method, url, body=body, params=params, headers=headers)

    # ---- the token

    async def _valid_token(self, instead_of: _Token | None = None) -> _Token:
        """A token that is not `instead_of`, which was just refused."""
        async with self._lock:
            token = self._token
            if token is None or token is instead_of or self._clock.monotonic() >= token.good_until:
                token = self._token = await self._new_token()
            return token

    async def _new_token(self) -> _Token:
        if self._refused is not None and self._clock.monotonic() < self._refused[0]:
            raise CCMError(self._refused[1])
        # It changes nothing in the cloud, and replicas without the Lease log in too.
        response = await self._transport.request(
            "POST", f"{self._cloud.auth_url}/auth/tokens", body=self._cloud.login, idempotent=True, writes=False
        )
        if response.status != 201:
            said = f"Keystone refuses the login of cloud {self._cloud.name!r}: {complaint(response)}"
            if response.status == 404:
                said += " (an application credential that was deleted answers so)"
            self._refused = (self._clock.monotonic() + _REST_AFTER_REFUSAL, said)
            raise CCMError(said)
        self._refused = None
        value = response.headers.get("X-Subject-Token", "")
        self._secrets.add(value)
        content = response.json()["token"]
        # Both times are the server's, so that a wrong clock on this side does not matter.
        life = (_time(content["expires_at"]) - _time(content["issued_at"])).total_seconds()
        good_until = self._clock.monotonic() + life * (1 - _RENEW_BEFORE)
        return _Token(value, good_until, tuple(content.get("catalog", ())))


def complaint(response: Response) -> str:
    """What a service says went wrong, in any of their three shapes, or else the bare status."""
    try:
        content = response.json()
        found = content.get("faultstring")
        for name in ("error", "NeutronError"):
            found = found or (content.get(name) or {}).get("message")
        return f"{found} (status {response.status})" if found else f"status {response.status}"
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError):
        return f"status {response.status}"


class RefusedError(CCMError):
    """A service answered with an error; what it means depends on what was asked for."""

    def __init__(self, message: str, response: Response) -> None:
        super().__init__(message)
        self.status = response.status
        self.said = complaint(response)


def refusal(service: str, method: str, path: str, response: Response) -> RefusedError:
    names = {LOAD_BALANCER: "Octavia", NETWORK: "Neutron"}
    said = complaint(response)
    if response.status == 401:
        said += "; a new token was not taken either"
    return RefusedError(f"{names[service]} refuses {method} {path}: {said}", response)


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
