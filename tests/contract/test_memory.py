"""The in-memory backend keeps the provider's contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ccm_lb.errors import CloudUnreachableError
from ccm_lb.testing.conformance import LoadBalancerConformance
from ccm_lb.testing.memory import MemoryBackend, MemoryConfig
from ccm_lb.testing.script import Lost
from tests.contract.inspectors import MemoryInspector


class TestMemory(LoadBalancerConformance):
    backend_class = MemoryBackend

    @pytest.fixture
    def config(self) -> MemoryConfig:
        return MemoryConfig()

    @pytest.fixture
    def inspector(self, config: MemoryConfig) -> MemoryInspector:
        return MemoryInspector(config.cloud)

    @pytest.fixture
    def lose_next_reply(self, config: MemoryConfig) -> Callable[[], None]:
        def lose() -> None:
            for verb in ("ensure", "delete"):
                config.cloud.script.then(verb, Lost(CloudUnreachableError("lost by the test")))

        return lose
