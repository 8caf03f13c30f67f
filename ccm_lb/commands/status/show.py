"""How a status is printed: once, and while it is watched."""

from __future__ import annotations

import dataclasses
import json
import time

import click

from ccm_lb.commands import outputs
from ccm_lb.commands.status import rows
from ccm_lb.commands.status.ask import Status


class Show:
    """Prints on standard output as text, wide or json; of what is watched, what has changed."""

    def __init__(self, form: str, *, terminal: bool) -> None:
        """On a `terminal` there is colour, and what is watched stays in its place."""
        self._form, self._terminal = form, terminal
        self._before: object = None

    def first(self, seen: Status) -> None:
        self._before = _lasting(seen)
        self._print(seen)

    def again(self, seen: Status) -> None:
        now = _lasting(seen)
        if now == self._before and not self._terminal:
            return
        self._before = now
        if self._terminal:
            click.clear()
        elif self._form != "json":
            outputs.say(f"\n{time.strftime('%H:%M:%S')}")
        self._print(seen)

    def _print(self, seen: Status) -> None:
        if self._form == "json":
            outputs.say(json.dumps(seen.as_json(), indent=2))
            return
        head, *rest = rows.lines(seen.rows, seen.leader, seen.scope, wide=self._form == "wide")
        outputs.say(click.style(head, bold=True) if self._terminal else head)
        for line in rest:
            outputs.say(line)


def _lasting(seen: Status) -> object:
    """What has to change for a new table: not that time goes by."""
    return [dataclasses.replace(one, age=0.0, progress=None) for one in seen.rows], seen.leader.silent
