"""What happens in a scenario, each thing once: steps that users, nodes, clouds and operators take."""

import copy
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from tests.parity.observe import FINALIZER
from tests.parity.sides import Side

Json = dict[str, Any]
Act = Callable[[Side, str], Awaitable[object]]

RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
FOREIGN_CLASS = "example.com/other"
STANDARD_NODES = ("n1", "n2", "n3")


@dataclasses.dataclass(frozen=True)
class Step:
    """`act` on a side and a namespace. After one that is `instant` nothing is waited for: the next follows at once."""

    words: str
    act: Act
    instant: bool = False


# ---- Services; "s" unless another is named


def service(name: str = "s", **spec: Any) -> Json:
    metadata = spec.pop("metadata", {})
    usual = {"type": "LoadBalancer", "selector": {"a": "b"}, "ports": ports(http=80)}
    return {"metadata": {"name": name, **metadata}, "spec": {**usual, **spec}}


def ports(protocol: str = "TCP", target: int = 8080, **named: int) -> list[Json]:
    return [{"name": n, "port": port, "protocol": protocol, "targetPort": target} for n, port in named.items()]


def create(name: str = "s", **spec: Any) -> Step:
    async def act(side: Side, namespace: str) -> None:
        await side.kube.create("services", copy.deepcopy(service(name, **spec)), namespace)

    return Step(f"create {name}{_words(spec)}", act)


def patch(words: str, body: Json, name: str = "s", subresource: str | None = None) -> Step:
    async def act(side: Side, namespace: str) -> None:
        await side.kube.patch("services", name, body, namespace, subresource=subresource)

    return Step(words, act)


def spec(name: str = "s", **fields: Any) -> Step:
    return patch(f"set{_words(fields)}", {"spec": fields}, name)


def annotate(name: str = "s", /, **notes: str | None) -> Step:
    return patch(f"annotate {notes}", {"metadata": {"annotations": notes}}, name)


def label(**labels: str) -> Step:
    return patch(f"label {labels}", {"metadata": {"labels": labels}})


def become(kind: str, name: str = "s", **more: Any) -> Step:
    """Change the type."""
    fields: Json = {"type": kind, **more}
    if kind == "ExternalName":
        fields |= {"externalName": "example.com", "clusterIP": None, "clusterIPs": None}
    return dataclasses.replace(spec(name, **fields), words=f"become {kind}{_words(more)}")


def delete(name: str = "s") -> Step:
    async def act(side: Side, namespace: str) -> None:
        await side.kube.delete("services", name, namespace)

    return Step(f"delete {name}", act)


def finalizers(*names: str, of: str = "s") -> Step:
    """What a user leaves of the list."""
    return patch(f"finalizers {list(names)}", {"metadata": {"finalizers": list(names) or None}}, of)


def strip(name: str = "s") -> Step:
    return dataclasses.replace(finalizers(of=name), words="strip the finalizers")


def wipe(name: str = "s") -> Step:
    return patch("wipe the status", {"status": {"loadBalancer": None}}, name, "status")


def edit(name: str = "s", ip: str = "9.9.9.9", mode: str = "VIP") -> Step:
    ingress = [{"ip": ip, "ipMode": mode}]
    return patch(f"edit the status to {ip} {mode}", {"status": {"loadBalancer": {"ingress": ingress}}}, name, "status")


def apply(name: str = "s", **spec: Any) -> Step:
    """Server-side apply, as kubectl does it."""

    async def act(side: Side, namespace: str) -> None:
        body = {"apiVersion": "v1", "kind": "Service", **copy.deepcopy(service(name, **spec))}
        await side.kube.patch("services", name, body, namespace, kind="apply")

    return Step(f"apply {name}{_words(spec)}", act)


def other_node_port() -> Step:
    async def act(side: Side, namespace: str) -> None:
        found = await side.kube.get("services", "s", namespace)
        # Others may have been given the next one.
        taken = {
            port.get("nodePort") for one in await side.kube.list("services") for port in one["spec"].get("ports") or []
        }
        free = next(port for port in range(39000, 39999) if port not in taken)
        changed = [{**found["spec"]["ports"][0], "nodePort": free}]
        await side.kube.patch("services", "s", {"spec": {"ports": changed}}, namespace)

    return Step("another nodePort", act)


def script(verb: str, *outcomes: str, name: str = "s") -> Step:
    """What the cloud answers next."""

    async def act(side: Side, namespace: str) -> None:
        side.cloud.script(verb, namespace, name, list(outcomes))

    return Step(f"the cloud answers {verb} with {list(outcomes)}", act, instant=True)


def at_once(*steps: Step) -> Step:
    """One after the other, without a pause."""

    async def act(side: Side, namespace: str) -> None:
        for step in steps:
            await step.act(side, namespace)

    return Step(" and at once ".join(step.words for step in steps), act)


# ---- nodes


def node(name: str, address: str | None = None, **more: Any) -> Json:
    number = int(name[1:])
    addresses = [{"type": "InternalIP", "address": address or f"192.168.9.{number}"}]
    ready = {"type": "Ready", "status": more.get("ready", "True"), "reason": "r", "message": "m"}
    spec = {"providerID": f"parity://{name}", "taints": more.get("taints")}
    if not more.get("provider", True):
        del spec["providerID"]
    return {
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": spec,
        "status": {"addresses": addresses, "conditions": [ready]},
    }


def join(name: str, **more: Any) -> Step:
    async def act(side: Side, _: str) -> None:
        await side.kube.create("nodes", node(name, **more))

    return Step(f"{name} joins{_words(more)}", act)


def leave(*names: str) -> Step:
    async def act(side: Side, _: str) -> None:
        for name in names:
            await side.kube.delete("nodes", name)

    return Step(f"{' '.join(names)} leave", act)


def node_patch(words: str, name: str, body: Json, subresource: str | None = None) -> Step:
    async def act(side: Side, _: str) -> None:
        await side.kube.patch("nodes", name, body, kind="strategic", subresource=subresource)

    return Step(f"{name} {words}", act)


def node_label(name: str, value: str | None, key: str = EXCLUDE) -> Step:
    words = f"label {key.rpartition('/')[2]}={value!r}"
    return node_patch(words, name, {"metadata": {"labels": {key: value}}})


def ready(name: str, status: str) -> Step:
    return node_patch(
        f"Ready={status}", name, {"status": {"conditions": [{"type": "Ready", "status": status}]}}, "status"
    )


def cordon(name: str, value: bool | None) -> Step:  # noqa: FBT001
    return node_patch(f"cordon {value}", name, {"spec": {"unschedulable": value}})


def taint(name: str, key: str | None, effect: str = "NoSchedule") -> Step:
    """Exactly this taint, or none."""

    async def act(side: Side, _: str) -> None:
        taints = [{"key": key, "effect": effect, "value": "1"}] if key else None
        await side.kube.patch("nodes", name, {"spec": {"taints": taints}})

    return Step(f"{name} taint {key}", act)


def readdress(name: str, address: str) -> Step:
    async def act(side: Side, _: str) -> None:
        addresses = [{"type": "InternalIP", "address": address}]
        await side.kube.patch("nodes", name, {"status": {"addresses": addresses}}, subresource="status")

    return Step(f"{name} gets the address {address}", act)


def provider_id(name: str) -> Step:
    return node_patch("gets its providerID", name, {"spec": {"providerID": f"parity://{name}"}})


def node_finalizer(name: str, value: str | None) -> Step:
    async def act(side: Side, _: str) -> None:
        await side.kube.patch("nodes", name, {"metadata": {"finalizers": [value] if value else None}})

    return Step(f"{name} finalizer {value}", act)


async def reset_nodes(side: Side) -> None:
    """Make the cluster's nodes the standard three again."""
    standard = {name: node(name) for name in STANDARD_NODES}
    for found in await side.kube.list("nodes"):
        name = found["metadata"]["name"]
        if name not in standard or _differs(found, standard[name]):
            if found["metadata"].get("finalizers"):
                await side.kube.patch("nodes", name, {"metadata": {"finalizers": None}})
            await side.kube.delete("nodes", name)
        else:
            del standard[name]
    for body in standard.values():
        await side.kube.create("nodes", body)


def _differs(found: Json, standard: Json) -> bool:
    metadata, spec, status = found["metadata"], found["spec"], found["status"]
    return bool(
        metadata.get("labels")
        or metadata.get("finalizers")
        or spec.get("unschedulable")
        or spec.get("taints")
        or spec.get("providerID") != standard["spec"]["providerID"]
        or status["addresses"] != standard["status"]["addresses"]
        or status["conditions"][0]["status"] != "True"
    )


def _words(fields: Json) -> str:
    text = ", ".join(f"{key}={value}" for key, value in fields.items())
    return f" {text}".replace(FINALIZER, "cleanup") if text else ""
