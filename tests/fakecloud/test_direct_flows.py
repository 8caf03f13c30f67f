"""Delivery by routing: which node a flow goes to, what a change leaves alone, and what is counted."""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from fakecloud.models.loadbalancers import LoadBalancerPatch, LoadBalancerSpec
from fakecloud.state.networks import AddressSet
from fakecloud.state.policy import Policy
from tests.fakecloud.clients import DEADLINE, Json, Process, load_balancer
from tests.fakecloud.enclosed import LBS, needs_netlink, until
from tests.fakecloud.namespaces import inside
from tests.fakecloud.routed import NODES, Net, Served, routed_net

families = pytest.mark.parametrize("family", ["IPv4", "IPv6"])


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    process = Process()
    try:
        with routed_net(tmp_path_factory.mktemp("direct"), process) as net:
            yield net
    finally:
        process.kill()


@needs_netlink
@families
def test_each_new_flow_is_counted_once_for_its_listener_and_its_node(net: Net, family: str) -> None:
    with net.load_balancer(family) as served:
        talks = [served.talk() for _ in range(4)]
        for talk in talks:
            assert [talk.ask() for _ in range(3)] == [talk.node] * 3
        for _ in range(6):
            first, *others = served.who_by_datagrams(count=3)
            assert others == [first] * 2
        for talk in talks:
            talk.close()
        listeners = served.listeners()
        assert {protocol: one["connections"] for (protocol, _), one in listeners.items()} == {"TCP": 4, "UDP": 6}
        assert {name: one["connections"] for name, one in served.targets().items()} == {"one": 5, "two": 5}
        for direction in ("bytesIn", "bytesOut"):
            by_target = sum(one[direction] for one in served.targets().values())
            assert by_target == sum(one[direction] for one in served.listeners().values()) > 0


@needs_netlink
@families
def test_nodes_take_turns_by_weight(net: Net, family: str) -> None:
    with net.load_balancer(family, targets=[{"server": "one", "weight": 3}, {"server": "two"}]) as served:
        assert Counter(served.who() for _ in range(8)) == {"one": 6, "two": 2}
        served.change(targets=[{"server": "one", "weight": 0}, {"server": "two"}])
        assert Counter(served.who() for _ in range(4)) == {"two": 4}


@needs_netlink
@families
def test_by_source_hash_a_client_keeps_its_node_for_as_long_as_it_is_there(net: Net, family: str) -> None:
    with net.load_balancer(family, algorithm="source-hash") as served:
        (kept,) = {served.who() for _ in range(6)}
        (other,) = NODES.keys() - {kept}
        # Several times: by chance alone it would come back to its node every second time.
        for _ in range(5):
            served.change(targets=[{"server": other}])
            assert {served.who() for _ in range(2)} == {other}
            served.change(targets=[{"server": name} for name in NODES])
            assert {served.who() for _ in range(2)} == {kept}


@needs_netlink
@families
def test_with_affinity_a_client_keeps_its_node_until_the_time_is_over_or_the_node_is_gone(
    net: Net, family: str
) -> None:
    with net.load_balancer(family, sessionAffinity={"type": "ClientIP", "timeoutSeconds": 600}) as served:
        # Turns would alternate; two clients' first turns are different nodes.
        first, second = ({served.who(client=client) for _ in range(5)} for client in (0, 1))
        assert (len(first), len(second), first | second) == (1, 1, set(NODES))
        (gone,), (left,) = first, second
        served.change(targets=[{"server": left}])
        assert {served.who() for _ in range(3)} == {left}
        served.change(targets=[{"server": name} for name in NODES])
        assert {served.who() for _ in range(3)} == {left}, f"it was not sent back to {gone}"


@needs_netlink
def test_affinity_ends_when_a_client_stays_away_for_its_time(net: Net) -> None:
    with net.load_balancer(sessionAffinity={"type": "ClientIP", "timeoutSeconds": 0.3}) as served:
        seen = set()

        def comes_back_after_the_time() -> bool:
            time.sleep(0.5)
            seen.add(served.who())
            return len(seen) == 2

        until(comes_back_after_the_time)


@needs_netlink
@families
@pytest.mark.parametrize("way", ["removed", "drains", "unhealthy"])
def test_connections_of_a_node_that_is_taken_out_go_on_and_new_ones_go_elsewhere(
    net: Net, family: str, way: str
) -> None:
    with net.load_balancer(family) as served:
        talks = {talk.node: talk for talk in (served.talk(), served.talk())}
        assert set(talks) == set(NODES)
        if way == "unhealthy":
            net.end("one", 30080)
            served.wait_health(one=False, two=True)
        else:
            gone = [{"server": "one", "drain": True}] if way == "drains" else []
            served.change(targets=[*gone, {"server": "two"}])
        try:
            assert {served.who() for _ in range(4)} == {"two"}
            assert {name: talk.ask() for name, talk in talks.items()} == {"one": "one", "two": "two"}
        finally:
            for talk in talks.values():
                talk.close()
            if way == "unhealthy":
                net.serve("one", 30080, NODES["one"])
        served.change(targets=[{"server": name} for name in NODES])
        served.wait_health(one=True, two=True)
        assert Counter(served.who() for _ in range(4)) == {"one": 2, "two": 2}


@needs_netlink
@families
def test_after_the_time_to_drain_a_connection_is_reset_and_another_node_s_is_not(net: Net, family: str) -> None:
    with net.load_balancer(family, drainTimeoutSeconds=1) as served:
        talks = {talk.node: talk for talk in (served.talk(), served.talk())}
        served.change(targets=[{"server": "two"}])

        def is_reset() -> bool:
            try:
                talks["one"].ask()
            except ConnectionError:
                return True
            return False

        until(is_reset)
        assert talks["two"].ask() == "two"
        for talk in talks.values():
            talk.close()


@needs_netlink
@families
def test_changes_that_do_not_concern_a_connection_leave_it_alone(net: Net, family: str) -> None:
    with net.load_balancer(family) as served:
        talks = [served.talk() for _ in range(4)]
        listeners = [{"protocol": p, "port": port, "targetPort": 30080} for port in (80, 81) for p in ("TCP", "UDP")]
        source = "10.70.0.0/16" if family == "IPv4" else "fd70::/32"
        for change in (
            {"listeners": listeners},
            {"targets": [{"server": "one", "weight": 5}, {"server": "two", "weight": 7}]},
            {"algorithm": "source-hash"},
            {"sessionAffinity": {"type": "ClientIP", "timeoutSeconds": 60}},
            {"sourceRanges": [source]},
            {"listeners": listeners[:2]},
            {"targets": [{"server": "two"}, {"server": "one"}], "algorithm": "round-robin", "sessionAffinity": None},
        ):
            served.change(**change)
            assert [talk.ask() for talk in talks] == [talk.node for talk in talks], change
        assert served.listeners()["TCP", 80]["connections"] == 4, "and none was counted again"
        for talk in talks:
            talk.close()


@needs_netlink
@families
def test_source_ranges_hold_for_tcp_and_udp(net: Net, family: str) -> None:
    allowed = "10.70.0.2/32" if family == "IPv4" else "fd70::2/128"
    with net.load_balancer(family, sourceRanges=[allowed]) as served:
        assert served.who() in NODES
        assert set(served.who_by_datagrams()) <= set(NODES)
        with pytest.raises(TimeoutError):
            served.who(client=1, patience=1)
        with pytest.raises(TimeoutError):
            served.who_by_datagrams(client=1, patience=1)
        assert {one["connections"] for one in served.listeners().values()} == {1}, "a refused client is no flow"


@needs_netlink
def test_a_port_that_a_client_uses_again_is_a_new_connection(net: Net) -> None:
    with net.load_balancer() as served:
        for expected in (1, 2, 3):
            _from_one_port(net, served)
            assert served.listeners()["TCP", 80]["connections"] == expected


@needs_netlink
def test_closed_where_no_node_is_healthy_and_open_by_default(net: Net) -> None:
    with net.load_balancer() as served:
        try:
            for name in NODES:
                net.end(name, 30080)
            served.wait_health(one=False, two=False)
            assert served.who() in NODES
            served.change(whenAllUnhealthy="closed")
            with pytest.raises(ConnectionRefusedError):
                served.who()
        finally:
            for name, addresses in NODES.items():
                net.serve(name, 30080, addresses)


@needs_netlink
def test_a_request_for_what_only_a_proxy_can_do_is_refused_with_its_field(net: Net) -> None:
    listeners = [{"port": 80, "targetPort": 30080, "proxyProtocol": "v2"}]
    status, body = net.cloud.call("POST", LBS, load_balancer(listeners=listeners))
    assert (status, [one["field"] for one in body["errors"]]) == (422, ["listeners[0].proxyProtocol"])
    assert "--delivery proxy" in body["detail"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param(
            {"listeners": [{"port": 80, "targetPort": 1}, {"port": 81, "targetPort": 1, "proxyProtocol": "v1"}]},
            "listeners[1].proxyProtocol",
            id="PROXY protocol",
        ),
        pytest.param({"algorithm": "least-connections"}, "algorithm", id="least connections"),
        pytest.param({"connectionLimit": 5}, "connectionLimit", id="connection limit"),
    ],
)
def test_what_needs_a_proxy_is_named(fields: Json, named: str) -> None:
    spec = LoadBalancerSpec.model_validate_json(json.dumps(load_balancer(**fields)))
    (error,) = Policy(AddressSet(()), delivery="direct").undeliverable(spec)
    assert (error.field, "needs --delivery proxy: " in error.message) == (named, True)
    assert list(Policy(AddressSet(())).undeliverable(spec)) == []
    plain = LoadBalancerSpec.model_validate_json(json.dumps(load_balancer()))
    patched = LoadBalancerPatch.model_validate_json(json.dumps(fields)).applied_to(plain)
    assert [one.field for one in Policy(AddressSet(()), delivery="direct").undeliverable(patched)] == [named]


def _from_one_port(net: Net, served: Served) -> None:
    def ask() -> None:
        with socket.socket() as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # No TIME_WAIT afterwards.
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            asking.bind(("10.70.0.2", 45_678))
            asking.settimeout(DEADLINE)
            asking.connect((served.address, 80))
            asking.recv(3)

    inside(net.client, ask)
