"""
The backend for fakecloud, and an example for provider authors: a whole cloud.

What ipMode its addresses get follows from `traffic`; that is made from the same values as the load balancer.
"""

import dataclasses
import pathlib
import urllib.parse
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ccm_lb import annotations, ipmode, portstatus
from ccm_lb.annotations import HealthCheckProtocol, ProxyProtocol
from ccm_lb.backends import fakecloud_requests as requests
from ccm_lb.backends.abilities import FAMILIES, Abilities
from ccm_lb.backends.actual import STATE, ActualLoadBalancer, Settings
from ccm_lb.backends.base import BackendConfig, BackendContext, LoadBalancerBackend, Reads, Response
from ccm_lb.errors import CCMError, ConfigError, PortsError, TerminalError
from ccm_lb.ipmode import Delivery, Inputs, PortTraffic, Traffic
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, Node, PortStatus, Service

_PAGE = 100  # load balancers in one answer; each may have thousands of targets


class FakecloudConfig(BackendConfig):
    """The settings in --cloud-config."""

    url: str = Field(
        default="http://127.0.0.1:8780", pattern="^https?://", description="Where fakecloud's API listens."
    )
    token: str | None = Field(
        default=None, description="The bearer token. Either this or `tokenFile` is required.", repr=False
    )
    token_file: pathlib.Path | None = Field(
        default=None, description="File with the token, read anew when it is refused; so it may be rotated."
    )
    ip_mode: IPMode | None = Field(
        default=None,
        description="The ipMode where no other row of docs/ipmode.md decides. Unset: `Proxy`. An error with a fakecloud that keeps the"
        " destination, since `VIP` alone works there.",
    )
    delivery: Literal["proxy", "direct"] | None = Field(
        default=None,
        description="How fakecloud is expected to deliver. Unset, as it should be: fakecloud is asked. An error where it says otherwise.",
    )
    proxy_protocol: ProxyProtocol = Field(
        default=ProxyProtocol.NONE,
        description="PROXY protocol on all TCP ports where no annotation says otherwise. An error with a fakecloud that keeps the"
        " destination, since nobody can put a header before a connection there.",
    )
    ask_kube_proxy: bool = Field(
        default=False,
        description="With externalTrafficPolicy Cluster, ask kube-proxy (port 10256, `/healthz`) which nodes are well, instead of asking"
        " their node ports. Connections through a node that is scaled down then go on until its end. Every node needs that port.",
    )

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if (self.token is None) == (self.token_file is None):
            raise ValueError("expected exactly one of token and tokenFile")
        return self


_DELIVERIES = {"proxy": Delivery.REWRITTEN, "direct": Delivery.KEPT}


def _conflicts(config: FakecloudConfig, delivery: str) -> Iterator[str]:
    """What is wrong with the settings for a cloud that delivers so; each names both sides."""
    cloud = f"fakecloud at {config.url} delivers {delivery} (its --delivery)"
    if config.delivery not in (None, delivery):
        yield (
            f"delivery: the setting is {config.delivery}, but {cloud}: "
            f"remove the setting, or start fakecloud with --delivery {config.delivery}"
        )
    if delivery == "direct" and config.ip_mode not in (None, IPMode.VIP):
        yield f"ipMode: the setting is {config.ip_mode}, but {cloud}, and nodes take such packets with VIP alone: remove the setting"
    if delivery == "direct" and config.proxy_protocol is not ProxyProtocol.NONE:
        yield (
            f"proxyProtocol: the setting is {config.proxy_protocol}, but {cloud}, and nobody can put a header before such a connection: "
            "remove the setting"
        )


_ABILITIES = Abilities(
    protocols=frozenset({"TCP", "UDP"}),
    mixed_protocols=True,
    families=FAMILIES,
    dual_stack=True,
    source_ranges=True,
    session_affinity=True,
    local_policy=True,
    proxy_protocols=frozenset({ProxyProtocol.V1, ProxyProtocol.V2}),
    health_checks=frozenset(HealthCheckProtocol),
    requested_address=True,
    address_pools=True,
    adoption=True,
    keeping=True,
    batch_node_update=True,
)


class FakecloudBackend(LoadBalancerBackend[FakecloudConfig]):
    """Load balancers of fakecloud, found by their owner: the cluster id and the Service's UID."""

    config_model = FakecloudConfig
    reads = Reads.ALL

    def __init__(self, context: BackendContext[FakecloudConfig]) -> None:
        super().__init__(context)
        self._token: str | None = context.config.token
        self._delivery: str | None = context.config.delivery  # until the cloud has said it
        self._ids: dict[str, str] = {}  # of load balancers that were seen, by the Service's UID
        # By UID, the listeners and servers that the cloud refused, and that its load balancer therefore lacks.
        self._left_out: dict[str, set[str]] = {}

    @property
    def abilities(self) -> Abilities:
        """As the cloud delivers: what reaches a node as it was sent has no header before it."""
        if self._delivery == "direct":
            return dataclasses.replace(_ABILITIES, proxy_protocols=frozenset())
        return _ABILITIES

    async def open(self) -> None:
        """
        Check that the cloud answers and takes the token, and learn how it delivers.

        Raises ConfigError: a setting and what the cloud says of itself do not go together.
        """
        about = (await self._call("GET", "/v1/cloud")).json()
        if said := "; ".join(_conflicts(self.context.config, about["delivery"])):
            raise ConfigError(said)
        self._delivery = about["delivery"]

    def traffic(self, service: Service) -> Traffic:
        options, default = annotations.parse(service), self.context.config.proxy_protocol
        check = requests.health_check(service, options, self._access())
        headers = [(port, options.proxy_protocol_on(port, default)) for port in service.spec.ports]
        return Traffic(
            delivery=_DELIVERIES.get(self._delivery or "", Delivery.UNKNOWN),
            ports=tuple(
                PortTraffic(port.port, port.protocol, "" if header is ProxyProtocol.NONE else header)
                for port, header in headers
            ),
            enforces_source_ranges=True,
            probes_ask_kube_proxy=check.get("path") == requests.KUBE_PROXY_PATH,
            default=self.context.config.ip_mode,
        )

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        found = await self._find(service.uid)
        return self.status_of(service, requests.actual_load_balancer(found[0])) if found else None

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        wanted = await self._desired(service, nodes)
        self._left_out.pop(service.uid, None)
        found = await self._find_or_adopt(service)
        if found and found[0]["addressPools"] != (asked := list(self.options(service).address_pools)) and asked:
            self.context.events.event(service, "Warning", "AddressNotGiven", requests.other_pools(asked))
        if found and found[0]["state"] == "error":
            load_balancer = await self._repair(service, found[0], wanted)
        elif found and found[0]["state"] == "deleting":
            load_balancer = found[0]
        elif found:
            load_balancer = await self._update(service, found[0], wanted)
        else:
            body = {"owner": self._owner(service), **wanted, **requests.asked_for(self.options(service))}
            load_balancer = await self._write(service, "POST", "/v1/load-balancers", body)
            self._ids[service.uid] = load_balancer["id"]
            # The answer to a create is the first load balancer of this owner: made by a request whose reply was lost, it is older.
            load_balancer = await self._update(service, load_balancer, wanted)
        requests.check_carried_out(load_balancer)
        return self.status_of(service, requests.actual_load_balancer(load_balancer))

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        found = await self._find(service.uid)
        if not found:
            raise CCMError("the load balancer is not there")
        requests.check_carried_out(
            await self._update(service, found[0], {"targets": list(requests.targets_of(service, nodes))})
        )

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        for load_balancer in await self._find(service.uid):
            response = await self._delete(load_balancer)
            if response.status == 202 and load_balancer["state"] == "error":
                raise CCMError(
                    f"the load balancer {load_balancer['id']} could not be deleted; this was asked for again"
                )
            if response.status == 202:
                requests.check_carried_out(response.json())
        self._ids.pop(service.uid, None)
        self._left_out.pop(service.uid, None)

    async def release_load_balancer(self, service: Service) -> None:
        for load_balancer in await self._find(service.uid):
            await self._call("PATCH", f"/v1/load-balancers/{load_balancer['id']}", {"owner": None}, accept=(200, 404))
        self._ids.pop(service.uid, None)
        self._left_out.pop(service.uid, None)

    async def _find_or_adopt(self, service: Service) -> list[Mapping[str, Any]]:
        """The Service's load balancer, the one that it names included. Raises TerminalError: that one cannot be had."""
        found, named = await self._find(service.uid), self.options(service).adopt
        if named is None or (found and found[0]["id"] == named):
            return found
        if found:
            raise TerminalError(requests.has_one(named, found[0]["id"]))
        path = f"/v1/load-balancers/{urllib.parse.quote(named, safe='')}"
        present = await self._call("GET", path, accept=(200, 404))
        if present.status == 404:
            raise TerminalError(requests.not_there(named))
        owner = self._owner(service)
        taken = await self._call("PATCH", path, {"owner": owner}, accept=(200, 404, 409))
        if taken.status != 200:
            raise TerminalError(f"{requests.not_adopted(named)}: {requests.complaint(taken)}")
        self._ids[service.uid] = named
        self.context.events.event(service, "Normal", "AdoptedLoadBalancer", requests.adopted(named))
        return [taken.json()]

    def _owner(self, service: Service) -> dict[str, str]:
        return {"cluster": self.context.cluster_id, "uid": service.uid}

    async def _desired(self, service: Service, nodes: Sequence[Node]) -> dict[str, Any]:
        config, options = self.context.config, annotations.parse(service)
        wanted = requests.desired(service, nodes, options, config.proxy_protocol, self._access())
        return {"name": await self.get_load_balancer_name(service), **wanted}

    def _access(self) -> requests.NodeAccess:
        return requests.NodeAccess(self._delivery != "direct", self.context.config.ask_kube_proxy)

    async def _delete(self, load_balancer: Mapping[str, Any]) -> Response:
        """202 says that the cloud still works on it."""
        return await self._call("DELETE", f"/v1/load-balancers/{load_balancer['id']}", accept=(202, 204, 404))

    async def _repair(self, service: Service, broken: Mapping[str, Any], wanted: dict[str, Any]) -> Mapping[str, Any]:
        """
        Have the cloud try again what ended in an error.

        Raises CCMError where that has to wait, so that each try comes later than the one before.
        """
        if not service.status.load_balancer.ingress:
            # Nobody knows its address yet, so there is nothing to lose; the next attempt makes a new one.
            await self._delete(broken)
            raise CCMError(f"the load balancer {broken['id']} ended in an error and was removed; a new one is made")
        # A change that changes nothing is not carried out, and this one is another for each error.
        tags = {**wanted["tags"], requests.REPAIRED: str(broken["action"])}
        repaired = await self._update(service, broken, {**wanted, "tags": tags})
        if repaired["state"] != "active":
            raise CCMError(f"the load balancer {broken['id']} is in an error; its settings were sent again")
        return repaired

    # ---- what is there, beside what is wanted

    async def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        if uid is not None:
            yield [requests.actual_load_balancer(one) for one in await self._find(uid)]
            return
        params: dict[str, str] = {"cluster": self.context.cluster_id, "limit": str(_PAGE)}
        while True:
            page = (await self._call("GET", "/v1/load-balancers", params=params)).json()
            found = [requests.actual_load_balancer(one) for one in page["items"]]
            for one in found:
                self._ids.setdefault(one.owner_uid, one.id)
            yield found
            if page["nextCursor"] is None:
                return
            params["cursor"] = page["nextCursor"]

    async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
        wanted = requests.without(await self._desired(service, nodes), self._left_out.get(service.uid, ()))
        return {**requests.described(wanted), STATE: "active"}

    def status_of(self, service: Service, actual: ActualLoadBalancer) -> LoadBalancerStatus:
        """The addresses; ports that have no listener are in error."""
        try:
            mode = ipmode.decide(Inputs(self.traffic(service))).mode
        except TerminalError:
            mode = self.context.config.ip_mode or IPMode.PROXY  # looked up and removed whatever the annotations say
        listeners = actual.settings["listeners"]
        served = set(listeners) if isinstance(listeners, tuple) else set()
        errors = [one for one in requests.without_node_port(service) if requests.listener_name(one) not in served]
        known = set(map(requests.listener_name, errors))
        errors += [
            PortStatus(port=port.port, protocol=port.protocol, error=portstatus.PROTOCOL_NOT_SUPPORTED)
            for port in service.spec.ports
            if requests.listener_name(port) not in served | known
        ]
        return LoadBalancerStatus(
            ingress=tuple(LoadBalancerIngress(ip=ip, ip_mode=mode, ports=tuple(errors)) for ip in actual.addresses)
        )

    # ---- the difference, and nothing else

    async def _update(
        self, service: Service, existing: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        difference = requests.changed_fields(existing, wanted)
        if not difference:
            return existing
        path = f"/v1/load-balancers/{existing['id']}"
        return await self._write(service, "PATCH", path, difference, existing)

    async def _write(
        self,
        service: Service,
        method: str,
        path: str,
        body: dict[str, Any],
        existing: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """Send it; without the servers, and for an existing load balancer the listeners, that the cloud refuses."""
        response = await self._call(method, path, body, accept=(200, 201, 422))
        if response.status == 422 and (refused := requests.refused_listeners(response, body)):
            self._leave_out(service, map(requests.listener_name, refused))
            if existing is None:
                raise PortsError(f"the ports {portstatus.words(refused)} cannot be served", refused)
            keys = {(port.protocol, port.port) for port in refused}
            listeners = [one for one in body["listeners"] if (one["protocol"], one["port"]) not in keys]
            return await self._update(service, existing, {**body, "listeners": listeners}) if listeners else existing
        if response.status == 422 and (unknown := requests.unknown_servers(response)):
            names = ", ".join(sorted(unknown))
            self.context.events.event(
                service, "Warning", "UnknownServer", f"The cloud does not know the servers {names}: they get no traffic"
            )
            self._leave_out(service, unknown)
            rest = {**body, "targets": [target for target in body["targets"] if target.get("server") not in unknown]}
            if existing is not None:
                return await self._update(service, existing, rest)
            response = await self._call(method, path, rest, accept=(200, 201, 422))
        if response.status == 422:
            raise TerminalError(requests.complaint(response))
        load_balancer: Mapping[str, Any] = response.json()
        return load_balancer

    def _leave_out(self, service: Service, names: Iterable[str]) -> None:
        self._left_out.setdefault(service.uid, set()).update(names)

    # ---- the API

    async def _find(self, uid: str) -> list[Mapping[str, Any]]:
        # A list may lag behind what was changed; what is read by its id does not. So a list names the load balancer, and no more.
        known = self._ids.get(uid) or await self._listed(uid)
        if known is None:
            return []
        response = await self._call("GET", f"/v1/load-balancers/{known}", accept=(200, 404))
        # Its owner may have let go of it since it was seen.
        if response.status == 200 and response.json()["owner"] == {"cluster": self.context.cluster_id, "uid": uid}:
            self._ids[uid] = known
            return [response.json()]
        forgotten = self._ids.pop(uid, None)
        return await self._find(uid) if forgotten else []

    async def _listed(self, uid: str) -> str | None:
        owner = {"cluster": self.context.cluster_id, "owner": uid}
        items = (await self._call("GET", "/v1/load-balancers", params=owner)).json()["items"]
        return str(items[0]["id"]) if items else None

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
            raise CCMError(f"fakecloud refused {method} {path}: {requests.complaint(response)}")
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
            self.context.secrets.add(self._token)
        return self._token
