"""How traffic follows the state: by one load balancer's route after another."""

from collections.abc import Sequence
from typing import Any

from fakecloud import errors
from fakecloud.dataplane.delivery import Delivery, ListenError, Staged
from fakecloud.models.loadbalancers import LoadBalancer
from fakecloud.models.problems import FieldError
from fakecloud.models.views import LoadBalancerStatus
from fakecloud.state.records import Change, Kind, Record, State
from fakecloud.state.routes import affected, route_of


class Traffic:
    """Ports are bound before a change is promised (`stage`) and served once it is stored (`follow`)."""

    def __init__(self, plane: Delivery) -> None:
        self._plane = plane

    def stage(self, change: Change[Any]) -> list[Staged]:
        """Raises ProblemError (422) that names the listener whose port can't be had; nothing is bound then."""
        # A server's change must not fail because some load balancer's port can't be had.
        by_server = any(record.kind is Kind.SERVER for record in change.records)
        return [self._bind(change.state, lb, tolerate=by_server) for lb in affected(change.state, change.records)]

    async def follow(self, state: State, records: Sequence[Record], staged: Sequence[Staged]) -> None:
        """Serve what was staged, and no more what these rows have removed."""
        for bound in staged:
            await self._plane.activate(bound)
        for record in records:
            if record.kind is Kind.LOAD_BALANCER and record.key not in state.load_balancers:
                self._plane.remove(record.key)

    async def catch_up(self, state: State, records: Sequence[Record]) -> str | None:
        """Follow the present state of what these rows have changed; a failure as words."""
        try:
            for load_balancer in affected(state, tuple(records)):
                await self._plane.activate(self._plane.stage(route_of(state, load_balancer)))
        except ListenError as error:
            return str(error)
        await self.follow(state, records, ())
        return None

    async def serve(self, state: State, load_balancer: LoadBalancer) -> None:
        """Serve as much of it as can be had; the rest is reported in its status."""
        await self._plane.activate(self._plane.stage(route_of(state, load_balancer), tolerate=True))

    def remove(self, load_balancer_id: str) -> None:
        self._plane.remove(load_balancer_id)

    def failing(self) -> Sequence[str]:
        """The ids of load balancers of which a part could not be served."""
        return self._plane.failing()

    def status(self, state: State, load_balancer: LoadBalancer) -> LoadBalancerStatus:
        return self._plane.status(route_of(state, load_balancer))

    def _bind(self, state: State, load_balancer: LoadBalancer, *, tolerate: bool) -> Staged:
        try:
            return self._plane.stage(route_of(state, load_balancer), tolerate=tolerate)
        except ListenError as error:
            port = load_balancer.spec.listeners[error.index].port
            field = FieldError(field=f"listeners[{error.index}].port", message=str(error), value=port)
            raise errors.invalid([field]) from error
