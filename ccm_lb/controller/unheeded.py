"""
What a Service asks for and nobody carries out: named to its user, so that nothing is believed that does not hold.

Not named is what has no meaning for a load balancer (internalTrafficPolicy, trafficDistribution, publishNotReadyAddresses, externalIPs,
topology hints: kube-proxy's and the endpoints' business) and what is told elsewhere: families, ports, source ranges that nobody enforces.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.abilities import Honoured
from ccm_lb.controller import messages
from ccm_lb.controller.messages import Notice
from ccm_lb.errors import TerminalError
from ccm_lb.objects import LoadBalancerIngress, Service

OWN = "ccm-lb.dev/"

# What follows where the backend does not say that it carries an annotation out.
_CARRIED_OUT_BY_BACKENDS = {
    ccm_annotations.ADDRESSES: "the address is chosen by the cloud",
    ccm_annotations.ADDRESS_POOLS: "the address is chosen by the cloud",
    ccm_annotations.ADOPT: "the backend does not say that it takes load balancers over, and made one of its own",
    ccm_annotations.KEEP: "the backend does not say that it can let go of a load balancer; the Service's deletion waits until the "
    "annotation is gone, and then deletes the load balancer",
}
KNOWN = frozenset(
    {
        ccm_annotations.IP_MODE,
        ccm_annotations.PROXY_PROTOCOL,
        ccm_annotations.PROXY_PROTOCOL_PORTS,
        ccm_annotations.HEALTH_CHECK_PROTOCOL,
        ccm_annotations.HOSTNAME,
        ccm_annotations.PAUSED,
        *_CARRIED_OUT_BY_BACKENDS,
        ccm_annotations.SOURCE_RANGES,
    }
)

# How annotations begin that tell some cloud's controller, or one for bare metal, how to make a load balancer.
_OF_OTHERS = (
    "cloud.google.com/l4-rbs",
    "cloud.google.com/load-balancer-type",
    "cloud.google.com/network-tier",
    "io.cilium/lb-",
    "kube-vip.io/",
    "kubernetes.civo.com/",
    "kubernetes.digitalocean.com/",
    "lbipam.cilium.io/",
    "load-balancer.hetzner.cloud/",
    "loadbalancer.openstack.org/",
    "metallb.io/",
    "metallb.universe.tf/",
    "networking.gke.io/load-balancer",
    "oci-network-load-balancer.oraclecloud.com/",
    "oci.oraclecloud.com/",
    "purelb.io/",
    "service.alpha.kubernetes.io/",
    "service.beta.kubernetes.io/",
    "service.kubernetes.io/",
)

# These begin in the same way, and are carried out by others than load balancers.
_ELSEWHERE = frozenset(
    {
        "service.alpha.kubernetes.io/tolerate-unready-endpoints",
        "service.kubernetes.io/topology-aware-hints",
        "service.kubernetes.io/topology-mode",
    }
)


def notices(service: Service, ingress: Sequence[LoadBalancerIngress], honours: frozenset[str]) -> Iterable[Notice]:
    """What to tell the user of a Service that has the addresses `ingress`, by a backend that carries out `honours`."""
    ips = frozenset(one.ip for one in ingress if one.ip)
    yield from _fields(service, ips, honours)
    yield from _addresses(service, ips, honours)
    others = []
    for name in sorted(service.metadata.annotations):
        if name in KNOWN:
            yield from _known(service, name, honours)
            yield from _for_the_backend(service, name, ips, honours)
        elif _named_in(name, honours) or name in _ELSEWHERE:
            continue
        elif meant := _meant(name):
            yield messages.unknown_annotation(name, meant)
        elif name.startswith(_OF_OTHERS):
            others.append(name)
    if others:
        yield messages.foreign_annotations(others)


def _fields(service: Service, ips: frozenset[str], honours: frozenset[str]) -> Iterable[Notice]:
    spec = service.spec
    if spec.session_affinity == "ClientIP" and Honoured.SESSION_AFFINITY not in honours:
        yield messages.field_ignored(
            Honoured.SESSION_AFFINITY,
            spec.session_affinity,
            "a client may be sent to another node with each connection",
        )
    if spec.external_traffic_policy == "Local" and Honoured.EXTERNAL_TRAFFIC_POLICY not in honours:
        yield messages.field_ignored(
            Honoured.EXTERNAL_TRAFFIC_POLICY,
            spec.external_traffic_policy,
            f"connections may go to nodes without an endpoint, which drop them, whatever healthCheckNodePort "
            f"{spec.health_check_node_port} says",
        )
    asked = spec.load_balancer_ip
    if asked and Honoured.LOAD_BALANCER_IP not in honours and asked not in ips:
        yield messages.field_ignored(Honoured.LOAD_BALANCER_IP, asked, "the address is chosen by the cloud")
    hints = [f"{port.app_protocol} for port {port.port}" for port in spec.ports if port.app_protocol]
    if hints and Honoured.APP_PROTOCOL not in honours:
        yield messages.app_protocol_ignored(hints)


def _known(service: Service, name: str, honours: frozenset[str]) -> Iterable[Notice]:
    value, options = service.metadata.annotations[name], ccm_annotations.parse(service)
    if name == ccm_annotations.SOURCE_RANGES and service.spec.load_balancer_source_ranges:
        without_field = service.model_copy(
            update={"spec": service.spec.model_copy(update={"load_balancer_source_ranges": ()})}
        )
        try:
            same = set(ccm_annotations.source_ranges(without_field)) == set(options.source_ranges)
        except TerminalError:
            same = False
        if not same:
            yield messages.annotation_ignored(name, value, "the field spec.loadBalancerSourceRanges goes before it")
    of_proxy_protocol = name in (ccm_annotations.PROXY_PROTOCOL, ccm_annotations.PROXY_PROTOCOL_PORTS)
    asked = of_proxy_protocol and options.proxy_protocol is not ccm_annotations.ProxyProtocol.NONE
    if asked and Honoured.PROXY_PROTOCOL not in honours:
        yield messages.annotation_ignored(name, value, "the backend does not say that it speaks PROXY protocol")
    if name == ccm_annotations.HEALTH_CHECK_PROTOCOL and Honoured.HEALTH_CHECK_PROTOCOL not in honours:
        yield messages.annotation_ignored(name, value, "the backend does not say that it chooses health checks by it")


def _for_the_backend(service: Service, name: str, ips: frozenset[str], honours: frozenset[str]) -> Iterable[Notice]:
    value = service.metadata.annotations[name]
    has_it = name == ccm_annotations.ADDRESSES and ips.issuperset(ccm_annotations.parse(service).addresses)
    if name in _CARRIED_OUT_BY_BACKENDS and name not in honours and value != "false" and not has_it:
        yield messages.annotation_ignored(name, value, _CARRIED_OUT_BY_BACKENDS[name])


def _addresses(service: Service, ips: frozenset[str], honours: frozenset[str]) -> Iterable[Notice]:
    """What was asked for after the load balancer was made, or of one that was taken over."""
    by_annotation = ccm_annotations.ADDRESSES in service.metadata.annotations
    lacking = [one for one in ccm_annotations.parse(service).addresses if one not in ips]
    if lacking and ips and (ccm_annotations.ADDRESSES if by_annotation else Honoured.LOAD_BALANCER_IP) in honours:
        yield messages.address_not_given(lacking, sorted(ips))


def _named_in(name: str, honours: frozenset[str]) -> bool:
    return name in honours or any(one.endswith("*") and name.startswith(one[:-1]) for one in honours)


def _meant(name: str) -> Sequence[str]:
    """What a slip of the pen in the name of a known annotation was to be; all of ours where nothing is near; () for another's."""
    own = sorted(one.removeprefix(OWN) for one in KNOWN if one.startswith(OWN))
    last = name.rpartition("/")[2]
    if name.startswith("ccm-lb") or name in own:
        return [OWN + one for one in difflib.get_close_matches(last, own, n=1) or own]
    if name.startswith(_OF_OTHERS) and "source" in name:
        return difflib.get_close_matches(name, [ccm_annotations.SOURCE_RANGES], n=1, cutoff=0.9)
    return ()
