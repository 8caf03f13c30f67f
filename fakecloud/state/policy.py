"""What the cloud as it was configured allows."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from fakecloud.models.loadbalancers import LoadBalancerSpec
from fakecloud.models.problems import FieldError
from fakecloud.state.networks import AddressSet


class AddressMode(StrEnum):
    """Where the addresses of load balancers come from."""

    LOOPBACK = "loopback"
    INTERFACE = "interface"
    SHARED = "shared"

    def family_refusal(self, family: str) -> str | None:
        """Why a load balancer can't have an address of this family, or None."""
        if family == "IPv6" and self is not AddressMode.INTERFACE:
            reason = {
                AddressMode.LOOPBACK: "IPv6 has no network like 127/8 to take addresses from",
                AddressMode.SHARED: "all load balancers share one address, which is IPv4",
            }[self]
            return f"{reason}: serve with --addresses interface"
        return None


@dataclass(frozen=True)
class Policy:
    """Limits of requests that change something."""

    target_networks: AddressSet
    addresses: AddressMode = AddressMode.LOOPBACK
    max_load_balancers: int = 10_000
    delivery: Literal["proxy", "direct"] = "proxy"

    def undeliverable(self, spec: LoadBalancerSpec) -> Iterator[FieldError]:
        """What only a cloud can do that opens connections of its own; ignoring it would be worse than refusing it."""
        if self.delivery == "proxy":
            return
        for index, listener in enumerate(spec.listeners):
            if listener.proxy_protocol != "none":
                reason = "the connection is the client's own, so nobody can put a header before it"
                yield _needs_proxy(f"listeners[{index}].proxyProtocol", reason, listener.proxy_protocol)
        if spec.algorithm == "least-connections":
            reason = "who chooses is the kernel, which can't tell how many connections a node has; take round-robin or source-hash"
            yield _needs_proxy("algorithm", reason, spec.algorithm)
        if spec.connection_limit is not None:
            reason = "connections end at the nodes, and are not seen to end here"
            yield _needs_proxy("connectionLimit", reason, spec.connection_limit)


def _needs_proxy(field: str, reason: str, value: object) -> FieldError:
    name = field.rpartition(".")[2]
    return FieldError(field=field, message=f"{name} {value} needs --delivery proxy: {reason}", value=value)
