"""Operations on servers and address pools."""

from typing import Any

from fakecloud import errors
from fakecloud.api.intents import action_header, intent_of
from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.inventory import AddressPool, AddressPoolList, AddressPoolView, Server, ServerList
from fakecloud.models.journal import Outcome
from fakecloud.models.problems import FieldError
from fakecloud.models.queries import NoQuery
from fakecloud.state import inventory


async def list_servers(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, ServerList(items=tuple(call.state.servers.values())))


async def add_server(call: Exchange[Server, NoQuery]) -> Reply:
    call.note.resource = call.body.id
    change = await call.services.cloud.add_server(call.body, intent_of(call))
    call.note.outcome = change.outcome
    return Reply(201 if change.outcome is Outcome.APPLIED else 200, change.result, action_header(change))


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
    change = await call.services.cloud.delete_server(call.path["id"], intent_of(call))
    call.note.outcome = change.outcome
    return Reply(204, headers=action_header(change))


async def list_pools(call: Exchange[NoBody, NoQuery]) -> Reply:
    pools = call.state.pools.values()
    return Reply(200, AddressPoolList(items=tuple(inventory.pool_view(pool) for pool in pools)))


async def add_pool(call: Exchange[AddressPool, NoQuery]) -> Reply:
    call.note.resource = call.body.name
    change = await call.services.cloud.add_pool(call.body, intent_of(call))
    call.note.outcome = change.outcome
    status = 201 if change.outcome is Outcome.APPLIED else 200
    return Reply(status, inventory.pool_view(change.result), action_header(change))


async def delete_pool(call: Exchange[NoBody, NoQuery]) -> Reply:
    call.note.resource = call.path["name"]
    change = await call.services.cloud.delete_pool(call.path["name"], intent_of(call))
    call.note.outcome = change.outcome
    return Reply(204, headers=action_header(change))


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        "GET",
        "/v1/servers",
        "listServers",
        "All servers",
        list_servers,
        NoBody,
        NoQuery,
        {200: Answer("The servers", ServerList)},
    ),
    Operation(
        "POST",
        "/v1/servers",
        "addServer",
        "Register a server",
        add_server,
        Server,
        NoQuery,
        {
            201: Answer("Registered", Server),
            200: Answer("The very same is registered already", Server),
            409: Answer("The id is taken by a different server"),
        },
    ),
    Operation(
        "GET",
        "/v1/servers/{id}",
        "getServer",
        "One server",
        get_server,
        NoBody,
        NoQuery,
        {200: Answer("The server", Server), 404: Answer("There is none")},
    ),
    Operation(
        "PUT",
        "/v1/servers/{id}",
        "putServer",
        "Register or replace a server; load balancers that name it follow at once",
        put_server,
        Server,
        NoQuery,
        {200: Answer("As it is now", Server)},
    ),
    Operation(
        "DELETE",
        "/v1/servers/{id}",
        "deleteServer",
        "Remove a server; where it is a target, that target becomes unhealthy",
        delete_server,
        NoBody,
        NoQuery,
        {204: Answer("It is gone"), 404: Answer("There is none")},
    ),
    Operation(
        "GET",
        "/v1/address-pools",
        "listAddressPools",
        "All address pools",
        list_pools,
        NoBody,
        NoQuery,
        {200: Answer("The pools", AddressPoolList)},
    ),
    Operation(
        "POST",
        "/v1/address-pools",
        "addAddressPool",
        "Add a pool",
        add_pool,
        AddressPool,
        NoQuery,
        {
            201: Answer("Added", AddressPoolView),
            200: Answer("The very same exists already", AddressPoolView),
            409: Answer("The name is taken, or the networks overlap"),
        },
    ),
    Operation(
        "DELETE",
        "/v1/address-pools/{name}",
        "deleteAddressPool",
        "Remove a pool that gives out no address",
        delete_pool,
        NoBody,
        NoQuery,
        {204: Answer("It is gone"), 404: Answer("There is none"), 409: Answer("Addresses of it are given out")},
    ),
)
