"""Which target a client gets, for how long, and what is counted."""

import asyncio
import json
import shutil
import ssl
import subprocess
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from fakecloud.config import Settings
from fakecloud.dataplane.algorithms import Candidate
from fakecloud.dataplane.balancer import Balancer, Choices, Endpoint
from tests.fakecloud.clients import DEADLINE, Api, Backends, Json, address_of, connection, greeting, until
from tests.fakecloud.datagrams import udp_client, udp_server

LBS = "/v1/load-balancers"
TWO = [{"address": "127.0.0.1"}, {"address": "127.0.0.2"}]


async def two_backends(backends: Backends) -> int:
    port = await backends.start("a", "127.0.0.1")
    return await backends.start("b", "127.0.0.2", port)


async def create(api: Api, port: int, targets: list[Json] | None = None, **fields: object) -> Json:
    listeners = [{"port": 8080, "targetPort": port}]
    return await api.create(**{"listeners": listeners, "targets": targets or TWO, **fields})


async def answers(item: Json, count: int, source: str = "127.0.0.1") -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(count):
        async with connection(address_of(item), source=source) as (reader, _):
            found[(await asyncio.wait_for(reader.readline(), DEADLINE)).decode().strip()] += 1
    return found


async def test_weights_share_connections_and_a_drained_target_gets_none(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    item = await create(api, port, [{"address": "127.0.0.1", "weight": 3}, {"address": "127.0.0.2"}])
    assert await answers(item, 8) == {"a": 6, "b": 2}
    for gone in ({"weight": 0}, {"drain": True}):
        patch = {"targets": [{"address": "127.0.0.1"} | gone, {"address": "127.0.0.2"}]}
        patched = await api.call("PATCH", f"{LBS}/{item['id']}", patch)
        assert patched.body["targets"] == patch["targets"]
        assert await answers(item, 4) == {"b": 4}


async def test_least_connections_goes_where_there_are_fewest(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    item = await create(api, port, algorithm="least-connections")
    async with connection(address_of(item)) as (first, _):
        busy = (await first.readline()).decode().strip()
        idle = {"a": "b", "b": "a"}[busy]
        for _ in range(4):
            assert await greeting(address_of(item)) == idle

            async def over() -> bool:
                (listener,) = (await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"]
                return bool(listener["activeConnections"] == 1)

            await until(over)


async def test_source_hash_keeps_each_client_with_its_target(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    item = await create(api, port, algorithm="source-hash")
    found = [await answers(item, 3, f"127.0.3.{number}") for number in range(1, 17)]
    assert {len(one) for one in found} == {1}
    assert {next(iter(one)) for one in found} == {"a", "b"}


async def test_session_affinity_keeps_a_client_until_its_timeout(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    kept = await create(api, port, sessionAffinity={"timeoutSeconds": 3600})
    assert len(await answers(kept, 4)) == 1
    assert len(await answers(kept, 4, "127.0.3.9")) == 1
    forgotten = await create(api, port, uid="u2", sessionAffinity={"timeoutSeconds": 0.1})
    seen: set[str] = set()

    async def both() -> bool:
        seen.update(await answers(forgotten, 1))
        await asyncio.sleep(0.2)
        return seen == {"a", "b"}

    await until(both)


def test_affinity_follows_its_clock_and_forgets_targets_that_are_gone() -> None:
    now = 0.0
    there: list[Endpoint] = [("a", 1), ("b", 1), ("c", 1)]
    choices = Choices(
        lambda: [Candidate(target, 1, usable=True) for target in there], lambda: 0, "round-robin", affinity_seconds=10
    )
    balancer = Balancer(choices, lambda: now, lambda _: 0)
    first, *others = balancer.targets("x")
    assert len(others) == 2
    balancer.chosen("x", first)
    now = 10.0
    assert [next(iter(balancer.targets("x"))) for _ in range(3)] == [first] * 3
    balancer.chosen("x", first)
    now = 20.1
    assert len({next(iter(balancer.targets("x"))) for _ in range(3)}) == 3
    balancer.chosen("x", first)
    there.remove(first)
    balancer.follow(choices)
    assert first not in list(balancer.targets("x"))


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    # Long enough for the busy one to be seen busy where the machine is slow.
    listeners = [{"port": 8080, "targetPort": port, "idleTimeoutSeconds": 2}]
    item = await create(api, port, listeners=listeners)
    started = time.monotonic()
    async with connection(address_of(item)) as (idle, _), connection(address_of(item)) as (busy, writer):
        await idle.readline(), await busy.readline()
        closing = asyncio.create_task(idle.read())
        while not closing.done():
            writer.write(b"x")
            assert await asyncio.wait_for(busy.readexactly(1), DEADLINE) == b"x"
            await asyncio.sleep(0.02)
        with pytest.raises(ConnectionResetError):
            await closing
        assert time.monotonic() - started >= 1.9
    assert [flow["ending"] for flow in (await api.get("/v1/flows"))["items"]][-1] == "idle"


async def test_removed_targets_drain_and_end_after_the_timeout(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    item = await create(api, port, [TWO[0]], drainTimeoutSeconds=3600)
    async with connection(address_of(item)) as (reader, writer):
        assert await reader.readline() == b"a\n"
        await api.call("PATCH", f"{LBS}/{item['id']}", {"targets": [TWO[1]]})
        writer.write(b"still\n")
        assert await asyncio.wait_for(reader.readline(), DEADLINE) == b"still\n"
        assert await greeting(address_of(item)) == "b"
        started = time.monotonic()
        await api.call("PATCH", f"{LBS}/{item['id']}", {"drainTimeoutSeconds": 0.5})
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), DEADLINE)
        assert time.monotonic() - started >= 0.45


async def test_all_unhealthy_closed_resets_clients(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    # Nothing answers the check, while the targets themselves would.
    check = {"port": 9, "intervalSeconds": 0.05, "unhealthyThreshold": 1}
    item = await create(api, port, healthCheck=check, whenAllUnhealthy="closed")

    async def closed() -> bool:
        return await greeting(address_of(item)) == ""

    await until(closed)
    await api.call("PATCH", f"{LBS}/{item['id']}", {"whenAllUnhealthy": "open"})
    assert await greeting(address_of(item)) in {"a", "b"}


async def test_load_balancers_share_the_probes_of_a_node_and_port(api: Api, backends: Backends) -> None:
    probes = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal probes
        probes += 1
        await reader.read()

    health = await backends.serve(count)
    check = {"port": health, "intervalSeconds": 3600}
    items = [await create(api, 1, [TWO[0]], uid=f"u{number}", healthCheck=check) for number in range(10)]

    async def all_healthy() -> bool:
        shown = [(await api.get(f"{LBS}/{item['id']}"))["status"]["targets"] for item in items]
        return [target["healthy"] for targets in shown for target in targets] == [True] * 10

    await until(all_healthy)
    # The first probe of all is followed by a second one at once.
    assert probes <= 2


async def test_a_node_whose_kube_proxy_says_that_it_is_not_well_leaves_and_returns(
    api: Api, backends: Backends
) -> None:
    said = {"127.0.0.1": b"200 OK", "127.0.0.2": b"200 OK"}
    asked = set()

    async def healthz(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.add((await reader.readline()).split()[1])
        writer.write(b"HTTP/1.1 %s\r\n\r\n" % said[writer.get_extra_info("sockname")[0]])

    port = await two_backends(backends)
    health = await backends.serve(healthz, "127.0.0.1")
    await backends.serve(healthz, "127.0.0.2", health)
    # As for kube-proxy's port 10256, and a Service's healthCheckNodePort.
    check = {"protocol": "http", "port": health, "path": "/healthz", "intervalSeconds": 0.05, "timeoutSeconds": 60}
    item = await create(api, port, healthCheck=check)

    async def healthy(*expected: bool) -> bool:
        targets = (await api.get(f"{LBS}/{item['id']}"))["status"]["targets"]
        return [target["healthy"] for target in targets] == list(expected)

    await until(lambda: healthy(True, True))
    said["127.0.0.1"] = b"503 Service Unavailable"
    await until(lambda: healthy(False, True))
    assert set(await answers(item, 4)) == {"b"}
    said["127.0.0.1"] = b"200 OK"
    await until(lambda: healthy(True, True))
    assert set(await answers(item, 4)) == {"a", "b"}
    assert asked == {b"/healthz"}


async def test_a_connection_limit_is_kept(api: Api, backends: Backends) -> None:
    port = await two_backends(backends)
    item = await create(api, port, connectionLimit=1)
    async with connection(address_of(item)) as (reader, _):
        assert await reader.readline() == b"a\n"
        assert await greeting(address_of(item)) == ""


async def test_a_target_may_have_a_port_of_its_own(api: Api, backends: Backends) -> None:
    port = await backends.start("own")
    item = await create(api, 1, [{"address": "127.0.0.1", "port": port}])
    assert await greeting(address_of(item)) == "own"
    assert (await api.get(f"{LBS}/{item['id']}"))["status"]["targets"][0]["port"] == port


async def test_https_checks_and_a_check_by_listener(api: Api, backends: Backends, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt-get install openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=node", "-days", "1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, [*command, *files], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if b"/ready " in line else b"HTTP/1.1 503 No\r\n\r\n")

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    secure = server.sockets[0].getsockname()[1]
    fast = {"intervalSeconds": 0.05, "unhealthyThreshold": 1}
    listeners = [
        {"port": 8080, "targetPort": secure},
        {"port": 8081, "targetPort": await backends.start("plain"), "healthCheck": fast | {"protocol": "https"}},
    ]
    check = fast | {"protocol": "https", "path": "/ready"}
    item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}], healthCheck=check)

    async def as_expected() -> bool:
        targets = (await api.get(f"{LBS}/{item['id']}"))["status"]["targets"]
        return [target["healthy"] for target in targets] == [True, False]

    await until(as_expected)
    server.close()


async def test_tcp_and_udp_share_a_port_number(api: Api, backends: Backends) -> None:
    tcp = await backends.start("tcp")
    async with udp_server("udp") as udp:
        listeners = [
            {"port": 5353, "targetPort": tcp},
            {"protocol": "UDP", "port": 5353, "targetPort": udp},
        ]
        item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
        assert await greeting(address_of(item), 5353) == "tcp"
        async with udp_client(address_of(item), 5353) as client:
            assert await client.ask() == "udp hello"
        status = (await api.get(f"{LBS}/{item['id']}"))["status"]
        assert [(one["protocol"], one["connections"]) for one in status["listeners"]] == [("TCP", 1), ("UDP", 1)]
        # Removing one leaves the other.
        await api.call("PATCH", f"{LBS}/{item['id']}", {"listeners": listeners[1:]})
        assert await greeting(address_of(item), 5353) == ""
        async with udp_client(address_of(item), 5353) as client:
            assert await client.ask() == "udp hello"


async def test_udp_clients_keep_their_target_are_counted_and_time_out(api: Api) -> None:
    async with udp_server("a", "127.0.0.1") as port, udp_server("b", "127.0.0.2", port):
        listeners = [{"protocol": "UDP", "port": 5353, "targetPort": port}]
        item = await api.create(listeners=listeners, targets=TWO)
        path = f"{LBS}/{item['id']}"
        async with udp_client(address_of(item), 5353) as one, udp_client(address_of(item), 5353) as two:
            assert [await one.ask(str(number)) for number in range(3)] == ["a 0", "a 1", "a 2"]
            assert await two.ask("x") == "b x"
            (listener,) = (await api.get(path))["status"]["listeners"]
            assert (listener["activeConnections"], listener["bytesIn"], listener["bytesOut"]) == (2, 4, 12)
            assert [target["connections"] for target in (await api.get(path))["status"]["targets"]] == [1, 1]
            assert (await api.get(path))["status"]["targets"][0]["reason"].startswith("not probed")
            await api.call("PATCH", path, {"listeners": [listeners[0] | {"idleTimeoutSeconds": 0.2}]})

            async def over() -> bool:
                return bool((await api.get(path))["status"]["listeners"][0]["activeConnections"] == 0)

            await until(over)
            assert await one.ask("again") in {"a again", "b again"}
    flows = (await api.get(f"/v1/flows?loadBalancer={item['id']}"))["items"]
    assert {(flow["protocol"], flow["ending"]) for flow in flows} == {("UDP", "idle")}


async def test_udp_source_ranges_affinity_and_a_refusing_target(api: Api) -> None:
    async with udp_server("b", "127.0.0.2") as port:
        listeners = [{"protocol": "UDP", "port": 5353, "targetPort": port}]
        item = await api.create(
            listeners=listeners, targets=[TWO[1]], sourceRanges=["127.0.7.0/24"], sessionAffinity={}
        )
        async with udp_client(address_of(item), 5353) as outside:
            assert await outside.ask(seconds=0.3) == ""
        async with udp_client(address_of(item), 5353, "127.0.7.1") as inside:
            assert await inside.ask() == "b hello"
        # 127.0.0.1 has nobody there and says so (ICMP): a later datagram gets to the other one.
        await api.call("PATCH", f"{LBS}/{item['id']}", {"targets": TWO, "sessionAffinity": None, "sourceRanges": []})
        async with udp_client(address_of(item), 5353) as client:

            async def answered() -> bool:
                return await client.ask(seconds=0.1) == "b hello"

            await until(answered)


class TestWithAFlowLog:
    @pytest.fixture
    def settings(self, settings: Settings, tmp_path: Path) -> Settings:
        return settings.model_copy(update={"flow_log": tmp_path / "flows.jsonl"})

    async def test_flows_targets_and_metrics_agree(self, api: Api, backends: Backends, tmp_path: Path) -> None:
        port = await two_backends(backends)
        item = await create(api, port)
        path = f"{LBS}/{item['id']}"
        async with connection(address_of(item)) as (reader, writer):
            await reader.readline()
            writer.write(b"12345")
            await asyncio.wait_for(reader.readexactly(5), DEADLINE)
            targets = (await api.get(path))["status"]["targets"]
            assert [one["activeConnections"] for one in targets] == [1, 0]

        async def ended() -> bool:
            return len((await api.get("/v1/flows"))["items"]) == 1

        await until(ended)
        await greeting(address_of(item))
        first = (await api.get("/v1/flows"))["items"][-1]
        assert (first["listener"], first["target"]) == (f"{address_of(item)}:8080", f"127.0.0.1:{port}")
        assert (first["bytesIn"], first["bytesOut"] >= 7, first["loadBalancer"]) == (5, True, item["id"])
        targets = (await api.get(path))["status"]["targets"]
        assert [(one["connections"], one["bytesIn"]) for one in targets] == [(1, 5), (1, 0)]
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
            async with session.get(f"{api.url}/metrics") as response:
                text = await response.text()
            async with session.get(f"{api.url}/metrics", headers={"Authorization": "Bearer no"}) as response:
                assert response.status == 401
        labels = f'address="{address_of(item)}",load_balancer="{item["id"]}",port="8080",protocol="TCP"'
        lines = [line.replace(", ", ",") for line in text.splitlines()]
        assert any(line.startswith("fakecloud_listener_connections_total{") and line.endswith(" 2.0") for line in lines)
        assert any(all(part in line for part in labels.split(",")) for line in lines)
        assert any("fakecloud_target_received_bytes_total" in line and line.endswith(" 5.0") for line in lines)
        assert any("fakecloud_api_calls_total" in line for line in lines)

        async def written() -> bool:
            return len((tmp_path / "flows.jsonl").read_text().splitlines()) == 2

        await until(written)
        assert json.loads((tmp_path / "flows.jsonl").read_text().splitlines()[0])["bytesIn"] == 5
