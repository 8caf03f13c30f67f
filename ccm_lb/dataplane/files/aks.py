"""
The kube-proxy configuration of Azure Kubernetes Service: the JSON file of `az aks create|update --kube-proxy-config FILE`.

Keys are read in any case, because Microsoft's own page writes `tcpFinTimeoutSeconds` in one place and `TCPFINTimeoutSeconds` in another,
and written as the API (Microsoft.ContainerService, ContainerServiceNetworkProfileKubeProxyConfig) has them.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ccm_lb.dataplane.files import findings
from ccm_lb.dataplane.files.documents import Document
from ccm_lb.dataplane.files.findings import Finding, Severity


class AksMode(enum.StrEnum):
    IPTABLES = "IPTABLES"
    IPVS = "IPVS"
    NFTABLES = "NFTABLES"


class AksScheduler(enum.StrEnum):
    LEAST_CONNECTION = "LeastConnection"
    ROUND_ROBIN = "RoundRobin"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="forbid")


class IpvsConfig(_Model):
    """All of it is optional; what is absent is the service's to choose. Timeouts in seconds."""

    scheduler: AksScheduler | None = None
    tcp_timeout_seconds: int | None = Field(default=None, gt=0)  # idle TCP sessions
    tcp_fin_timeout_seconds: int | None = Field(default=None, gt=0)  # TCP sessions after a FIN
    udp_timeout_seconds: int | None = Field(default=None, gt=0)  # idle UDP sessions


class AksKubeProxyConfig(_Model):
    enabled: bool = True
    mode: AksMode = AksMode.IPTABLES
    ipvs_config: IpvsConfig | None = None

    def to_json(self) -> str:
        """The file, keys as the API writes them; what was not given is not written."""
        content = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return json.dumps(content, indent=2) + "\n"


KEYS = ("enabled", "mode", "ipvsConfig")
IPVS_KEYS = ("scheduler", "tcpTimeoutSeconds", "tcpFinTimeoutSeconds", "udpTimeoutSeconds")
Values = Mapping[str, tuple[tuple[str, ...], Any]]
"""Of one object: by the API's key, where it stands (as written) and what it is."""

_LARGEST = 2**31 - 1  # the API's integers have 32 bits


def parse(document: Document) -> tuple[AksKubeProxyConfig | None, list[Finding]]:
    """The configuration, None when the service would refuse it; and everything there is to say about the file."""
    said = list(_check(document))
    if findings.refused(said):
        return None, said
    content = _spelled(document.content, KEYS)
    if content.get("ipvsConfig") is not None:
        content["ipvsConfig"] = _spelled(content["ipvsConfig"], IPVS_KEYS)
    # null is what the API calls "not given".
    given = {name: value for name, value in content.items() if value is not None}
    if "ipvsConfig" in given:
        given["ipvsConfig"] = {name: value for name, value in given["ipvsConfig"].items() if value is not None}
    config = AksKubeProxyConfig.model_validate(given)
    return config, [*said, *_advice(document, config)]


def _spelled(content: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    names = {name.lower(): name for name in known}
    return {names[name.lower()]: value for name, value in content.items()}


def _check(document: Document) -> Iterator[Finding]:
    if not document.is_json:
        yield document.finding(Severity.ERROR, (), "the Azure CLI reads JSON, and this file is not")
    if not isinstance(document.content, dict):
        yield document.finding(Severity.ERROR, (), "not an object", value=document.content, allowed="{...}")
        return
    values = yield from _keys(document, (), document.content, KEYS)
    yield from _bool(document, values, "enabled")
    yield from _word(document, values, "mode", tuple(AksMode))
    yield from _ipvs(document, values)
    yield from _disabled(document, values)


def _keys(
    document: Document, place: tuple[str, ...], content: Mapping[str, Any], known: tuple[str, ...]
) -> Generator[Finding, None, Values]:
    """Complains of unknown and repeated keys; returns the places and values of the known ones."""
    names = {name.lower(): name for name in known}
    values: dict[str, tuple[tuple[str, ...], Any]] = {}
    for written, value in content.items():
        path = (*place, str(written))
        name = names.get(str(written).lower())
        if name is None:
            near = findings.nearest(str(written), known)
            yield document.finding(Severity.ERROR, path, "unknown key", allowed=", ".join(known), nearest=near)
        elif name in values:
            first = ".".join(values[name][0])
            yield document.finding(Severity.ERROR, path, f"stands here twice, the other time as {first}")
        else:
            values[name] = (path, value)
    for twice in document.twice:
        if twice[:-1] == place:
            yield document.finding(Severity.ERROR, twice, "stands here twice; only the last one would count")
    return values


def _bool(document: Document, values: Values, name: str) -> Iterator[Finding]:
    path, value = values.get(name, ((), None))
    if value is not None and not isinstance(value, bool):
        yield document.finding(Severity.ERROR, path, "not a boolean", value=value, allowed="true or false")


def _word(document: Document, values: Values, name: str, allowed: tuple[str, ...]) -> Iterator[Finding]:
    path, value = values.get(name, ((), None))
    if value is None or value in allowed:
        return
    near = findings.nearest(value, allowed) if isinstance(value, str) else ""
    wrong_case = isinstance(value, str) and value.upper() in {one.upper() for one in allowed}
    message = "written in another case than the service's" if wrong_case else f"not a {name}"
    yield document.finding(Severity.ERROR, path, message, value=value, allowed=_or(allowed), nearest=near)


def _ipvs(document: Document, values: Values) -> Iterator[Finding]:
    path, value = values.get("ipvsConfig", ((), None))
    if value is None:
        return
    if not isinstance(value, dict):
        yield document.finding(Severity.ERROR, path, "not an object", value=value, allowed="{...}")
        return
    mode = values.get("mode", ((), None))[1]
    if mode != AksMode.IPVS and not (isinstance(mode, str) and mode.upper() == AksMode.IPVS):
        message = f"only with mode IPVS, and the mode is {mode or f'{AksMode.IPTABLES.value} (the default)'}"
        yield document.finding(Severity.ERROR, path, message)
    inner = yield from _keys(document, path, value, IPVS_KEYS)
    yield from _word(document, inner, "scheduler", tuple(AksScheduler))
    for name in IPVS_KEYS[1:]:
        where, seconds = inner.get(name, ((), None))
        if seconds is None:
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds <= _LARGEST:
            allowed = f"whole seconds from 1 to {_LARGEST}"
            yield document.finding(Severity.ERROR, where, "not a positive integer", value=seconds, allowed=allowed)


def _disabled(document: Document, values: Values) -> Iterator[Finding]:
    if values.get("enabled", ((), None))[1] is not False:
        return
    for name in ("mode", "ipvsConfig"):
        path, value = values.get(name, ((), None))
        if value is not None:
            message = "means nothing with enabled false: no kube-proxy is deployed"
            yield document.finding(Severity.WARNING, path, message)


def _advice(document: Document, config: AksKubeProxyConfig) -> Iterator[Finding]:
    def say(message: str, *path: str) -> Finding:
        written = next((one for one in document.lines if [str(step).lower() for step in one] == list(path)), path)
        return document.finding(Severity.ADVICE, written, message)

    if not config.enabled:
        yield say(
            "for bring-your-own CNI only: something else must implement Services, or none of them is reachable",
            "enabled",
        )
        return
    if config.mode is AksMode.IPVS:
        yield say("Azure Network Policy does not work with IPVS", "mode")
        yield say(
            "upstream deprecates IPVS: kube-proxy has it off by default from 1.40 on and without it from 1.43 on",
            "mode",
        )
    if config.mode is AksMode.NFTABLES:
        yield say("newer API versions of the service take it, older ones know IPTABLES and IPVS alone", "mode")
    if config.ipvs_config is not None and config.ipvs_config.scheduler is AksScheduler.LEAST_CONNECTION:
        message = "each node counts its own connections alone: with fewer than 2 x nodes of them the load is uneven"
        yield say(message, "ipvsconfig", "scheduler")
    yield say("it holds for the whole cluster, and changing it interrupts the traffic of Services for a moment")


def _or(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
