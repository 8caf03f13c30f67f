"""Which networks load balancers can get addresses from."""

import ipaddress
from collections.abc import Iterable

from fakecloud.state.ipam import Network
from fakecloud.state.policy import AddressMode

_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")


def refusal(network: Network, others: Iterable[Network], mode: AddressMode = AddressMode.LOOPBACK) -> str | None:
    """Why addresses can't be given out of a network, or None when they can."""
    inside = network.version == _LOOPBACK.version and network.subnet_of(_LOOPBACK)  # type: ignore[arg-type]
    if mode is AddressMode.LOOPBACK and not inside:
        return (
            f"lies outside {_LOOPBACK}, where alone any user may bind every address; choose e.g. 127.90.0.0/24, "
            "or serve with --addresses interface"
        )
    clash = next((other for other in others if network.overlaps(other)), None)
    return None if clash is None else f"overlaps the pool {clash}"
