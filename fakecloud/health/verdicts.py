"""From single probe results to a verdict: thresholds keep one lost packet from moving traffic."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """How one probe ended."""

    success: bool
    reason: str


@dataclass(frozen=True)
class Verdict:
    """What is believed of a target; None until enough probes have ended, and such a target gets traffic."""

    healthy: bool | None = None
    reason: str = "not probed yet"
    # Results in a row that contradict the verdict.
    contrary: int = 0

    @property
    def usable(self) -> bool:
        return self.healthy is not False

    def after(self, result: Result, *, healthy_threshold: int, unhealthy_threshold: int) -> "Verdict":
        """The verdict once `result` is known; the first success of all is believed at once."""
        if result.success == self.healthy:
            return Verdict(self.healthy, result.reason)
        contrary = self.contrary + 1
        needed = (healthy_threshold if self.healthy is False else 1) if result.success else unhealthy_threshold
        if contrary >= needed:
            return Verdict(result.success, result.reason)
        return Verdict(self.healthy, self.reason, contrary)
