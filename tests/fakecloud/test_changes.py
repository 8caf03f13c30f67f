"""Actions, idempotency keys, filters, protection, reserved addresses and limits."""

import asyncio
import itertools
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pytest

from fakecloud import app
from fakecloud.config import Settings
from fakecloud.models.actions import Action
from fakecloud.models.inventory import ReservedAddress
from fakecloud.state.records import Record
from tests.fakecloud.clients import Api, Backends, address_of, greeting, load_balancer, until
from tests.fakecloud.planes import PlaneOfRoutes, RowStore, cloud_of

LBS = "/v1/load-balancers"


async def done(api: Api, action: str) -> bool:
    return bool((await api.get(f"/v1/actions/{action}"))["status"] == "done")


async def test_every_change_names_its_action_and_what_changed_nothing_has_none(api: Api) -> None:
    server = {"id": "node-1", "name": "node-1", "addresses": ["127.0.0.1"]}
    item = await api.create()
    path = f"{LBS}/{item['id']}"
    answers = [
        await api.call("POST", "/v1/servers", server),
        await api.call("PUT", "/v1/servers/node-1", server | {"name": "x"}),
        await api.call("POST", "/v1/address-pools", {"name": "blue", "cidr": "127.99.0.0/30"}),
        await api.call("POST", "/v1/addresses", {"name": "mine"}),
        await api.call("PATCH", path, {"name": "new"}),
        await api.call("DELETE", path),
        await api.call("DELETE", "/v1/servers/node-1"),
        await api.call("DELETE", "/v1/addresses/mine"),
        await api.call("DELETE", "/v1/address-pools/blue"),
    ]
    actions = [await api.get(f"/v1/actions/{answer.headers['Action-Id']}") for answer in answers]
    assert {action["status"] for action in actions} == {"done"}
    assert [(action["resourceType"], action["kind"]) for action in actions] == [
        ("server", "create"),
        ("server", "update"),
        ("pool", "create"),
        ("reserved-address", "create"),
        ("load-balancer", "update"),
        ("load-balancer", "delete"),
        ("server", "delete"),
        ("reserved-address", "delete"),
        ("pool", "delete"),
    ]
    listed = (await api.get(f"/v1/actions?resource={item['id']}"))["items"]
    assert [one["kind"] for one in listed] == ["delete", "update", "create"]
    assert len((await api.get("/v1/actions?status=done&limit=2"))["items"]) == 2
    assert (await api.call("GET", "/v1/actions/act-999")).status == 404
    item = await api.create()
    same = await api.call("PATCH", f"{LBS}/{item['id']}", {"name": "shop/web"})
    assert (same.status, "Action-Id" in same.headers) == (200, False)


class TestWithSlowActions:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"action_seconds": 0.4})

    async def test_a_change_is_accepted_and_carried_out_later(self, api: Api, backends: Backends) -> None:
        port = await backends.start("a")
        item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
        assert (item["state"], item["status"]["listeners"][0]["open"]) == ("pending", False)
        await until(lambda: done(api, item["action"]))
        assert await greeting(address_of(item)) == "a"

    async def test_a_delete_is_accepted_and_carried_out_later(self, api: Api) -> None:
        item = await api.create()
        path = f"{LBS}/{item['id']}"
        deleted = await api.call("DELETE", path, Idempotency_Key="k", Fencing_Token="lease:5")
        assert (deleted.status, deleted.body["state"]) == (202, "deleting")
        assert deleted.body["action"] == deleted.headers["Action-Id"] != item["action"]
        await until(lambda: done(api, deleted.headers["Action-Id"]))
        assert (await api.call("GET", path)).status == 404
        assert (await api.get("/v1/address-pools"))["items"][0]["allocated"] == 0
        again = await api.call("DELETE", path, Idempotency_Key="k", Fencing_Token="lease:5")
        assert (again.status, again.headers["Action-Id"]) == (204, deleted.headers["Action-Id"])
        assert (await api.call("DELETE", path, Idempotency_Key="k", Fencing_Token="lease:4")).status == 412

    async def test_a_port_that_is_taken_is_the_error_of_the_action(self, api: Api, backends: Backends) -> None:
        await api.call("POST", "/v1/addresses", {"name": "kept"})
        (kept,) = (await api.get("/v1/addresses"))["items"]
        port = await backends.start("other", kept["address"])
        listeners = [{"port": port, "targetPort": 1}]
        item = await api.create(addresses=[kept["address"]], listeners=listeners)

        async def failed() -> bool:
            return bool((await api.get(f"{LBS}/{item['id']}"))["state"] == "error")

        await until(failed)
        assert "in use" in (await api.get(f"/v1/actions/{item['action']}"))["error"]


async def test_an_idempotency_key_brings_back_what_the_first_request_did(api: Api) -> None:
    first = await api.call("POST", LBS, load_balancer(), Idempotency_Key="k1")
    again = await api.call("POST", LBS, load_balancer(), Idempotency_Key="k1")
    assert (again.status, again.body["id"]) == (201, first.body["id"])
    assert again.headers["Action-Id"] == first.headers["Action-Id"]
    path = f"{LBS}/{first.body['id']}"
    other = await api.call("POST", LBS, load_balancer(uid="u2"), Idempotency_Key="k1")
    assert (other.status, other.fields) == (422, ["Idempotency-Key"])
    patched = await api.call("PATCH", path, {"name": "n"}, Idempotency_Key="k2", If_Match=first.headers["ETag"])
    # The version has moved on, by this very request.
    repeated = await api.call("PATCH", path, {"name": "n"}, Idempotency_Key="k2", If_Match=first.headers["ETag"])
    assert (patched.status, repeated.status, repeated.body["name"]) == (200, 200, "n")
    assert [(await api.call("DELETE", path, Idempotency_Key="k3")).status for _ in range(2)] == [204, 204]
    assert (await api.call("POST", LBS, load_balancer(), Idempotency_Key="")).status == 400
    assert [call["outcome"] for call in await api.journal("?mutating=true")] == [
        "applied",
        "replayed",
        "refused",
        "applied",
        "replayed",
        "applied",
        "replayed",
        "refused",
    ]


async def test_a_stale_holder_can_not_replay(api: Api) -> None:
    await api.call("POST", LBS, load_balancer(), Idempotency_Key="k", Fencing_Token="l:1")
    await api.call("POST", LBS, load_balancer(uid="u2"), Fencing_Token="l:2")
    refused = await api.call("POST", LBS, load_balancer(), Idempotency_Key="k", Fencing_Token="l:1")
    assert refused.problem == "stale-fencing-token"


async def test_keys_and_actions_outlive_a_restart(settings: Settings, tmp_path: Path) -> None:
    stored = settings.model_copy(update={"state": tmp_path / "cloud.db"})
    async with aiohttp.ClientSession() as session:
        async with app.running(stored) as serving:
            api = Api(session, serving.url, "secret")
            first = await api.call("POST", LBS, load_balancer(), Idempotency_Key="k1")
            await api.call("POST", "/v1/addresses", {"name": "kept"})
        async with app.running(stored) as serving:
            api = Api(session, serving.url, "secret")
            again = await api.call("POST", LBS, load_balancer(), Idempotency_Key="k1")
            assert (again.status, again.body["id"]) == (201, first.body["id"])
            assert (await api.get(f"/v1/actions/{first.headers['Action-Id']}"))["kind"] == "create"
            fresh = await api.call("POST", LBS, load_balancer(uid="u2"))
            assert fresh.headers["Action-Id"] == "act-3"
            assert address_of(fresh.body) != (await api.get("/v1/addresses/kept"))["address"]


async def test_an_action_under_way_is_done_after_a_restart(settings: Settings, tmp_path: Path) -> None:
    stored = settings.model_copy(update={"state": tmp_path / "cloud.db", "action_seconds": 60.0})
    async with aiohttp.ClientSession() as session:
        async with app.running(stored) as serving:
            item = await Api(session, serving.url, "secret").create()
            assert item["state"] == "pending"
        async with app.running(stored) as serving:
            found = await Api(session, serving.url, "secret").get(f"{LBS}/{item['id']}")
            assert (found["state"], found["status"]["listeners"][0]["open"]) == ("active", True)


async def test_a_delete_under_way_is_done_after_a_restart(settings: Settings, tmp_path: Path) -> None:
    stored = settings.model_copy(update={"state": tmp_path / "cloud.db"})
    async with aiohttp.ClientSession() as session:
        async with app.running(stored) as serving:
            item = await Api(session, serving.url, "secret").create()
        async with app.running(stored.model_copy(update={"action_seconds": 60.0})) as serving:
            deleted = await Api(session, serving.url, "secret").call("DELETE", f"{LBS}/{item['id']}")
            assert deleted.status == 202
        async with app.running(stored) as serving:
            api = Api(session, serving.url, "secret")
            assert (await api.get(LBS))["items"] == []
            assert await done(api, deleted.headers["Action-Id"])
            assert address_of(await api.create()) == address_of(item)


async def test_an_action_waits_runs_and_ends_and_each_step_is_stored(settings: Settings) -> None:
    class Log(RowStore):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        async def commit(self, records: Iterable[Record]) -> None:
            kept = tuple(records)
            self.seen += [record.body.status.value for record in kept if isinstance(record.body, Action)]
            await super().commit(kept)

    store = Log()
    cloud = cloud_of(settings.model_copy(update={"action_seconds": 0.01}), PlaneOfRoutes(), store, itertools.count(1))
    await cloud.open()
    await cloud.reserve_address(ReservedAddress(name="mine"))

    async def ended() -> bool:
        return not cloud.ledger.unfinished()

    await until(ended)
    assert store.seen == ["pending", "running", "done"]


async def test_lists_are_filtered_by_tags_and_read_in_bulk(api: Api) -> None:
    ids = [
        (await api.create(uid=f"u{number}", tags={"team": team, "tier=x": "y=z"}))["id"]
        for number, team in enumerate(["red", "blue", "blue"])
    ]

    async def listed(query: str) -> list[int]:
        return [ids.index(item["id"]) for item in (await api.get(f"{LBS}?{query}"))["items"]]

    assert await listed("tag=team%3Dblue") == [1, 2]
    assert await listed("tag=team") == [0, 1, 2]
    assert await listed("tag=team%3Dblue&tag=tier%3Dx%3Dy%3Dz&owner=u1") == [1]
    assert await listed("tag=team%3Dgreen") == []
    assert await listed(f"id={ids[2]}&id={ids[0]}&id=gone") == [0, 2]
    assert (await api.call("GET", f"{LBS}?owner=a&owner=b")).fields == ["owner"]


async def test_a_protected_load_balancer_is_not_deleted(api: Api) -> None:
    item = await api.create(deleteProtection=True)
    path = f"{LBS}/{item['id']}"
    assert (await api.call("DELETE", path)).problem == "delete-protected"
    assert (await api.call("PATCH", path, {"deleteProtection": False})).status == 200
    assert (await api.call("DELETE", path)).status == 204


async def test_a_reserved_address_outlives_its_load_balancer(api: Api) -> None:
    kept = (await api.call("POST", "/v1/addresses", {"name": "mine"})).body
    assert (await api.call("POST", "/v1/addresses", {"name": "mine"})).status == 200
    assert address_of(await api.create(uid="u0")) != kept["address"]
    item = await api.create(addresses=[kept["address"]])
    assert (await api.get("/v1/addresses/mine"))["loadBalancer"] == item["id"]
    taken = await api.call("POST", LBS, load_balancer(uid="u2", addresses=[kept["address"]]))
    assert taken.problem == "address-in-use"
    await api.call("DELETE", f"{LBS}/{item['id']}")
    assert (await api.get("/v1/addresses"))["items"] == [kept]
    again = await api.create(addresses=[kept["address"]])
    assert (await api.call("DELETE", "/v1/addresses/mine")).status == 204
    assert (await api.call("DELETE", "/v1/addresses/mine")).status == 404
    # Its load balancer keeps it, and frees it when it goes.
    assert (await api.get(f"{LBS}/{again['id']}"))["addresses"] == item["addresses"]
    await api.call("DELETE", f"{LBS}/{again['id']}")
    assert address_of(await api.create(uid="u3")) == kept["address"]


async def test_what_can_not_be_reserved_is_refused(api: Api) -> None:
    item = await api.create()
    mine = {"name": "mine", "address": address_of(item)}
    assert (await api.call("POST", "/v1/addresses", mine)).body["loadBalancer"] == item["id"]
    assert (await api.call("POST", "/v1/addresses", mine | {"name": "b"})).problem == "address-in-use"
    assert (await api.call("POST", "/v1/addresses", mine | {"address": "127.1.2.3"})).problem == "address-exists"
    assert (await api.call("POST", "/v1/addresses", {"name": "c", "address": "127.1.2.3"})).fields == ["address"]
    assert (await api.call("POST", "/v1/addresses", {"name": "d", "family": "IPv6"})).fields == ["family"]


class TestWithLimits:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_load_balancers": 1, "max_body": 2048, "max_connections": 2})

    async def test_one_load_balancer_too_many_is_refused(self, api: Api) -> None:
        item = await api.create()
        assert (await api.call("POST", LBS, load_balancer(uid="u2"))).problem == "limit-reached"
        assert (await api.call("POST", LBS, load_balancer())).status == 200
        await api.call("DELETE", f"{LBS}/{item['id']}")
        await api.create(uid="u2")

    async def test_a_body_that_is_too_large_is_refused(self, api: Api) -> None:
        answer = await api.call("POST", LBS, load_balancer(name="x" * 3000))
        assert (answer.status, answer.problem) == (413, "body-too-large")

    async def test_one_connection_too_many_is_reset(self, api: Api, backends: Backends) -> None:
        port = await backends.start("a")
        item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
        held = [await asyncio.open_connection(address_of(item), 8080) for _ in range(2)]
        assert [await reader.readline() for reader, _ in held] == [b"a\n", b"a\n"]
        assert await greeting(address_of(item)) == ""
        for _, writer in held:
            writer.transport.abort()

        async def free_again() -> bool:
            return await greeting(address_of(item)) == "a"

        await until(free_again)
        endings = {flow["ending"] for flow in (await api.get("/v1/flows"))["items"]}
        assert "limit" in endings
