"""What happens to the sequence of a watch's events on their way to the client."""

import asyncio

from tests.faultproxy import bodies
from tests.faultproxy.effects import DropField, DuplicateEvents, Effect, HoldEvents, InjectError, ReorderEvents


class EndOfStream(Exception):  # noqa: N818 -- an order, not an error
    """The watch ends, in good order, after `last`."""

    def __init__(self, last: list[bytes]) -> None:
        super().__init__("end of stream")
        self.last = last


class Stage:
    """Changes the sequence of a watch's events; `held` go out when `due` returns."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self.flush: asyncio.Task[None] | None = None

    def feed(self, lines: list[bytes]) -> list[bytes]:
        """What goes out now, given what came in."""
        raise NotImplementedError

    async def due(self) -> None:
        """Return when the held events may go."""


class _Drop(Stage):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def feed(self, lines: list[bytes]) -> list[bytes]:
        return [bodies.without_field(line, self._path) for line in lines]


class _Duplicate(Stage):
    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def feed(self, lines: list[bytes]) -> list[bytes]:
        return [line for line in lines for _ in range(self._times)]


class _Error(Stage):
    def __init__(self, effect: InjectError) -> None:
        super().__init__()
        self._left = effect.after_events
        self._line = bodies.line_of(bodies.error_event(effect.code, effect.reason, effect.message))

    def feed(self, lines: list[bytes]) -> list[bytes]:
        if len(lines) < self._left:
            self._left -= len(lines)
            return lines
        raise EndOfStream([*lines[: self._left], self._line])


class _Hold(Stage):
    def __init__(self, effect: HoldEvents) -> None:
        super().__init__()
        self._effect = effect

    def feed(self, lines: list[bytes]) -> list[bytes]:
        passed: list[bytes] = []
        for line in lines:
            mine = bodies.event_name_matches(line, self._effect.name)
            # While the held ones are going out the gate is open already, and a new one must not overtake them.
            holding = mine and (self.held or not self._effect.gate.is_set())
            (self.held if holding else passed).append(line)
        return passed

    async def due(self) -> None:
        await self._effect.gate.wait()


class _Reorder(Stage):
    def __init__(self, effect: ReorderEvents) -> None:
        super().__init__()
        self._effect = effect

    def feed(self, lines: list[bytes]) -> list[bytes]:
        passed: list[bytes] = []
        for line in lines:
            self.held.append(line)
            if len(self.held) == self._effect.window:
                passed.extend(reversed(self.held))
                self.held.clear()
        return passed

    async def due(self) -> None:
        await asyncio.sleep(self._effect.patience)


def stages_of(effect: Effect) -> list[Stage]:
    """The stages that an effect puts into a watch."""
    match effect:
        case DropField(of="response"):
            return [_Drop(effect.path)]
        case DuplicateEvents():
            return [_Duplicate(effect.times)]
        case InjectError():
            return [_Error(effect)]
        case HoldEvents():
            return [_Hold(effect)]
        case ReorderEvents():
            return [_Reorder(effect)]
        case _:
            return []
