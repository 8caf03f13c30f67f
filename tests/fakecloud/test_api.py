import asyncio

import aiohttp
import pytest

from fakecloud.config import Settings
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import Api, Json, address_of, load_balancer

LBS = "/v1/load-balancers"


async def test_a_call_without_the_right_token_is_refused_and_journalled(api: Api) -> None:
    async with aiohttp.ClientSession() as session:
        for token in (None, "wrong", "secret2"):
            answer = await Api(session, api.url, token).call("GET", "/v1/servers")
            assert (answer.status, answer.problem) == (401, "unauthorized")
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert [call["status"] for call in await api.journal()] == [401, 401, 401]


async def test_health_and_the_openapi_document_need_no_token(api: Api) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{api.url}/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok\n")
        document = await Api(session, api.url, None).get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert document["components"]["schemas"]["LoadBalancerSpec"]["examples"]


async def test_the_cloud_says_how_it_was_started(api: Api) -> None:
    assert await api.get("/v1/cloud") == {
        "delivery": "proxy",
        "addresses": "loopback",
        "families": ["IPv4"],
        "maxLoadBalancers": 10_000,
        "maxConnections": 100_000,
        "maxBodyBytes": 2**20,
        "actionSeconds": 0.0,
    }


async def test_what_is_created_can_be_read_listed_and_deleted(api: Api, pool: Network) -> None:
    created = await api.call("POST", LBS, load_balancer(tags={"service": "shop/web"}))
    assert created.status == 201
    path = created.headers["Location"]
    assert address_of(created.body) == str(pool[1])
    assert created.headers["ETag"] == created.body["etag"]
    assert created.body["tags"] == {"service": "shop/web"}
    assert (await api.get(path))["id"] == created.body["id"]
    assert [item["id"] for item in (await api.get(f"{LBS}?owner=u1&cluster=c1"))["items"]] == [created.body["id"]]
    assert (await api.get(f"{LBS}?owner=other"))["items"] == []
    assert (await api.call("DELETE", path)).status == 204
    assert (await api.call("GET", path)).status == 404
    assert (await api.call("DELETE", path)).problem == "not-found"


async def test_a_repeated_create_returns_the_first(api: Api) -> None:
    first = await api.create()
    again = await api.call("POST", LBS, load_balancer(name="other", listeners=[{"port": 1, "targetPort": 1}]))
    assert (again.status, again.body["id"], again.body["name"]) == (200, first["id"], "shop/web")
    assert again.headers["ETag"] == first["etag"]
    assert len((await api.get(LBS))["items"]) == 1
    assert [call["outcome"] for call in await api.journal("?mutating=true")] == ["applied", "existing"]


async def test_creates_at_once_for_one_owner_make_one_load_balancer(api: Api) -> None:
    answers = await asyncio.gather(*(api.call("POST", LBS, load_balancer()) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert len({answer.body["id"] for answer in answers}) == 1


async def test_a_load_balancer_changes_hands_by_its_owners_word_alone(api: Api) -> None:
    made = await api.create()
    path, thief = f"{LBS}/{made['id']}", {"owner": {"cluster": "c2", "uid": "thief"}}
    refused = await api.call("PATCH", path, thief)
    assert (refused.status, refused.problem) == (409, "owned")
    assert (await api.call("PATCH", path, {"owner": None})).body["owner"] is None
    taken = await api.call("PATCH", path, thief, Fencing_Token="lease:5")
    assert taken.body["owner"] == thief["owner"]
    assert (await api.call("PATCH", path, {"name": "x"}, Fencing_Token="lease:4")).status == 412


async def test_a_patch_leaves_alone_what_it_does_not_name(api: Api) -> None:
    before = await api.create(tags={"a": "b"}, targets=[{"address": "127.0.0.1"}])
    after = await api.call("PATCH", f"{LBS}/{before['id']}", {"listeners": [{"port": 9090, "targetPort": 30090}]})
    assert after.status == 200
    assert after.headers["ETag"] != before["etag"]
    changed = {name for name in before if before[name] != after.body[name]}
    assert changed == {"listeners", "generation", "etag", "status", "action"}
    assert [listener["port"] for listener in after.body["status"]["listeners"]] == [9090]


async def test_a_patch_that_changes_nothing_keeps_the_etag_and_says_so_in_the_journal(api: Api) -> None:
    before = await api.create(targets=[{"address": "127.0.0.1"}])
    after = await api.call("PATCH", f"{LBS}/{before['id']}", {"targets": [{"address": "127.0.0.1"}]})
    assert (after.status, after.headers["ETag"]) == (200, before["etag"])
    last = (await api.journal())[-1]
    assert (last["applied"], last["outcome"], last["owner"]) == (False, "unchanged", "u1")


async def test_if_match_refuses_another_version(api: Api) -> None:
    item = await api.create()
    path = f"{LBS}/{item['id']}"
    assert (await api.call("PATCH", path, {"name": "n2"}, If_Match=item["etag"])).status == 200
    assert (await api.call("PATCH", path, {"name": "n3"}, If_Match=item["etag"])).problem == "version-mismatch"
    assert (await api.call("DELETE", path, If_Match=item["etag"])).status == 412
    assert (await api.get(path))["name"] == "n2"
    now = (await api.get(path))["etag"]
    assert (await api.call("PATCH", path, {"name": "n4"}, If_Match=f"{item['etag']}, {now}")).status == 200
    assert (await api.call("DELETE", path, If_Match="*")).status == 204


async def test_null_removes_a_health_check(api: Api) -> None:
    item = await api.create(healthCheck={"protocol": "http", "path": "/ok", "port": 80})
    after = await api.call("PATCH", f"{LBS}/{item['id']}", {"healthCheck": None})
    assert (after.status, after.body["healthCheck"]) == (200, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param({"name": ""}, "name", id="empty name"),
        pytest.param({"nickname": "x"}, "nickname", id="unknown field"),
        pytest.param({"owner": {"cluster": "c1"}}, "owner.uid", id="missing field"),
        pytest.param({"listeners": []}, "listeners", id="no listener"),
        pytest.param({"listeners": [{"port": 70000, "targetPort": 1}]}, "listeners[0].port", id="port out of range"),
        pytest.param({"listeners": [{"port": "80", "targetPort": 1}]}, "listeners[0].port", id="port as text"),
        pytest.param({"listeners": [{"port": True, "targetPort": 1}]}, "listeners[0].port", id="port as boolean"),
        pytest.param({"listeners": [{"port": 1, "targetPort": 1}] * 2}, "listeners", id="port twice"),
        pytest.param(
            {"listeners": [{"port": 1, "targetPort": 1, "protocol": "SCTP"}]}, "listeners[0].protocol", id="protocol"
        ),
        pytest.param({"families": ["IPv6"]}, "families[0]", id="IPv6 without an interface"),
        pytest.param({"targets": [{}]}, "targets[0]", id="empty target"),
        pytest.param({"targets": [{"server": "a", "address": "127.0.0.1"}]}, "targets[0]", id="two targets in one"),
        pytest.param({"targets": [{"address": "localhost"}]}, "targets[0].address", id="name as address"),
        pytest.param({"targets": [{"server": "gone"}]}, "targets[0].server", id="unknown server"),
        pytest.param({"targets": [{"address": "8.8.8.8"}]}, "targets[0].address", id="open relay"),
        pytest.param({"targets": [{"address": "::ffff:8.8.8.8"}]}, "targets[0].address", id="open relay in IPv6"),
        pytest.param({"targets": [{"address": "169.254.169.254"}]}, "targets[0].address", id="metadata service"),
        pytest.param({"targets": [{"address": "fd00:ec2::254"}]}, "targets[0].address", id="metadata service in IPv6"),
        pytest.param({"targets": [{"address": "100.100.100.200"}]}, "targets[0].address", id="Alibaba's"),
        pytest.param({"addresses": ["127.1.2.3"]}, "addresses[0]", id="address of no pool"),
        pytest.param({"sourceRanges": ["10.0.0.1/8"]}, "sourceRanges[0]", id="host bits"),
        pytest.param({"families": ["IPv4", "IPv4"]}, "families", id="a family twice"),
        pytest.param({"addresses": ["::1"]}, "addresses", id="address of a family that is not asked for"),
        pytest.param(
            {"listeners": [{"port": 1, "targetPort": 1, "protocol": "UDP", "proxyProtocol": "v2"}]},
            "listeners[0].proxyProtocol",
            id="PROXY protocol of UDP",
        ),
        pytest.param({"healthCheck": {"path": "/"}}, "healthCheck.path", id="path of a tcp check"),
        pytest.param({"healthCheck": {"intervalSeconds": 0}}, "healthCheck.intervalSeconds", id="interval"),
        pytest.param({"tags": {"": "x"}}, "tags.", id="empty tag"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_is_created(api: Api, body: Json, field: str) -> None:
    answer = await api.call("POST", LBS, load_balancer(**body))
    assert answer.status == 422, answer
    assert [name for name in answer.fields if name.startswith(field)], answer.fields
    assert (await api.get(LBS))["items"] == []
    assert (await api.get("/v1/address-pools"))["items"][0]["allocated"] == 0


async def test_an_unknown_server_is_named_so_that_a_client_can_drop_just_that_target(api: Api) -> None:
    await api.call("POST", "/v1/servers", {"id": "node-1", "name": "node-1", "addresses": ["127.0.0.1"]})
    targets = [{"server": "node-1"}, {"server": "node-2"}, {"server": "node-3"}]
    refused = await api.call("POST", LBS, load_balancer(targets=targets))
    assert [(error["field"], error["value"]) for error in refused.body["errors"]] == [
        ("targets[1].server", "node-2"),
        ("targets[2].server", "node-3"),
    ]
    item = await api.create(targets=targets[:1])
    patched = await api.call("PATCH", f"{LBS}/{item['id']}", {"targets": targets[:2]})
    assert (patched.status, patched.fields) == (422, ["targets[1].server"])


async def test_malformed_json_wrong_methods_and_unknown_paths_are_problems(api: Api) -> None:
    assert (await api.call("POST", LBS, b"{")).problem == "malformed-json"
    assert (await api.call("POST", LBS, b"\xff\xfe")).status == 400
    wrong = await api.call("PUT", LBS, {})
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, POST")
    assert (await api.call("GET", "/v1/nothing")).problem == "not-found"
    assert (await api.call("GET", f"{LBS}?page=2")).fields == ["page"]
    assert (await api.call("GET", f"{LBS}?limit=0")).fields == ["limit"]
    assert (await api.call("POST", LBS, b" " * 2**21)).problem == "body-too-large"


async def test_lists_come_in_pages(api: Api) -> None:
    for number in range(5):
        await api.create(uid=f"u{number}")
    seen, path = [], f"{LBS}?limit=2"
    while True:
        page = await api.get(path)
        seen += [item["owner"]["uid"] for item in page["items"]]
        if page["nextCursor"] is None:
            break
        path = f"{LBS}?limit=2&cursor={page['nextCursor']}"
    assert seen == ["u0", "u1", "u2", "u3", "u4"]


async def test_servers_are_registered_replaced_and_removed(api: Api) -> None:
    server = {"id": "node-1", "name": "first", "addresses": ["127.0.0.11"]}
    assert (await api.call("POST", "/v1/servers", server)).status == 201
    assert (await api.call("POST", "/v1/servers", server)).status == 200
    assert (await api.call("POST", "/v1/servers", server | {"name": "x"})).problem == "server-exists"
    assert (await api.call("PUT", "/v1/servers/node-1", server | {"name": "x"})).body["name"] == "x"
    assert (await api.call("PUT", "/v1/servers/node-2", server)).fields == ["id"]
    assert (await api.call("PUT", "/v1/servers/node-1", server | {"addresses": ["8.8.8.8"]})).fields == ["addresses[0]"]
    assert (await api.get("/v1/servers"))["items"] == [await api.get("/v1/servers/node-1")]
    assert (await api.call("DELETE", "/v1/servers/node-1")).status == 204
    assert (await api.call("DELETE", "/v1/servers/node-1")).status == 404


async def test_pools_are_added_and_removed_unless_in_use(api: Api, pool: Network) -> None:
    blue = {"name": "blue", "cidr": "127.99.0.0/30"}
    assert (await api.call("POST", "/v1/address-pools", blue)).body["size"] == 2
    assert (await api.call("POST", "/v1/address-pools", blue)).status == 200
    assert (await api.call("POST", "/v1/address-pools", blue | {"cidr": "127.99.1.0/30"})).status == 409
    assert (await api.call("POST", "/v1/address-pools", {"name": "b2", "cidr": str(pool)})).status == 409
    assert (await api.call("POST", "/v1/address-pools", {"name": "b3", "cidr": "10.0.0.0/24"})).fields == ["cidr"]
    item = await api.create(addresses=["127.99.0.2"])
    assert address_of(item) == "127.99.0.2"
    assert (await api.call("DELETE", "/v1/address-pools/blue")).problem == "address-pool-in-use"
    taken = await api.call("POST", LBS, load_balancer(uid="u2", addresses=["127.99.0.2"]))
    assert (taken.status, taken.problem) == (409, "address-in-use")
    await api.call("DELETE", f"{LBS}/{item['id']}")
    assert (await api.call("DELETE", "/v1/address-pools/blue")).status == 204
    assert (await api.call("DELETE", "/v1/address-pools/blue")).status == 404


class TestInASmallPool:
    @pytest.fixture
    def settings(self, pool: Network) -> Settings:
        small = next(iter(pool.subnets(new_prefix=30)))
        return Settings(port=0, token="secret", pools=(small,))

    async def test_an_exhausted_pool_is_named_and_a_freed_address_is_given_out_again(self, api: Api) -> None:
        first = await api.create(uid="u1")
        second = await api.create(uid="u2")
        refused = await api.call("POST", LBS, load_balancer(uid="u3"))
        assert (refused.status, refused.problem) == (409, "address-pool-exhausted")
        assert "pool-127." in refused.body["detail"]
        await api.call("DELETE", f"{LBS}/{first['id']}")
        third = await api.create(uid="u3")
        assert address_of(third) == address_of(first) != address_of(second)


async def test_a_stale_fencing_token_is_refused_for_every_kind_of_write(api: Api) -> None:
    new, old = "lease-1:7", "lease-1:6"
    item = (await api.call("POST", LBS, load_balancer(), Fencing_Token=new)).body
    path = f"{LBS}/{item['id']}"
    assert (await api.call("POST", LBS, load_balancer(uid="u2"), Fencing_Token=old)).problem == "stale-fencing-token"
    assert (await api.call("PATCH", path, {"name": "late"}, Fencing_Token=old)).status == 412
    assert (await api.call("DELETE", path, Fencing_Token=old)).status == 412
    assert [(found["id"], found["name"]) for found in (await api.get(LBS))["items"]] == [(item["id"], "shop/web")]
    assert (await api.call("PATCH", path, {"name": "n"}, Fencing_Token=new)).status == 200
    assert (await api.call("POST", LBS, load_balancer(cluster="c2"), Fencing_Token=old)).status == 201
    assert (await api.call("DELETE", path, Fencing_Token="lease-2:0")).status == 204
    assert (await api.call("POST", LBS, load_balancer(), Fencing_Token="nonsense")).status == 400
    refused = [call for call in await api.journal() if call["status"] == 412]
    assert [(call["applied"], call["outcome"], call["fencing"]) for call in refused] == [(False, "refused", old)] * 3


async def test_a_token_that_was_seen_in_a_refused_request_counts(api: Api) -> None:
    unknown = load_balancer(targets=[{"server": "gone"}])
    assert (await api.call("POST", LBS, unknown, Fencing_Token="l:2")).status == 422
    assert (await api.call("POST", LBS, load_balancer(), Fencing_Token="l:1")).status == 412


async def test_the_journal_tells_who_asked_what_and_what_came_of_it(api: Api) -> None:
    item = await api.create()
    await api.call("GET", f"{LBS}/{item['id']}", User_Agent="me/1.0", X_Request_Id="r-7")
    await api.call("DELETE", f"{LBS}/{item['id']}")
    created, read, deleted = await api.journal()
    assert (created["method"], created["path"], created["status"]) == ("POST", LBS, 201)
    assert (created["owner"], created["cluster"], created["resource"]) == ("u1", "c1", item["id"])
    assert (created["applied"], created["outcome"]) == (True, "applied")
    assert (read["userAgent"], read["requestId"], read["outcome"]) == ("me/1.0", "r-7", "read")
    assert (deleted["seq"], deleted["owner"]) == (created["seq"] + 2, "u1")
    assert await api.journal(f"?since={created['seq']}&mutating=true") == [deleted]
    assert await api.journal("?method=GET") == [read]
    assert await api.journal("?mutating=false") == [read]
    assert (await api.get("/v1/journal?limit=1"))["lastSeq"] == created["seq"]
