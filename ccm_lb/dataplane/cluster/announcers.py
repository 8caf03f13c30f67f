"""
Load balancers that live in the cluster itself, such as MetalLB: known by what runs them, and told which of them serves a Service.

What makes a difference is what they deliver to. Most announce the address from a node, which then gets packets for the address itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ccm_lb.dataplane import workloads
from ccm_lb.dataplane.cluster import replacements
from ccm_lb.dataplane.cluster.observed import Object, Observed, Withheld
from ccm_lb.dataplane.files import convert
from ccm_lb.dataplane.model import Delivery, Evidence
from ccm_lb.dataplane.workloads import Program
from ccm_lb.objects import Service


@dataclasses.dataclass(frozen=True)
class Announcer:
    """One that runs here. `own_class`: the loadBalancerClass of its Services; empty where it takes those without one."""

    name: str
    delivery: Delivery
    source: str  # "DaemonSet metallb-system/speaker"
    own_class: str = ""

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.source, _FACTS[self.delivery].format(name=self.name))

    def as_json(self) -> dict[str, Any]:
        """For `--output json`; the keys are part of the command line's promise."""
        return {
            "name": self.name,
            "delivery": self.delivery.value,
            "source": self.source,
            "loadBalancerClass": self.own_class or None,
        }


_FACTS = {
    Delivery.ADDRESS: "{name} announces addresses from the nodes and delivers to the address itself, where ipMode VIP is right",
    Delivery.NODE_PORT: "{name} serves addresses and delivers to the nodes' ports, where ipMode Proxy is right",
}


def find(seen: Observed) -> tuple[Announcer, ...]:
    """Those that run on any node, each once."""
    found: dict[str, Announcer] = {}
    running = [one for one in seen.known_daemonsets if workloads.scheduled(one) != 0]
    static = (
        []
        if isinstance(seen.pods, Withheld)
        else [one for one in seen.pods if workloads.name(one).startswith("kube-vip")]
    )
    for kind, obj in [*(("DaemonSet", one) for one in running), *(("Pod", one) for one in static)]:
        for one in _of(seen, kind, obj):
            found.setdefault(one.name, one)
    return tuple(found.values())


def evidence(seen: Observed) -> tuple[Evidence, ...]:
    """What is to be said of them beside the service proxy."""
    return tuple(one.evidence for one in find(seen))


@dataclasses.dataclass(frozen=True)
class Serving:
    """What a Service's load balancer delivers to, None where nobody in the cluster serves it; and by what that is known."""

    delivery: Delivery | None
    reason: str


def serving(service: Service, found: Sequence[Announcer]) -> Serving:
    """
    What the Service's load balancer delivers to.

    By what is written on the Service, then by its class, then by what runs here. A clean-up finalizer is a cloud controller's.
    """
    for mark, name, delivery in _MARKS:
        if mark in service.metadata.annotations:
            return Serving(_exact(service, name, delivery), f"{name} serves it: annotation {mark}")
    wanted = service.spec.load_balancer_class or ""
    if wanted in _CLASSES:
        name, delivery = _CLASSES[wanted]
        return Serving(_exact(service, name, delivery), f"{name} serves it: loadBalancerClass {wanted}")
    finalizer = next((one for one in service.metadata.finalizers if "load-balancer-cleanup" in one), "")
    if finalizer:
        return Serving(None, f"a cloud's controller serves it: finalizer {finalizer}")
    for one in found:
        if one.own_class == wanted:
            why = f"loadBalancerClass {wanted}" if wanted else f"{one.source} runs here, and the Service names no other"
            return Serving(_exact(service, one.name, one.delivery), f"{one.name} serves it: {why}")
    return Serving(None, "nothing in the cluster shows who serves it")


_MARKS = (
    ("metallb.io/ip-allocated-from-pool", "MetalLB", Delivery.ADDRESS),
    ("metallb.universe.tf/ip-allocated-from-pool", "MetalLB", Delivery.ADDRESS),
    ("kube-vip.io/vipHost", "kube-vip", Delivery.ADDRESS),
    ("purelb.io/allocated-by", "PureLB", Delivery.ADDRESS),
)
_CLASSES = {
    "io.cilium/l2-announcer": ("Cilium L2 announcements", Delivery.ADDRESS),
    "io.cilium/bgp-control-plane": ("Cilium BGP", Delivery.ADDRESS),
    "kube-vip.io/kube-vip-class": ("kube-vip", Delivery.ADDRESS),
    "loxilb.io/loxilb": ("LoxiLB", Delivery.NODE_PORT),
}
_LOXILB_PODS = "loxilb.io/usepodnetwork"


def _exact(service: Service, name: str, delivery: Delivery) -> Delivery:
    """LoxiLB alone is told by the Service whether to speak to pods."""
    to_pods = name == "LoxiLB" and service.metadata.annotations.get(_LOXILB_PODS) == "yes"
    return Delivery.POD if to_pods else delivery


# ---- by what runs


def _of(seen: Observed, kind: str, obj: Object) -> Iterator[Announcer]:
    where, name = workloads.title(kind, obj), workloads.name(obj)
    programs = list(workloads.programs(obj))
    for program in programs:
        known = _BY_PROGRAM.get(program.image_name)
        if known is not None and known.runs(name, program):
            yield Announcer(known.name, known.delivery, where, known.own_class(program))
        elif name == "metallb-speaker":
            yield Announcer("MetalLB", Delivery.ADDRESS, where)
    if name == "cilium":
        yield from _cilium(where, replacements.data(seen, obj, "cilium-config"))
    if name == "antrea-agent" and replacements.antrea_gates(seen, obj).get("ServiceExternalIP") is True:
        yield Announcer("Antrea", Delivery.ADDRESS, where)


def _cilium(where: str, data: Mapping[str, Any]) -> Iterator[Announcer]:
    """LB-IPAM only gives addresses; what makes them reachable is one of these."""
    for key, name in (
        ("enable-l2-announcements", "Cilium L2 announcements"),
        ("enable-bgp-control-plane", "Cilium BGP"),
    ):
        if str(data.get(key, "")).lower() == "true":
            yield Announcer(name, Delivery.ADDRESS, where)


def _any(_name: str, _program: Program) -> bool:
    return True


def _no_class(_program: Program) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class _Known:
    """A program by its image: `runs` by the workload's name and the program whether it is really this one, and serves Services."""

    name: str
    delivery: Delivery = Delivery.ADDRESS
    runs: Callable[[str, Program], bool] = _any
    own_class: Callable[[Program], str] = _no_class


def _flag(program: Program, name: str) -> str:
    return convert.flags(program.command).get(name, "")


def _is_metallb(name: str, program: Program) -> bool:
    return name == "speaker" or "metallb" in f"{name} {program.image}"


def _kube_vip_services(_name: str, program: Program) -> bool:
    """It can be there for the control plane alone."""
    return program.env.get("svc_enable", "").lower() == "true" or _flag(program, "services") == "true"


def _kube_vip_class(program: Program) -> str:
    only = program.env.get("lb_class_only", "").lower() == "true"
    return program.env.get("lb_class_name", "kube-vip.io/kube-vip-class") if only else ""


def _advertises(_name: str, program: Program) -> bool:
    return _flag(program, "advertise-loadbalancer-ip") == "true"


_BY_PROGRAM: Mapping[str, _Known] = {
    "speaker": _Known("MetalLB", runs=_is_metallb, own_class=lambda program: _flag(program, "lb-class")),
    "metallb-speaker": _Known("MetalLB", own_class=lambda program: _flag(program, "lb-class")),
    "kube-vip": _Known("kube-vip", runs=_kube_vip_services, own_class=_kube_vip_class),
    "lbnodeagent": _Known("PureLB"),
    "openelb": _Known("OpenELB"),
    "openelb-speaker": _Known("OpenELB"),
    "kube-router": _Known("kube-router", runs=_advertises),
    # Its controller makes rules for the nodes' addresses and node ports.
    "loxilb": _Known("LoxiLB", Delivery.NODE_PORT, own_class=lambda _: "loxilb.io/loxilb"),
    # It takes the node's own address and hands connections to the Service.
    "klipper-lb": _Known("k3s ServiceLB", Delivery.NODE_PORT),
}
