"""From what there is to what is wanted: the requests that are missing; no I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ccm_lb.backends.openstack.model import ERROR, Json, Step, Tree, Wanted, WantedListener, WantedPool
from ccm_lb.backends.openstack.wanted import same

BASE = "/v2/lbaas"


def creation(wanted: Wanted, *, all_at_once: bool) -> Json:
    """The body that makes a load balancer, with everything in it where the provider takes that."""
    if not all_at_once:
        return {"loadbalancer": wanted.fixed}
    listeners = [
        {
            "protocol": one.protocol,
            "protocol_port": one.port,
            **one.settings,
            "default_pool": _whole(one.pool),
        }
        for one in wanted.listeners
    ]
    return {"loadbalancer": {**wanted.fixed, "listeners": listeners}}


def _whole(pool: WantedPool) -> Json:
    found: dict[str, Any] = {"protocol": pool.protocol, **pool.settings, "members": list(pool.members)}
    return {**found, "healthmonitor": pool.monitor} if pool.monitor else found


def steps(tree: Tree, wanted: Wanted) -> list[Step]:
    """
    What has to be sent, in this order; empty when nothing has to.

    What needs the id of something that these steps make first comes with the next look. A listener is made when its pool is complete,
    and what is not wanted any more goes last.
    """
    found = list(_missing(tree, wanted))
    # While something is still made, what it replaces serves.
    return found or list(_superfluous(tree, wanted))


def member_steps(tree: Tree, wanted: Wanted) -> list[Step]:
    """Those that change the nodes, and nothing else."""
    return [
        step
        for listener in wanted.listeners
        if (pool := _pool_of(tree, listener)) is not None
        for step in _members(tree, pool, listener.pool)
    ]


def _missing(tree: Tree, wanted: Wanted) -> Iterator[Step]:
    for one in wanted.listeners:
        pool = _pool_of(tree, one)
        if pool is None:
            body = {"loadbalancer_id": tree.id, "protocol": one.pool.protocol, **one.pool.settings}
            yield Step("POST", f"{BASE}/pools", {"pool": body})
            continue
        inside = [
            *_changed(f"{BASE}/pools/{pool['id']}", "pool", pool, one.pool.settings),
            *_members(tree, pool, one.pool),
            *_monitor(tree, pool, one.pool),
        ]
        yield from inside
        listener = _listener_of(tree, one)
        if listener is not None:
            path = f"{BASE}/listeners/{listener['id']}"
            yield from _changed(path, "listener", listener, {**one.settings, "default_pool_id": pool["id"]})
        elif not inside:
            made = {"loadbalancer_id": tree.id, "protocol": one.protocol, "protocol_port": one.port}
            yield Step(
                "POST", f"{BASE}/listeners", {"listener": {**made, **one.settings, "default_pool_id": pool["id"]}}
            )


def _superfluous(tree: Tree, wanted: Wanted) -> Iterator[Step]:
    """Listeners before pools: a listener whose pool is gone would refuse connections."""
    keys = {one.key for one in wanted.listeners}
    for listener in tree.listeners:
        if _key(listener) not in keys:
            yield Step("DELETE", f"{BASE}/listeners/{listener['id']}")
    used = {pool["id"] for one in wanted.listeners if (pool := _pool_of(tree, one)) is not None}
    for pool in tree.pools:
        if pool["id"] not in used:
            yield Step("DELETE", f"{BASE}/pools/{pool['id']}")


def _listener_of(tree: Tree, wanted: WantedListener) -> Json | None:
    return next((one for one in tree.listeners if _key(one) == wanted.key), None)


def _key(listener: Json) -> tuple[str, int]:
    return str(listener["protocol"]), int(listener["protocol_port"])


def _pool_of(tree: Tree, wanted: WantedListener) -> Json | None:
    """
    The pool to use: the listener's own, or one of the wanted name that was made for it by an attempt that ended too early.

    One of another protocol can't be changed, and one in an error takes no members any more: another is made beside it.
    """
    listener = _listener_of(tree, wanted)
    own = listener["default_pool_id"] if listener is not None else None
    candidates = [
        pool for pool in tree.pools if pool["protocol"] == wanted.pool.protocol and pool["provisioning_status"] != ERROR
    ]
    by_id = [pool for pool in candidates if pool["id"] == own]
    by_name = [pool for pool in candidates if not pool["listeners"] and pool["name"] == wanted.pool.settings["name"]]
    return next(iter(by_id + by_name), None)


def _changed(path: str, kind: str, existing: Json, settings: Json) -> Iterator[Step]:
    difference = {
        name: value for name, value in settings.items() if name != "name" and not same(existing.get(name), value)
    }
    if difference:
        yield Step("PUT", path, {kind: difference})


def _members(tree: Tree, pool: Json, wanted: WantedPool) -> Iterator[Step]:
    existing = {_place(one): one for one in tree.members[pool["id"]]}
    members = {_place(one): one for one in wanted.members}
    differ = existing.keys() != members.keys() or any(
        existing[place]["provisioning_status"] == ERROR or not same(existing[place], one)
        for place, one in members.items()
    )
    if differ:
        yield Step("PUT", f"{BASE}/pools/{pool['id']}/members", {"members": list(wanted.members)})


def _place(member: Json) -> tuple[str, int]:
    return str(member["address"]), int(member["protocol_port"])


def _monitor(tree: Tree, pool: Json, wanted: WantedPool) -> Iterator[Step]:
    existing = tree.monitors.get(pool["id"])
    if existing is not None:
        path = f"{BASE}/healthmonitors/{existing['id']}"
        if wanted.monitor is None or wanted.monitor["type"] != existing["type"]:
            yield Step("DELETE", path)  # another type is another monitor, made with the next look
        else:
            yield from _changed(path, "healthmonitor", existing, wanted.monitor)
    elif wanted.monitor is not None:
        yield Step("POST", f"{BASE}/healthmonitors", {"healthmonitor": {"pool_id": pool["id"], **wanted.monitor}})
