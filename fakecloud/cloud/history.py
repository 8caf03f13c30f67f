"""Earlier states, kept only while a fault makes reads look back."""

from collections import deque
from collections.abc import Callable

from fakecloud.state.records import State


class History:
    """`clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._states: deque[tuple[float, State]] = deque()
        self._kept = 0.0

    def keep(self, seconds: float, present: State) -> None:
        """From now on reads may look back so far; 0 forgets everything."""
        self._kept = seconds
        if seconds == 0:
            self._states.clear()
        elif not self._states:
            self._states.append((self._clock(), present))

    def note(self, state: State) -> None:
        """A write has made this the present state."""
        if self._kept == 0:
            return
        now = self._clock()
        self._states.append((now, state))
        while len(self._states) > 1 and self._states[1][0] <= now - self._kept:
            self._states.popleft()

    def ago(self, seconds: float, present: State) -> State:
        """The state so many seconds ago, or the oldest that is known."""
        if not self._states or seconds == 0:
            return present
        until = self._clock() - seconds
        before = [state for at, state in self._states if at <= until]
        return before[-1] if before else self._states[0][1]
