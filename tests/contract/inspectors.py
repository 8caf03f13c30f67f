"""Looks into the clouds of the contract tests, past the backends."""

from __future__ import annotations

from ccm_lb.testing.bench import Seen
from ccm_lb.testing.memory import MemoryCloud
from fakecloud.cloud.cloud import Cloud


class MemoryInspector:
    def __init__(self, cloud: MemoryCloud) -> None:
        self._cloud = cloud

    async def load_balancers(self, cluster_id: str) -> list[Seen]:
        return [
            Seen(uid, frozenset(one.listeners), frozenset(one.targets), frozenset(one.source_ranges))
            for (cluster, uid), one in self._cloud.load_balancers.items()
            if cluster == cluster_id
        ]


class FakecloudInspector:
    """Reads the running cloud's state itself: neither HTTP nor the backend's client is in between."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def load_balancers(self, cluster_id: str) -> list[Seen]:
        specs = [one.spec for one in self._cloud.state.load_balancers.values()]
        return [
            Seen(
                spec.owner.uid,
                frozenset((one.protocol, one.port, one.target_port) for one in spec.listeners),
                frozenset(target.label for target in spec.targets),
                frozenset(spec.source_ranges),
            )
            for spec in specs
            if spec.owner is not None and spec.owner.cluster == cluster_id
        ]
