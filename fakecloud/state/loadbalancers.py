"""Load balancers come, change and go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fakecloud import errors
from fakecloud.models.base import Family, family_of
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import AssignedAddress, LoadBalancer, LoadBalancerPatch, LoadBalancerSpec, Owner
from fakecloud.models.problems import FieldError
from fakecloud.models.queries import LoadBalancerQuery
from fakecloud.state import allocation
from fakecloud.state.ipam import Pool
from fakecloud.state.policy import Policy
from fakecloud.state.records import Change, Kind, Record, State, with_item, without_item
from fakecloud.state.references import target_errors

ByOwner = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Stamp:
    """What a new load balancer gets from outside of the state: an id nobody has, and the time."""

    id: str
    created_at: str


def find(state: State, load_balancer_id: str) -> LoadBalancer:
    """Raises ProblemError (404)."""
    found = state.load_balancers.get(load_balancer_id)
    if found is None:
        raise errors.not_found("load balancer", load_balancer_id, "/v1/load-balancers")
    return found


def create(state: State, spec: LoadBalancerSpec, policy: Policy, stamp: Stamp) -> Change[LoadBalancer]:
    """
    Add a load balancer with an address of its own; an owner's second create returns the first, unchanged.

    Raises:
        ProblemError: 422 unknown or forbidden targets, a family that can't be had, an unknown pool or an address of no pool,
            409 a taken address, no free one, as many load balancers as there may be, or the owner's first one is just going.
    """
    owner = spec.owner.key if spec.owner is not None else None
    if owner is not None and owner in state.by_owner:
        first = state.load_balancers[state.by_owner[owner]]
        _check_stays(first)
        return Change(state, first, Outcome.EXISTING)
    wrong = [
        *_family_errors(spec, policy),
        *allocation.pool_errors(state, spec.address_pools),
        *policy.undeliverable(spec),
        *target_errors(spec.targets, state.servers, policy.target_networks),
    ]
    if wrong:
        raise errors.invalid(wrong)
    if len(state.load_balancers) >= policy.max_load_balancers:
        raise errors.conflict("limit-reached", f"there can be {policy.max_load_balancers} load balancers; delete some")
    requested = dict(zip(map(family_of, spec.addresses), enumerate(spec.addresses), strict=True))
    pools = dict(state.pools)
    addresses = []
    for index, family in enumerate(spec.families):
        pool, address = (
            allocation.requested(state, *requested[family])
            if family in requested
            else allocation.lowest(state, family, f"families[{index}]", spec.address_pools)
        )
        pools[pool.name] = pool.with_taken(address)
        addresses.append(AssignedAddress(family=family, address=address))
    added = LoadBalancer(
        id=stamp.id,
        sequence=state.last_sequence + 1,
        generation=1,
        created_at=stamp.created_at,
        spec=spec,
        addresses=tuple(addresses),
    )
    after = replace(
        state,
        pools=pools,
        load_balancers=with_item(state.load_balancers, added.id, added),
        by_owner=state.by_owner if owner is None else with_item(state.by_owner, owner, added.id),
        last_sequence=added.sequence,
    )
    return Change(after, added, records=(Record(Kind.LOAD_BALANCER, added.id, added),))


def patch(
    state: State, load_balancer_id: str, body: LoadBalancerPatch, policy: Policy, if_match: str | None
) -> Change[LoadBalancer]:
    """
    Replace the named fields; naming what is there already changes nothing, the generation included.

    A family that is new gets an address. The address of one that goes is held, as leaving, until `without_leaving`.

    Raises:
        ProblemError: 404, 412 when `if_match` is another version, 422 unknown or forbidden targets or a family that can't be
            had, 409 no address of a family is free, it is being deleted, or it is to be another one's than its owner's.
    """
    before = find(state, load_balancer_id)
    _check_version(before, if_match)
    _check_stays(before)
    spec = body.applied_to(before.spec)
    _check_owner(state, before, spec.owner)
    if spec == before.spec:
        return Change(state, before, Outcome.UNCHANGED)
    # Only what the client named is checked: a server that went away later doesn't block a change of ports.
    named = spec.targets if "targets" in body.model_fields_set else ()
    new = frozenset(spec.families) - frozenset(before.spec.families)
    wrong = [
        *_family_errors(spec, policy, new),
        *policy.undeliverable(spec),
        *target_errors(named, state.servers, policy.target_networks),
    ]
    if wrong:
        raise errors.invalid(wrong)
    changed = before.model_copy(update={"spec": spec, "generation": before.generation + 1})
    pools = state.pools
    if spec.families != before.spec.families:
        changed, pools = _readdressed(state, changed)
    after = replace(
        state,
        pools=pools,
        load_balancers=with_item(state.load_balancers, changed.id, changed),
        by_owner=_owned(state.by_owner, before, changed),
    )
    return Change(after, changed, records=(Record(Kind.LOAD_BALANCER, changed.id, changed),))


def without_leaving(state: State, load_balancer_id: str) -> Change[LoadBalancer]:
    """Free the addresses that traffic has left. Raises ProblemError (404)."""
    before = find(state, load_balancer_id)
    if not before.leaving:
        return Change(state, before, Outcome.UNCHANGED)
    after = before.model_copy(update={"leaving": ()})
    present = replace(state, load_balancers=with_item(state.load_balancers, after.id, after))
    freed = allocation.released(present, (one.address for one in before.leaving))
    return Change(freed, after, records=(Record(Kind.LOAD_BALANCER, after.id, after),))


def begin_delete(state: State, load_balancer_id: str, if_match: str | None) -> Change[LoadBalancer]:
    """
    Say that a load balancer is to go; `delete` makes it go, `keep` takes this back. Saying it again changes nothing.

    Raises:
        ProblemError: 404, 412 when `if_match` is another version, 409 when it is protected.
    """
    before = find(state, load_balancer_id)
    _check_version(before, if_match)
    if before.spec.delete_protection:
        raise errors.conflict("delete-protected", f"load balancer {before.id} has deleteProtection; patch it to false")
    return _marked(state, before, deleting=True)


def keep(state: State, load_balancer_id: str) -> Change[LoadBalancer]:
    """It stays after all. Raises ProblemError (404)."""
    return _marked(state, find(state, load_balancer_id), deleting=False)


def delete(state: State, load_balancer_id: str) -> Change[LoadBalancer]:
    """Remove a load balancer and free its addresses; the result is what was removed. Raises ProblemError (404)."""
    removed = find(state, load_balancer_id)
    without = replace(
        state,
        load_balancers=without_item(state.load_balancers, removed.id),
        by_owner=_owned(state.by_owner, removed, None),
    )
    freed = allocation.released(without, removed.held)
    return Change(freed, removed, records=(Record(Kind.LOAD_BALANCER, removed.id, None),))


def page(state: State, query: LoadBalancerQuery) -> tuple[Sequence[LoadBalancer], int | None]:
    """Load balancers in the order of their creation, and where to go on from when there are more."""
    after, ids = int(query.cursor or 0), frozenset(query.id)
    matching = [
        load_balancer
        for load_balancer in state.load_balancers.values()
        if load_balancer.sequence > after
        and query.owner in (None, load_balancer.spec.owner and load_balancer.spec.owner.uid)
        and query.cluster in (None, load_balancer.spec.owner and load_balancer.spec.owner.cluster)
        and (not ids or load_balancer.id in ids)
        and all(_tagged(load_balancer.spec.tags, wanted) for wanted in query.tag)
    ]
    shown = matching[: query.limit]
    return shown, shown[-1].sequence if len(matching) > query.limit else None


def _tagged(tags: Mapping[str, str], wanted: str) -> bool:
    # A key may hold "=" itself, so each place to cut is tried.
    if wanted in tags:
        return True
    cuts = (index for index, letter in enumerate(wanted) if letter == "=")
    return any(tags.get(wanted[:index]) == wanted[index + 1 :] for index in cuts)


def _family_errors(
    spec: LoadBalancerSpec, policy: Policy, only: frozenset[Family] | None = None
) -> Sequence[FieldError]:
    return [
        FieldError(field=f"families[{index}]", message=reason, value=family)
        for index, family in enumerate(spec.families)
        if (only is None or family in only) and (reason := policy.addresses.family_refusal(family)) is not None
    ]


def _readdressed(state: State, load_balancer: LoadBalancer) -> tuple[LoadBalancer, Mapping[str, Pool]]:
    """One address for each family in the specification; what it has already, it keeps, be it about to leave."""
    had = {one.family: one for one in (*load_balancer.leaving, *load_balancer.addresses)}
    pools, addresses = dict(state.pools), []
    for index, family in enumerate(load_balancer.spec.families):
        if family not in had:
            field = f"families[{index}]"
            pool, address = allocation.lowest(state, family, field, load_balancer.spec.address_pools)
            pools[pool.name] = pool.with_taken(address)
            had[family] = AssignedAddress(family=family, address=address)
        addresses.append(had.pop(family))
    update = {"addresses": tuple(addresses), "leaving": tuple(had.values())}
    return load_balancer.model_copy(update=update), pools


def _check_version(load_balancer: LoadBalancer, if_match: str | None) -> None:
    # One ETag, several, or * for any.
    if if_match is not None and not {tag.strip() for tag in if_match.split(",")} & {"*", load_balancer.etag}:
        raise errors.problem(
            412,
            "version-mismatch",
            f"load balancer {load_balancer.id} is at ETag {load_balancer.etag}, If-Match asks for {if_match}; "
            "read it again",
        )


def _check_owner(state: State, before: LoadBalancer, wanted: Owner | None) -> None:
    """Nobody takes what is another one's, and nobody has two."""
    present = before.spec.owner
    if wanted is None or wanted == present:
        return
    if present is not None:
        raise errors.conflict(
            "owned",
            f"load balancer {before.id} belongs to {present.uid} of cluster {present.cluster}, which has to let go of it first "
            "(owner null)",
        )
    if wanted.key in state.by_owner:
        has = state.by_owner[wanted.key]
        raise errors.conflict(
            "owner-has-one", f"{wanted.uid} of cluster {wanted.cluster} has load balancer {has} already"
        )


def _owned(by_owner: ByOwner, before: LoadBalancer, after: LoadBalancer | None) -> ByOwner:
    old, new = before.spec.owner, after.spec.owner if after is not None else None
    if old == new:
        return by_owner
    rest = by_owner if old is None else without_item(by_owner, old.key)
    return rest if new is None else with_item(rest, new.key, before.id)


def _check_stays(load_balancer: LoadBalancer) -> None:
    if load_balancer.deleting:
        raise errors.conflict(
            "being-deleted", f"load balancer {load_balancer.id} is being deleted; try again when its action has ended"
        )


def _marked(state: State, before: LoadBalancer, *, deleting: bool) -> Change[LoadBalancer]:
    if before.deleting is deleting:
        return Change(state, before, Outcome.UNCHANGED)
    after = before.model_copy(update={"deleting": deleting})
    present = replace(state, load_balancers=with_item(state.load_balancers, after.id, after))
    return Change(present, after, records=(Record(Kind.LOAD_BALANCER, after.id, after),))
