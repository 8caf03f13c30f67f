"""Operations on faults and scenarios, and the reset. None of them is recorded in the journal."""

from typing import Any

from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.faults import FaultList, FaultSpec, FaultView, ScenarioList
from fakecloud.models.queries import NoQuery
from fakecloud.models.verification import Reset


async def list_faults(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, FaultList(items=tuple(call.services.faults.views())))


async def add_fault(call: Exchange[FaultSpec, NoQuery]) -> Reply:
    (added,) = call.services.faults.add([call.body])
    return Reply(201, added, {"Location": f"/v1/faults/{added.id}"})


async def get_fault(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, call.services.faults.find(call.path["id"]))


async def remove_fault(call: Exchange[NoBody, NoQuery]) -> Reply:
    call.services.faults.remove(call.path["id"])
    return Reply(204)


async def remove_faults(call: Exchange[NoBody, NoQuery]) -> Reply:
    call.services.faults.clear()
    return Reply(204)


async def list_scenarios(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, ScenarioList(items=tuple(call.services.faults.scenarios())))


async def apply_scenario(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, FaultList(items=tuple(call.services.faults.apply(call.path["name"]))))


async def reset(call: Exchange[Reset, NoQuery]) -> Reply:
    if call.body.faults:
        call.services.faults.clear()
    if call.body.state:
        await call.services.cloud.reset()
    if call.body.journal:
        call.services.journal.clear()
        call.services.flows.clear()
    return Reply(204)


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        "GET",
        "/v1/faults",
        "listFaults",
        "All faults, and how many calls or connections each has met",
        list_faults,
        NoBody,
        NoQuery,
        {200: Answer("The faults", FaultList)},
    ),
    Operation(
        "POST",
        "/v1/faults",
        "addFault",
        "Order a fault; one of the same id is replaced",
        add_fault,
        FaultSpec,
        NoQuery,
        {201: Answer("It is in force", FaultView), 409: Answer("There are too many")},
    ),
    Operation(
        "DELETE",
        "/v1/faults",
        "removeFaults",
        "Remove all faults",
        remove_faults,
        NoBody,
        NoQuery,
        {204: Answer("None is left")},
    ),
    Operation(
        "GET",
        "/v1/faults/{id}",
        "getFault",
        "One fault",
        get_fault,
        NoBody,
        NoQuery,
        {200: Answer("The fault", FaultView), 404: Answer("There is none")},
    ),
    Operation(
        "DELETE",
        "/v1/faults/{id}",
        "removeFault",
        "Remove a fault; what it holds back goes on",
        remove_fault,
        NoBody,
        NoQuery,
        {204: Answer("It is gone"), 404: Answer("There is none")},
    ),
    Operation(
        "GET",
        "/v1/scenarios",
        "listScenarios",
        "The scenarios of the file that fakecloud was started with",
        list_scenarios,
        NoBody,
        NoQuery,
        {200: Answer("The scenarios", ScenarioList)},
    ),
    Operation(
        "POST",
        "/v1/scenarios/{name}/apply",
        "applyScenario",
        "Order all faults of a scenario",
        apply_scenario,
        NoBody,
        NoQuery,
        {200: Answer("They are in force", FaultList), 404: Answer("There is no such scenario")},
    ),
    Operation(
        "POST",
        "/v1/reset",
        "reset",
        "Forget load balancers, servers, reserved addresses, faults and the journal; configured pools stay",
        reset,
        Reset,
        NoQuery,
        {204: Answer("Forgotten")},
        body_optional=True,
    ),
)
