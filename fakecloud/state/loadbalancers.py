"""Load balancers come, change and go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fakecloud import errors
from fakecloud.ipam import Pool
from fakecloud.models.base import Family, family_of
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import AssignedAddress, LoadBalancer, LoadBalancerPatch, LoadBalancerSpec
from fakecloud.models.problems import FieldError
from fakecloud.models.queries import LoadBalancerQuery
from fakecloud.policy import Policy
from fakecloud.state.records import Change, Kind, Record, State, with_item, without_item
from fakecloud.state.references import target_errors


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
        ProblemError: 422 unknown or forbidden targets, a family that can't be had or an address of no pool,
            409 a taken address, no free one, or as many load balancers as there may be.
    """
    owner = (spec.owner.cluster, spec.owner.uid)
    if owner in state.by_owner:
        return Change(state, state.load_balancers[state.by_owner[owner]], Outcome.EXISTING)
    wrong = [
        *_family_errors(spec, policy),
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
    for family in spec.families:
        pool, address = _requested(state, *requested[family]) if family in requested else lowest(state, family)
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
        by_owner=with_item(state.by_owner, owner, added.id),
        last_sequence=added.sequence,
    )
    return Change(after, added, records=(Record(Kind.LOAD_BALANCER, added.id, added),))


def patch(
    state: State, load_balancer_id: str, body: LoadBalancerPatch, policy: Policy, if_match: str | None
) -> Change[LoadBalancer]:
    """
    Replace the named fields; naming what is there already changes nothing, the generation included.

    Raises:
        ProblemError: 404, 412 when `if_match` is another version, 422 unknown or forbidden targets.
    """
    before = find(state, load_balancer_id)
    _check_version(before, if_match)
    spec = body.applied_to(before.spec)
    if spec == before.spec:
        return Change(state, before, Outcome.UNCHANGED)
    # Only what the client named is checked: a server that went away later doesn't block a change of ports.
    named = spec.targets if "targets" in body.model_fields_set else ()
    wrong = [*policy.undeliverable(spec), *target_errors(named, state.servers, policy.target_networks)]
    if wrong:
        raise errors.invalid(wrong)
    changed = before.model_copy(update={"spec": spec, "generation": before.generation + 1})
    after = replace(state, load_balancers=with_item(state.load_balancers, changed.id, changed))
    return Change(after, changed, records=(Record(Kind.LOAD_BALANCER, changed.id, changed),))


def delete(state: State, load_balancer_id: str, if_match: str | None) -> Change[LoadBalancer]:
    """
    Remove a load balancer and free its addresses; the result is what was removed.

    Raises:
        ProblemError: 404, 412 when `if_match` is another version, 409 when it is protected.
    """
    removed = find(state, load_balancer_id)
    _check_version(removed, if_match)
    if removed.spec.delete_protection:
        raise errors.conflict("delete-protected", f"load balancer {removed.id} has deleteProtection; patch it to false")
    owner = (removed.spec.owner.cluster, removed.spec.owner.uid)
    # In a shared pool others may have the same address; what is reserved stays taken.
    held = {assigned.address for assigned in removed.addresses} - {one.address for one in state.reserved.values()}
    after = replace(
        state,
        pools={name: _freed(pool, held) for name, pool in state.pools.items()},
        load_balancers=without_item(state.load_balancers, removed.id),
        by_owner=without_item(state.by_owner, owner),
    )
    return Change(after, removed, records=(Record(Kind.LOAD_BALANCER, removed.id, None),))


def page(state: State, query: LoadBalancerQuery) -> tuple[Sequence[LoadBalancer], int | None]:
    """Load balancers in the order of their creation, and where to go on from when there are more."""
    after, ids = int(query.cursor or 0), frozenset(query.id)
    matching = [
        load_balancer
        for load_balancer in state.load_balancers.values()
        if load_balancer.sequence > after
        and query.owner in (None, load_balancer.spec.owner.uid)
        and query.cluster in (None, load_balancer.spec.owner.cluster)
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


def _family_errors(spec: LoadBalancerSpec, policy: Policy) -> Sequence[FieldError]:
    return [
        FieldError(field=f"families[{index}]", message=reason, value=family)
        for index, family in enumerate(spec.families)
        if (reason := policy.addresses.family_refusal(family)) is not None
    ]


def _check_version(load_balancer: LoadBalancer, if_match: str | None) -> None:
    if if_match is not None and if_match.strip() not in ("*", load_balancer.etag):
        raise errors.problem(
            412,
            "version-mismatch",
            f"load balancer {load_balancer.id} is at ETag {load_balancer.etag}, If-Match asks for {if_match}; "
            "read it again",
        )


def _freed(pool: Pool, addresses: set[str]) -> Pool:
    for address in addresses:
        if pool.holds(address):
            pool = pool.without(address)
    return pool


def user_of(state: State, address: str) -> str | None:
    """The id of the load balancer that has the address."""
    return next(
        (lb.id for lb in state.load_balancers.values() if any(one.address == address for one in lb.addresses)), None
    )


def lowest(state: State, family: Family) -> tuple[Pool, str]:
    candidates = [pool for pool in state.pools.values() if pool.family == family]
    for pool in candidates:
        if (address := pool.lowest_free()) is not None:
            return pool, address
    names = ", ".join(f"{pool.name} ({pool.network}, {len(pool.usable)} addresses)" for pool in candidates)
    raise errors.conflict(
        "address-pool-exhausted",
        f"no free {family} address left in {names}; delete load balancers or add a pool"
        if candidates
        else f"there is no {family} address pool; POST /v1/address-pools adds one",
    )


def _requested(state: State, index: int, address: str) -> tuple[Pool, str]:
    field = f"addresses[{index}]"
    pool = next((pool for pool in state.pools.values() if pool.holds(address)), None)
    if pool is None:
        pools = ", ".join(f"{pool.name} ({pool.network})" for pool in state.pools.values()) or "none"
        message = f"{address} lies in no address pool; pools: {pools}"
        raise errors.invalid([FieldError(field=field, message=message, value=address)])
    reserved = any(one.address == address for one in state.reserved.values())
    if not (pool.is_free(address) or (reserved and user_of(state, address) is None)):
        message = f"{address} belongs to another load balancer"
        raise errors.conflict(
            "address-in-use", f"{field}: {message}", [FieldError(field=field, message=message, value=address)]
        )
    return pool, address
