"""Reserved addresses come and go; they are kept while load balancers come and go."""

from dataclasses import replace

from fakecloud import errors
from fakecloud.models.base import family_of
from fakecloud.models.inventory import ReservedAddress, ReservedAddressView
from fakecloud.models.journal import Outcome
from fakecloud.models.problems import FieldError
from fakecloud.state.allocation import lowest, released, user_of
from fakecloud.state.ipam import Pool
from fakecloud.state.policy import Policy
from fakecloud.state.records import Change, Kind, Record, State, with_item, without_item


def view(state: State, reserved: ReservedAddress) -> ReservedAddressView:
    address = reserved.address or ""
    return ReservedAddressView(
        name=reserved.name, family=reserved.family, address=address, load_balancer=user_of(state, address)
    )


def find(state: State, name: str) -> ReservedAddress:
    """Raises ProblemError (404)."""
    found = state.reserved.get(name)
    if found is None:
        raise errors.not_found("reserved address", name, "/v1/addresses")
    return found


def reserve(state: State, body: ReservedAddress, policy: Policy) -> Change[ReservedAddress]:
    """
    Keep an address; asking for the same by the same name changes nothing. An address in use may be reserved by its number.

    Raises:
        ProblemError: 409 the name has another one, or no address is free, 422 an address of no pool.
    """
    present = state.reserved.get(body.name)
    if present is not None:
        if body.family == present.family and body.address in (None, present.address):
            return Change(state, present, Outcome.UNCHANGED)
        raise errors.conflict("address-exists", f"reserved address {body.name} exists with {present.address}")
    if (reason := policy.addresses.family_refusal(body.family)) is not None:
        raise errors.invalid([FieldError(field="family", message=reason, value=body.family)])
    pool, address = lowest(state, body.family, "family") if body.address is None else _asked(state, body.address)
    if family_of(address) != body.family:
        message = f"{address} is not {body.family}"
        raise errors.invalid([FieldError(field="address", message=message, value=address)])
    added = body.model_copy(update={"address": address})
    after = replace(
        state,
        pools={**state.pools, pool.name: pool.with_taken(address)},
        reserved=with_item(state.reserved, added.name, added),
    )
    return Change(after, added, records=(Record(Kind.RESERVED_ADDRESS, added.name, added),))


def release(state: State, name: str) -> Change[ReservedAddress]:
    """Give an address back; a load balancer that uses it keeps it as an ordinary one. Raises ProblemError (404)."""
    removed = find(state, name)
    without = replace(state, reserved=without_item(state.reserved, name))
    after = released(without, [removed.address or ""])
    return Change(after, removed, records=(Record(Kind.RESERVED_ADDRESS, name, None),))


def _asked(state: State, address: str) -> tuple[Pool, str]:
    pool = next((pool for pool in state.pools.values() if pool.holds(address)), None)
    if pool is None:
        message = f"{address} lies in no address pool; GET /v1/address-pools lists them"
        raise errors.invalid([FieldError(field="address", message=message, value=address)])
    if any(one.address == address for one in state.reserved.values()):
        message = f"{address} is reserved by another name"
        raise errors.conflict("address-in-use", message, [FieldError(field="address", message=message, value=address)])
    return pool, address
