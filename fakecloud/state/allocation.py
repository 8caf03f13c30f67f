"""Which address a load balancer or a reservation gets, and which one is free again."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fakecloud import errors
from fakecloud.models.base import Family
from fakecloud.models.problems import FieldError
from fakecloud.state.ipam import Pool
from fakecloud.state.records import State


def user_of(state: State, address: str) -> str | None:
    """The id of the load balancer that has the address."""
    return next((lb.id for lb in state.load_balancers.values() if address in lb.held), None)


def pool_errors(state: State, names: Iterable[str]) -> Sequence[FieldError]:
    """One for each name that no pool has."""
    known = ", ".join(state.pools) or "none"
    return [
        FieldError(field=f"addressPools[{index}]", message=f"no pool {name}; pools: {known}", value=name)
        for index, name in enumerate(names)
        if name not in state.pools
    ]


def lowest(state: State, family: Family, field: str, only: Iterable[str] = ()) -> tuple[Pool, str]:
    """
    The first free address of a family, and its pool: one of `only`, if one of these has the family.

    Raises ProblemError (409) that names `field`.
    """
    candidates = [pool for pool in state.pools.values() if pool.family == family]
    candidates = [pool for pool in candidates if pool.name in only] or candidates
    for pool in candidates:
        address = pool.lowest_free()
        if address is not None:
            return pool, address
    names = ", ".join(f"{pool.name} ({pool.network}, {len(pool.usable)} addresses)" for pool in candidates)
    message = (
        f"no free {family} address left in {names}; delete load balancers or add a pool"
        if candidates
        else f"there is no {family} address pool; POST /v1/address-pools adds one"
    )
    raise errors.conflict("address-pool-exhausted", message, [FieldError(field=field, message=message, value=family)])


def requested(state: State, index: int, address: str) -> tuple[Pool, str]:
    """An address that was asked for, and its pool. Raises ProblemError: 422 it lies in no pool, 409 it is taken."""
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


def released(state: State, addresses: Iterable[str]) -> State:
    """The state in which these are free, but for those that a load balancer of it or a reservation still has."""
    reserved = {one.address for one in state.reserved.values()}
    pools = dict(state.pools)
    for address in addresses:
        if address in reserved or user_of(state, address) is not None:
            continue
        pools |= {name: pool.without(address) for name, pool in pools.items() if pool.holds(address)}
    return replace(state, pools=pools)
