"""What is to be published of a load balancer, decided from what is known: which addresses, in which order, with which ipMode."""

import dataclasses
from collections.abc import Mapping, Sequence

from ccm_lb import annotations, ipmode, portstatus
from ccm_lb.backends.abilities import Honoured
from ccm_lb.controller import addresses, messages, unheeded
from ccm_lb.controller.messages import Notice
from ccm_lb.errors import CCMError, TerminalError
from ccm_lb.ipmode import Decision, Inputs, Scope, ServiceProxyHint, Traffic
from ccm_lb.kube import patches
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, Service


@dataclasses.dataclass(frozen=True)
class Circumstances:
    """What a decision needs to know beyond the Service; `traffic` and `honours` are the backend's, None for one that decides by itself."""

    traffic: Traffic | None
    owners: addresses.Owners
    allowed: frozenset[addresses.Kind]
    service_proxy: ServiceProxyHint = ServiceProxyHint.UNKNOWN
    honours: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Draft:
    """What is to be published, and what is to be told of it; `modes` are the decisions, by IP."""

    status: LoadBalancerStatus
    modes: Mapping[str, Decision]
    notices: tuple[Notice, ...]


def checked(service: Service, answer: object) -> LoadBalancerStatus:
    """
    A backend's answer, which is other people's code, in the form of `patches.comparable`.

    Raises CCMError: it is unusable.
    """
    if not isinstance(answer, LoadBalancerStatus):
        raise CCMError("service status returned by EnsureLoadBalancer is nil")
    try:
        entries = patches.checked(answer).ingress
        return LoadBalancerStatus(ingress=tuple(portstatus.completed(one, service) for one in entries))
    except ValueError as error:
        raise CCMError(f"the backend returned an unusable address: {error}") from error


def fit(
    service: Service, ingress: Sequence[LoadBalancerIngress], around: Circumstances
) -> tuple[tuple[LoadBalancerIngress, ...], tuple[Notice, ...]]:
    """
    The entries that may be published, in their order, and what is said of the others.

    Raises TerminalError: there are some, and none of them may be published.
    """
    ours, foreign = addresses.in_order(ingress, service.spec.ip_families)
    refusals = {one: addresses.refusal(one.ip, around.owners, around.allowed) if one.ip else "" for one in ours}
    families = ", ".join(service.spec.ip_families)
    reasons = [
        *filter(None, refusals.values()),
        *(f"{one.ip} is not published: the Service's spec.ipFamilies is {families}" for one in foreign),
    ]
    entries = tuple(one for one in ours if not refusals[one])
    if ingress and not entries:
        raise TerminalError(f"no address of the load balancer can be published: {'; '.join(reasons)}")
    lacking = addresses.missing(entries, service.spec.ip_families)
    said = [messages.not_published(reason) for reason in reasons]
    return entries, (*said, *([messages.missing(lacking)] if lacking else []))


def draft(
    service: Service,
    entries: Sequence[LoadBalancerIngress],
    around: Circumstances,
    kept: Mapping[str, IPMode | str] | None = None,
) -> Draft:
    """
    Choose the ipMode of each entry that has an IP.

    `kept` is given where the API server refused the annotation's value: the modes, by IP, that stay.
    """
    override = annotations.ip_mode(service)
    modes: dict[str, Decision] = {}
    for one in entries:
        if one.ip and kept is not None:
            modes[one.ip] = _kept(inputs(service, one, around, None), kept.get(one.ip))
        elif one.ip:
            modes[one.ip] = ipmode.decide(inputs(service, one, around, override))
    ingress = tuple(one.model_copy(update={"ip_mode": modes[one.ip].mode}) if one.ip else one for one in entries)
    said = [
        *_of_modes(modes),
        *([messages.refused(str(override))] if kept is not None else []),
        *_of_ports(service, ingress),
        *unheeded.notices(service, ingress, around.honours),
    ]
    return Draft(LoadBalancerStatus(ingress=ingress), modes, tuple(said))


def overtakes(service: Service, around: Circumstances) -> bool:
    """
    Whether a published address has to leave VIP before the cloud is asked: a port is to get what only the load balancer does.

    With VIP nodes miss the load balancer. Between its change and a later write of the status, pods that wait for a PROXY header would
    get connections without one. The way back needs no such step: VIP is written when the cloud has answered.
    """
    override = annotations.ip_mode(service)
    given = [
        inputs(service, one, around, override)
        for one in patches.comparable(service.status.load_balancer).ingress
        if one.ip_mode is IPMode.VIP
    ]
    return any(one.needy and ipmode.decide(one).mode is not IPMode.VIP for one in given)


def inputs(service: Service, entry: LoadBalancerIngress, around: Circumstances, override: str | None) -> Inputs:
    """What decides about one entry with an IP; about one that has none yet, as far as that can be said."""
    ip = entry.ip or ""
    enforced = True if Honoured.SOURCE_RANGES in around.honours else None
    return Inputs(
        traffic=around.traffic or Traffic(default=entry.ip_mode, enforces_source_ranges=enforced),
        scope=addresses.scope(ip) if ip else Scope.PUBLIC,
        override=override,
        source_ranges=annotations.restricts(annotations.source_ranges(service)),
        known_to_kube_proxy=bool(service.spec.load_balancer_source_ranges),
        local_policy=service.spec.external_traffic_policy == "Local",
        service_proxy=around.service_proxy,
        taken=around.owners.taken(ip),
    )


def _kept(given: Inputs, mode: IPMode | str | None) -> Decision:
    # VIP is not kept where ports need the load balancer: they may have begun to in the same edit as the annotation's value.
    if mode is None or (mode is IPMode.VIP and given.needy):
        return ipmode.decide(given)
    decision = ipmode.decide(dataclasses.replace(given, override=mode))
    return dataclasses.replace(decision, reason=f"it stays until the annotation {annotations.IP_MODE} is right")


def _of_modes(modes: Mapping[str, Decision]) -> list[Notice]:
    """What is said of the modes; addresses for which the same holds share a notice."""
    alike: dict[Decision, list[str]] = {}
    for ip, decision in modes.items():
        alike.setdefault(decision, []).append(ip)
    said = []
    for decision, ips in alike.items():
        said.append(messages.chosen(decision.mode, ips, decision.reason))
        said += [messages.mixed(decision.mixture)] if decision.mixture else []
        said += [messages.conflict(decision.mode, ips, warning) for warning in decision.warnings]
    return said


def _of_ports(service: Service, ingress: Sequence[LoadBalancerIngress]) -> list[Notice]:
    said = []
    if unknown := annotations.unknown_ports(service):
        said.append(messages.unknown_ports(annotations.PROXY_PROTOCOL_PORTS, unknown))
    if errors := portstatus.errors(ingress):
        said.append(messages.ports_not_served(errors))
    return said


def moved(before: LoadBalancerStatus, now: LoadBalancerStatus) -> list[Notice]:
    """What is to be told if an address that was published is not any more; nothing for one that is new beside it."""
    had, has = ([one.ip or one.hostname or "" for one in status.ingress] for status in (before, now))
    return [messages.address_changed(had, has)] if set(had) - set(has) else []


def hostname(service: Service, suffix: str) -> str:
    """The host name to publish where the API server has no ipMode: the annotation's, or by `suffix`; empty: none."""
    named = annotations.parse(service).hostname
    return named or (f"{service.key.name}.{service.key.namespace}.{suffix.strip('.')}" if suffix else "")


def with_hostname(status: LoadBalancerStatus, name: str) -> LoadBalancerStatus:
    """The status with `name` in place of the IPs whose mode is not VIP."""
    replaced = patches.other_modes(status)
    entries = [
        LoadBalancerIngress(hostname=name, ports=one.ports) if one.ip in replaced else one for one in status.ingress
    ]
    return LoadBalancerStatus(ingress=tuple(dict.fromkeys(entries)))
