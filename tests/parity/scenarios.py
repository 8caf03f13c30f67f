"""
The table: each scenario once, for both sides.

`given` leads up to what is compared; it is compared elsewhere, by a scenario of its own.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

from tests.parity.observe import FINALIZER, LAST_APPLIED
from tests.parity.steps import (
    FOREIGN_CLASS,
    RANGES,
    Step,
    annotate,
    apply,
    at_once,
    become,
    cordon,
    create,
    delete,
    edit,
    finalizers,
    join,
    label,
    leave,
    node_finalizer,
    node_label,
    other_node_port,
    patch,
    ports,
    provider_id,
    readdress,
    ready,
    script,
    spec,
    strip,
    taint,
    wipe,
)


@dataclasses.dataclass(frozen=True)
class Scenario:
    """
    `steps` are compared one by one. With `racy` who is faster decides what is done in between, and what the Go controller makes of it:
    ours is then held against the promises of the API alone. `accepted` are the faults of an end that no controller could avoid.
    """

    name: str
    steps: Sequence[Step]
    given: Sequence[Step] = ()
    racy: bool = False
    accepted: frozenset[str] = frozenset()


C: Final = create()
LEAVING: Final = "ToBeDeletedByClusterAutoscaler"


def served(name: str, *steps: Step, racy: bool = False, accepted: Sequence[str] = ()) -> Scenario:
    """A Service that is served, and then this."""
    return Scenario(name, steps, (C,), racy, frozenset(accepted))


def fresh(name: str, *steps: Step, racy: bool = False, accepted: Sequence[str] = ()) -> Scenario:
    return Scenario(name, steps, (), racy, frozenset(accepted))


def after(given: Step, name: str, *steps: Step) -> Scenario:
    return Scenario(name, steps, (given,))


_NO_RANGES: Final[dict[str, str | None]] = {RANGES: None}
_HTTP: Final = ports(http=80)[0]

# fmt: off
SERVICES: Final = (
    # ---- a Service's life
    fresh("create", C),
    fresh("create by apply", apply()),
    served("delete", delete()),
    served("re-created under one name", delete(), C),
    served("re-created at once", at_once(strip(), delete(), C), racy=True),
    fresh("created and deleted at once", at_once(C, delete()), racy=True),
    served("applied again without a change", apply()),
    served("delete twice", at_once(delete(), delete())),
    # ---- each field that is compared
    served("port added", spec(ports=ports(http=80, https=443))),
    after(create(ports=ports(http=80, https=443)), "port removed", spec(ports=ports(http=80))),
    after(
        create(ports=ports(http=80, https=443)), "ports in another order", spec(ports=[*ports(https=443), *ports(http=80)])
    ),
    served("port renamed", spec(ports=ports(web=80))),
    served("port number changed", spec(ports=ports(http=82))),
    served("nodePort changed", other_node_port()),
    served("targetPort changed", spec(ports=ports(target=9090, http=80))),
    served("targetPort by name", spec(ports=[{**_HTTP, "targetPort": "web"}])),
    served("appProtocol set", spec(ports=[{**_HTTP, "appProtocol": "http"}])),
    after(create(ports=[{**_HTTP, "appProtocol": "http"}]), "appProtocol changed",
          spec(ports=[{**_HTTP, "appProtocol": "kubernetes.io/h2c"}])),
    fresh("protocol SCTP", create(ports=ports("SCTP", diameter=3868))),
    served("protocol UDP", spec(ports=ports("UDP", http=80))),
    fresh("TCP and UDP on one port", create(ports=[*ports(a=53), *ports("UDP", b=53)])),
    served("sessionAffinity on and off", spec(sessionAffinity="ClientIP"), spec(sessionAffinity="None", sessionAffinityConfig=None)),
    after(
        create(sessionAffinity="ClientIP"),
        "sessionAffinity timeout",
        spec(sessionAffinityConfig={"clientIP": {"timeoutSeconds": 77}}),
    ),
    served(
        "source ranges",
        spec(loadBalancerSourceRanges=["10.0.0.0/8"]),
        spec(loadBalancerSourceRanges=["10.0.0.0/8", "11.0.0.0/8"]),
        spec(loadBalancerSourceRanges=["11.0.0.0/8", "10.0.0.0/8"]),
        spec(loadBalancerSourceRanges=None),
    ),
    served("source ranges annotation", annotate(**{RANGES: "10.0.0.0/8"}), annotate(**_NO_RANGES)),
    served("source ranges annotation is junk", annotate(**{RANGES: "nonsense"})),
    served("externalTrafficPolicy Local and back", spec(externalTrafficPolicy="Local"), spec(externalTrafficPolicy="Cluster")),
    fresh("externalTrafficPolicy Local with healthCheckNodePort", create(externalTrafficPolicy="Local", healthCheckNodePort=31999)),
    served("loadBalancerIP", spec(loadBalancerIP="1.2.3.4"), spec(loadBalancerIP=None)),
    served("externalIPs", spec(externalIPs=["1.2.3.4"]),
           spec(externalIPs=["1.2.3.4", "1.2.3.5"]), spec(externalIPs=["1.2.3.5", "1.2.3.4"])),
    served("externalIPs removed", at_once(spec(externalIPs=["1.2.3.4"]), spec(externalIPs=None)), racy=True),
    served("annotation added, changed, removed", annotate(note="1"), annotate(note="2"), annotate(note=None)),
    served("PreferDualStack and back", spec(ipFamilyPolicy="PreferDualStack"), spec(ipFamilyPolicy="SingleStack")),
    fresh("dual-stack from the start", create(ipFamilyPolicy="RequireDualStack"), delete()),
    fresh("IPv6 alone", create(ipFamilies=["IPv6"])),
    fresh("IPv6 first", create(ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv6", "IPv4"])),
    # ---- each field that is not
    served("last-applied annotation", annotate(**{LAST_APPLIED: "{}"}), annotate(**{LAST_APPLIED: '{"a": 1}'})),
    served("label", label(a="1"), label(a="2")),
    served("selector", spec(selector={"q": "r"})),
    served("internalTrafficPolicy", spec(internalTrafficPolicy="Local")),
    served("publishNotReadyAddresses", spec(publishNotReadyAddresses=True)),
    served("trafficDistribution", spec(trafficDistribution="PreferClose")),
    served("allocateLoadBalancerNodePorts off", spec(allocateLoadBalancerNodePorts=False)),
    fresh("no node ports from the start", create(allocateLoadBalancerNodePorts=False)),
    served("foreign condition", patch("a condition", {"status": {"conditions": [{
        "type": "Other", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
        subresource="status")),
    # ---- type flips
    served("to ClusterIP", become("ClusterIP")),
    served("to NodePort", become("NodePort")),
    served("to ExternalName", become("ExternalName")),
    served("to ClusterIP and back", become("ClusterIP"), become("LoadBalancer")),
    served("to ClusterIP and back at once", at_once(become("ClusterIP"), become("LoadBalancer")), racy=True),
    served("to NodePort, deleted", become("NodePort"), delete()),
    fresh("ClusterIP all along", create(type="ClusterIP"), spec(ports=ports(http=81)), delete()),
    fresh("NodePort to LoadBalancer", create(type="NodePort"), become("LoadBalancer")),
    fresh("ExternalName to LoadBalancer", create(type="ExternalName", externalName="example.com", ports=None),
          become("LoadBalancer", externalName=None, ports=ports(http=80))),
    served("to ClusterIP with another port at once", become("ClusterIP", ports=ports(http=81))),
    # ---- class flips
    fresh("foreign class from the start", create(loadBalancerClass=FOREIGN_CLASS), spec(ports=ports(http=81)), delete()),
    served("foreign class set on a living one (refused)", spec(loadBalancerClass=FOREIGN_CLASS)),
    served("by ClusterIP to a foreign class", become("ClusterIP"), become("LoadBalancer", loadBalancerClass=FOREIGN_CLASS), delete()),
    served("by ClusterIP to a foreign class at once",
           at_once(become("ClusterIP"), become("LoadBalancer", loadBalancerClass=FOREIGN_CLASS)), racy=True),
    fresh("from a foreign class by ClusterIP to none", create(loadBalancerClass=FOREIGN_CLASS),
          become("ClusterIP", loadBalancerClass=None), become("LoadBalancer")),
    fresh("foreign class with a finalizer of the same name", create(loadBalancerClass=FOREIGN_CLASS, metadata={"finalizers": [FINALIZER]}),
          spec(ports=ports(http=81))),
    fresh("foreign class with a finalizer of the same name, deleted",
          create(loadBalancerClass=FOREIGN_CLASS, metadata={"finalizers": [FINALIZER]}), delete()),
    # ---- finalizers
    served("finalizer stripped", strip()),
    served("finalizer stripped, then a port", strip(), spec(ports=ports(http=81))),
    served("finalizer stripped and deleted", at_once(strip(), delete()), racy=True),
    served("deleted, finalizer stripped at once", at_once(delete(), strip()), racy=True),
    served("finalizers replaced by a foreign one", finalizers("example.com/guard"), delete(), strip()),
    after(create(metadata={"finalizers": ["example.com/guard"]}), "foreign finalizer outlives the deletion", delete(), strip()),
    served("foreign finalizer added", finalizers(FINALIZER, "example.com/guard"), delete(), strip()),
    fresh("finalizer there from the start", create(metadata={"finalizers": [FINALIZER]})),
    fresh("ClusterIP with our finalizer from the start", create(type="ClusterIP", metadata={"finalizers": [FINALIZER]})),
    # ---- status
    served("status wiped", wipe()),
    served("status edited", edit()),
    served("ipMode edited", edit(ip="10.0.0.1", mode="VIP"), delete()),
    served("status wiped, then a port", at_once(wipe(), spec(ports=ports(http=81))), racy=True),
    served("status edited, then a port", edit(), spec(ports=ports(http=81))),
    served("status edited, then deleted", edit(), delete()),
    served("status edited, then to ClusterIP", edit(), become("ClusterIP")),
    # ---- other answers of the cloud
    fresh("the cloud answers a host name", script("ensure", "hostname"), C, delete()),
    fresh("the cloud answers no ipMode", script("ensure", "plain"), C, delete()),
    fresh("the cloud answers no address", script("ensure", "empty"), C, delete()),
    served("the address becomes a host name", script("ensure", "hostname"), annotate(note="1")),
    served("the address goes away", script("ensure", "empty"), annotate(note="1")),
    served("the ipMode goes away", script("ensure", "plain"), annotate(note="1")),
    # ---- ensure fails
    fresh("ensure fails once", script("ensure", "error: boom"), C),
    fresh("ensure fails twice", script("ensure", "error: boom", "error: boom"), C),
    fresh("ensure fails three times, each time otherwise", script("ensure", "error: one", "error: two", "error: three"), C),
    served("ensure fails on a change", script("ensure", "error: boom"), spec(ports=ports(http=81))),
    fresh("ensure fails, changed meanwhile", script("ensure", "error: boom"), at_once(C, spec(ports=ports(http=81))), racy=True),
    fresh("ensure asks for a pause", script("ensure", "retry: 2"), C),
    fresh("ensure asks for a pause twice", script("ensure", "retry: 1", "retry: 1"), C),
    served("ensure asks for a pause on a change", script("ensure", "retry: 1"), spec(ports=ports(http=81))),
    fresh("ensure is implemented elsewhere", script("ensure", "elsewhere"), C, accepted=["s: no load balancer"]),
    served("ensure is implemented elsewhere on a change", script("ensure", "elsewhere"), annotate(note="1"),
           accepted=["s: outdated annotations"]),
    fresh("ensure fails, then ClusterIP", script("ensure", *["error: boom"] * 4), at_once(C, become("ClusterIP")), racy=True),
    fresh("ensure fails, then deleted", script("ensure", *["error: boom"] * 4), at_once(C, delete()), racy=True),
    # ---- get and delete fail
    served("get fails at the deletion", script("get", "error: boom"), delete()),
    served("get fails twice at the deletion", script("get", "error: boom", "error: boom"), delete()),
    served("get says absent at the deletion", script("get", "absent"), delete()),
    served("get asks for a pause at the deletion", script("get", "retry: 1"), delete()),
    served("get is implemented elsewhere at the deletion", script("get", "elsewhere"), delete()),
    served("delete fails once", script("delete", "error: boom"), delete()),
    served("delete fails twice", script("delete", "error: boom", "error: boom"), delete()),
    served("delete asks for a pause", script("delete", "retry: 1"), delete()),
    served("delete is implemented elsewhere", script("delete", "elsewhere"), delete(), accepted=["s: leaked load balancer"]),
    served("clean-up fails at a type change", script("delete", "error: boom"), become("ClusterIP")),
    served("clean-up fails, back to LoadBalancer meanwhile", script("delete", *["error: boom"] * 4),
           at_once(become("ClusterIP"), become("LoadBalancer")), racy=True),
    served("delete fails after the finalizer was stripped", script("delete", "error: boom"), at_once(strip(), delete()), racy=True),
    served("delete fails at a re-creation at once", script("delete", "error: boom"), at_once(strip(), delete(), C), racy=True),
    # ---- quick changes
    served("two quick changes", at_once(spec(ports=ports(http=81)), spec(ports=ports(http=83))), racy=True),
    served("a change and back at once", at_once(annotate(note="1"), annotate(note=None)), racy=True),
)

# Played one after the other, since a change of the nodes concerns every Service. "s" has externalTrafficPolicy Cluster, "l" Local.
NODES: Final = (
    Scenario("node joins", [join("n4")]),
    Scenario("node leaves", [leave("n3")]),
    Scenario("two nodes join at once", [at_once(join("n4"), join("n5"))], racy=True),
    Scenario("node NotReady, Ready again", [ready("n3", "False"), ready("n3", "True")]),
    Scenario("node Unknown", [ready("n3", "Unknown")]),
    Scenario("NotReady node joins", [join("n4", ready="False")]),
    Scenario("node cordoned and uncordoned", [cordon("n3", True), cordon("n3", None)]),
    Scenario("node excluded by true", [node_label("n3", "true")]),
    Scenario("node excluded by an empty value, let in again", [node_label("n3", ""), node_label("n3", None)]),
    Scenario("node label false excludes nothing", [node_label("n3", "false")]),
    Scenario("node excluded by junk", [node_label("n3", "junk")]),
    Scenario("node excluded, then its label says false", [node_label("n3", "true"), node_label("n3", "f")]),
    Scenario("excluded node joins", [join("n4", labels={"node.kubernetes.io/exclude-from-external-load-balancers": ""})]),
    Scenario("other node label", [node_label("n3", "b", "zone")]),
    Scenario("node tainted ToBeDeleted", [taint("n3", LEAVING)]),
    Scenario("node tainted ToBeDeleted, leaves", [taint("n3", LEAVING), leave("n3")]),
    Scenario("node tainted ToBeDeleted, untainted", [taint("n3", LEAVING), taint("n3", None)]),
    Scenario("node tainted ToBeDeleted, then a Service changes", [taint("n3", LEAVING), annotate(note="t")]),
    Scenario("tainted node joins", [join("n4", taints=[{"key": LEAVING, "effect": "NoSchedule"}])]),
    Scenario("node tainted DeletionCandidate", [taint("n3", "DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")]),
    Scenario("node re-addressed", [readdress("n3", "192.168.9.33")]),
    Scenario("node without providerID joins, gets it", [join("n4", provider=False), provider_id("n4")]),
    Scenario("node under deletion", [at_once(node_finalizer("n3", "example.com/guard"), leave("n3")), node_finalizer("n3", None)]),
    Scenario("update fails once", [script("update", "error: boom"), join("n4")]),
    Scenario("update fails, ensure after it too", [script("update", "error: boom"), script("ensure", "error: bang"), join("n4")]),
    Scenario("update asks for a pause", [script("update", "retry: 1"), join("n4")]),
    Scenario("update is implemented elsewhere", [script("update", "elsewhere"), join("n4")], accepted=frozenset({"s: outdated nodes"})),
    Scenario("update fails, load balancer absent", [script("update", "error: boom"), script("get", "absent"), join("n4")]),
    Scenario("no nodes left, one after the other", [leave("n1"), leave("n2"), leave("n3")]),
    Scenario("no nodes left, one comes back", [leave("n1", "n2"), leave("n3"), join("n1")], racy=True),
    Scenario("all nodes excluded", [node_label(f"n{i}", "") for i in (1, 2, 3)]),
    Scenario("no nodes left, a Service is changed", [leave("n1"), leave("n2"), leave("n3"), annotate(note="z")]),
)

# `steps` are taken while the controller is away; all of them during one absence.
RESTARTS: Final = (
    served("restart at rest"),
    served("restart, ports changed", spec(ports=ports(http=81))),
    served("restart, annotation changed", annotate(note="9")),
    served("restart, deleted", delete()),
    served("restart, became ClusterIP", become("ClusterIP")),
    served("restart, finalizer stripped", strip()),
    served("restart, stripped and deleted", strip(), delete(), accepted=["s: leaked load balancer"]),
    served("restart, re-created", strip(), delete(), C, accepted=["s: leaked load balancer"]),
    served("restart, status wiped", wipe()),
    served("restart, status edited", edit()),
    served("restart, foreign class by ClusterIP", become("ClusterIP"), become("LoadBalancer", loadBalancerClass=FOREIGN_CLASS)),
    served("restart, ports, annotation and type there and back", spec(ports=ports(http=81)), annotate(note="9"), become("ClusterIP"),
           become("LoadBalancer")),
    fresh("restart, created meanwhile", C),
    fresh("restart, created and deleted meanwhile", C, delete()),
    served("restart, deleted, get fails", script("get", "error: boom"), delete()),
    served("restart, ensure fails", script("ensure", "error: boom")),
    Scenario("restart in the middle of a backoff", [script("ensure", "ok")], [script("ensure", *["error: boom"] * 9), C]),
    Scenario("restart in the middle of a clean-up", [script("delete", "ok")], [C, script("delete", *["error: boom"] * 9), delete()]),
)
# fmt: on
# Before all of them the nodes change, too, in a second restart.
RESTART_NODES: Final = Scenario("restart, nodes changed", [leave("n3"), join("n4")], (C,))
RESTART_NO_NODES: Final = Scenario("restart, no nodes left", [leave("n1", "n2", "n4")], (C,))

ALL: Final = (*SERVICES, *NODES, *RESTARTS, RESTART_NODES, RESTART_NO_NODES)
