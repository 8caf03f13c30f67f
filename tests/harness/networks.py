"""Networks of 127.0.0.0/8 for a test alone: suites run side by side, and all of them share this machine's loopback."""

import contextlib
import random
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved(prefix: str) -> Iterator[str]:
    """
    The first three numbers of a /24 below `prefix` (`127.84`), which no other test of this machine has until the end of the block.

    A socket's name in the kernel reserves it, so that nothing has to be cleared away after a kill. 0 is left for what has a fixed
    address.
    """
    for third in random.sample(range(1, 255), 254):
        network = f"{prefix}.{third}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
            try:
                claim.bind(f"\0ccm-lb-tests/{network}")
            except OSError:
                continue
            yield network
            return
    raise AssertionError(f"each /24 of {prefix}.0.0/16 belongs to a test that runs")
