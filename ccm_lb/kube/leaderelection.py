"""
One writer among several replicas, by a Lease (coordination.k8s.io/v1), after client-go's rules.

Safe as long as the replicas' clocks run at about the same speed, whatever they show: a holder counts from before it sent its
renewal, a follower from after it saw it, and the holder gives up (`renew_deadline`) before a follower may take over
(`lease_duration`). Wall-clock times are written for people and never compared.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ccm_lb.backends import base
from ccm_lb.errors import ApiError, ApiUnreachableError, CCMError, ConflictError, NotFoundError

logger = logging.getLogger(__name__)

RELEASE_TIMEOUT = 2.0
"""Seconds that a clean exit spends on giving the Lease back; a follower otherwise waits for the expiry."""

_TICK = 0.001  # seconds; sleeping for less would be a busy loop, and the deadlines are seconds apart

_TOO_MANY = 429
_REMEDY = (
    "grant the Role of manifests/base/rbac.yaml for that Lease, "
    "or name another with --leader-elect-resource-name and --leader-elect-resource-namespace"
)
_TOLERATED = (ApiError, ApiUnreachableError, TimeoutError)


class LeaseLostError(CCMError):
    """The Lease was lost: another replica may be working by now, so this one must stop."""


class LeaseApi(Protocol):
    """The three requests that an elector makes; `kube.KubeApi` has them."""

    async def get(self, path: str) -> dict[str, Any]: ...

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class _Record:
    """A Lease as last read or written, and the monotonic time since when its spec is known to be like that."""

    lease: Mapping[str, Any]
    since: float

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.lease.get("spec") or {}

    @property
    def holder(self) -> str:
        return self.spec.get("holderIdentity") or ""

    @property
    def transitions(self) -> int:
        return self.spec.get("leaseTransitions") or 0

    def with_spec(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The Lease with its resourceVersion and everything foreign in it, and these fields of the spec replaced."""
        return {**self.lease, "spec": {**self.spec, **changes}}


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds, lease_duration > renew_deadline > retry_period; the defaults are upstream's."""

    lease_duration: float = 15.0
    """For how long a follower leaves a Lease alone that is not renewed."""

    renew_deadline: float = 10.0
    """After how long without a renewal the holder stops."""

    retry_period: float = 2.0
    """Between two renewals, and between two looks of a follower."""

    poll_jitter: float = 0.2
    """The share of retry_period by which followers look early, at random, so that they do not come together."""


class LeaseElector:
    """
    Takes, keeps and gives back one Lease: `acquire`, then `hold` until it raises, then `release`, in one task.

    `holds`, `held_until` and `fencing_token` are the fence: right at any moment, also just after the process was stopped for a minute.
    """

    def __init__(
        self,
        api: LeaseApi,
        clock: base.Clock,
        identity: str,
        namespace: str,
        name: str,
        timing: Timing = Timing(),
        wall: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """`identity` is unique to this process, also among those before it."""
        self._api, self._clock, self._timing, self._wall = api, clock, timing, wall
        self._identity = identity
        self._metadata = {"namespace": namespace, "name": name}
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._record: _Record | None = None
        self._held_until = 0.0
        self._fencing_token: str | None = None
        self._failing = False
        self._refusal: str | None = "not asked for yet"

    @property
    def held_until(self) -> float:
        """The monotonic time until which nobody else can have the Lease; 0 when it is not held."""
        return self._held_until

    def holds(self) -> bool:
        return self._clock.monotonic() < self._held_until

    @property
    def fencing_token(self) -> str | None:
        """`<Lease UID>:<leaseTransitions>`; it stays after the Lease is lost, for late writes to be refused by."""
        return self._fencing_token

    @property
    def leader(self) -> str:
        """The identity that the Lease named when it was last seen; empty when nobody's or not seen yet."""
        return self._record.holder if self._record else ""

    def failure(self) -> str | None:
        """Why this replica could never lead as things are: the API server refuses it the Lease. None when it may wait, or leads."""
        return self._refusal

    async def acquire(self) -> None:
        """Return when the Lease is held. Errors of the API are waited out."""
        while not await self._attempt(self._try_acquire, self._timing.renew_deadline):
            await self._clock.sleep(self._until_next_look())
        logger.info("became the leader", extra={"lease": self._path, "fencing_token": self._fencing_token})

    async def hold(self) -> None:
        """
        Renew until the Lease is lost.

        Raises LeaseLostError at `held_until` exactly, or as soon as the Lease is seen in other hands.
        """
        try:
            while True:
                await self._clock.sleep(min(self._timing.retry_period, self._left()))
                # Half of the deadline for one try: a request that hangs must not be the only one.
                if self.holds():
                    await self._attempt(self._renew, min(self._timing.renew_deadline / 2, self._left()))
                if not self.holds():
                    raise LeaseLostError(f"the Lease was not renewed for {self._timing.renew_deadline:g} s")
        except LeaseLostError as error:
            self._held_until = 0.0
            logger.error("lost the Lease", extra={"lease": self._path, "cause": str(error)})
            raise

    async def release(self) -> None:
        """
        Give the Lease back, if it is still ours, so that a follower need not wait for its expiry. Raises nothing.

        To be called when all writing has ended: another replica begins at once.
        """
        self._held_until = 0.0
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._look()
                if self._record is None or self.leader != self._identity:
                    return
                # One second as in client-go, since the API refuses zero.
                nobody = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
                self._observe(await self._api.put(self._path, self._record.with_spec(nobody)))
        except _TOLERATED as error:
            logger.warning("could not release the Lease", extra={"lease": self._path, "cause": _cause(error)})
        else:
            logger.info("released the Lease", extra={"lease": self._path})

    async def _attempt(self, step: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        """Whether `step` succeeded within `seconds`; a failure is logged when it is the first in a row."""
        try:
            async with asyncio.timeout(seconds):
                succeeded = await step()
        except _TOLERATED as error:
            if refused := isinstance(error, ApiError) and 400 <= error.status < 500 and error.status != _TOO_MANY:
                self._refusal = f"{_cause(error)}; {_REMEDY}"
            # What is refused stays so until somebody does something.
            level = logging.DEBUG if self._failing else logging.ERROR if refused else logging.WARNING
            logger.log(level, "could not get or renew the Lease", extra={"lease": self._path, "cause": _cause(error)})
            self._failing = True
            return False
        self._failing, self._refusal = False, None
        return succeeded

    async def _try_acquire(self) -> bool:
        await self._look()
        if self.leader not in ("", self._identity) and self._expires_in() > _TICK:
            return False
        try:
            return await self._take()
        except NotFoundError:
            if self._record is None:
                raise  # it was to be created: the namespace does not exist
            return False
        except ConflictError:
            return False  # another was quicker; the next look shows who

    async def _renew(self) -> bool:
        try:
            return await self._take()
        except (ConflictError, NotFoundError):
            # Written or deleted in between: perhaps by ourselves, when it was only the reply that got lost.
            await self._look()
        if self._record is not None and self.leader != self._identity:
            raise LeaseLostError(f"the Lease is held by {self.leader!r}")
        return await self._take()

    async def _look(self) -> None:
        try:
            self._observe(await self._api.get(self._path))
        except NotFoundError:
            self._record = None

    async def _take(self) -> bool:
        """Write ourselves into the Lease as last seen. Raises ConflictError if it is no longer like that."""
        record, sent = self._record, self._clock.monotonic()
        if record is None:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": self._metadata}
            lease = await self._api.post(self._collection, {**body, "spec": self._ours()})
        else:
            lease = await self._api.put(self._path, record.with_spec(self._ours()))
        taken = self._observe(lease)
        # From before the request was sent: a follower counts from after it arrived, which is later.
        self._held_until = sent + self._timing.renew_deadline
        self._fencing_token = f"{lease.get('metadata', {}).get('uid')}:{taken.transitions}"
        return self.holds()

    def _ours(self) -> dict[str, Any]:
        record, now = self._record, self._now()
        duration = math.ceil(self._timing.lease_duration)
        spec = {"holderIdentity": self._identity, "leaseDurationSeconds": duration, "renewTime": now}
        if self.leader == self._identity:
            return spec
        return {**spec, "acquireTime": now, "leaseTransitions": 0 if record is None else record.transitions + 1}

    def _observe(self, lease: Mapping[str, Any]) -> _Record:
        before, seen = self._record, _Record(lease, self._clock.monotonic())
        if before is not None and before.spec == seen.spec:
            seen = _Record(lease, before.since)
        self._record = seen
        if seen.holder not in ("", self._identity) and (before is None or before.holder != seen.holder):
            logger.info("another replica leads", extra={"lease": self._path, "leader": seen.holder})
        return seen

    def _expires_in(self) -> float:
        if self._record is None:
            return 0.0
        # The record's own duration: its holder may be configured differently.
        duration = self._record.spec.get("leaseDurationSeconds") or self._timing.lease_duration
        return self._record.since + float(duration) - self._clock.monotonic()

    def _until_next_look(self) -> float:
        poll = self._timing.retry_period * (1 - self._timing.poll_jitter * random.random())  # noqa: S311 - no secret
        expires_in = self._expires_in()
        # To the very moment of the expiry, no jitter: it decides how long nobody works.
        return min(poll, expires_in) if expires_in > _TICK else poll

    def _left(self) -> float:
        return max(0.0, self._held_until - self._clock.monotonic())

    def _now(self) -> str:
        return self._wall().astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class NoElection:
    """For --leader-elect=false: the only replica, which always holds."""

    held_until = math.inf
    fencing_token: str | None = None
    leader = ""

    def holds(self) -> bool:
        return True

    def failure(self) -> None:
        """Nothing is needed."""

    async def acquire(self) -> None:
        """Return at once."""

    async def hold(self) -> None:
        """Never return."""
        await asyncio.Event().wait()

    async def release(self) -> None:
        """There is nothing to give back."""


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__
