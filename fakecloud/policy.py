"""What the cloud as it was configured allows."""

from dataclasses import dataclass
from enum import StrEnum

from fakecloud.networks import AddressSet


class AddressMode(StrEnum):
    """Where the addresses of load balancers come from."""

    LOOPBACK = "loopback"
    INTERFACE = "interface"
    SHARED = "shared"

    def family_refusal(self, family: str) -> str | None:
        """Why a load balancer can't have an address of this family, or None."""
        if family == "IPv6" and self is not AddressMode.INTERFACE:
            return "IPv6 has no network like 127/8 to take addresses from: serve with --addresses interface"
        return None


@dataclass(frozen=True)
class Policy:
    """Limits of requests that change something."""

    target_networks: AddressSet
    addresses: AddressMode = AddressMode.LOOPBACK
    max_load_balancers: int = 10_000
