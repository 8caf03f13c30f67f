"""
Load balancers of OpenStack: Octavia's, with floating IPs of Neutron, and a login at Keystone.

Octavia takes one change at a time: each leaves the load balancer immutable until it is carried out. So what is missing is sent step by
step (`steps`), and between two steps the load balancer is looked at until it is active again, or the rest is left to the next call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccm_lb import annotations as ccm_annotations
from ccm_lb import ipmode
from ccm_lb.annotations import HealthCheckProtocol, ProxyProtocol
from ccm_lb.backends import abilities, registry
from ccm_lb.backends.base import BackendContext, LoadBalancerBackend
from ccm_lb.backends.openstack import clouds, names, options, steps
from ccm_lb.backends.openstack.config import OpenStackConfig
from ccm_lb.backends.openstack.model import ACTIVE, ERROR, OVN, Abilities, Json, Step
from ccm_lb.backends.openstack.neutron import Neutron
from ccm_lb.backends.openstack.octavia import Octavia
from ccm_lb.backends.openstack.session import Session
from ccm_lb.backends.openstack.wanted import Asked, unserved, wanted
from ccm_lb.errors import CCMError, ConfigError, RetryAfterError, TerminalError
from ccm_lb.ipmode import Delivery, Inputs, PortTraffic, Traffic
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, Node, Service

_LOOKS = (
    0.1,
    0.2,
    0.4,
    0.8,
    1.0,
    1.5,
)  # seconds between two looks at a change, before the rest is left to the next call
_PAUSE = 1.0  # seconds until the next call, at first; a tenth of what was waited already, later
_LONGEST_PAUSE = 30.0
_PATIENCE = 1800.0  # seconds that something may stay pending until it is told as a failure


class OpenStackBackend(LoadBalancerBackend[OpenStackConfig]):
    """Load balancers of Octavia, found by the tags of their owner: the cluster id and the Service's UID."""

    config_model = OpenStackConfig

    def __init__(self, context: BackendContext[OpenStackConfig]) -> None:
        super().__init__(context)
        self._session: Session | None = None
        self._abilities = Abilities(provider=context.config.provider or "")
        self._opened = False
        self._pending_since: dict[str, float] = {}  # monotonic, by the id of a load balancer

    @property
    def abilities(self) -> abilities.Abilities:
        """As the version and the provider of this cloud's Octavia have them."""
        able = self._abilities
        v2 = {ProxyProtocol.V2} if able.proxy_protocol_v2 else set()
        return abilities.Abilities(
            protocols=abilities.PROTOCOLS if able.sctp else frozenset({"TCP", "UDP"}),
            mixed_protocols=True,
            families=abilities.FAMILIES,
            dual_stack=able.additional_vips,
            source_ranges=able.source_ranges,
            session_affinity=True,
            local_policy=True,
            proxy_protocols=frozenset({ProxyProtocol.V1, *v2} if able.proxy_protocol else ()),
            health_checks=frozenset(HealthCheckProtocol),
            requested_address=True,
            batch_node_update=True,
            annotations=frozenset(options.NAMES.values()),
        )

    # ---- readiness

    async def open(self) -> None:
        """
        Log in, and learn what this cloud's Octavia can do.

        Raises ConfigError: clouds.yaml, or a setting, and what the cloud says of itself do not go together.
        """
        cloud = await asyncio.to_thread(read_cloud, self.context.config)
        context = self.context
        self._session = Session(cloud, context.transport, context.clock, context.secrets)
        await self._session.login()
        version, providers = await asyncio.gather(self._octavia.version(), self._octavia.providers())
        provider = context.config.provider or (OVN if set(providers) == {OVN} else "")
        if provider and provider not in providers:
            raise ConfigError(
                f"provider: this cloud has no provider {provider!r}, expected one of: {', '.join(providers)}"
            )
        self._abilities = Abilities(version, provider)
        if version < (2, 5):
            raise ConfigError(
                f"this cloud's Octavia has the API {version[0]}.{version[1]}, expected 2.5 or newer (tags)"
            )
        if context.config.proxy_protocol is not ProxyProtocol.NONE and not self._abilities.proxy_protocol:
            raise ConfigError(
                f"proxyProtocol: the provider {provider} has none: remove the setting, or choose another provider"
            )
        self._opened = True

    @property
    def _octavia(self) -> Octavia:
        return Octavia(self._logged_in)

    @property
    def _neutron(self) -> Neutron:
        return Neutron(self._logged_in)

    @property
    def _logged_in(self) -> Session:
        if self._session is None:
            raise CCMError("the backend is not open")
        return self._session

    # ---- the contract

    def traffic(self, service: Service) -> Traffic:
        asked = self._asked(service)
        headers = [(port, asked.proxy_protocol(port)) for port in service.spec.ports]
        default = IPMode.VIP if self._abilities.provider == OVN else None
        return Traffic(
            delivery=Delivery.REWRITTEN,
            ports=tuple(
                PortTraffic(port.port, port.protocol, "" if header is ProxyProtocol.NONE else header)
                for port, header in headers
            ),
            enforces_source_ranges=self._abilities.source_ranges if self._opened else None,
            probes_ask_kube_proxy=asked.check is not None and self._abilities.http_monitor("TCP"),
            default=self.context.config.ip_mode or default,
        )

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        found = await self._find(service)
        return await self._published(service, found[0]) if found else None

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        asked = self._asked(service)
        found = await self._find(service)
        load_balancer = await self._repaired(service, found[0]) if found else await self._create(asked, nodes)
        for superfluous in found[1:]:
            # Made by a request that was still under way when the next attempt did not find its load balancer yet.
            await self._octavia.delete(superfluous["id"])
        await self._converge(asked, nodes, load_balancer)
        await self._lead_floating_ip(asked, load_balancer)
        return await self._published(service, load_balancer)

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        found = await self._find(service)
        if not found:
            raise CCMError("the load balancer is not there")
        load_balancer = await self._active(found[0])
        tree = await self._octavia.tree(load_balancer)
        for step in steps.member_steps(tree, wanted(self._asked(service), nodes, {})):
            await self._carry_out(load_balancer, step)

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        if not options.keeps_floating_ip(service):
            for made in await self._neutron.floating_ips(description=self._description(service)):
                await self._neutron.free(made["id"])
        left = await self._find(service)
        for load_balancer in left:
            if load_balancer["provisioning_status"] != "PENDING_DELETE":
                await self._octavia.delete(load_balancer["id"])
        for load_balancer in left:
            await self._gone(load_balancer)

    # ---- making and changing

    async def _create(self, asked: Asked, nodes: Sequence[Node]) -> Json:
        fixed = await self._fixed(asked, nodes)
        body = steps.creation(wanted(asked, nodes, fixed), all_at_once=self._abilities.all_at_once)
        return await self._octavia.create(body)

    async def _converge(self, asked: Asked, nodes: Sequence[Node], load_balancer: Json) -> None:
        """Send what is missing, look again, until nothing is. Raises RetryAfterError when that takes longer than a call should."""
        sent: list[Step] = []
        load_balancer = await self._active(load_balancer)
        while missing := steps.steps(await self._octavia.tree(load_balancer), wanted(asked, nodes, {})):
            for step in missing:
                if step in sent:
                    raise CCMError(
                        f"the load balancer {load_balancer['id']} is not as it was asked for: {step.method} {step.path}"
                        " was accepted and changed nothing"
                    )
                await self._carry_out(load_balancer, step)
                sent.append(step)

    async def _carry_out(self, load_balancer: Json, step: Step) -> None:
        await self._octavia.carry_out(step)
        fresh = await self._octavia.load_balancer(load_balancer["id"])
        await self._active(fresh or load_balancer)

    async def _repaired(self, service: Service, load_balancer: Json) -> Json:
        """
        The load balancer; one in an error is made anew while nobody knows its address, else its machines are.

        Raises CCMError where that has to wait, so that each try comes later than the one before.
        """
        if load_balancer["provisioning_status"] != ERROR:
            return load_balancer
        name = f"the load balancer {load_balancer['id']}"
        if not service.status.load_balancer.ingress:
            await self._octavia.delete(load_balancer["id"])
            raise CCMError(f"{name} ended in an error and was removed; a new one is made")
        try:
            await self._octavia.fail_over(load_balancer["id"])
        except CCMError as error:
            raise CCMError(
                f"{name} is in an error and serves what it can; to repair it the cloud's operator has to run"
                f" `openstack loadbalancer failover {load_balancer['id']}` ({error})"
            ) from error
        raise RetryAfterError(f"{name} was in an error; its machines are made anew", _PAUSE)

    # ---- waiting

    async def _active(self, load_balancer: Json) -> Json:
        """The load balancer once it is active. Raises RetryAfterError when that takes longer than a call should, CCMError in an error."""
        for pause in (*_LOOKS, None):
            state = load_balancer["provisioning_status"]
            if state == ACTIVE:
                self._pending_since.pop(load_balancer["id"], None)
                return load_balancer
            if state == ERROR:
                self._pending_since.pop(load_balancer["id"], None)
                raise CCMError(f"the load balancer {load_balancer['id']} ended in an error")
            if pause is None:
                break
            await self.context.clock.sleep(pause)
            fresh = await self._octavia.load_balancer(load_balancer["id"])
            if fresh is None:
                raise CCMError(f"the load balancer {load_balancer['id']} is gone")
            load_balancer = fresh
        raise self._pending(load_balancer)

    def _pending(self, load_balancer: Json) -> CCMError:
        now = self.context.clock.monotonic()
        waited = now - self._pending_since.setdefault(load_balancer["id"], now)
        said = f"the load balancer {load_balancer['id']} is {load_balancer['provisioning_status']}"
        if waited > _PATIENCE:
            return CCMError(f"{said} for {waited / 60:.0f} minutes: the cloud's operator has to look at it")
        return RetryAfterError(f"{said}, the cloud still works on it", min(max(_PAUSE, waited / 10), _LONGEST_PAUSE))

    async def _gone(self, load_balancer: Json) -> None:
        for pause in (*_LOOKS, None):
            fresh = await self._octavia.load_balancer(load_balancer["id"])
            if fresh is None or fresh["provisioning_status"] == "DELETED":
                self._pending_since.pop(load_balancer["id"], None)
                return
            if fresh["provisioning_status"] == ERROR:
                raise CCMError(f"the load balancer {load_balancer['id']} could not be deleted; this is asked for again")
            load_balancer = fresh
            if pause is not None:
                await self.context.clock.sleep(pause)
        raise self._pending(load_balancer)

    # ---- what a load balancer is made with

    async def _fixed(self, asked: Asked, nodes: Sequence[Node]) -> Json:
        service, own, config = asked.service, asked.own, asked.config
        first, *others = asked.families
        fixed: dict[str, Any] = {
            "name": names.load_balancer(self.context.cluster_id, service),
            "description": names.cut(f"Kubernetes Service {service.key} in cluster {self.context.cluster_id}"),
            "tags": list(names.tags(self.context.cluster_id, service.uid)),
            "flavor_id": own.flavor or config.flavor,
            "availability_zone": own.availability_zone or config.availability_zone,
            "provider": self._abilities.provider or None,
        }
        if own.network and not own.subnet:
            fixed["vip_network_id"] = own.network
        else:
            fixed["vip_subnet_id"] = own.subnet or await self._subnet(first, nodes)
        if address := self._own_address(asked):
            await self._check_address(address, fixed.get("vip_subnet_id"))
            fixed["vip_address"] = address
        if others:
            if not self._abilities.additional_vips:
                raise TerminalError(
                    "the Service has IP families of both kinds, which Octavia's API has from 2.26 on: use one family"
                )
            fixed["additional_vips"] = [{"subnet_id": await self._subnet(family, nodes)} for family in others]
        return {name: value for name, value in fixed.items() if value is not None}

    def _own_address(self, asked: Asked) -> str | None:
        """The address that the load balancer itself is to have; with a floating IP, loadBalancerIP names that one."""
        requested = asked.service.spec.load_balancer_ip
        return asked.own.address or (requested if requested and not self._floating_network(asked) else None)

    async def _check_address(self, address: str, subnet: str | None) -> None:
        """Octavia answers 500 to an address outside of its subnet, which says nothing to anybody."""
        found = await self._neutron.subnet(subnet) if subnet else None
        if found is not None and ipaddress.ip_address(address) not in ipaddress.ip_network(found["cidr"]):
            raise TerminalError(
                f"the address {address} is asked for, which is not in the subnet {subnet} ({found['cidr']}):"
                " ask for one that is, or choose its subnet with the annotation loadbalancer.openstack.org/subnet-id"
            )

    async def _subnet(self, family: str, nodes: Sequence[Node]) -> str:
        setting, known = (
            ("subnet", self.context.config.subnet) if family == "IPv4" else ("subnetV6", self.context.config.subnet_v6)
        )
        if known:
            return known
        addresses = [address for node in nodes if (address := node.internal_ip(family))]
        found = await self._neutron.subnets_of(addresses) if addresses else []
        if len(found) != 1:
            seen = ", ".join(f"{one['id']} ({one['name']}, {one['cidr']})" for one in found) or "none"
            raise CCMError(
                f"the subnet for {family} addresses is not known: those that hold the nodes' addresses are {seen};"
                f" set `{setting}` in the file of --cloud-config"
            )
        return str(found[0]["id"])

    # ---- floating IPs

    def _floating_network(self, asked: Asked) -> str | None:
        return None if asked.own.internal else asked.own.floating_network or asked.config.floating_network

    def _description(self, service: Service) -> str:
        return names.floating_ip(self.context.cluster_id, service.uid)

    async def _lead_floating_ip(self, asked: Asked, load_balancer: Json) -> None:
        """Bring the floating IP that is asked for to the load balancer, and take away what was made and is not."""
        address = next((one for one in _addresses(load_balancer) if ":" not in one), None)
        network = self._floating_network(asked)
        attached = await self._neutron.floating_ips(port_id=load_balancer["vip_port_id"])
        if network is None or address is None:
            for one in attached:
                if one["description"] == self._description(asked.service):
                    await self._neutron.free(one["id"])
            return
        requested = asked.service.spec.load_balancer_ip
        if any(requested in ("", one["floating_ip_address"]) for one in attached):
            return
        wanted_one = await self._available(asked, network, requested)
        for one in attached:
            if one["description"] == self._description(asked.service) and not asked.own.keep_floating_ip:
                await self._neutron.free(one["id"])
            else:
                await self._neutron.attach(one["id"], None)
        port = load_balancer["vip_port_id"]
        if wanted_one is not None:
            await self._neutron.attach(wanted_one["id"], port, address)
            return
        body = {
            "floating_network_id": network,
            "subnet_id": asked.own.floating_subnet or asked.config.floating_subnet,
            "floating_ip_address": requested or None,
            "port_id": port,
            "fixed_ip_address": address,
            "description": self._description(asked.service),
        }
        await self._neutron.make_floating_ip({name: value for name, value in body.items() if value is not None})

    async def _available(self, asked: Asked, network: str, requested: str) -> Json | None:
        """A floating IP that need not be made: the requested one, or one that was made for this Service before."""
        if not requested:
            made = await self._neutron.floating_ips(description=self._description(asked.service))
            return next((one for one in made if not one["port_id"] and one["floating_network_id"] == network), None)
        found = await self._neutron.floating_ips(floating_ip_address=requested)
        if found and found[0]["port_id"]:
            raise TerminalError(f"the floating IP {requested} is in use by the port {found[0]['port_id']}")
        return next(iter(found), None)

    # ---- what is published

    async def _published(self, service: Service, load_balancer: Json) -> LoadBalancerStatus:
        attached = await self._neutron.floating_ips(port_id=load_balancer["vip_port_id"])
        internal = service.metadata.annotations.get(options.INTERNAL, "").lower() == "true"
        shown = {
            str(one["fixed_ip_address"]): str(one["floating_ip_address"])
            for one in attached
            if not internal or one["description"] == self._description(service)
        }
        try:
            mode = ipmode.decide(Inputs(self.traffic(service))).mode
            errors = tuple(unserved(self._asked(service)))
        except TerminalError:
            mode = self.context.config.ip_mode or IPMode.PROXY  # looked up and removed whatever the annotations say
            errors = ()
        return LoadBalancerStatus(
            ingress=tuple(
                LoadBalancerIngress(ip=shown.get(address, address), ip_mode=mode, ports=errors)
                for address in _addresses(load_balancer)
            )
        )

    # ---- small things

    def _asked(self, service: Service) -> Asked:
        return Asked(
            service, ccm_annotations.parse(service), options.parse(service), self.context.config, self._abilities
        )

    async def _find(self, service: Service) -> list[Json]:
        """The load balancers of the owner, the one that is published first; there should be one at most."""
        found = await self._octavia.tagged(names.tags(self.context.cluster_id, service.uid))
        if len(found) > 1:
            published = {one.ip for one in service.status.load_balancer.ingress}
            found.sort(key=lambda one: not published & set(_addresses(one)))
        return found


def _addresses(load_balancer: Json) -> list[str]:
    """Its own, the first one first."""
    others = load_balancer.get("additional_vips") or ()
    return [str(load_balancer["vip_address"]), *(str(one["ip_address"]) for one in others)]


def read_cloud(config: OpenStackConfig) -> clouds.Cloud:
    """The credentials that the settings and the environment name. Raises ConfigError."""
    places = (config.clouds_file,) if config.clouds_file else clouds.places(os.environ, Path.home())
    path = next((one for one in places if one.exists()), None)
    if path is None:
        raise ConfigError(f"cloudsFile: no clouds.yaml at {', '.join(map(str, places))}")
    content = registry.read_settings(path)
    secure = path.with_name("secure.yaml")
    if secure.exists():
        content = clouds.merged(content, registry.read_settings(secure))
    name = clouds.choose(content, config.cloud or os.environ.get("OS_CLOUD") or None, str(path))
    found = clouds.read(content, name, str(path))
    # As openstacksdk has it: relative to where the process runs.
    return dataclasses.replace(found, ca=found.ca.expanduser()) if found.ca else found
