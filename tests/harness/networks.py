"""Networks of 127.0.0.0/8 for a test alone: suites run side by side, and all of them share this machine's loopback."""

import contextlib
from collections.abc import Iterator

from fakecloud.networks import claimed


@contextlib.contextmanager
def reserved(prefix: str) -> Iterator[str]:
    """
    The first three numbers of a /24 below `prefix` (`127.84`), which no other test of this machine has until the end of the block.

    0 is left for what has a fixed address.
    """
    with claimed(f"ccm-lb-tests/{prefix}") as third:
        if third is None:
            raise AssertionError(f"each /24 of {prefix}.0.0/16 belongs to a test that runs")
        yield f"{prefix}.{third}"
