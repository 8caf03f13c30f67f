"""What a cloud needs beside its state machine, without sockets and files: for tests of what it decides."""

import itertools
import time
from collections.abc import Iterable, Sequence

from fakecloud.cloud.cloud import Cloud, Surroundings
from fakecloud.cloud.store import Row, StoreError
from fakecloud.config import Settings
from fakecloud.dataplane.delivery import ListenError, Staged
from fakecloud.faults.rules import Armed, Strike
from fakecloud.models.views import LoadBalancerStatus
from fakecloud.state.records import Kind, Record
from fakecloud.state.routes import Route


class PlaneOfRoutes:
    """Remembers the routes that it was told to serve."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        # Addresses that somebody else listens on.
        self.busy: set[str] = set()

    def stage(self, route: Route, *, tolerate: bool = False) -> Staged:
        if self.busy & set(route.addresses) and not tolerate:
            raise ListenError(0, "in use")
        return Staged(route, {}, {}, lambda: None)

    async def activate(self, staged: Staged) -> None:
        self.routes[staged.route.load_balancer_id] = staged.route

    def remove(self, load_balancer_id: str) -> None:
        self.routes.pop(load_balancer_id, None)

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None:
        """Nothing to break."""

    def failing(self) -> Sequence[str]:
        return ()

    def status(self, route: Route) -> LoadBalancerStatus:
        return LoadBalancerStatus(targets=(), listeners=())

    async def close(self) -> None:
        self.routes.clear()

    @property
    def addresses(self) -> list[str]:
        return sorted(address for route in self.routes.values() for address in route.addresses)


class RowStore:
    """Keeps rows as a file does, so that a second cloud can take them up."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Kind, str], str] = {}

    def load(self) -> Sequence[Row]:
        return [Row(kind.value, key, body) for (kind, key), body in self._rows.items()]

    def damaged(self, row: Row, reason: str) -> StoreError:
        return StoreError(f"{row}: {reason}")

    async def commit(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.body is None:
                self._rows.pop((record.kind, record.key), None)
            else:
                self._rows[record.kind, record.key] = record.body.model_dump_json()

    def close(self) -> None:
        """Rows stay."""


def cloud_of(settings: Settings, plane: PlaneOfRoutes, store: RowStore, numbers: "itertools.count[int]") -> Cloud:
    surroundings = Surroundings(store, lambda: "2026-01-01T00:00:00Z", lambda: f"lb-{next(numbers)}", time.monotonic)
    return Cloud(settings, plane, surroundings)
