"""What the journal counts, verifies and streams, and the command line that asks it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from fakecloud.config import Settings
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import DEADLINE, Api, Process, fakecloud_command, load_balancer, run_fakecloud

LBS = "/v1/load-balancers"


async def test_counts_sum_up_what_was_asked(api: Api) -> None:
    for _ in range(3):
        await api.call("GET", "/v1/servers")
    await api.create()
    counts = await api.get("/v1/journal/counts")
    assert (counts["total"], counts["items"][0]["count"], counts["items"][0]["path"]) == (4, 3, "/v1/servers")
    assert (await api.get("/v1/journal/counts?applied=true"))["total"] == 1


@pytest.mark.parametrize(
    ("expectation", "satisfied"),
    [
        ({}, False),
        ({"filter": {"applied": True}, "exactly": 1}, True),
        ({"filter": {"applied": True}, "atLeast": 2}, False),
        ({"filter": {"method": "GET"}, "atMost": 2}, True),
        ({"filter": {"method": "GET"}, "atMost": 0}, False),
        ({"filter": {"path": "/v1/load-balancers/*"}}, True),
        ({"filter": {"owner": "u1", "cluster": "c1"}, "exactly": 1}, True),
        ({"filter": {"userAgent": "me/*"}, "exactly": 1}, True),
        ({"filter": {"status": 404}}, True),
        ({"filter": {"since": 3}}, True),
        ({"filter": {"sinceTime": "2099-01-01T00:00:00Z"}}, True),
        ({"filter": {"sinceTime": "2020-01-01T00:00:00.5Z"}, "exactly": 3}, True),
    ],
)
async def test_an_expectation_holds_or_not(api: Api, expectation: dict[str, object], *, satisfied: bool) -> None:
    await api.call("GET", "/v1/servers", User_Agent="me/1")
    await api.call("GET", LBS)
    await api.create()
    verdict = (await api.call("POST", "/v1/journal/verify", expectation)).body
    assert (verdict["satisfied"], verdict["complete"]) == (satisfied, True)
    assert len(verdict["calls"]) == verdict["count"]


class TestWithASmallJournal:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"journal_size": 2})

    async def test_forgotten_calls_make_a_verdict_incomplete(self, api: Api) -> None:
        for _ in range(3):
            await api.call("GET", "/v1/servers")
        assert not (await api.call("POST", "/v1/journal/verify")).body["complete"]
        assert (await api.call("POST", "/v1/journal/verify", {"filter": {"since": 1}})).body["complete"]


async def test_calls_are_streamed_as_they_come(api: Api) -> None:
    await api.call("GET", "/v1/servers")
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session,
        session.get(f"{api.url}/v1/journal/tail?mutating=true") as answer,
    ):
        assert answer.content_type == "text/event-stream"
        assert await answer.content.readline() == b": up to date\n"
        await api.create()
        lines: list[str] = []
        while not lines or not lines[-1].startswith("data: "):
            line = await asyncio.wait_for(answer.content.readline(), DEADLINE)
            lines.append(line.decode().strip())
        assert lines[-2:][0] == "id: 2"
        assert json.loads(lines[-1].removeprefix("data: "))["method"] == "POST"
    assert await api.journal("?path=/v1/journal*") == []


def test_the_command_line_verifies_orders_faults_and_follows(tmp_path: Path, pool: Network, process: Process) -> None:
    (tmp_path / "scenarios.yaml").write_text(
        "scenarios:\n  flaky:\n    description: two refusals\n    faults:\n"
        "      - {match: {methods: [POST]}, effect: {kind: status, status: 503}, times: 2}\n"
    )
    ready = process.start(tmp_path, "--pool", str(pool), "--scenarios", str(tmp_path / "scenarios.yaml"))
    environment = {"FAKECLOUD_URL": ready["url"], "FAKECLOUD_TOKEN": ready["token"]}

    def run(*arguments: str, code: int = 0) -> str:
        ended = run_fakecloud(*arguments, **environment)
        assert ended.returncode == code, (arguments, ended)
        return ended.stdout + ended.stderr

    def create() -> int:
        async def post() -> int:
            async with aiohttp.ClientSession() as session:
                api = Api(session, ready["url"], ready["token"])
                return (await api.call("POST", LBS, load_balancer())).status

        return asyncio.run(post())

    tail = subprocess.Popen(
        [sys.executable, *fakecloud_command()[1:], "journal", "tail", "--since", "0", "-o", "json"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert "flaky" in run("fault", "scenarios")
        assert "flaky-1" in run("fault", "apply", "flaky")
        assert [create(), create(), create()] == [503, 503, 201]
        assert tail.stdout is not None
        assert [json.loads(tail.stdout.readline())["status"] for _ in range(3)] == [503, 503, 201]
    finally:
        tail.kill()
        tail.communicate()
    assert "2 of 2" in run("fault", "list")
    run("fault", "remove", "flaky-1")
    run("fault", "add", "latency", "seconds=0.01", "--id", "slow", "--path", "/v1/*")
    assert json.loads(run("fault", "list", "-o", "json"))[0]["id"] == "slow"
    run("fault", "remove", "--all")
    assert "503" in run("journal", "counts")
    assert "NOT as expected: 1 calls match" in run("verify", "--no-mutations", code=1)
    run("verify", "--no-mutations", "--since", "3")
    run("verify", "--no-mutations", "--since", "5m", code=1)
    run("verify", "--method", "POST", "--exactly", "3", "--since", "1h")
    assert json.loads(run("verify", "--applied", "--at-most", "1", "-o", "json"))["satisfied"]
    assert "--no-mutations expects 0" in run("verify", "--no-mutations", "--exactly", "1", code=2)
    assert "sinceTime" in run("verify", "--no-mutations", "--since", "yesterday", code=2)
    assert "NAME=VALUE" in run("fault", "add", "status", "503", code=2)
    environment["FAKECLOUD_URL"] = "http://127.0.0.1:9"
    assert "does not answer" in run("verify", "--no-mutations", code=2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("scenarios: [", ["expected YAML"]),
        ("scenarios: {flaky: {faults: []}}", ["scenarios.flaky.faults"]),
        ("scenarios: {flaky: {faults: [{effect: {kind: boom}}]}}", ["scenarios.flaky.faults.0.effect", "boom"]),
        ("", ["the file"]),
    ],
)
def test_a_wrong_scenario_file_is_one_clear_line(tmp_path: Path, content: str, words: list[str]) -> None:
    file = tmp_path / "scenarios.yaml"
    file.write_text(content)
    ended = run_fakecloud("serve", "--port", "0", "--scenarios", str(file))
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    assert (ended.returncode, [word for word in [str(file), *words] if word not in line]) == (2, [])
