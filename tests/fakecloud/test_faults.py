"""Faults on order, over real HTTP: what the client sees, and what was done."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakecloud.app import Serving
from fakecloud.config import Settings
from fakecloud.models.faults import FaultSpec, Scenario, StatusFault
from tests.fakecloud.clients import Answer, Api, Backends, Json, address_of, greeting, load_balancer, until

LBS = "/v1/load-balancers"


async def order(api: Api, kind: str, *, match: Json | None = None, fault: Json | None = None, **effect: Any) -> str:
    body = {"match": match or {}, "effect": {"kind": kind, **effect}, **(fault or {})}
    answer = await api.call("POST", "/v1/faults", body)
    assert answer.status == 201, answer
    return str(answer.body["id"])


async def lost(api: Api, method: str, path: str, body: Json | None = None) -> None:
    with pytest.raises(aiohttp.ClientError):
        await api.call(method, path, body)


async def names(api: Api) -> list[str]:
    return [item["name"] for item in (await api.get(LBS))["items"]]


async def test_a_status_is_answered_as_ordered_and_only_so_often(api: Api) -> None:
    await order(api, "status", status=503, retryAfterSeconds=1.5, match={"methods": ["POST"]}, fault={"times": 2})
    for _ in range(2):
        refused = await api.call("POST", LBS, load_balancer())
        assert (refused.status, refused.headers["Retry-After"], refused.problem) == (503, "2", "ordered")
    assert (await api.call("POST", LBS, load_balancer())).status == 201
    assert [call["applied"] for call in await api.journal("?method=POST")] == [False, False, True]
    assert (await api.get("/v1/faults"))["items"][0]["active"] is False


@pytest.mark.parametrize(
    ("body", "content_type"), [("down", "text/plain"), ({"error": {"code": "locked"}}, "application/json")]
)
async def test_a_status_has_the_body_that_was_ordered(api: Api, body: object, content_type: str) -> None:
    await order(api, "status", status=423, body=body)
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session,
        session.get(api.url + LBS) as answer,
    ):
        assert (answer.status, answer.content_type) == (423, content_type)
        assert (await answer.text() if isinstance(body, str) else await answer.json()) == body


async def test_a_lost_reply_is_a_change_that_was_made(api: Api) -> None:
    lost_reply = await order(api, "reset", when="after", match={"methods": ["POST"]}, fault={"times": 1})
    await lost(api, "POST", LBS, load_balancer())
    (call,) = await api.journal()
    assert (call["applied"], call["status"], call["faults"]) == (True, 0, [lost_reply])
    assert len(await names(api)) == 1
    assert (await api.call("POST", LBS, load_balancer())).status == 200


async def test_a_reset_before_the_change_leaves_nothing(api: Api) -> None:
    await order(api, "reset", match={"methods": ["POST"]}, fault={"times": 1})
    await lost(api, "POST", LBS, load_balancer())
    assert await names(api) == []
    assert [call["outcome"] for call in await api.journal("?method=POST")] == ["refused"]


async def test_an_error_after_the_change_hides_it(api: Api) -> None:
    await order(api, "status", status=500, when="after", match={"methods": ["POST"]}, fault={"times": 1})
    assert (await api.call("POST", LBS, load_balancer())).status == 500
    assert [(call["applied"], call["status"]) for call in await api.journal()] == [(True, 500)]


async def test_a_hanging_call_is_in_the_journal_at_once_and_ends_with_the_fault(api: Api) -> None:
    fault = await order(api, "hang", when="after", match={"path": LBS, "methods": ["POST"]})
    hanging = asyncio.create_task(api.call("POST", LBS, load_balancer()))

    async def recorded() -> bool:
        return [call["applied"] for call in await api.journal("?method=POST")] == [True]

    await until(recorded)
    assert not hanging.done()
    assert (await api.call("DELETE", f"/v1/faults/{fault}")).status == 204
    with pytest.raises(aiohttp.ClientError):
        await hanging


async def test_latency_delays_and_its_distributions_are_validated(api: Api) -> None:
    await order(api, "latency", seconds=0.2, match={"path": "/v1/servers"})
    started = time.monotonic()
    assert (await api.call("GET", "/v1/servers")).status == 200
    assert time.monotonic() - started >= 0.2
    await order(api, "latency", seconds=0.0, distribution="exponential")
    wrong = await api.call("POST", "/v1/faults", {"effect": {"kind": "latency", "seconds": 1, "toSeconds": 2}})
    assert (wrong.status, "toSeconds" in wrong.body["detail"]) == (422, True)


async def test_only_the_calls_of_an_owner_are_met(api: Api) -> None:
    await order(api, "status", status=500, match={"owner": "u1", "cluster": "c1"})
    assert (await api.call("POST", LBS, load_balancer(uid="u1"))).status == 500
    item = await api.create(uid="u2")
    assert (await api.call("GET", f"{LBS}?owner=u1&cluster=c1")).status == 500
    assert (await api.call("GET", f"{LBS}/{item['id']}")).status == 200
    await order(api, "status", status=501, match={"owner": "u2"})
    assert (await api.call("DELETE", f"{LBS}/{item['id']}")).status == 501
    assert (await api.call("POST", LBS, b"not json")).status == 400


async def test_the_nth_call_alone_is_met(api: Api) -> None:
    await order(api, "status", status=500, match={"path": "/v1/servers", "nth": 2})
    assert [(await api.call("GET", "/v1/servers")).status for _ in range(3)] == [200, 500, 200]


async def test_a_fault_ends_after_its_time(api: Api) -> None:
    await order(api, "outage", fault={"forSeconds": 3600, "id": "down"})
    assert (await api.call("GET", LBS)).status == 503
    await order(api, "outage", fault={"forSeconds": 0.2, "id": "down"})

    async def over() -> bool:
        return (await api.call("GET", LBS)).status == 200

    await until(over)


async def test_an_outage_takes_the_whole_api_but_not_the_controls(api: Api) -> None:
    await order(api, "outage")
    for path in (LBS, "/v1/servers", "/v1/actions", "/v1/nothing"):
        assert (await api.call("GET", path)).problem == "outage"
    async with aiohttp.ClientSession() as session:
        assert (await Api(session, api.url, "wrong").call("GET", LBS)).status == 503
    assert (await api.get("/v1/journal"))["items"]
    assert (await api.call("DELETE", "/v1/faults")).status == 204
    assert (await api.call("GET", LBS)).status == 200
    await order(api, "outage", answer="reset", fault={"times": 1})
    await lost(api, "POST", LBS, load_balancer())


async def test_an_expired_token_says_so(api: Api) -> None:
    await order(api, "token-expired", fault={"times": 1})
    refused = await api.call("GET", LBS)
    assert (refused.status, refused.problem) == (401, "token-expired")
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
    assert (await api.call("GET", LBS)).status == 200


async def test_stale_reads_show_what_was_and_then_what_is(api: Api) -> None:
    item = await api.create()
    fault = await order(api, "stale-reads", seconds=30)
    await api.call("PATCH", f"{LBS}/{item['id']}", {"name": "new"})
    await api.create(uid="u2")
    assert await names(api) == ["shop/web"]
    assert (await api.get(f"{LBS}/{item['id']}"))["name"] == "shop/web"
    # Writes are decided by what is: only reads are stale.
    assert (await api.call("PATCH", f"{LBS}/{item['id']}", {"name": "new"})).body["name"] == "new"
    await api.call("DELETE", f"/v1/faults/{fault}")
    assert await names(api) == ["new", "shop/web"]
    await order(api, "stale-reads", seconds=0.2)
    await api.create(uid="u3")

    async def caught_up() -> bool:
        return len(await names(api)) == 3

    await until(caught_up)


async def test_lists_that_are_eventually_consistent_lag_while_reads_by_id_do_not(api: Api) -> None:
    gone = await api.create(uid="u0")
    await order(api, "stale-lists", seconds=30)
    item = await api.create()
    assert (await api.call("DELETE", f"{LBS}/{gone['id']}")).status == 204
    assert [one["id"] for one in (await api.get(LBS))["items"]] == [gone["id"]]
    assert (await api.get(f"{LBS}/{item['id']}"))["id"] == item["id"]
    assert (await api.call("GET", f"{LBS}/{gone['id']}")).status == 404


async def test_a_rate_limit_tells_the_truth(api: Api) -> None:
    # One comes back in 100 seconds: none while this is asked, however busy the machine is.
    fault = await order(api, "rate-limit", requestsPerSecond=0.01, burst=3)
    answers: list[Answer] = [await api.call("GET", "/v1/servers") for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["2", "1", "0", "0"]
    resets = [int(answer.headers["RateLimit-Reset"]) for answer in answers]
    assert [round(reset, -2) for reset in resets] == [100, 200, 300, 300]
    refused = answers[-1]
    assert (refused.headers["RateLimit-Limit"], refused.problem) == ("3", "too-many-requests")
    assert 0 < int(refused.headers["Retry-After"]) <= 100
    await api.call("DELETE", f"/v1/faults/{fault}")
    await order(api, "rate-limit", requestsPerSecond=2, burst=1)
    many = await asyncio.gather(*(api.call("GET", "/v1/servers") for _ in range(100)))
    waits = {int(answer.headers["Retry-After"]) for answer in many if answer.status == 429}
    # Whole seconds, and never too early: whoever waits so long gets through.
    assert waits == {1}
    await asyncio.sleep(1)
    assert (await api.call("GET", "/v1/servers")).status == 200


async def test_an_action_stays_pending_until_the_fault_goes(api: Api) -> None:
    fault = await order(api, "action", outcome="pending", match={"methods": ["POST"]})
    item = await api.create()
    assert (item["state"], item["status"]["listeners"][0]["open"]) == ("pending", False)
    assert (await api.get(f"/v1/actions/{item['action']}"))["status"] == "pending"
    await api.call("DELETE", f"/v1/faults/{fault}")

    async def active() -> bool:
        now = await api.get(f"{LBS}/{item['id']}")
        return bool(now["state"] == "active" and now["status"]["listeners"][0]["open"])

    await until(active)


async def test_an_action_that_ends_in_an_error_says_why_and_the_next_change_repairs_it(api: Api) -> None:
    await order(api, "action", outcome="error", message="no capacity", fault={"times": 1})
    item = await api.create()

    async def failed() -> bool:
        return bool((await api.get(f"{LBS}/{item['id']}"))["state"] == "error")

    await until(failed)
    action = await api.get(f"/v1/actions/{item['action']}")
    assert (action["status"], action["error"]) == ("error", "no capacity")
    # The very same, asked for once more, is tried again; it is no other version.
    patched = await api.call("PATCH", f"{LBS}/{item['id']}", {"name": item["name"]})
    assert patched.headers["ETag"] == item["etag"]
    assert (patched.body["state"], patched.body["status"]["listeners"][0]["open"]) == ("active", True)


async def test_a_delete_that_stays_pending_takes_nothing_away_until_the_fault_goes(
    api: Api, backends: Backends
) -> None:
    port = await backends.start("a")
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
    path = f"{LBS}/{item['id']}"
    fault = await order(api, "action", outcome="pending", match={"methods": ["DELETE"]})
    deleted = await api.call("DELETE", path)
    assert (deleted.status, deleted.body["state"]) == (202, "deleting")
    action = f"/v1/actions/{deleted.headers['Action-Id']}"
    assert [(await api.get(action))[name] for name in ("kind", "status")] == ["delete", "pending"]
    # It serves on, and its address is nobody else's.
    assert await greeting(address_of(item)) == "a"
    assert [one["state"] for one in (await api.get(LBS))["items"]] == ["deleting"]
    assert (await api.call("POST", "/v1/addresses", {"name": "n", "address": address_of(item)})).status == 201
    assert (await api.call("DELETE", "/v1/addresses/n")).status == 204
    assert address_of(await api.create(uid="u2")) != address_of(item)
    # Nobody can build on what is about to go, and asking again names the same action.
    assert (await api.call("PATCH", path, {"name": "new"})).problem == "being-deleted"
    assert (await api.call("POST", LBS, load_balancer())).problem == "being-deleted"
    again = await api.call("DELETE", path)
    assert (again.status, again.headers["Action-Id"]) == (202, deleted.headers["Action-Id"])
    assert [call["outcome"] for call in await api.journal("?method=DELETE")][-2:] == ["applied", "unchanged"]
    await api.call("DELETE", f"/v1/faults/{fault}")

    async def gone() -> bool:
        return (await api.call("GET", path)).status == 404

    await until(gone)
    assert (await api.get(action))["status"] == "done"
    assert await greeting(address_of(item)) == ""
    assert address_of(await api.create()) == address_of(item)


async def test_a_delete_that_ends_in_an_error_leaves_the_load_balancer(api: Api, backends: Backends) -> None:
    port = await backends.start("a")
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
    path = f"{LBS}/{item['id']}"
    await order(api, "action", outcome="error", message="in use", match={"methods": ["DELETE"]}, fault={"times": 1})
    deleted = await api.call("DELETE", path, Idempotency_Key="k")

    async def failed() -> bool:
        return bool((await api.get(path))["state"] == "error")

    await until(failed)
    assert (await api.get(f"/v1/actions/{deleted.headers['Action-Id']}"))["error"] == "in use"
    assert await greeting(address_of(item)) == "a"
    # The key brings the same action back: it was this request's, and it is not there by a new attempt.
    assert (await api.call("DELETE", path, Idempotency_Key="k")).body["state"] == "error"
    assert (await api.call("PATCH", path, {"name": "new"})).status == 200
    assert (await api.call("DELETE", path)).status == 204


async def test_faults_are_listed_replaced_and_removed(api: Api) -> None:
    await order(api, "status", status=500, fault={"id": "mine"})
    await order(api, "status", status=502, fault={"id": "mine"}, match={"path": "/v1/servers"})
    assert (await api.call("GET", "/v1/servers")).status == 502
    (listed,) = (await api.get("/v1/faults"))["items"]
    assert (listed["id"], listed["matched"], listed["applied"], listed["active"]) == ("mine", 1, 1, True)
    assert (await api.get("/v1/faults/mine"))["effect"]["status"] == 502
    assert (await api.call("DELETE", "/v1/faults/mine")).status == 204
    assert (await api.call("DELETE", "/v1/faults/mine")).status == 404
    assert await api.journal("?mutating=true") == []


@pytest.mark.parametrize(
    ("body", "word"),
    [
        pytest.param({"effect": {"kind": "explode"}}, "explode", id="kind"),
        pytest.param({"effect": {"kind": "status", "status": 200}}, "effect.status.status", id="no error"),
        pytest.param({"effect": {"kind": "hang"}, "match": {"port": 80}}, "match.port", id="port of a call"),
        pytest.param({"effect": {"kind": "silent"}, "match": {"path": "/"}}, "match.path", id="path of traffic"),
        pytest.param({"effect": {"kind": "silent"}, "times": 1}, "times", id="times of what stands"),
        pytest.param({"effect": {"kind": "target-down"}}, "match.target", id="which target"),
        pytest.param({"effect": {"kind": "refuse"}, "match": {"target": "a"}}, "match.target", id="target of a port"),
        pytest.param({"effect": {"kind": "refuse"}, "match": {"nth": 1}}, "match.nth", id="n-th of what stands"),
    ],
)
async def test_a_wrong_fault_is_refused(api: Api, body: Json, word: str) -> None:
    answer = await api.call("POST", "/v1/faults", body)
    assert (answer.status, word in answer.body["detail"]) == (422, True), answer


class TestWithScenarios:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        down = FaultSpec(effect=StatusFault(kind="status", status=503))
        return settings.model_copy(update={"scenarios": {"down": Scenario(description="all", faults=(down,))}})

    async def test_a_scenario_is_applied_by_its_name(self, api: Api) -> None:
        assert [one["name"] for one in (await api.get("/v1/scenarios"))["items"]] == ["down"]
        applied = await api.call("POST", "/v1/scenarios/down/apply")
        assert [one["id"] for one in applied.body["items"]] == ["down-1"]
        assert (await api.call("GET", LBS)).status == 503
        assert (await api.call("POST", "/v1/scenarios/up/apply")).status == 404


async def test_a_reset_forgets_everything_but_the_configured_pools(api: Api, serving: Serving, tmp_path: Path) -> None:
    await api.call("POST", "/v1/servers", {"id": "node-1", "name": "node-1", "addresses": ["127.0.0.1"]})
    await api.call("POST", "/v1/address-pools", {"name": "blue", "cidr": "127.99.0.0/30"})
    await api.call("POST", "/v1/addresses", {"name": "kept"})
    first = await api.create()
    pools = (await api.get("/v1/address-pools"))["items"][:1]
    await order(api, "latency", seconds=0)
    assert (await api.call("POST", "/v1/reset", {"journal": False})).status == 204
    assert len(await api.journal("?mutating=true")) == 4
    assert (await api.call("POST", "/v1/reset")).status == 204
    assert await api.journal() == []
    for path in (LBS, "/v1/servers", "/v1/addresses", "/v1/faults", "/v1/actions"):
        assert (await api.get(path))["items"] == []
    assert (await api.get("/v1/address-pools"))["items"] == [pools[0] | {"allocated": 0}]
    assert address_of(await api.create(uid="new")) < address_of(first)
