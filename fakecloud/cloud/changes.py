"""One change after another: decided, stored, followed by traffic, and answered for by an action."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from fakecloud import errors
from fakecloud.cloud.actionrunner import ActionRunner
from fakecloud.cloud.intents import Intent
from fakecloud.cloud.ledger import StoredReply
from fakecloud.cloud.repository import Repository
from fakecloud.cloud.traffic import Traffic
from fakecloud.models.actions import Action, ActionKind, ActionStatus
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import LoadBalancer
from fakecloud.models.problems import FieldError
from fakecloud.state import fencing, settling
from fakecloud.state.records import Change, Record, State, is_stored

T = TypeVar("T")
ClusterOf = Callable[[State], str | None]


class Changes:
    """`now` is RFC 3339 in UTC. Whoever changes the repository by another way holds the lock."""

    def __init__(self, repository: Repository, traffic: Traffic, runner: ActionRunner, now: Callable[[], str]) -> None:
        self._repository = repository
        self._traffic = traffic
        self._runner = runner
        self._now = now
        self.lock = asyncio.Lock()

    async def apply(
        self, decide: Callable[[State], Change[T]], intent: Intent, cluster_of: ClusterOf | None = None
    ) -> Change[T]:
        """
        Make the change that `decide` finds, at once or, where actions take time, later.

        `cluster_of` says whose fencing counts, None: nobody's. After ProblemError or StoreError nothing is changed, but a higher fencing
        token is remembered.
        """
        async with self.lock:
            replayed = self._replayed(intent)
            if cluster_of is not None:
                # Stored even where the request itself is refused below: a newer holder has spoken.
                cluster = cluster_of(self._repository.state) if replayed is None else _cluster(replayed.result)
                if cluster is not None:
                    admitted = fencing.admit(self._repository.state, cluster, intent.token)
                    await self._repository.write(admitted.state, admitted.records)
            if replayed is not None:
                return replayed  # type: ignore[return-value]  # the fingerprint holds the operation
            change = decide(self._repository.state)
            if not change.records:
                return change
            action = self._action(change)
            if self._runner.is_immediate(intent.order):
                return await self._make(change, intent, action)
            entry = self._repository.ledger.planned(action, *_replies(change, intent, action))
            await self._repository.write(change.state, change.records, entry)
            self._start(action, change.records, intent)
            return replace(change, action=action.id)

    async def finish_all(self) -> None:
        """Call every action done that a process before this one has begun: traffic follows what is stored."""
        for action in self._repository.ledger.unfinished():
            await self._note(self._ended(action, None))

    async def _make(self, change: Change[T], intent: Intent, action: Action) -> Change[T]:
        """Ports are bound before anything is promised, and served only once the rows are stored."""
        settled = settling.settled(change.state, change.records, done=True)
        rows = {(row.kind, row.key): row for row in (*change.records, *settled.records)}
        made = replace(change, state=settled.state, records=tuple(rows.values()), action=action.id)
        entry = self._repository.ledger.planned(self._ended(action, None), *_replies(made, intent, action))
        staged = self._traffic.stage(made)
        try:
            await self._repository.write(made.state, made.records, entry)
        except BaseException:
            for bound in staged:
                bound.discard()
            raise
        await self._traffic.follow(made.state, made.records, staged)
        return made

    def _start(self, action: Action, records: Sequence[Record], intent: Intent) -> None:
        running = action.model_copy(update={"status": ActionStatus.RUNNING})

        async def run() -> None:
            async with self.lock:
                await self._note(running)

        async def end(refused: str | None) -> None:
            async with self.lock:
                await self._end(running, records, refused)

        self._runner.start(intent.order, run, end)

    async def _end(self, action: Action, records: Sequence[Record], refused: str | None) -> None:
        """What the action was for happens now, and it is stored with the action's own end: both or none."""
        error = refused
        if error is None and action.kind is not ActionKind.DELETE:
            error = await self._traffic.catch_up(self._repository.state, records)
        settled = settling.settled(self._repository.state, records, done=error is None)
        await self._repository.write(
            settled.state, settled.records, self._repository.ledger.planned(self._ended(action, error))
        )
        if action.kind is ActionKind.DELETE and error is None:
            await self._traffic.catch_up(settled.state, records)

    def _replayed(self, intent: Intent) -> Change[LoadBalancer] | None:
        stored = self._repository.ledger.reply(intent.key) if intent.key is not None else None
        if stored is None:
            return None
        if stored.fingerprint != intent.fingerprint:
            message = "was used for a different request; take a new key for this one"
            raise errors.invalid([FieldError(field="Idempotency-Key", message=message, value=intent.key)])
        return Change(self._repository.state, stored.load_balancer, Outcome.REPLAYED, action=stored.action)

    def _action(self, change: Change[T]) -> Action:
        first = change.records[0]
        kind = ActionKind.UPDATE if is_stored(self._repository.state, first.kind, first.key) else ActionKind.CREATE
        goes = first.body is None or (isinstance(first.body, LoadBalancer) and first.body.deleting)
        return Action(
            id=self._repository.ledger.new_id(),
            kind=ActionKind.DELETE if goes else kind,
            resource_type=first.kind.value,
            resource=first.key,
            status=ActionStatus.PENDING,
            created_at=self._now(),
        )

    def _ended(self, action: Action, error: str | None) -> Action:
        status = ActionStatus.DONE if error is None else ActionStatus.ERROR
        return action.model_copy(update={"status": status, "error": error, "finished_at": self._now()})

    async def _note(self, action: Action) -> None:
        await self._repository.write(self._repository.state, (), self._repository.ledger.planned(action))


def _cluster(load_balancer: LoadBalancer) -> str | None:
    return load_balancer.spec.owner.cluster if load_balancer.spec.owner is not None else None


def _replies(change: Change[T], intent: Intent, action: Action) -> Sequence[StoredReply]:
    if intent.key is None or not isinstance(change.result, LoadBalancer):
        return ()
    return [StoredReply(key=intent.key, fingerprint=intent.fingerprint, load_balancer=change.result, action=action.id)]
