"""Plays the table to both sides, as many scenarios at once as do not share nodes or restarts."""

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane.kube import KubeError
from tests.parity import compare, model, observe, scenarios, sides, steps
from tests.parity.compare import Difference
from tests.parity.scenarios import Scenario
from tests.parity.sides import Side
from tests.parity.steps import Step

KINDS = ("go", "ccm")
CLUSTER = ""  # where nodes are
AT_ONCE = 48  # scenarios; more of them only make a small machine slower

Fields = dict[str, str]  # texts by the name of what is compared


@dataclasses.dataclass
class Record:
    """What one side did in a scenario: the fields of each step, and those of the end, which come last."""

    steps: list[Fields] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)


Results = dict[str, dict[str, Record]]  # by scenario and side


async def table(binaries: Mapping[str, Path], directory: Path, chosen: str = "") -> Results:
    """Play every scenario whose name holds `chosen`."""
    results: Results = {one.name: {} for one in scenarios.ALL if chosen in one.name}
    async with contextlib.AsyncExitStack() as stack:
        making = (
            stack.enter_async_context(sides.running(kind, binaries, directory, flags=sides.DUAL_STACK))
            for kind in KINDS
        )
        both = await asyncio.gather(*making)
        await asyncio.gather(*(_play_side(side, results) for side in both))
    return results


def differences(name: str, records: Mapping[str, Record]) -> list[Difference]:
    """What the sides of the scenario `name` differ in; nothing for one in which chance decides."""
    theirs, ours = records["go"], records["ccm"]
    return [] if _BY_NAME[name].racy else list(compare.differences(name, theirs.steps, ours.steps))


def wrong(name: str, records: Mapping[str, Record]) -> list[str]:
    """What ours left undone in the scenario `name`."""
    return sorted(set(records["ccm"].faults) - _BY_NAME[name].accepted)


_BY_NAME = {one.name: one for one in scenarios.ALL}


async def _play_side(side: Side, results: Results) -> None:
    await steps.reset_nodes(side)
    await side.at_rest(["default"])
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(scenario: Scenario) -> None:
        async with slots:
            namespace = await _namespace(side, scenario.name)
            results[scenario.name][side.kind] = await _play(side, scenario, namespace)
            await side.clear(namespace)

    await asyncio.gather(*(one(each) for each in scenarios.SERVICES if each.name in results))
    if chosen := [each for each in scenarios.NODES if each.name in results]:
        await _play_nodes(side, chosen, results)
    if chosen := [each for each in scenarios.RESTARTS if each.name in results]:
        await _restart(side, chosen, results)
    for each in (scenarios.RESTART_NODES, scenarios.RESTART_NO_NODES):
        if each.name in results:
            await steps.reset_nodes(side)
            await _restart(side, [each], results)


async def _play(side: Side, scenario: Scenario, namespace: str) -> Record:
    for step in scenario.given:
        await step.act(side, namespace)
    if scenario.given:
        await side.at_rest([namespace])
    return await _compared(side, scenario, namespace)


async def _compared(side: Side, scenario: Scenario, namespace: str) -> Record:
    record = Record()
    mark = side.mark(namespace)
    for step in scenario.steps:
        reply = await _take(side, step, namespace)
        if step.instant:
            continue
        fields = {"reply": reply, **await _seen(side, namespace, mark)}
        mark = side.mark(namespace)
        record.steps.append(fields)
    await _end(side, namespace, record)
    return record


async def _take(side: Side, step: Step, namespace: str) -> str:
    try:
        await step.act(side, namespace)
    except KubeError as error:
        return f"refused {error.status}"
    return "ok"


async def _seen(side: Side, namespace: str, mark: sides.Mark, *, started: bool = False) -> Fields:
    """`started`: the Go controller syncs nodes while it starts, with as many Services as it has come to by then; that is left out."""
    rested = await side.at_rest([namespace, CLUSTER])
    calls = sorted(side.cloud.calls(namespace)[mark.calls :], key=lambda one: one.service)
    events = sorted(side.events_since(namespace, mark), key=lambda one: one.service)
    called = [
        observe.call_text(one.verb, one.service, one.nodes, one.outcome)
        for one in calls
        if not (started and one.verb == "update")
    ]
    told = observe.event_texts([one for one in events if not (started and one.reason == "UpdatedLoadBalancer")])
    services = {one["metadata"]["name"]: one for one in await side.kube.list("services", namespace)}
    texts = [f"{name}: {observe.service_text(one)}" for name, one in services.items()]
    fields = {"calls": "; ".join(called), "events": "; ".join(told), "Service": "; ".join(texts).removeprefix("s: ")}
    return fields if rested else {**fields, "retry": "never comes"}


async def _end(side: Side, namespace: str, record: Record) -> None:
    have = side.cloud.of(namespace)
    texts = [observe.balancer_text(one.name, one.incarnation, one.service, one.nodes) for _, one in have]
    record.faults = await faults(side, namespace)
    record.steps.append({"cloud": "; ".join(sorted(texts)), "end": "; ".join(record.faults) or "right"})


async def faults(side: Side, namespace: str) -> list[str]:
    """What is wrong in the namespace by the promises of the Kubernetes API."""
    services = {one["metadata"]["name"]: one for one in await side.kube.list("services", namespace)}
    nodes = await side.kube.list("nodes")
    have = side.cloud.of(namespace)
    found = []
    for name in sorted({*services, *(one.name for _, one in have)}):
        balancers = {uid: one for uid, one in have if one.name == name}
        service = services.get(name)
        made = {uid: (one.service, one.nodes) for uid, one in balancers.items()}
        found += model.faults(name, service, made, nodes)
        own = balancers.get(service["metadata"]["uid"]) if service is not None else None
        found += model.status_faults(name, service, own.answered if own is not None else None)
    return found


async def _play_nodes(side: Side, chosen: Sequence[Scenario], results: Results) -> None:
    """Each with Services of its own, since the events of one object are limited."""
    for scenario in chosen:
        namespace = await _namespace(side, scenario.name)
        await steps.reset_nodes(side)
        await steps.create().act(side, namespace)
        await steps.create("l", externalTrafficPolicy="Local").act(side, namespace)
        await side.at_rest([namespace, CLUSTER])
        results[scenario.name][side.kind] = await _compared(side, scenario, namespace)
        await side.clear(namespace)
    await steps.reset_nodes(side)


async def _restart(side: Side, chosen: Sequence[Scenario], results: Results) -> None:
    """All of them during one absence of the controller."""
    namespaces = {one.name: await _namespace(side, one.name) for one in chosen}
    for number in range(max(len(one.given) for one in chosen)):
        for scenario in chosen:
            for step in scenario.given[number : number + 1]:
                await step.act(side, namespaces[scenario.name])
        await asyncio.gather(*(side.at_rest([one], retry=0.0) for one in namespaces.values()))
    await side.stop()
    marks = {name: side.mark(namespace) for name, namespace in namespaces.items()}
    replies = {}
    for scenario in chosen:
        taken = [await _take(side, step, namespaces[scenario.name]) for step in scenario.steps]
        replies[scenario.name] = " ".join(taken)
    side.start()

    async def one(scenario: Scenario) -> None:
        namespace = namespaces[scenario.name]
        fields = {"reply": replies[scenario.name]}
        fields |= await _seen(side, namespace, marks[scenario.name], started=True)
        record = Record([fields])
        await _end(side, namespace, record)
        results[scenario.name][side.kind] = record
        await side.clear(namespace)

    await asyncio.gather(*(one(each) for each in chosen))


async def _namespace(side: Side, name: str) -> str:
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60].strip("-")
    await side.kube.create("namespaces", {"metadata": {"name": made}})
    return made
