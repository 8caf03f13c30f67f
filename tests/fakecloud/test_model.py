"""A model of the cloud and the cloud itself are asked the same things, and never differ."""

import asyncio
import random
from typing import Any

import aiohttp
import pytest
import uvloop
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakecloud import app
from fakecloud.config import Settings
from tests.fakecloud.clients import Answer, Api, Json, address_of, free_pool, load_balancer

LBS = "/v1/load-balancers"
UIDS = st.sampled_from([f"u{number}" for number in range(8)])
NODES = st.sampled_from(["n1", "n2", "n3"])
NAMES = st.sampled_from(["one", "two"])


class CloudMachine(RuleBasedStateMachine):
    """The model: load balancers by owner, servers by id, reserved addresses by name; six addresses in all."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        small = next(iter(free_pool(random.Random()).subnets(new_prefix=29)))
        self.context = app.running(Settings(port=0, token="secret", pools=(small,)))
        serving = self.run(self.context.__aenter__())

        async def connect() -> aiohttp.ClientSession:
            return aiohttp.ClientSession()

        self.session = self.run(connect())
        self.api = Api(self.session, serving.url, "secret")
        self.load_balancers: dict[str, Json] = {}
        self.servers: dict[str, list[str]] = {}
        self.reserved: dict[str, str] = {}

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def call(self, method: str, path: str, body: Json | None = None, **headers: str) -> Answer:
        answer: Answer = self.run(self.api.call(method, path, body, **headers))
        assert answer.status < 500, answer
        return answer

    def teardown(self) -> None:
        self.run(self.session.close())
        self.run(self.context.__aexit__(None, None, None))
        self.runner.close()

    @property
    def taken(self) -> set[str]:
        return {address_of(one) for one in self.load_balancers.values()} | set(self.reserved.values())

    @rule(uid=UIDS, name=NAMES, node=st.none() | NODES, protected=st.booleans())
    def create(self, uid: str, name: str, node: str | None, *, protected: bool) -> None:
        targets = [] if node is None else [{"server": node}]
        known = node is None or node in self.servers
        answer = self.call("POST", LBS, load_balancer(uid=uid, name=name, targets=targets, deleteProtection=protected))
        if uid in self.load_balancers:
            assert (answer.status, answer.body["id"]) == (200, self.load_balancers[uid]["id"])
        elif not known:
            assert (answer.status, answer.fields) == (422, ["targets[0].server"])
        elif len(self.taken) == 6:
            assert (answer.status, answer.problem) == (409, "address-pool-exhausted")
        else:
            assert (answer.status, answer.body["generation"]) == (201, 1)
            assert address_of(answer.body) not in self.taken
            self.load_balancers[uid] = answer.body

    @rule(uid=UIDS, name=NAMES, protected=st.booleans(), stale=st.booleans())
    def patch(self, uid: str, name: str, *, protected: bool, stale: bool) -> None:
        before = self.load_balancers.get(uid)
        if before is None:
            return
        etag = '"0"' if stale else before["etag"]
        body = {"name": name, "deleteProtection": protected}
        answer = self.call("PATCH", f"{LBS}/{before['id']}", body, If_Match=etag)
        if stale:
            assert (answer.status, answer.problem) == (412, "version-mismatch")
            return
        changed = (name, protected) != (before["name"], before["deleteProtection"])
        assert (answer.status, answer.body["generation"]) == (200, before["generation"] + changed)
        self.load_balancers[uid] = answer.body

    @rule(uid=UIDS, families=st.sampled_from([["IPv4"], ["IPv6"], ["IPv4", "IPv6"], []]))
    def change_families(self, uid: str, families: list[str]) -> None:
        """On loopback there is IPv4 alone."""
        before = self.load_balancers.get(uid)
        if before is None:
            return
        answer = self.call("PATCH", f"{LBS}/{before['id']}", {"families": families})
        if "IPv6" in families:
            assert (answer.status, answer.fields) == (422, [f"families[{families.index('IPv6')}]"])
        else:
            assert (answer.status, answer.fields if not families else answer.body["etag"]) == (
                (422, ["families"]) if not families else (200, before["etag"])
            )

    @rule(uid=UIDS)
    def delete(self, uid: str) -> None:
        before = self.load_balancers.get(uid)
        answer = self.call("DELETE", f"{LBS}/{before['id'] if before else 'gone'}")
        if before is None:
            assert answer.status == 404
        elif before["deleteProtection"]:
            assert (answer.status, answer.problem) == (409, "delete-protected")
        else:
            assert answer.status == 204
            del self.load_balancers[uid]

    @rule(node=NODES, number=st.integers(1, 3))
    def put_server(self, node: str, number: int) -> None:
        addresses = [f"127.0.0.{number}"]
        body = {"id": node, "name": node, "addresses": addresses}
        assert self.call("PUT", f"/v1/servers/{node}", body).status == 200
        self.servers[node] = addresses

    @rule(node=NODES)
    def delete_server(self, node: str) -> None:
        expected = 204 if node in self.servers else 404
        assert self.call("DELETE", f"/v1/servers/{node}").status == expected
        self.servers.pop(node, None)

    @rule(name=NAMES)
    def reserve(self, name: str) -> None:
        answer = self.call("POST", "/v1/addresses", {"name": name})
        if name in self.reserved:
            assert (answer.status, answer.body["address"]) == (200, self.reserved[name])
        elif len(self.taken) == 6:
            assert answer.problem == "address-pool-exhausted"
        else:
            assert answer.status == 201
            assert answer.body["address"] not in self.taken
            self.reserved[name] = answer.body["address"]

    @precondition(lambda self: self.reserved)
    @rule(name=NAMES)
    def release(self, name: str) -> None:
        expected = 204 if name in self.reserved else 404
        assert self.call("DELETE", f"/v1/addresses/{name}").status == expected
        self.reserved.pop(name, None)

    @invariant()
    def lists_agree(self) -> None:
        listed = self.call("GET", LBS).body["items"]
        shown = {item["owner"]["uid"]: (item["id"], item["name"], item["etag"], address_of(item)) for item in listed}
        assert shown == {
            uid: (one["id"], one["name"], one["etag"], address_of(one)) for uid, one in self.load_balancers.items()
        }
        servers = self.call("GET", "/v1/servers").body["items"]
        assert {one["id"]: one["addresses"] for one in servers} == self.servers
        reserved = self.call("GET", "/v1/addresses").body["items"]
        assert {one["name"]: one["address"] for one in reserved} == self.reserved
        assert self.call("GET", "/v1/address-pools").body["items"][0]["allocated"] == len(self.taken)


CloudMachine.TestCase.settings = profile(max_examples=12, stateful_step_count=25, deadline=None, derandomize=True)
# Its time is that of hundreds of requests, on a machine that may be busy.
TestCloud = pytest.mark.timeout(240)(CloudMachine.TestCase)
