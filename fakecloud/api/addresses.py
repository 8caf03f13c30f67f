"""Operations on reserved addresses."""

from typing import Any

from fakecloud.api.intents import intent_of
from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.api.resources import added, adding, listing, reading, removed, removing
from fakecloud.models.inventory import ReservedAddress, ReservedAddressList, ReservedAddressView
from fakecloud.models.queries import NoQuery
from fakecloud.state import reservations


async def list_addresses(call: Exchange[NoBody, NoQuery]) -> Reply:
    items = (reservations.view(call.state, one) for one in call.state.reserved.values())
    return Reply(200, ReservedAddressList(items=tuple(items)))


async def get_address(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, reservations.view(call.state, reservations.find(call.state, call.path["name"])))


async def reserve_address(call: Exchange[ReservedAddress, NoQuery]) -> Reply:
    call.note.resource = call.body.name
    change = await call.services.cloud.reserve_address(call.body, intent_of(call))
    return added(call, change, reservations.view(change.state, change.result))


async def release_address(call: Exchange[NoBody, NoQuery]) -> Reply:
    call.note.resource = call.path["name"]
    return removed(call, await call.services.cloud.release_address(call.path["name"], intent_of(call)))


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/v1/addresses",
        "listAddresses",
        "All reserved addresses",
        list_addresses,
        Answer("The reserved addresses", ReservedAddressList),
    ),
    adding(
        "/v1/addresses",
        "reserveAddress",
        "Keep an address for load balancers that ask for it by `addresses`",
        reserve_address,
        ReservedAddress,
        {
            201: Answer("Reserved", ReservedAddressView),
            200: Answer("It is reserved under this name already", ReservedAddressView),
            409: Answer("The name has another address, or no address is free"),
        },
    ),
    reading(
        "/v1/addresses/{name}",
        "getAddress",
        "One reserved address, and who uses it",
        get_address,
        Answer("The reserved address", ReservedAddressView),
    ),
    removing(
        "/v1/addresses/{name}",
        "releaseAddress",
        "Give a reserved address back; a load balancer that uses it keeps it",
        release_address,
        gone="It is released",
    ),
)
