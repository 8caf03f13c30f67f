"""Two tests never have the same network."""

import contextlib

import pytest

from tests.harness.networks import reserved


def test_nobody_else_gets_a_network_that_is_in_use() -> None:
    with contextlib.ExitStack() as held:
        networks = [held.enter_context(reserved("127.254")) for _ in range(254)]
        assert len(set(networks)) == 254
        with pytest.raises(AssertionError, match=r"each /24 of 127\.254\.0\.0/16"), reserved("127.254"):
            pass
    with reserved("127.254") as network:
        assert network.startswith("127.254.")
