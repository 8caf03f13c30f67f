"""Servers and address pools come, change and go."""

import ipaddress
from dataclasses import replace

from fakecloud import errors
from fakecloud.models.inventory import AddressPool, AddressPoolView, Server
from fakecloud.models.journal import Outcome
from fakecloud.models.problems import FieldError
from fakecloud.state import pools
from fakecloud.state.ipam import Pool
from fakecloud.state.networks import AddressSet
from fakecloud.state.policy import AddressMode
from fakecloud.state.records import Change, Kind, Record, State, with_item, without_item
from fakecloud.state.references import server_errors


def find_server(state: State, server_id: str) -> Server:
    """Raises ProblemError (404)."""
    found = state.servers.get(server_id)
    if found is None:
        raise errors.not_found("server", server_id, "/v1/servers")
    return found


def add_server(state: State, server: Server, networks: AddressSet) -> Change[Server]:
    """
    Register a server; registering the very same again changes nothing.

    Raises:
        ProblemError: 409 the id is taken by a different server, 422 an address outside the target networks.
    """
    present = state.servers.get(server.id)
    if present is not None and present != server:
        raise errors.conflict("server-exists", f"server {server.id} exists and differs; PUT replaces it")
    return put_server(state, server, networks)


def put_server(state: State, server: Server, networks: AddressSet) -> Change[Server]:
    """
    Register or replace a server; load balancers that name it follow at once.

    Raises:
        ProblemError: 422 an address outside the target networks.
    """
    if wrong := server_errors(server, networks):
        raise errors.invalid(wrong)
    if state.servers.get(server.id) == server:
        return Change(state, server, Outcome.UNCHANGED)
    after = replace(state, servers=with_item(state.servers, server.id, server))
    return Change(after, server, records=(Record(Kind.SERVER, server.id, server),))


def delete_server(state: State, server_id: str) -> Change[Server]:
    """Remove a server even where it is a target: that target becomes unhealthy. Raises ProblemError (404)."""
    removed = find_server(state, server_id)
    after = replace(state, servers=without_item(state.servers, server_id))
    return Change(after, removed, records=(Record(Kind.SERVER, server_id, None),))


def pool_of(body: AddressPool, mode: AddressMode = AddressMode.LOOPBACK) -> Pool:
    """An empty pool."""
    return Pool(body.name, ipaddress.ip_network(body.cidr), shared=mode is AddressMode.SHARED)


def pool_view(pool: Pool) -> AddressPoolView:
    return AddressPoolView(
        name=pool.name,
        cidr=str(pool.network),
        family=pool.family,
        size=len(pool.usable),
        allocated=len(pool.taken),
    )


def find_pool(state: State, name: str) -> Pool:
    """Raises ProblemError (404)."""
    found = state.pools.get(name)
    if found is None:
        raise errors.not_found("address pool", name, "/v1/address-pools")
    return found


def add_pool(state: State, body: AddressPool, mode: AddressMode = AddressMode.LOOPBACK) -> Change[Pool]:
    """
    Add a pool; adding the very same again changes nothing.

    Raises:
        ProblemError: 409 the name is taken or the networks overlap, 422 addresses that can't be bound.
    """
    added = pool_of(body, mode)
    network = added.network
    present = state.pools.get(body.name)
    if present is not None:
        if present.network == network:
            return Change(state, present, Outcome.UNCHANGED)
        raise errors.conflict("address-pool-exists", f"address pool {body.name} exists with {present.network}")
    if (reason := pools.refusal(network, (), mode)) is not None:
        raise errors.invalid([FieldError(field="cidr", message=f"{network} {reason}", value=body.cidr)])
    if (reason := pools.refusal(network, (pool.network for pool in state.pools.values()), mode)) is not None:
        raise errors.conflict("address-pool-overlaps", f"cidr: {network} {reason}")
    after = replace(state, pools=with_item(state.pools, added.name, added))
    return Change(after, added, records=(Record(Kind.POOL, added.name, body),))


def delete_pool(state: State, name: str) -> Change[Pool]:
    """Remove an empty pool. Raises ProblemError: 404, 409 while addresses of it are given out."""
    removed = find_pool(state, name)
    if removed.shared:
        raise errors.conflict("address-pool-in-use", f"address pool {name} is this host's or pod's own address")
    if removed.taken:
        raise errors.conflict(
            "address-pool-in-use",
            f"address pool {name} has {len(removed.taken)} addresses given out; delete those load balancers first",
        )
    after = replace(state, pools=without_item(state.pools, name))
    return Change(after, removed, records=(Record(Kind.POOL, name, None),))
