"""fakecloud.client against a fakecloud: both clients, each method."""

import asyncio
import inspect
import re
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fakecloud import app
from fakecloud.api.server import OPERATIONS
from fakecloud.client import (
    AsyncClient,
    Client,
    ConflictError,
    FakecloudError,
    InvalidRequestError,
    NotFoundError,
    RefusedError,
    StaleError,
    UnauthorizedError,
    UnreachableError,
    WaitTimeoutError,
)
from fakecloud.config import Settings
from fakecloud.models.loadbalancers import LoadBalancerPatch, LoadBalancerSpec
from tests.docs import client as made
from tests.fakecloud.background import in_background
from tests.fakecloud.clients import Backends, greeting

WEB: dict[str, Any] = {
    "name": "web",
    "owner": {"cluster": "c", "uid": "web"},
    "listeners": [{"port": 8080, "targetPort": 30080}],
}


@pytest.fixture
async def cloud(serving: app.Serving) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(serving.url, "secret") as cloud:
        yield cloud


@pytest.fixture
def blocking(settings: Settings) -> Iterator[Client]:
    with in_background(settings) as url, Client(url, "secret") as cloud:
        yield cloud


class TestTheTwoClients:
    def test_the_synchronous_one_is_made_from_the_asynchronous_one(self) -> None:
        assert made.SYNCHRONOUS.read_text() == made.made(made.ASYNCHRONOUS.read_text()), (
            "`python -m tests.docs` renews it"
        )

    def test_have_a_method_for_each_request_of_the_api(self) -> None:
        requests = {re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), one.name) for one in OPERATIONS}
        assert requests <= {name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction)}

    async def test_say_the_same_of_the_same_cloud(self, cloud: AsyncClient) -> None:
        created = await cloud.create_load_balancer(WEB)
        with Client(cloud.url, "secret") as blocking:
            assert await asyncio.to_thread(blocking.get_load_balancer, created.id) == created
            assert await asyncio.to_thread(blocking.list_load_balancers) == [created]


class TestLoadBalancers:
    async def test_live_from_create_to_delete(self, cloud: AsyncClient, backends: Backends) -> None:
        port = await backends.start("a")
        await cloud.put_server("node-1", {"id": "node-1", "name": "one", "addresses": ["127.0.0.1"]})
        spec = LoadBalancerSpec.model_validate_json(
            '{"name": "web", "owner": {"cluster": "c", "uid": "u"}, "healthCheck": {"protocol": "tcp"},'
            f'"listeners": [{{"port": 8080, "targetPort": {port}}}], "targets": [{{"server": "node-1"}}]}}'
        )
        created = await cloud.create_load_balancer(spec)
        ready = await cloud.wait_for(created.id, healthy=1)
        assert await greeting(ready.addresses[0].address) == "a"
        renamed = await cloud.patch_load_balancer(created.id, LoadBalancerPatch(name="shop"), if_match=created.etag)
        assert (renamed.name, renamed.generation) == ("shop", 2)
        with pytest.raises(StaleError, match="412"):
            await cloud.patch_load_balancer(created.id, {"name": "late"}, if_match=created.etag)
        assert await cloud.delete_load_balancer(created.id) is None
        await cloud.wait_gone(created.id)
        with pytest.raises(NotFoundError):
            await cloud.get_load_balancer(created.id)
        assert [flow.target for flow in await cloud.list_flows(load_balancer=created.id)] == [f"127.0.0.1:{port}"]

    async def test_are_listed_over_all_pages_and_by_what_they_are(self, cloud: AsyncClient) -> None:
        await cloud.add_address_pool({"name": "large", "cidr": "127.200.0.0/20"})
        async with asyncio.TaskGroup() as tasks:
            for number in range(1001):
                owner = {"cluster": "c", "uid": f"u{number}"}
                spec = {
                    **WEB,
                    "owner": owner,
                    "tags": {"tenth": str(number // 10)},
                    "listeners": [{"port": 8080, "targetPort": 1}],
                }
                tasks.create_task(cloud.create_load_balancer(spec))
        assert len(await cloud.list_load_balancers()) == 1001
        found = await cloud.list_load_balancers(owner="u7")
        assert [one.owner and one.owner.uid for one in found] == ["u7"]
        assert len(await cloud.list_load_balancers(cluster="c", tag=["tenth=5"])) == 10
        some = (await cloud.list_load_balancers(owner="u1"))[0].id
        assert [one.id for one in await cloud.list_load_balancers(id=[some])] == [some]

    def test_that_take_their_time_are_waited_for(self, blocking: Client) -> None:
        blocking.add_fault({"id": "slow", "effect": {"kind": "action", "outcome": "pending"}})
        created = blocking.create_load_balancer(WEB, idempotency_key="k", fencing_token="lease:1")
        assert blocking.create_load_balancer(WEB, idempotency_key="k", fencing_token="lease:1") == created
        assert created.action is not None
        with pytest.raises(
            WaitTimeoutError, match=r"expected state active and 2 healthy .* it is pending, 0 of 0 healthy"
        ):
            blocking.wait_for(created.id, healthy=2, timeout=0.1)
        with pytest.raises(WaitTimeoutError, match=r"create of .* is pending"):
            blocking.wait_for_action(created.action, timeout=0.1)
        blocking.remove_fault("slow")
        assert blocking.wait_for(created.id).state == "active"
        assert blocking.wait_for_action(created.action).finished_at is not None
        assert [one.id for one in blocking.list_actions(resource=created.id)] == [created.action]

    def test_that_stay_are_not_taken_for_gone(self, blocking: Client) -> None:
        created = blocking.create_load_balancer(WEB)
        with pytest.raises(WaitTimeoutError, match="expected to be gone"):
            blocking.wait_gone(created.id, timeout=0.1)

    def test_whose_action_fails_say_why(self, blocking: Client) -> None:
        blocking.add_fault({"effect": {"kind": "action", "outcome": "error", "message": "out of stock"}})
        created = blocking.create_load_balancer(WEB)
        assert created.action is not None
        with pytest.raises(FakecloudError, match=r"create of .* is error: out of stock"):
            blocking.wait_for_action(created.action)


async def test_servers_pools_and_addresses_come_and_go(cloud: AsyncClient, settings: Settings) -> None:
    server = await cloud.add_server({"id": "n-1", "name": "n", "addresses": ["127.0.0.9"]})
    assert (await cloud.list_servers(), await cloud.get_server("n-1")) == ([server], server)
    await cloud.delete_server("n-1")
    assert await cloud.list_servers() == []
    kept = await cloud.reserve_address({"name": "shop"})
    assert (await cloud.list_addresses(), await cloud.get_address("shop")) == ([kept], kept)
    await cloud.release_address("shop")
    with pytest.raises(NotFoundError):
        await cloud.get_address("shop")
    pool = await cloud.add_address_pool({"name": "blue", "cidr": "127.200.0.0/24"})
    assert pool in await cloud.list_address_pools()
    with pytest.raises(ConflictError):
        await cloud.add_address_pool({"name": "blue", "cidr": "127.201.0.0/24"})
    await cloud.delete_address_pool("blue")
    assert [one.cidr for one in await cloud.list_address_pools()] == [str(settings.pools[0])]
    assert (await cloud.get_cloud()).delivery == "proxy"


class TestFaultsAndJournal:
    async def test_a_lost_reply_is_ordered_met_and_verified(self, cloud: AsyncClient) -> None:
        match = {"methods": ["POST"], "path": "/v1/load-balancers"}
        await cloud.add_fault({"id": "lost", "match": match, "effect": {"kind": "reset", "when": "after"}, "times": 1})
        with pytest.raises(UnreachableError, match="does not answer"):
            await cloud.create_load_balancer(WEB)
        assert (await cloud.get_fault("lost")).applied == 1
        assert len(await cloud.list_load_balancers()) == 1
        assert (await cloud.verify_calls(applied=True, method="POST", path="/v1/load-balancers", exactly=1)).satisfied
        assert not (await cloud.verify_calls(user_agent="fakecloud-client/*")).satisfied
        assert (await cloud.list_calls(fault="lost")).items[0].status == 0
        assert {one.method for one in await cloud.count_calls(mutating=True)} == {"POST"}
        await cloud.remove_faults()
        assert await cloud.list_faults() == []

    async def test_calls_are_followed_as_they_come(self, cloud: AsyncClient) -> None:
        seen = cloud.tail_calls(mutating=True)
        following = asyncio.ensure_future(anext(seen))
        while not following.done():
            # From when on it follows is not to be seen from outside.
            await cloud.put_server("n", {"id": "n", "name": "n", "addresses": ["127.0.0.9"]})
        assert (await following).path == "/v1/servers/n"
        await seen.aclose()  # type: ignore[attr-defined]

    async def test_reset_forgets_what_it_is_told_to(self, cloud: AsyncClient) -> None:
        await cloud.create_load_balancer(WEB)
        await cloud.add_fault({"id": "f", "effect": {"kind": "latency", "seconds": 0}})
        await cloud.reset(state=False)
        assert (len(await cloud.list_load_balancers()), await cloud.list_faults()) == (1, [])
        await cloud.reset()
        assert await cloud.list_load_balancers() == []

    async def test_scenarios_are_listed_and_applied(self, cloud: AsyncClient) -> None:
        assert await cloud.list_scenarios() == []
        with pytest.raises(NotFoundError, match="nope"):
            await cloud.apply_scenario("nope")


class TestErrors:
    async def test_name_the_field_the_value_and_what_was_expected(self, cloud: AsyncClient) -> None:
        with pytest.raises(InvalidRequestError) as raised:
            await cloud.create_load_balancer({**WEB, "listeners": [{"port": 0, "targetPort": 1}]})
        assert (raised.value.status, raised.value.slug) == (422, "invalid-request")
        assert [(one.field, one.value) for one in raised.value.errors] == [("listeners[0].port", 0)]
        assert "listeners[0].port" in str(raised.value)

    def test_a_wrong_token_a_limit_and_a_word_that_is_no_problem(self, blocking: Client) -> None:
        with Client(blocking.url, "other") as stranger, pytest.raises(UnauthorizedError):
            stranger.list_servers()
        blocking.add_fault({"effect": {"kind": "status", "status": 503, "retryAfterSeconds": 2}, "match": {"nth": 1}})
        with pytest.raises(RefusedError) as raised:
            blocking.list_servers()
        assert (raised.value.status, raised.value.retry_after) == (503, 2)
        blocking.add_fault({"effect": {"kind": "status", "status": 502, "body": "<html>"}, "match": {"nth": 1}})
        with pytest.raises(RefusedError, match="502 without a reason"):
            blocking.list_servers()

    def test_names_with_slashes_and_blanks_stay_one_segment(self, blocking: Client) -> None:
        with pytest.raises(NotFoundError, match="a/b c"):
            blocking.get_load_balancer("a/b c")

    async def test_nobody_there(self) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
            with Client(url, "t") as blocking, pytest.raises(UnreachableError, match="is `fakecloud serve` running"):
                blocking.list_servers()
            async with AsyncClient(url, "t") as cloud:
                with pytest.raises(UnreachableError, match="is `fakecloud serve` running"):
                    await cloud.list_servers()

    def test_an_address_that_is_none(self) -> None:
        with pytest.raises(FakecloudError, match="expected http://HOST:PORT"):
            Client("127.0.0.1:8780")

    def test_the_environment_says_where(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKECLOUD_URL", "http://127.0.0.1:1/")
        monkeypatch.setenv("FAKECLOUD_TOKEN", "t")
        assert (Client().url, Client().token, Client(token="u").token) == ("http://127.0.0.1:1", "t", "u")
