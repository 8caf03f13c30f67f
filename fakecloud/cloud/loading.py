"""From stored rows back to what they were."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from fakecloud.cloud.ledger import Ledger, StoredReply
from fakecloud.cloud.store import Store
from fakecloud.models.actions import Action
from fakecloud.models.base import Model
from fakecloud.models.inventory import AddressPool, ReservedAddress, Server
from fakecloud.models.loadbalancers import LoadBalancer
from fakecloud.state import inventory
from fakecloud.state.ipam import Network
from fakecloud.state.records import Fence, Kind, State, restored

_STORED: Mapping[str, type[Model]] = {
    Kind.LOAD_BALANCER: LoadBalancer,
    Kind.SERVER: Server,
    Kind.POOL: AddressPool,
    Kind.FENCE: Fence,
    Kind.RESERVED_ADDRESS: ReservedAddress,
    Kind.ACTION: Action,
    Kind.REPLY: StoredReply,
}


@dataclass(frozen=True)
class Restored:
    state: State
    ledger: Ledger


def restore(store: Store) -> Restored:
    """Raises StoreError when a row can't be read."""
    bodies: list[Model] = []
    for row in store.load():
        model = _STORED.get(row.kind)
        if model is None:
            raise store.damaged(row, f"expected one of {', '.join(_STORED)}")
        try:
            bodies.append(model.model_validate_json(row.body))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise store.damaged(row, f"{place}: {first['msg']}" if place else first["msg"]) from error
    state = restored(
        [inventory.pool_of(body) for body in bodies if isinstance(body, AddressPool)],
        [body for body in bodies if isinstance(body, Server)],
        [body for body in bodies if isinstance(body, LoadBalancer)],
        [body for body in bodies if isinstance(body, Fence)],
        [body for body in bodies if isinstance(body, ReservedAddress)],
    )
    ledger = Ledger(
        [body for body in bodies if isinstance(body, Action)],
        [body for body in bodies if isinstance(body, StoredReply)],
    )
    return Restored(state, ledger)


def moved(state: State, shared: Network) -> State:
    """All load balancers on the one address that this host or pod has now, whatever it was when they were stored."""
    here = str(shared.network_address)
    return State(
        servers=state.servers,
        pools={},
        load_balancers={
            name: one.model_copy(
                update={"addresses": tuple(old.model_copy(update={"address": here}) for old in one.addresses)}
            )
            for name, one in state.load_balancers.items()
        },
        fences=state.fences,
        by_owner=state.by_owner,
        last_sequence=state.last_sequence,
    )
