"""Networks of 127.0.0.0/8 for one fakecloud alone: several run on one machine, and all of them share its loopback."""

import contextlib
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

# Beside the pool that `fakecloud serve` has by default.
_POOLS, _NODES = "127.88", "127.89"


class NoNetworkError(Exception):
    """All are taken."""


@dataclass(frozen=True)
class Networks:
    """What one fakecloud has for itself."""

    third: int

    @property
    def pool(self) -> str:
        """Where its load balancers get their addresses."""
        return f"{_POOLS}.{self.third}.0/24"

    def node(self, number: int) -> str:
        """The address of its machine of that number, from 1 to 254."""
        return f"{_NODES}.{self.third}.{number}"


@contextlib.contextmanager
def reserved() -> Iterator[Networks]:
    """Networks that no other process of this machine gets by this function until the end of the block. Raises NoNetworkError."""
    with claimed(f"fakecloud/{_POOLS}") as third:
        if third is None:
            raise NoNetworkError(
                f"each of the 254 networks of {_POOLS}.0.0/16 belongs to a fakecloud that runs; end some"
            )
        yield Networks(third)


@contextlib.contextmanager
def claimed(name: str) -> Iterator[int | None]:
    """
    A number from 1 to 254 that nobody else of this machine claims under `name` until the end of the block; None if all are taken.

    A socket's name in the kernel claims it, so that nothing has to be cleared away after a kill.
    """
    for number in random.sample(range(1, 255), 254):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(f"\0{name}.{number}")
            except OSError:
                continue
            yield number
            return
    yield None
