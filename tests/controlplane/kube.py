"""A thin JSON client of the Kubernetes API for tests; nothing of it is shared with the code under test."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

Json = dict[str, Any]
Objects = list[Json]
SocketFactory = aiohttp.SocketFactoryType

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_FIELD_MANAGER = "ccm-lb-tests"


class KubeError(Exception):
    """The API server answered with an error status."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


def resource_path(
    resource: str, namespace: str | None = None, name: str | None = None, subresource: str | None = None
) -> str:
    """
    The path of an object or a collection.

    `resource` is the plural: `services` of the core group, or `coordination.k8s.io/v1/leases` with group and version.
    """
    *group_version, plural = resource.split("/")
    base = "/apis/" + "/".join(group_version) if group_version else "/api/v1"
    scope = f"/namespaces/{namespace}" if namespace else ""
    return "".join([base, scope, f"/{plural}", f"/{name}" if name else "", f"/{subresource}" if subresource else ""])


class Kube:
    """
    One user's connection to the API server; `async with` closes it.

    Errors of the server are KubeError; a server that is away is aiohttp's ClientError. `sockets` makes the connections' where the
    server is not on this machine's own network.
    """

    def __init__(self, url: str, token: str, ca: Path | None, *, sockets: SocketFactory | None = None) -> None:
        self._url = url
        self._sockets = sockets
        self._context = ssl.create_default_context(cafile=str(ca)) if ca else None
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": _FIELD_MANAGER}
        self._session: aiohttp.ClientSession | None = None
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    async def __aenter__(self) -> Self:
        verified = self._context if self._context is not None else True
        connector = aiohttp.TCPConnector(ssl=verified, limit=0, socket_factory=self._sockets)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send one request and return the answer's JSON."""
        assert self._session is not None, "use `async with`"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else {}
        async with self._session.request(method, self._url + path, params=params, data=data, headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise _error(answer.status, text)
            parsed: Json = json.loads(text)
            return parsed

    async def get(self, resource: str, name: str, namespace: str | None = None) -> Json:
        """The object; KubeError 404 when it does not exist."""
        return await self.request("GET", resource_path(resource, namespace, name))

    async def find(self, resource: str, name: str, namespace: str | None = None) -> Json | None:
        """The object, or None when it does not exist."""
        try:
            return await self.get(resource, name, namespace)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, resource: str, namespace: str | None = None, **params: str) -> Objects:
        """The items of a collection, `params` such as labelSelector."""
        answer = await self.request("GET", resource_path(resource, namespace), params=params)
        items: Objects = answer["items"]
        return items

    async def create(self, resource: str, body: Json, namespace: str | None = None) -> Json:
        """POST a new object."""
        params = {"fieldManager": _FIELD_MANAGER}
        return await self.request("POST", resource_path(resource, namespace), body, params=params)

    async def replace(
        self, resource: str, body: Json, namespace: str | None = None, *, subresource: str | None = None
    ) -> Json:
        """PUT a whole object; its metadata.name says which."""
        path = resource_path(resource, namespace, body["metadata"]["name"], subresource)
        return await self.request("PUT", path, body, params={"fieldManager": _FIELD_MANAGER})

    async def patch(
        self,
        resource: str,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        kind: str = "merge",
        subresource: str | None = None,
        manager: str = _FIELD_MANAGER,
    ) -> Json:
        """PATCH an object; `kind` is merge, strategic, json or apply, `manager` who does it by the server's record."""
        params = {"fieldManager": manager} | ({"force": "true"} if kind == "apply" else {})
        path = resource_path(resource, namespace, name, subresource)
        return await self.request("PATCH", path, body, params=params, content_type=_PATCH_TYPES[kind])

    async def delete(self, resource: str, name: str, namespace: str | None = None, *, grace: int | None = None) -> None:
        """DELETE an object; one that is gone already is no error."""
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            await self.request("DELETE", resource_path(resource, namespace, name), body)
        except KubeError as error:
            if error.status != 404:
                raise

    async def apply(self, documents: str | Json) -> Objects:
        """Server-side apply of YAML text with one or more documents, or of one object, in their order."""
        objects = [documents] if isinstance(documents, dict) else [one for one in yaml.safe_load_all(documents) if one]
        return [await self._apply_one(one) for one in objects]

    async def _apply_one(self, body: Json) -> Json:
        version, kind, metadata = body["apiVersion"], body["kind"], body["metadata"]
        plural, namespaced = await self._kind(version, kind)
        resource = f"{version}/{plural}" if "/" in version else plural
        namespace = metadata.get("namespace", "default") if namespaced else None
        return await self.patch(resource, metadata["name"], body, namespace, kind="apply")

    async def _kind(self, version: str, kind: str) -> tuple[str, bool]:
        """(plural, whether namespaced) of a kind, as the server says."""
        if (version, kind) not in self._kinds:
            found = await self.request("GET", f"/apis/{version}" if "/" in version else f"/api/{version}")
            for one in found["resources"]:
                if "/" not in one["name"]:
                    self._kinds[version, one["kind"]] = (one["name"], one["namespaced"])
        return self._kinds[version, kind]

    async def wait_for(
        self,
        resource: str,
        name: str,
        until: Callable[[Json | None], object],
        namespace: str | None = None,
        *,
        timeout: float = 60.0,
    ) -> Json | None:
        """
        Read the object until `until(object)` is true, None standing for an absent one; return it.

        A server that is away counts as not yet. After `timeout` seconds: TimeoutError, with the object as last seen.
        """
        seen: Json | str | None = "nothing: the API server did not answer"
        try:
            async with asyncio.timeout(timeout):
                while True:
                    try:
                        seen = await self.find(resource, name, namespace)
                    except aiohttp.ClientError:
                        await asyncio.sleep(0.1)
                        continue
                    if until(seen):
                        return seen
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"{resource} {namespace}/{name} after {timeout:g} s: {json.dumps(seen)}") from None

    async def watch(self, resource: str, namespace: str | None = None, **params: str) -> AsyncIterator[Json]:
        """The events of one watch until the server ends it."""
        assert self._session is not None, "use `async with`"
        path = self._url + resource_path(resource, namespace)
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(path, params={"watch": "true", **params}, timeout=timeout) as answer:
            if answer.status >= 400:
                raise _error(answer.status, await answer.text())
            async for line in answer.content:
                yield json.loads(line)

    async def token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """A token of a ServiceAccount by TokenRequest, valid for `seconds` (at least 600)."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        path = resource_path("serviceaccounts", namespace, account, "token")
        answer = await self.request("POST", path, body)
        token: str = answer["status"]["token"]
        return token


def _error(status: int, text: str) -> KubeError:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return KubeError(status, "", text[:300])
    return KubeError(status, str(body.get("reason", "")), str(body.get("message", "")))
