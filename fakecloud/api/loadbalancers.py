"""Operations on load balancers."""

from typing import Any

from fakecloud.api.intents import CHANGES, action_header, intent_of
from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import LoadBalancer, LoadBalancerPatch, LoadBalancerSpec
from fakecloud.models.queries import LoadBalancerQuery, NoQuery
from fakecloud.models.views import LoadBalancerList, LoadBalancerView
from fakecloud.state import loadbalancers
from fakecloud.state.records import Change

_FENCING = {"Fencing-Token": "<lease uid>:<transitions>; lower than seen before for this cluster and Lease answers 412"}
_IF_MATCH = {"If-Match": "An ETag; 412 when the load balancer is at another one"}


async def list_load_balancers(call: Exchange[NoBody, LoadBalancerQuery]) -> Reply:
    cloud = call.services.cloud
    shown, more = loadbalancers.page(call.state, call.query)
    return Reply(
        200,
        LoadBalancerList(
            items=tuple(cloud.view(load_balancer) for load_balancer in shown),
            next_cursor=None if more is None else str(more),
        ),
    )


async def create_load_balancer(call: Exchange[LoadBalancerSpec, NoQuery]) -> Reply:
    call.note.owner = call.body.owner
    change = await call.services.cloud.create_load_balancer(call.body, intent_of(call, "create"))
    return _shown(call, change, status=200 if change.outcome is Outcome.EXISTING else 201)


async def get_load_balancer(call: Exchange[NoBody, NoQuery]) -> Reply:
    found = loadbalancers.find(call.state, call.path["id"])
    call.note.owner, call.note.resource = found.spec.owner, found.id
    return Reply(200, call.services.cloud.view(found), {"ETag": found.etag})


async def patch_load_balancer(call: Exchange[LoadBalancerPatch, NoQuery]) -> Reply:
    _note_owner(call)
    intent = intent_of(call, f"patch {call.path['id']}")
    change = await call.services.cloud.patch_load_balancer(call.path["id"], call.body, intent)
    return _shown(call, change)


async def delete_load_balancer(call: Exchange[NoBody, NoQuery]) -> Reply:
    _note_owner(call)
    intent = intent_of(call, f"delete {call.path['id']}")
    change = await call.services.cloud.delete_load_balancer(call.path["id"], intent)
    call.note.outcome = change.outcome
    present = call.services.cloud.state.load_balancers.get(change.result.id)
    if present is not None:
        return Reply(202, call.services.cloud.view(present), action_header(change))
    return Reply(204, headers=action_header(change))


def _note_owner(call: Exchange[Any, Any]) -> None:
    """The journal names the owner of a refused call too, where there is one."""
    call.note.resource = call.path["id"]
    present = call.services.cloud.state.load_balancers.get(call.path["id"])
    call.note.owner = present.spec.owner if present is not None else None


def _shown(call: Exchange[Any, Any], change: Change[LoadBalancer], *, status: int = 200) -> Reply:
    call.note.outcome, call.note.resource = change.outcome, change.result.id
    location = {"Location": f"/v1/load-balancers/{change.result.id}"} if status == 201 else {}
    return Reply(
        status,
        call.services.cloud.view(change.result),
        {"ETag": change.result.etag, **location, **action_header(change)},
    )


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        "GET",
        "/v1/load-balancers",
        "listLoadBalancers",
        "Load balancers in the order of their creation",
        list_load_balancers,
        NoBody,
        LoadBalancerQuery,
        {200: Answer("A page of load balancers", LoadBalancerList)},
    ),
    Operation(
        "POST",
        "/v1/load-balancers",
        "createLoadBalancer",
        "Create a load balancer; an owner's second create returns the first one, unchanged",
        create_load_balancer,
        LoadBalancerSpec,
        NoQuery,
        {
            201: Answer("Created, and its address accepts connections", LoadBalancerView),
            200: Answer("The owner has this one already", LoadBalancerView),
            409: Answer(
                "No address is free, a requested one is taken, there are too many, or the owner's is being deleted"
            ),
            412: Answer("The fencing token is stale"),
        },
        _FENCING | CHANGES,
    ),
    Operation(
        "GET",
        "/v1/load-balancers/{id}",
        "getLoadBalancer",
        "One load balancer with its health and counters",
        get_load_balancer,
        NoBody,
        NoQuery,
        {200: Answer("The load balancer", LoadBalancerView), 404: Answer("There is none")},
    ),
    Operation(
        "PATCH",
        "/v1/load-balancers/{id}",
        "patchLoadBalancer",
        "Replace the named fields as a whole and leave the others alone",
        patch_load_balancer,
        LoadBalancerPatch,
        NoQuery,
        {
            200: Answer("As it is now; the ETag stays when nothing changed", LoadBalancerView),
            404: Answer("There is none"),
            409: Answer("No address of a new family is free, it is being deleted, or it is another owner's"),
            412: Answer("Another version than If-Match, or a stale fencing token"),
        },
        _FENCING | _IF_MATCH | CHANGES,
    ),
    Operation(
        "DELETE",
        "/v1/load-balancers/{id}",
        "deleteLoadBalancer",
        "Close its listeners and connections and free its addresses",
        delete_load_balancer,
        NoBody,
        NoQuery,
        {
            204: Answer("It is gone"),
            202: Answer("It is gone when the action in Action-Id is done; until then it serves", LoadBalancerView),
            404: Answer("There is none"),
            409: Answer("It has deleteProtection"),
            412: Answer("Another version than If-Match, or a stale fencing token"),
        },
        _FENCING | _IF_MATCH | CHANGES,
    ),
)
