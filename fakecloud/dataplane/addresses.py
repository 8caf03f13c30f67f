"""The addresses of load balancers, where they have to be put on an interface first."""

from collections.abc import Iterable
from typing import Protocol


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
