"""What was acknowledged lasts, whatever kills the process; and a thousand load balancers are back in seconds."""

import asyncio
import json
import random
import signal
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakecloud import app
from fakecloud.cloud.store import SCHEMA_VERSION
from fakecloud.config import Settings
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import Api, Process, load_balancer, run_fakecloud

LBS = "/v1/load-balancers"
_KILLS = 50
# Writers at a time, each of which logs what was acknowledged before it asks for more.
_WRITERS = 4


class AcknowledgedLog:
    """The client's own file: what must be there, and what must be gone, as far as the cloud has acknowledged it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self.path = path
        self.acknowledged = 0

    def write(self, uid: str, fact: str) -> None:
        self.acknowledged += fact != "asked"
        self._file.write(json.dumps([uid, fact]) + "\n")

    def facts(self) -> dict[str, str]:
        """The last fact by uid."""
        return dict(json.loads(line) for line in self.path.read_text().splitlines())

    def close(self) -> None:
        self._file.close()


async def write_until_killed(api: Api, log: AcknowledgedLog, prefix: str) -> None:
    """Create, rename, and delete every third one; ends when the cloud no longer answers."""
    try:
        for number in range(10_000):
            uid = f"{prefix}-{number}"
            log.write(uid, "asked")
            answer = await api.call("POST", LBS, load_balancer(uid=uid, listeners=[{"port": 8080, "targetPort": 1}]))
            assert answer.status == 201, answer
            log.write(uid, answer.body["id"])
            path = f"{LBS}/{answer.body['id']}"
            if number % 3 == 0:
                log.write(uid, "asked")
                assert (await api.call("DELETE", path)).status == 204
                log.write(uid, "gone")
    except aiohttp.ClientError:
        return


async def everything(api: Api) -> AsyncIterator[dict[str, object]]:
    cursor = ""
    while True:
        page = await api.get(f"{LBS}?limit=1000{cursor}")
        for item in page["items"]:
            yield item
        if page["nextCursor"] is None:
            return
        cursor = f"&cursor={page['nextCursor']}"


async def check(api: Api, log: AcknowledgedLog) -> int:
    """Every acknowledged fact holds; what was not acknowledged is whole or absent. How many facts there were."""
    found = {str(item["owner"]["uid"]): item async for item in everything(api)}  # type: ignore[index]
    facts = log.facts()
    for uid, fact in facts.items():
        item = found.get(uid)
        if fact == "gone":
            assert item is None, f"{uid} was deleted and is back"
        elif fact != "asked":
            assert item is not None, f"{uid} was acknowledged and is lost"
            assert item["id"] == fact
        if item is not None:
            whole = (await api.call("GET", f"{LBS}/{item['id']}")).body
            assert (whole["state"], len(whole["addresses"]), whole["name"]) == ("active", 1, "shop/web")
    assert set(found) <= set(facts)
    addresses = [str(item["addresses"]) for item in found.values()]
    assert len(set(addresses)) == len(addresses)
    return sum(fact != "asked" for fact in facts.values())


@pytest.mark.timeout(600)
async def test_fifty_kills_under_load_lose_nothing_that_was_acknowledged(
    tmp_path: Path, process: Process, pool: Network
) -> None:
    wide = str(pool.supernet(new_prefix=16))
    arguments = ("--state", str(tmp_path / "cloud.db"), "--pool", wide, "--token", "t", "--log-level", "error")
    log = AcknowledgedLog(tmp_path / "acknowledged.jsonl")
    chance = random.Random(4)
    for kill in range(_KILLS):
        ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
        async with aiohttp.ClientSession() as session:
            api = Api(session, ready["url"], "t")
            writers = [
                asyncio.create_task(write_until_killed(api, log, f"{kill}-{writer}")) for writer in range(_WRITERS)
            ]
            # A kill before the first acknowledged write would show nothing.
            before = log.acknowledged
            while log.acknowledged == before and not all(writer.done() for writer in writers):
                await asyncio.sleep(0.001)
            await asyncio.sleep(chance.uniform(0, 0.12))
            await asyncio.to_thread(process.end, signal.SIGKILL)
            await asyncio.gather(*writers)
    ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
    async with aiohttp.ClientSession() as session:
        facts = await check(Api(session, ready["url"], "t"), log)
    log.close()
    print(f"{facts} acknowledged load balancers were there, or gone, after {_KILLS} kills")
    assert log.acknowledged >= _KILLS


async def test_a_kill_in_the_middle_of_a_delete_is_made_good_at_the_next_start(
    tmp_path: Path, process: Process, pool: Network
) -> None:
    arguments = ("--state", str(tmp_path / "cloud.db"), "--pool", str(pool), "--token", "t")
    slow = ("--action-seconds", "3600")
    async with aiohttp.ClientSession() as session:
        ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
        item = await Api(session, ready["url"], "t").create()
        await asyncio.to_thread(process.end)
        ready = await asyncio.to_thread(process.start, tmp_path, *arguments, *slow)
        api = Api(session, ready["url"], "t")
        deleted = await api.call("DELETE", f"{LBS}/{item['id']}", Fencing_Token="lease:5")
        assert (deleted.status, (await api.get(LBS))["items"][0]["state"]) == (202, "deleting")
        await asyncio.to_thread(process.end, signal.SIGKILL)
        ready = await asyncio.to_thread(process.start, tmp_path, *arguments, *slow)
        api = Api(session, ready["url"], "t")
        assert (await api.get(LBS))["items"] == []
        assert (await api.get(f"/v1/actions/{deleted.headers['Action-Id']}"))["status"] == "done"
        assert (await api.get("/v1/address-pools"))["items"][0]["allocated"] == 0
        assert (await api.call("POST", LBS, load_balancer(), Fencing_Token="lease:4")).status == 412


@pytest.mark.timeout(120)
async def test_a_thousand_load_balancers_are_back_in_under_three_seconds(
    settings: Settings, pool: Network, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = settings.model_copy(
        update={"pools": (pool.supernet(new_prefix=16),), "state": tmp_path / "cloud.db", "journal_size": 10}
    )
    slow_check = {"intervalSeconds": 3600}
    async with aiohttp.ClientSession() as session:
        async with app.running(wide) as serving:
            api = Api(session, serving.url, "secret")
            for number in range(1000):
                await api.create(uid=f"u{number}", targets=[{"address": "127.0.0.1"}], healthCheck=slow_check)
        started, worked = time.monotonic(), time.process_time()
        async with app.running(wide) as serving:
            seconds, cpu_seconds = time.monotonic() - started, time.process_time() - worked
            items = [item async for item in everything(Api(session, serving.url, "secret"))]
    with capsys.disabled():
        print(f"\n1,000 load balancers were loaded and served in {seconds:.2f} s ({cpu_seconds:.2f} s of work)")
    assert len(items) == 1000
    assert all(item["status"]["listeners"][0]["open"] for item in items)  # type: ignore[index]
    # The work, not the time: others may have the processor meanwhile. Nothing in it waits.
    assert cpu_seconds < 3


def old_file(path: Path) -> None:
    """A state file as the first version of the schema wrote it."""
    body = {
        "id": "lb-old",
        "sequence": 1,
        "generation": 2,
        "created_at": "2026-01-01T00:00:00.000Z",
        "spec": {
            "name": "old",
            "owner": {"cluster": "c1", "uid": "u1"},
            "tags": {},
            "families": ["IPv4"],
            "addresses": [],
            "listeners": [{"protocol": "TCP", "port": 8080, "target_port": 1, "name": None, "proxy_protocol": "none"}],
            "targets": [{"address": "127.0.0.1"}],
            "health_check": None,
            "source_ranges": [],
        },
        "addresses": [{"family": "IPv4", "address": "127.84.0.9"}],
    }
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
    database.execute(
        "CREATE TABLE records (kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key))"
    )
    database.execute("INSERT INTO schema_version VALUES (1)")
    database.execute("INSERT INTO records VALUES ('load-balancer', 'lb-old', ?)", (json.dumps(body),))
    database.commit()
    database.close()


async def test_a_file_of_an_older_schema_is_migrated(settings: Settings, tmp_path: Path) -> None:
    state = tmp_path / "cloud.db"
    old_file(state)
    async with aiohttp.ClientSession() as session, app.running(settings.model_copy(update={"state": state})) as serving:
        api = Api(session, serving.url, "secret")
        (item,) = (await api.get(LBS))["items"]
        assert (item["id"], item["generation"], item["algorithm"]) == ("lb-old", 2, "round-robin")
        assert (await api.call("PATCH", f"{LBS}/lb-old", {"name": "new"})).headers["Action-Id"] == "act-1"
    database = sqlite3.connect(state)
    assert database.execute("SELECT version FROM schema_version").fetchone() == (SCHEMA_VERSION,)
    database.close()


def test_a_file_of_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    state = tmp_path / "cloud.db"
    old_file(state)
    database = sqlite3.connect(state)
    database.execute("UPDATE schema_version SET version = 99")
    database.commit()
    database.close()
    ended = run_fakecloud("serve", "--port", "0", "--state", str(state))
    assert (ended.returncode, "schema version 99" in ended.stderr) == (2, True)
