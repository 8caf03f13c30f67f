"""
What is known of the cluster's Services and nodes: last seen, last synced, and what needs asking.

All of it can be lost at any time: it only spares calls that would change nothing. What has to survive is in the objects (finalizer,
status) and in the cloud (owner).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

from ccm_lb.controller import cache, plan, predicates
from ccm_lb.controller.plan import Operation, Synced
from ccm_lb.controller.predicates import Scope
from ccm_lb.kube import patches
from ccm_lb.objects import Key, Node, Service


class ClusterState:
    """Filled by the controller from events and lists, by the reconciler from answers; read by both."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.services = cache.services()
        self._nodes = cache.nodes()
        # Without and with those that are about to go; made when asked for, dropped when a node changes.
        self._eligible: dict[bool, tuple[Node, ...]] = {}
        self._node_sets: dict[bool, frozenset[Hashable]] = {}
        self._synced: dict[str, Synced | None] = {}  # by UID, from the first attempt on; None until one succeeded
        self._refused: dict[
            str, tuple[Hashable, float]
        ] = {}  # by UID: the inputs, and until when not to try them again
        self._left_behind: dict[Key, dict[str, Service]] = {}  # gone without our clean-up, by UID
        self._doubtful: set[Key] = set()
        self._suspected: set[str] = set()  # UIDs of Services whose load balancer may have been changed in the cloud
        self._foreign: set[str] = set()  # UIDs whose finalizer was found to be another controller's
        self._responsible = False

    # ---- questions

    def operation(self, key: Key, *, restoring: bool = True) -> Operation:
        """
        What a reconcile of `key` would do now, as far as is known; not `restoring`: what another one undid, in the API or in the cloud, is
        left so for now.
        """
        if key in self._doubtful or key in self._left_behind:
            return Operation.CLEANUP
        service = self.services.get(key)
        if service is None:
            return Operation.NOTHING
        synced = self._synced.get(service.uid)
        nodes = self.node_set(draining=synced is not None and synced.draining)
        operation = plan.decide(service, nodes, synced, self.scope, restoring=restoring)
        if operation is Operation.NOTHING and restoring and synced is not None and service.uid in self._suspected:
            return Operation.VERIFY
        return Operation.NOTHING if operation is Operation.CLEANUP and self.is_foreign(service) else operation

    def eligible_nodes(self, *, draining: bool = False) -> tuple[Node, ...]:
        """The nodes that get traffic, as of now, sorted by name; with `draining`, those that are about to go as well."""
        if draining not in self._eligible:
            self._eligible[draining] = predicates.eligible_nodes(self._nodes, draining=draining)
            found = predicates.node_set(self._eligible[draining])
            if found != self._node_sets.get(draining):
                # Otherwise the one that thousands of Services were synced with stays the only one.
                self._node_sets[draining] = found
        return self._eligible[draining]

    def node_set(self, *, draining: bool = False) -> frozenset[Hashable]:
        """The identity of these nodes: one object for as long as it is the same set, to be shared."""
        self.eligible_nodes(draining=draining)
        return self._node_sets[draining]

    def node_version(self, name: str) -> int:
        """The newest resourceVersion seen of the Node, 0 if none."""
        return self._nodes.version(name)

    def nodes(self) -> tuple[Node, ...]:
        """All Nodes known, the eligible ones and the others."""
        return tuple(self._nodes)

    def node_names(self) -> list[str]:
        """All Nodes known, the eligible ones and the others."""
        return [node.name for node in self._nodes]

    def outdated(self) -> list[Key]:
        """The Services whose load balancer was last written with other nodes than there are now."""
        synced = ((service.key, self._synced.get(service.uid)) for service in self.services)
        sets = {draining: self.node_set(draining=draining) for draining in (False, True)}
        return [
            key
            for key, last in synced
            if last is not None and last.nodes is not sets[last.draining] and last.nodes != sets[last.draining]
        ]

    def refused(self, service: Service, now: float) -> float:
        """For how many seconds from `now` the Service, as it is, is not to be tried again, because it was refused."""
        inputs, until = self._refused.get(service.uid, (None, 0.0))
        return max(0.0, until - now) if inputs == predicates.load_balancer_inputs(service) else 0.0

    def lacks_nodes(self, key: Key) -> bool:
        """Whether the Service is served, by a load balancer that was last written with other nodes than there are now."""
        service = self.services.get(key)
        if service is None or not predicates.is_served(service):
            return False
        last = self._synced.get(service.uid)
        return last is not None and last.nodes != self.node_set(draining=last.draining)

    def synced(self, service: Service) -> Synced | None:
        return self._synced.get(service.uid)

    def settled(self, service: Service) -> Synced | None:
        """What the Service was last synced as, if it needs nothing since; the same object until it is synced again."""
        synced = self._synced.get(service.uid)
        return (
            synced if synced is not None and self.operation(service.key, restoring=False) is Operation.NOTHING else None
        )

    def is_suspected(self, service: Service) -> bool:
        """Whether the cloud was seen to have something else than what was written for the Service."""
        return service.uid in self._suspected

    def is_doubtful(self, key: Key) -> bool:
        return key in self._doubtful

    def is_foreign(self, service: Service) -> bool:
        """Whether the clean-up finalizer on the Service was found to be another controller's."""
        return service.uid in self._foreign and not predicates.in_scope(service, self.scope)

    def left_behind(self, key: Key) -> tuple[Service, ...]:
        """The Services once called `key` that are gone from the API and may still have a load balancer."""
        return tuple(self._left_behind.get(key, {}).values())

    def uids_left_behind(self) -> frozenset[str]:
        """Of all the Services that are gone and may still have a load balancer, which is being removed."""
        return frozenset(uid for left in self._left_behind.values() for uid in left)

    # ---- what was learned of an object

    def take_over(self) -> None:
        """From now on this replica holds the Lease; until then, what Services leave behind is another one's work."""
        self._responsible = True

    def see_node(self, node: Node) -> bool:
        """Take note of a live Node; True if that changes who gets traffic."""
        before = self._nodes.get(node.name)
        return self._nodes.put(node) and self._targets_changed(before, node)

    def node_gone(self, name: str, at: int = 0) -> bool:
        """The Node is not there any more, as of resourceVersion `at` if known; True if that changes who gets traffic."""
        if at and at < self._nodes.version(name):
            return False  # an echo of an older Node of this name
        return self._targets_changed(self._nodes.drop(name, at), None)

    def node_vanished(self, name: str, known: int) -> bool:
        """As `vanished`, of a Node; True if that changes who gets traffic."""
        return self._nodes.version(name) == known and self.node_gone(name)

    def _targets_changed(self, before: Node | None, after: Node | None) -> bool:
        changed = _target(before) != _target(after)
        if before is not None or after is not None:
            self._eligible.clear()  # also for a change that only `raw` shows: a backend may read it
        return changed

    def see(self, service: Service) -> bool:
        """
        Take note of a live Service; False if the same or something newer was seen before.

        A Service that took the name of another leaves that one behind; one that is no concern of ours (any more) is not kept.
        """
        known = self.services.get(service.key)
        if not self.services.put(service):
            return False
        if known is not None and known.uid != service.uid:
            self._leave_behind(known)
        if not predicates.concerns_us(service, self.scope):
            self.services.drop(service.key)
            self._leave_behind(service)
        return True

    def gone(self, key: Key, at: int = 0) -> None:
        """The Service `key` is not there any more, or not shown any more from resourceVersion `at` on, if that is known."""
        service = self.services.drop(key, at - 1 if at else 0)
        if service is not None:
            self._leave_behind(service)

    def vanished(self, key: Key, known: int) -> None:
        """
        A request that was sent when `known` was the newest resourceVersion was answered with 404.

        What came since is newer than that answer, for example a Service created again under the name, and stays.
        """
        if self.services.version(key) == known:
            self.gone(key)

    def doubt(self, key: Key) -> None:
        """Something says that the Service is gone: to be asked before it is believed."""
        self._doubtful.add(key)

    def asked(self, key: Key) -> None:
        """The API server was asked about `key`."""
        self._doubtful.discard(key)

    def at_stake(self, service: Service) -> bool:
        """Whether this replica may lose a load balancer if the Service disappears."""
        return self._responsible and (service.has_finalizer or service.uid in self._synced)

    def _leave_behind(self, service: Service) -> None:
        if self.at_stake(service) and not self.is_foreign(service):
            self._left_behind.setdefault(service.key, {})[service.uid] = service
        self._foreign.discard(service.uid)
        self._suspected.discard(service.uid)

    def suspect(self, service: Service) -> None:
        """The cloud may have something else than what was written for the Service: to be looked at, and repaired."""
        self._suspected.add(service.uid)

    def cleared(self, service: Service) -> None:
        """It was looked at."""
        self._suspected.discard(service.uid)

    # ---- what was done

    def attempted(self, service: Service) -> bool:
        """Whether this process has tried to write the load balancer of `service`, with success or not."""
        return service.uid in self._synced

    def begin(self, service: Service) -> None:
        """
        The load balancer of `service` is about to be written.

        Until that is recorded, what the cloud has is not what was synced, also if the attempt fails and the Service goes back.
        """
        self._suspected.discard(service.uid)
        last = self._synced.get(service.uid)
        self._synced[service.uid] = last and dataclasses.replace(last, inputs=None)
        self._refused.pop(service.uid, None)

    def published(self, service: Service) -> None:
        """The status of `service` as it is now was written by this controller, before the load balancer."""
        if (last := self._synced.get(service.uid)) is not None:
            status = patches.comparable(service.status.load_balancer)
            self._synced[service.uid] = dataclasses.replace(last, status=status)

    def record(self, service: Service, synced: Synced) -> None:
        """The load balancer of `service` was written as `synced` says."""
        self._synced[service.uid] = synced

    def refuse(self, service: Service, until: float) -> None:
        """What `service` asks for was refused: not to be tried again before `until`, unless it asks for something else."""
        self._refused[service.uid] = predicates.load_balancer_inputs(service), until

    def unsync(self, service: Service) -> None:
        """The load balancer of `service` must be looked at in full."""
        self._refused.pop(service.uid, None)
        self._synced[service.uid] = None

    def cleaned(self, service: Service) -> None:
        """Nothing is left in the cloud of `service`."""
        self._refused.pop(service.uid, None)
        self._synced.pop(service.uid, None)
        self._suspected.discard(service.uid)

    def released(self, service: Service) -> None:
        """The finalizer was the last thing that kept this Service under deletion: it is gone, and left nothing behind."""
        self.cleaned(service)
        self.services.drop(service.key)
        self._doubtful.discard(service.key)

    def removed(self, service: Service) -> None:
        """Nothing is left in the cloud of a Service that was left behind."""
        self.cleaned(service)
        rest = self._left_behind.get(service.key, {})
        rest.pop(service.uid, None)
        if not rest:
            self._left_behind.pop(service.key, None)

    def disclaim(self, service: Service) -> None:
        """The clean-up finalizer on the Service is another controller's."""
        self._foreign.add(service.uid)


def _target(node: Node | None) -> Hashable:
    if node is None or not predicates.node_included(node):
        return None
    return predicates.node_identity(node), predicates.about_to_go(node)
