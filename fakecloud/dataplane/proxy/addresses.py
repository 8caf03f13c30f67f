"""The addresses of load balancers, where they have to be put on an interface first."""

import contextlib
from collections.abc import Iterable
from typing import Protocol

from fakecloud.dataplane.netlink import Netlink, NetlinkError


class AddressError(Exception):
    """An address can't be had; the message says why and what helps."""


class Addresses(Protocol):
    """Claiming twice is fine, and so is releasing what is not there."""

    def missing(self, address: str) -> bool:
        """Whether the address has to be claimed before it can be listened on."""
        ...

    def claim(self, address: str) -> None:
        """Raises AddressError."""
        ...

    def release(self, addresses: Iterable[str]) -> None: ...


class PresentAddresses:
    """Those that the machine has anyway: all of 127/8, or the one that is shared."""

    def missing(self, address: str) -> bool:  # noqa: ARG002
        return False

    def claim(self, address: str) -> None:
        """It is there."""

    def release(self, addresses: Iterable[str]) -> None:
        """It stays."""


class InterfaceAddresses:
    """Puts each load balancer's address on an interface, and takes away what it has put there."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._claimed: set[str] = set()

    def missing(self, address: str) -> bool:
        return address not in self._claimed

    def claim(self, address: str) -> None:
        if address in self._claimed:
            return
        try:
            self._netlink.add_address(address)
        except NetlinkError as error:
            raise AddressError(str(error)) from error
        self._claimed.add(address)

    def release(self, addresses: Iterable[str]) -> None:
        for address in set(addresses) & self._claimed:
            self._claimed.discard(address)
            # One that can't be removed is in nobody's way, and the next claim takes it up.
            with contextlib.suppress(NetlinkError):
                self._netlink.remove_address(address)
