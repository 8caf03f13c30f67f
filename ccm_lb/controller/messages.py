"""What a Service's user is told of published addresses, each once: event reasons and words that are ours, not upstream's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from ccm_lb.objects import PortStatus
from ccm_lb.portstatus import CONDITION, words

EventType = Literal["Normal", "Warning"]
NAMED_NODES = 20
CHOSEN = "IPModeChosen"
NAMED_ANNOTATIONS = 10
NAMED_DIFFERENCES = 5
DRIFTED = "LoadBalancerDrifted"

TYPES: Mapping[str, EventType] = {
    CHOSEN: "Normal",
    "IPModeMixed": "Normal",
    "IPModeConflict": "Warning",
    "IPModeRefused": "Warning",
    "IPModeNotStored": "Warning",
    "IPModeIgnored": "Warning",
    "AddressNotPublished": "Warning",
    "AddressMissing": "Warning",
    "AddressNotGiven": "Warning",
    "AddressChanged": "Warning",
    "UnknownPort": "Warning",
    "FieldIgnored": "Warning",
    "AnnotationIgnored": "Warning",
    "AppProtocolIgnored": "Normal",
    CONDITION: "Warning",
    "LoadBalancerContested": "Warning",
    DRIFTED: "Warning",
}
"""Every reason and the type of its event."""


class Notice(NamedTuple):
    """One event: its reason out of `TYPES`, and its message."""

    reason: str
    message: str


def chosen(mode: str, ips: Sequence[str], because: str) -> Notice:
    return Notice(CHOSEN, f"ipMode {mode} for {', '.join(ips)}: {because}")


def mixed(sentence: str) -> Notice:
    return Notice("IPModeMixed", sentence)


def conflict(mode: str, ips: Sequence[str], warning: str) -> Notice:
    return Notice("IPModeConflict", f"ipMode {mode} for {', '.join(ips)}: {warning}")


def refused(value: str) -> Notice:
    return Notice(
        "IPModeRefused",
        f'annotation ccm-lb.dev/ip-mode is "{value}", which the API server does not take: expected VIP or Proxy; '
        "the ipMode stays what it was, or what it is by default",
    )


def not_stored(modes: Mapping[str, str], hostnames: Sequence[str]) -> Notice:
    """`modes` by IP; `hostnames` are published in place of these addresses."""
    wanted = ", ".join(f"{mode} for {ip}" for ip, mode in modes.items())
    instead = (
        f"the host name {', '.join(hostnames)} is published instead"
        if hostnames
        else "clients inside the cluster bypass the load balancer; Kubernetes 1.30 stores it, and until then the annotation "
        "ccm-lb.dev/hostname or --hostname-suffix publishes a host name instead"
    )
    return Notice("IPModeNotStored", f"this API server does not store ipMode ({wanted}): {instead}")


def ignored(modes: Iterable[str], nodes: Sequence[str]) -> Notice:
    names = " ".join(nodes[:NAMED_NODES])
    return Notice(
        "IPModeIgnored",
        f"kube-proxy is older than 1.29 on {len(nodes)} nodes and ignores ipMode {', '.join(sorted(set(modes)))}, so that clients there "
        f"bypass the load balancer: [{names}] [node names limited]",
    )


def not_published(why: str) -> Notice:
    return Notice("AddressNotPublished", why)


def address_changed(before: Sequence[str], now: Sequence[str]) -> Notice:
    """Addresses and host names that were published, and those that are."""
    return Notice(
        "AddressChanged",
        f"the published address was {', '.join(before)} and is {', '.join(now) or 'none'} now: whoever kept the old one, such as a DNS "
        "record, does not reach this Service",
    )


def missing(families: Sequence[str]) -> Notice:
    return Notice(
        "AddressMissing",
        f"the load balancer has no {' and no '.join(families)} address, which spec.ipFamilies asks for",
    )


def address_not_given(asked: Sequence[str], has: Sequence[str]) -> Notice:
    return Notice(
        "AddressNotGiven",
        f"{', '.join(asked)} was asked for, but the load balancer has {', '.join(has)} and keeps it: an address is given to a new load "
        "balancer, so delete the Service and make it again, or take the wish back",
    )


def unknown_ports(annotation: str, ports: Sequence[int]) -> Notice:
    return Notice(
        "UnknownPort",
        f"annotation {annotation} names ports that the Service does not have: {', '.join(map(str, ports))}",
    )


def field_ignored(field: str, value: str, effect: str) -> Notice:
    return Notice("FieldIgnored", f"{field} is {value}, which the backend does not say that it carries out: {effect}")


def app_protocol_ignored(hints: Sequence[str]) -> Notice:
    return Notice(
        "AppProtocolIgnored",
        f"appProtocol ({', '.join(hints)}) is a hint that the backend does not say that it uses: bytes are passed on as they are",
    )


def annotation_ignored(name: str, value: str, why: str) -> Notice:
    return Notice("AnnotationIgnored", f'annotation {name} is "{value}" and is not carried out: {why}')


def unknown_annotation(name: str, meant: Sequence[str]) -> Notice:
    """`meant` is the one that is near, or all that there are."""
    instead = f"did you mean {meant[0]}?" if len(meant) == 1 else f"expected one of {', '.join(meant)}"
    return Notice("AnnotationIgnored", f"annotation {name} is not known and is not carried out: {instead}")


def foreign_annotations(names: Sequence[str]) -> Notice:
    more = f" and {len(names) - NAMED_ANNOTATIONS} more" if len(names) > NAMED_ANNOTATIONS else ""
    return Notice(
        "AnnotationIgnored",
        f"annotations for other clouds or controllers are not carried out: {', '.join(names[:NAMED_ANNOTATIONS])}{more}",
    )


def ports_not_served(ports: Sequence[PortStatus]) -> Notice:
    return Notice(CONDITION, f"The load balancer does not serve the ports {words(ports)}")


def contested(what: str, writers: Sequence[str], *, certain: bool) -> Notice:
    """`what` is done again and again by `writers`; not `certain`: they are those who wrote to the Service at all."""
    names = ", ".join(f'"{name}"' for name in writers)
    if certain and names:
        who = f"by the field manager {names}"
    else:
        others = f"; field managers that wrote to this Service: {names}" if names else ""
        who = f"and the API server has no record of by whom{others}"
    return Notice("LoadBalancerContested", f"{what}, {who}")


STATUS_CHANGED = (
    "what is published in status.loadBalancer is changed again and again; it is put back after pauses that grow from 5 to 300 s: "
    "stop the other writer, or give the Service the loadBalancerClass of the one that is to serve it"
)
FINALIZER_TAKEN = (
    "the finalizer that guards the load balancer is taken off again and again; it is put back after pauses that grow from 5 to 300 s, and "
    "a Service deleted in between does not wait for its load balancer's end: stop the other writer"
)
FINALIZER_PUT = (
    "the finalizer of a load balancer is put on again and again, though the Service is to have none here; it is taken off after pauses "
    "that grow from 5 to 300 s: stop the other writer"
)
CONDITIONS_CHANGED = (
    "a condition of the load balancer in status.conditions is changed again and again; it is put back after pauses that grow from 5 to "
    "300 s: stop the other writer"
)
SERVICE_CHANGED = (
    "the Service is changed again and again; its load balancer follows after pauses that grow from 5 to 60 s: find out who "
    "disagrees about it"
)


def undone_by_the_cloud() -> Notice:
    return Notice(
        "LoadBalancerContested",
        "the cloud does not keep what is written to the load balancer, though the Service is the same; it is written again after pauses "
        "that grow from 5 to 300 s: compare the Service's settings with what the cloud supports",
    )


def drifted(differing: Sequence[object], *, repaired: bool) -> Notice:
    """`differing` are the differences, none where the backend does not tell them."""
    wins = (
        "the Service wins: it was put back as the Service asks"
        if repaired
        else "the cloud wins: --drift=report leaves it so"
    )
    return Notice(DRIFTED, f"the load balancer was changed in the cloud: {differences(differing)}; {wins}")


def differences(differing: Sequence[object]) -> str:
    more = f" and {len(differing) - NAMED_DIFFERENCES} more" if len(differing) > NAMED_DIFFERENCES else ""
    return "; ".join(map(str, differing[:NAMED_DIFFERENCES])) + more if differing else "it was not as it was written"


def drifted_again() -> Notice:
    return Notice(
        "LoadBalancerContested",
        "the load balancer is changed in the cloud again and again; it is put back after pauses that grow up to an hour: find out who "
        "changes it there, or leave it to them with the annotation ccm-lb.dev/paused or with --drift=report",
    )


class Told:
    """What each user was told, so that it is said again only when it changes."""

    def __init__(self) -> None:
        self._by_uid: dict[str, frozenset[Notice]] = {}

    def news(self, uid: str, notices: Iterable[Notice], only: str = "") -> list[Notice]:
        """Those of `notices`, which are all that there is to say (of the reason `only`, if given), that are new; noted as told."""
        before, now = self._by_uid.get(uid, frozenset()), list(dict.fromkeys(notices))
        rest = {one for one in before if only and one.reason != only}
        self._by_uid[uid] = frozenset({*rest, *now})
        return [one for one in now if one not in before]

    def forget(self, uid: str) -> None:
        self._by_uid.pop(uid, None)
