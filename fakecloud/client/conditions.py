"""What can be waited for, decided on what was read; no I/O."""

from dataclasses import dataclass

from fakecloud.models.actions import Action
from fakecloud.models.views import LoadBalancerState, LoadBalancerView


@dataclass(frozen=True)
class Wanted:
    """The state a load balancer should be in, and how many of its targets should be healthy on every port."""

    state: LoadBalancerState | None = "active"
    healthy: int | None = None

    def holds(self, load_balancer: LoadBalancerView) -> bool:
        return (self.state is None or load_balancer.state == self.state) and (
            self.healthy is None or healthy_targets(load_balancer) == self.healthy
        )

    def __str__(self) -> str:
        state = () if self.state is None else (f"state {self.state}",)
        healthy = () if self.healthy is None else (f"{self.healthy} healthy",)
        return " and ".join((*state, *healthy)) or "anything"


def healthy_targets(load_balancer: LoadBalancerView) -> int:
    """How many targets are healthy on every port that they serve."""
    verdicts: dict[str, bool] = {}
    for one in load_balancer.status.targets:
        verdicts[one.target] = verdicts.get(one.target, True) and one.healthy is True
    return sum(verdicts.values())


def described(load_balancer: LoadBalancerView) -> str:
    """How it stands, in one line."""
    targets = {one.target for one in load_balancer.status.targets}
    ill = "".join(f"; {one.target}: {one.reason}" for one in load_balancer.status.targets if one.healthy is not True)
    return f"{load_balancer.state}, {healthy_targets(load_balancer)} of {len(targets)} healthy{ill}"


def outcome(action: Action) -> str:
    """An action in one line."""
    return f"{action.kind} of {action.resource} is {action.status}" + (f": {action.error}" if action.error else "")
