"""Operations on servers and address pools."""

from typing import Any

from fakecloud import errors
from fakecloud.api.intents import action_header, intent_of
from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.api.resources import added, adding, listing, reading, removed, removing
from fakecloud.models.inventory import AddressPool, AddressPoolList, AddressPoolView, Server, ServerList
from fakecloud.models.problems import FieldError
from fakecloud.models.queries import NoQuery
from fakecloud.state import inventory


async def list_servers(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, ServerList(items=tuple(call.state.servers.values())))


async def add_server(call: Exchange[Server, NoQuery]) -> Reply:
    call.note.resource = call.body.id
    change = await call.services.cloud.add_server(call.body, intent_of(call))
    return added(call, change, change.result)


async def get_server(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, inventory.find_server(call.state, call.path["id"]))


async def put_server(call: Exchange[Server, NoQuery]) -> Reply:
    call.note.resource = call.path["id"]
    if call.body.id != call.path["id"]:
        message = f"must be the id in the path, {call.path['id']}"
        raise errors.invalid([FieldError(field="id", message=message, value=call.body.id)])
    change = await call.services.cloud.put_server(call.body, intent_of(call))
    call.note.outcome = change.outcome
    return Reply(200, change.result, action_header(change))


async def delete_server(call: Exchange[NoBody, NoQuery]) -> Reply:
    call.note.resource = call.path["id"]
    return removed(call, await call.services.cloud.delete_server(call.path["id"], intent_of(call)))


async def list_pools(call: Exchange[NoBody, NoQuery]) -> Reply:
    pools = call.state.pools.values()
    return Reply(200, AddressPoolList(items=tuple(inventory.pool_view(pool) for pool in pools)))


async def add_pool(call: Exchange[AddressPool, NoQuery]) -> Reply:
    call.note.resource = call.body.name
    change = await call.services.cloud.add_pool(call.body, intent_of(call))
    return added(call, change, inventory.pool_view(change.result))


async def delete_pool(call: Exchange[NoBody, NoQuery]) -> Reply:
    call.note.resource = call.path["name"]
    return removed(call, await call.services.cloud.delete_pool(call.path["name"], intent_of(call)))


_SERVERS, _SERVER, _POOLS = "/v1/servers", "/v1/servers/{id}", "/v1/address-pools"

OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(_SERVERS, "listServers", "All servers", list_servers, Answer("The servers", ServerList)),
    adding(
        _SERVERS,
        "addServer",
        "Register a server",
        add_server,
        Server,
        {
            201: Answer("Registered", Server),
            200: Answer("The very same is registered already", Server),
            409: Answer("The id is taken by a different server"),
        },
    ),
    reading(_SERVER, "getServer", "One server", get_server, Answer("The server", Server)),
    Operation(
        "PUT",
        _SERVER,
        "putServer",
        "Register or replace a server; load balancers that name it follow at once",
        put_server,
        Server,
        NoQuery,
        {200: Answer("As it is now", Server)},
    ),
    removing(
        _SERVER,
        "deleteServer",
        "Remove a server; where it is a target, that target becomes unhealthy",
        delete_server,
    ),
    listing(_POOLS, "listAddressPools", "All address pools", list_pools, Answer("The pools", AddressPoolList)),
    adding(
        _POOLS,
        "addAddressPool",
        "Add a pool",
        add_pool,
        AddressPool,
        {
            201: Answer("Added", AddressPoolView),
            200: Answer("The very same exists already", AddressPoolView),
            409: Answer("The name is taken, or the networks overlap"),
        },
    ),
    removing(
        "/v1/address-pools/{name}",
        "deleteAddressPool",
        "Remove a pool that gives out no address",
        delete_pool,
        conflict="Addresses of it are given out",
    ),
)
