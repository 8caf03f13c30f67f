"""
The backend for fakecloud, and the example for provider authors: a whole cloud in one file.

fakecloud delivers by opening a connection of its own to a node's port, so its addresses are published as ipMode Proxy unless
the Service's annotation says otherwise.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field, model_validator

from ccm_lb import annotations
from ccm_lb.backends.base import BackendConfig, BackendContext, LoadBalancerBackend, Response
from ccm_lb.errors import CCMError, ConfigError, TerminalError
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, Node, Service

PROVIDER_PREFIX = "fakecloud://"  # of a node's providerID; the rest is the server's id


class FakecloudConfig(BackendConfig):
    """The settings in --cloud-config."""

    url: str = Field(default="http://127.0.0.1:8780", pattern="^https?://", description="where fakecloud's API listens")
    token: str | None = Field(default=None, description="the bearer token; or use tokenFile", repr=False)
    token_file: pathlib.Path | None = Field(
        default=None, description="a file with the token, read anew when it is refused"
    )
    ip_mode: IPMode = Field(default=IPMode.PROXY, description="what is published where no annotation says otherwise")

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if (self.token is None) == (self.token_file is None):
            raise ValueError("expected exactly one of token and tokenFile")
        return self


class FakecloudBackend(LoadBalancerBackend[FakecloudConfig]):
    """Load balancers of fakecloud, found by their owner: the cluster id and the Service's UID."""

    config_model = FakecloudConfig

    def __init__(self, context: BackendContext[FakecloudConfig]) -> None:
        super().__init__(context)
        self._token: str | None = context.config.token

    async def open(self) -> None:
        """Check that the cloud answers and takes the token."""
        await self._call("GET", "/v1/address-pools")

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        found = await self._find(service)
        return self._status(service, found[0]) if found else None

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        wanted = _desired(service, nodes)
        ip_mode = annotations.parse(service).ip_mode or self.context.config.ip_mode
        found = await self._find(service)
        if found:
            load_balancer = await self._update(service, found[0], wanted)
        else:
            owner = {"cluster": self.context.cluster_id, "uid": service.uid}
            name = await self.get_load_balancer_name(service)
            load_balancer = await self._write(
                service, "POST", "/v1/load-balancers", {"name": name, "owner": owner, **wanted}
            )
            # The answer to a create is the first load balancer of this owner: made by a request whose reply was lost, it is older.
            load_balancer = await self._update(service, load_balancer, wanted)
        return _published(load_balancer, ip_mode)

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        found = await self._find(service)
        if not found:
            raise CCMError("the load balancer is not there")
        await self._update(service, found[0], {"targets": _targets(service, nodes)})

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        for load_balancer in await self._find(service):
            await self._call("DELETE", f"/v1/load-balancers/{load_balancer['id']}", accept=(204, 404))

    # ---- the difference, and nothing else

    async def _update(
        self, service: Service, existing: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        difference = {name: value for name, value in wanted.items() if not _same(existing.get(name), value)}
        if not difference:
            return existing
        return await self._write(service, "PATCH", f"/v1/load-balancers/{existing['id']}", difference)

    async def _write(self, service: Service, method: str, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
        """Send it; without the servers that the cloud does not know, if it refuses it for those."""
        response = await self._call(method, path, body, accept=(200, 201, 422))
        unknown = _unknown_servers(response) if response.status == 422 else frozenset()
        if unknown:
            names = ", ".join(sorted(unknown))
            self.context.events.event(
                service, "Warning", "UnknownServer", f"The cloud does not know the servers {names}: they get no traffic"
            )
            targets = [target for target in body["targets"] if target.get("server") not in unknown]
            response = await self._call(method, path, {**body, "targets": targets}, accept=(200, 201, 422))
        if response.status == 422:
            raise TerminalError(_complaint(response))
        load_balancer: Mapping[str, Any] = response.json()
        return load_balancer

    # ---- the API

    async def _find(self, service: Service) -> list[Mapping[str, Any]]:
        owner = {"cluster": self.context.cluster_id, "owner": service.uid}
        response = await self._call("GET", "/v1/load-balancers", params=owner)
        items: list[Mapping[str, Any]] = response.json()["items"]
        return items

    async def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        accept: Sequence[int] = (200, 201),
    ) -> Response:
        response = await self._send(method, path, body, params)
        if response.status == 401 and self.context.config.token_file is not None:
            self._token = None  # it may have been rotated
            response = await self._send(method, path, body, params)
        if response.status not in accept:
            raise CCMError(f"fakecloud refused {method} {path}: {_complaint(response)}")
        return response

    async def _send(self, method: str, path: str, body: object, params: Mapping[str, str] | None) -> Response:
        headers = {"Authorization": f"Bearer {self._bearer()}"}
        if self.context.transport.fencing_token is not None:
            headers["Fencing-Token"] = self.context.transport.fencing_token
        # A create is safe to repeat: the owner in it makes the cloud answer with the first one.
        return await self.context.transport.request(
            method,
            self.context.config.url.rstrip("/") + path,
            body=body,
            params=params,
            headers=headers,
            idempotent=True,
        )

    def _bearer(self) -> str:
        if self._token is None:
            path = self.context.config.token_file
            try:
                self._token = path.read_text().strip() if path is not None else ""
            except OSError as error:
                raise ConfigError(
                    f"tokenFile {path}: {error.strerror}; expected a readable file with fakecloud's token"
                ) from error
        return self._token

    def _status(self, service: Service, load_balancer: Mapping[str, Any]) -> LoadBalancerStatus:
        try:
            chosen = annotations.parse(service).ip_mode
        except TerminalError:
            chosen = None  # a load balancer is looked up and removed whatever the annotations say
        return _published(load_balancer, chosen or self.context.config.ip_mode)


def _desired(service: Service, nodes: Sequence[Node]) -> dict[str, Any]:
    """The load balancer that `service` asks for, in the API's words. Raises TerminalError for what cannot be asked for."""
    without = [port.name or str(port.port) for port in service.spec.ports if not port.node_port]
    if without:
        raise TerminalError(f"ports {', '.join(without)} have no nodePort: set allocateLoadBalancerNodePorts to true")
    return {
        "families": list(service.spec.ip_families) or ["IPv4"],
        "listeners": [
            {"name": port.name or None, "protocol": port.protocol, "port": port.port, "targetPort": port.node_port}
            for port in service.spec.ports
        ],
        "targets": _targets(service, nodes),
        "healthCheck": _health_check(service),
        "sourceRanges": list(service.spec.load_balancer_source_ranges),
        "tags": {"kubernetes.io/service": str(service.key)},
    }


def _health_check(service: Service) -> dict[str, Any]:
    if service.spec.external_traffic_policy == "Local" and service.spec.health_check_node_port:
        # kube-proxy answers there with 503 on nodes without an endpoint of this Service.
        return {"protocol": "http", "port": service.spec.health_check_node_port, "path": "/healthz"}
    return {"protocol": "tcp"}


def _targets(service: Service, nodes: Sequence[Node]) -> list[dict[str, str]]:
    family = (service.spec.ip_families or ("IPv4",))[0]
    targets = (_target(node, family) for node in nodes)
    return [target for target in targets if target is not None]


def _target(node: Node, family: str) -> dict[str, str] | None:
    if node.spec.provider_id.startswith(PROVIDER_PREFIX):
        return {"server": node.spec.provider_id.removeprefix(PROVIDER_PREFIX)}
    addresses = [address for address in node.internal_ips if (":" in address) == (family == "IPv6")]
    return {"address": addresses[0]} if addresses else None


def _same(existing: object, wanted: object) -> bool:
    """Whether the cloud already has what is wanted; what it filled in by itself is its own affair."""
    if isinstance(wanted, dict) and isinstance(existing, dict):
        return all(_same(existing.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(existing, list):
        return len(wanted) == len(existing) and all(map(_same, existing, wanted))
    return existing == wanted


def _published(load_balancer: Mapping[str, Any], ip_mode: IPMode) -> LoadBalancerStatus:
    addresses = [one["address"] for one in load_balancer["addresses"]]
    return LoadBalancerStatus(ingress=tuple(LoadBalancerIngress(ip=address, ip_mode=ip_mode) for address in addresses))


def _unknown_servers(response: Response) -> frozenset[str]:
    errors = response.json().get("errors", [])
    unknown = [
        error for error in errors if error["field"].startswith("targets[") and error["field"].endswith("].server")
    ]
    return frozenset(str(error.get("value")) for error in unknown) if len(unknown) == len(errors) else frozenset()


def _complaint(response: Response) -> str:
    """What the cloud says in its problem document, or else the bare status."""
    try:
        problem = response.json()
        details = "; ".join(f"{one['field']}: {one['message']}" for one in problem.get("errors", []))
        return details or str(problem.get("detail") or problem["title"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"status {response.status}"
