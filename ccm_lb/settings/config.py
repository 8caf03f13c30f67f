"""
The settings of `ccm-lb run`: one frozen model, from which the flags, the environment variables, the file's keys and the
reference page are made. Names are those of upstream's cloud-controller-manager where it has one.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_GO_DURATION = re.compile(rf"(?:{_GO_PART.pattern})+")
# As the API server checks spec.loadBalancerClass: a name, with an optional DNS prefix before a slash.
_CLASS_NAME = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


class Kind(NamedTuple):
    """How a type is called: in `--help`, and in the message to whoever got it wrong."""

    metavar: str
    expects: str


class Group(NamedTuple):
    """The heading that a setting stands under, in `--help` and in the reference."""

    title: str


def seconds(value: object) -> float:
    """A Go duration ("1m30s", "500ms") or plain seconds, as float seconds. Raises ValueError for anything else."""
    text = str(
        value
    )  # a number too: its text is what float() takes, while true, a list or an endless integer fail alike
    if _GO_DURATION.fullmatch(text):
        amount = sum(float(number) * _GO_UNITS[unit] for number, unit in _GO_PART.findall(text))
    else:
        amount = float(text)
    if not math.isfinite(amount):
        raise ValueError("not finite")
    return amount


def _number(value: object) -> object:
    if isinstance(value, bool):  # YAML's true is a 1 to Python
        raise ValueError("not a number")
    return value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value  # upstream's flags say "not set" by an empty string


def _names(value: object) -> object:
    parts = [value] if isinstance(value, str) else value
    if isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts):
        return [name for part in parts for name in part.replace(",", " ").split()]
    return value


def _ip_address(value: object) -> str:
    return str(ipaddress.ip_address(str(value)))


Text = Annotated[str | None, BeforeValidator(_none_if_empty), Kind("TEXT", "a text")]
File = Annotated[Path | None, BeforeValidator(_none_if_empty), Kind("FILE", "the path of a file")]
Switch = Annotated[bool, Kind("BOOL", "true or false")]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1), Kind("N", "a whole number, 1 or more")]
Port = Annotated[
    int, BeforeValidator(_number), Field(ge=0, le=65535), Kind("PORT", "a port number from 0 to 65535, 0 for off")
]
Duration = Annotated[
    float, BeforeValidator(seconds), Field(gt=0), Kind("DURATION", "a duration above 0 such as 15s, 1m30s, or seconds")
]
Pause = Annotated[
    float, BeforeValidator(seconds), Field(ge=0), Kind("DURATION", "a duration such as 1s, 500ms, 0, or seconds")
]
_AddressKind = Literal["loopback", "link-local", "unspecified", "multicast", "node", "api-server"]
_ClassName = Annotated[str, StringConstraints(pattern=_CLASS_NAME)]
# As the API server checks them: what it would refuse for ever is refused here, at the start.
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LeaseName = Annotated[str, StringConstraints(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=253)]
_LeaseNamespace = Annotated[str, StringConstraints(pattern=rf"^{_LABEL}$", max_length=63)]
_Suffix = Annotated[str, StringConstraints(pattern=rf"^{_LABEL}(\.{_LABEL})*$", max_length=200)]
_SUFFIX = Kind("SUFFIX", "a DNS name such as lb.example.com")
_LEASE_NAME = Kind("NAME", "a name such as ccm-lb, of small letters, digits, - and .")
_LEASE_NAMESPACE = Kind("NAME", "a name such as kube-system, of small letters, digits and -")

_API = Group("Kubernetes API")
_CLOUD = Group("Cloud")
_SERVICES = Group("Services")
_LEASE = Group("Leader election")
_SERVING = Group("Health and metrics")
_PROCESS = Group("Log and process")


class Config(BaseModel):
    """Everything that a user can set. Durations are float seconds. Made once, by `sources.build`, and handed down in parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    cloud_provider: Annotated[str, _CLOUD, Kind("NAME", "the name of an installed backend")] = Field(
        description="The backend that serves load balancers; `ccm-lb backends` lists the installed ones. Required."
    )
    cloud_config: Annotated[File, _CLOUD] = Field(
        default=None,
        description="File (YAML or JSON) with the backend's own settings; none leaves them at their defaults.",
    )
    cluster_name: Annotated[Text, _CLOUD] = Field(
        default=None,
        description="Marks this cluster's load balancers in the cloud, so it must be unique among the clusters of an account and never"
        " change. Unset: the UID of the namespace kube-system, which is both.",
    )
    kubeconfig: Annotated[File, _API] = Field(
        default=None,
        description="File with the address and credentials of the API server. Unset: those that a pod is given.",
    )
    master: Annotated[Text, _API] = Field(
        default=None, description="URL of the API server; takes precedence over the one in the kubeconfig."
    )
    kube_api_qps: Annotated[float | None, BeforeValidator(_number), _API, Kind("N", "a number above 0")] = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Requests per second to the API server. Unset: no limit but what the server asks for (429, Retry-After).",
    )
    kube_api_burst: Annotated[int | None, BeforeValidator(_number), _API, Kind("N", "a whole number, 1 or more")] = (
        Field(
            default=None,
            ge=1,
            description="Requests that may go out at once before --kube-api-qps slows them down. Unset: as many as one second's.",
        )
    )
    load_balancer_class: Annotated[
        tuple[_ClassName, ...],
        BeforeValidator(_names),
        _SERVICES,
        Kind("CLASS", "names such as internal or example.com/internal"),
    ] = Field(
        default=(), description="A spec.loadBalancerClass to serve; may be repeated, or be a list separated by commas."
    )
    handle_unclassed: Annotated[Switch, _SERVICES] = Field(
        default=True,
        description="Serve Services without a class; switch it off where another controller is the default one.",
    )
    allow_addresses: Annotated[
        tuple[_AddressKind, ...],
        BeforeValidator(_names),
        _SERVICES,
        Kind("KINDS", "some of loopback, link-local, unspecified, multicast, node and api-server"),
    ] = Field(
        default=(),
        description="Kinds of addresses that are published although clients elsewhere cannot use them, or a node or the API server has"
        " them too (these get ipMode Proxy), as a list separated by commas.",
    )
    hostname_suffix: Annotated[_Suffix | None, BeforeValidator(_none_if_empty), _SERVICES, _SUFFIX] = Field(
        default=None,
        description="For API servers without ipMode: publish NAME.NAMESPACE.SUFFIX instead of an address that needs ipMode Proxy, so that"
        " clients inside the cluster do not miss the load balancer. The name has to lead to it.",
    )
    concurrent_service_syncs: Annotated[Count, _SERVICES] = Field(
        default=64,
        description="Services worked on at the same time; more is faster where the cloud is slow and allows it.",
    )
    node_sync_debounce: Annotated[Pause, _SERVICES] = Field(
        default=1.0,
        description="Time for which node changes are gathered before load balancers are updated, so that many nodes joining cost few"
        " cloud calls.",
    )
    resync_period: Annotated[Duration, _SERVICES] = Field(
        default=300.0,
        description="Time between two comparisons of what is known with what the API server has; finds what a broken watch lost.",
    )
    drift: Annotated[Literal["repair", "report", "off"], _SERVICES, Kind("WHAT", "repair, report or off")] = Field(
        default="repair",
        description="What is done about load balancers that are changed or deleted in the cloud behind the controller's back: put back,"
        " told by an event only, or not looked for.",
    )
    drift_period: Annotated[Duration, _SERVICES] = Field(
        default=300.0,
        description="Time within which such a change is found. All load balancers are read in pages, one request for a hundred; a backend"
        " without such a list is asked for one a second.",
    )
    delete_orphans_after: Annotated[Pause, _SERVICES] = Field(
        default=0.0,
        description="Time after which a load balancer of this cluster that no Service wants is deleted, since the controller saw it first;"
        " 0: never. `ccm-lb orphans` lists them. Found by the same look as drift.",
    )
    leader_elect: Annotated[Switch, _LEASE] = Field(
        default=True, description="Work only while holding the Lease; without it, run no second replica."
    )
    leader_elect_lease_duration: Annotated[Duration, _LEASE] = Field(
        default=15.0,
        description="Time after the last renewal at which others may take the Lease: the longest gap after a crash.",
    )
    leader_elect_renew_deadline: Annotated[Duration, _LEASE] = Field(
        default=10.0, description="Time without a renewal after which the holder gives up and the process ends with 1."
    )
    leader_elect_retry_period: Annotated[Duration, _LEASE] = Field(
        default=2.0, description="Time between two attempts to take or renew the Lease."
    )
    leader_elect_resource_lock: Annotated[Literal["leases"], _LEASE, Kind("TYPE", "leases")] = Field(
        default="leases", description="Kind of the object that is the lock; there is only this one."
    )
    leader_elect_resource_name: Annotated[_LeaseName, _LEASE, _LEASE_NAME] = Field(
        default="cloud-controller-manager",
        description="Name of the Lease; upstream's by default, so that the two never work at the same time. Installations for different "
        "classes in one cluster each need a name of their own, with --leader-elect=false too.",
    )
    leader_elect_resource_namespace: Annotated[_LeaseNamespace, _LEASE, _LEASE_NAMESPACE] = Field(
        default="kube-system", description="Namespace of the Lease."
    )
    bind_address: Annotated[str, BeforeValidator(_ip_address), _SERVING, Kind("IP", "an IP address")] = Field(
        default="0.0.0.0", description="Address for health checks and metrics; `::` listens on IPv6 too."
    )
    port: Annotated[Port, _SERVING] = Field(
        default=10258, description="Port for health checks and metrics over plain HTTP; 0 switches it off."
    )
    secure_port: Annotated[Port, _SERVING] = Field(
        default=0,
        description="Port for the same over HTTPS, with the certificate below, or with one that is made at the start and signed by nobody;"
        " 0 switches it off. At the number of an unset --port it takes its place.",
    )
    tls_cert_file: Annotated[File, _SERVING] = Field(
        default=None, description="File (PEM) with the certificate for --secure-port, its chain behind it."
    )
    tls_private_key_file: Annotated[File, _SERVING] = Field(
        default=None, description="File (PEM) with the private key of --tls-cert-file."
    )
    v: Annotated[int, BeforeValidator(_number), _PROCESS, Kind("N", "a whole number from 0 to 10")] = Field(
        default=0,
        ge=0,
        le=10,
        description="Verbosity of the log: 0 what changed, 2 decisions too, 4 tracebacks too, 6 the libraries' own messages too.",
    )
    log_format: Annotated[Literal["text", "json"], _PROCESS, Kind("FORMAT", "text or json")] = Field(
        default="text", description="Form of a log line: for eyes, or one JSON object for machines."
    )
    shutdown_grace: Annotated[Pause, _PROCESS] = Field(
        default=8.0,
        description="Time that running cloud calls get to finish after SIGTERM; keep it 2s under the pod's termination grace period.",
    )

    @property
    def http_port(self) -> int:
        """
        The port for plain HTTP, 0 for none.

        Upstream serves HTTPS on the port that is --port's default; who asks for that has no use for plain HTTP there.
        """
        return 0 if "port" not in self.model_fields_set and self.port == self.secure_port else self.port

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if found := "; ".join(_conflicts(self)):
            raise ValueError(found)
        return self


def _conflicts(config: Config) -> Iterator[str]:
    lease, renew, retry = (
        config.leader_elect_lease_duration,
        config.leader_elect_renew_deadline,
        config.leader_elect_retry_period,
    )
    if config.leader_elect and lease < 1:
        yield f"--leader-elect-lease-duration ({lease:g}s) must be at least 1s: a Lease counts whole seconds"
    if config.leader_elect and lease <= renew:
        yield f"--leader-elect-lease-duration ({lease:g}s) must be longer than --leader-elect-renew-deadline ({renew:g}s)"
    # A renewal that is late by client-go's jitter, a fifth, must still get a second try before the deadline.
    if config.leader_elect and renew <= retry * 1.2:
        yield f"--leader-elect-renew-deadline ({renew:g}s) must be longer than 1.2 times --leader-elect-retry-period ({retry:g}s)"
    if (config.tls_cert_file is None) != (config.tls_private_key_file is None):
        yield "--tls-cert-file and --tls-private-key-file must be given together"
    elif config.tls_cert_file is not None and not config.secure_port:
        yield "--tls-cert-file has no effect without --secure-port: name a port, or leave out the certificate"
    if config.secure_port and config.secure_port == config.http_port:
        yield f"--port and --secure-port are both {config.port}: give them different ports, or set one to 0"
    if config.kube_api_burst is not None and config.kube_api_qps is None:
        yield f"--kube-api-burst {config.kube_api_burst} needs --kube-api-qps"
    if config.delete_orphans_after and config.drift == "off":
        yield "--delete-orphans-after has no effect with --drift=off, which does not look at the cloud: use --drift=report, or leave it out"
    if not config.handle_unclassed and not config.load_balancer_class:
        yield "--handle-unclassed=false leaves no Service to serve: give at least one --load-balancer-class"


def kind(field: str) -> Kind:
    """How the field's type is called."""
    return next(one for one in Config.model_fields[field].metadata if isinstance(one, Kind))


def group(field: str) -> str:
    """The heading that the field stands under."""
    return next(one for one in Config.model_fields[field].metadata if isinstance(one, Group)).title
