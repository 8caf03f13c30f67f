"""
When the next request may go out: what the two HTTP clients (to the Kubernetes API and to the cloud) have in common.

A server that asks for a pause asks all of us, not the one request that it refused: the pause is kept in one place, and nobody
sends before its end.
"""

from __future__ import annotations

import datetime as dt
import email.utils
from collections.abc import Mapping

import aiohttp

from ccm_lb.backends import base

LONGEST_HOLD = 300.0
"""Seconds. A server that asks for more is asked again then: one wrong header must not silence a controller for a day."""

SPREAD = 0.02
"""Seconds between those that waited for the same moment."""


class HeldError(Exception):
    """The server asked for a pause that ends after the caller's deadline; `delay` seconds are left of it."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"a pause of {delay:.1f} s was asked for")
        self.delay = delay


class Hold:
    """A moment, shared by all requests to one server, before which none is sent."""

    def __init__(self, clock: base.Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._waiting = 0

    def extend(self, seconds: float) -> None:
        """Hold for `seconds` from now, if no longer hold stands."""
        self._until = max(self._until, self._clock.monotonic() + min(seconds, LONGEST_HOLD))

    def remaining(self) -> float:
        return max(0.0, self._until - self._clock.monotonic())

    async def wait(self, deadline: float) -> None:
        """
        Return when a request may be sent. Those who wait together are let go one after the other.

        Raises HeldError, at once, when the hold ends after `deadline` (monotonic).
        """
        while remaining := self.remaining():
            if self._until > deadline:
                raise HeldError(remaining)
            self._waiting += 1
            try:
                await self._clock.sleep(remaining + SPREAD * (self._waiting - 1))
            finally:
                self._waiting -= 1


class TokenBucket:
    """At most `rate` requests per second over time and `burst` at once; served in the order of asking."""

    def __init__(self, rate: float, burst: int, clock: base.Clock) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._tokens, self._filled_at = self._burst, clock.monotonic()

    async def take(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate) - 1
        self._filled_at = now
        # Below zero it is a reservation: each who comes waits for its own token, behind those before it.
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._rate)


class ConnectionCutError(aiohttp.ClientError):
    """The connection ended before the answer did; whether the request was applied is unknown."""


async def send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """
    A client middleware that keeps aiohttp from sending a GET, PUT or DELETE again by itself when the connection is cut.

    That hidden second attempt looks at no Lease and no hold, and repeats a PUT whose sender said that it must not be.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise  # not connected, not sent, and not repeated by aiohttp
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionCutError(f"the connection was cut: {error}") from error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """
    The seconds that a response's Retry-After asks for; None when there is none or it says nothing.

    A date is measured against the response's own Date, so that a wrong clock on either side does not matter.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    until, now = _http_date(value), _http_date(headers.get("Date", ""))
    if until is None:
        return None
    return max(0.0, (until - (now or dt.datetime.now(dt.UTC))).total_seconds())


def _http_date(value: str) -> dt.datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=dt.UTC)
