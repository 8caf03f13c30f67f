import asyncio
import json
import os
import shutil
import signal
import socket
import stat
from pathlib import Path

import aiohttp
import pytest

from fakecloud.state.ipam import Network
from tests.fakecloud.clients import Api, Backends, Process, address_of, greeting, load_balancer, run_fakecloud

LBS = "/v1/load-balancers"


async def test_a_killed_process_comes_back_with_the_same_load_balancers_and_traffic(
    tmp_path: Path, pool: Network, process: Process, backends: Backends
) -> None:
    port = await backends.start("a")
    arguments = ("--state", str(tmp_path / "cloud.db"), "--pool", str(pool), "--token", "t")
    ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
    listeners = [{"port": 8080, "targetPort": port}]
    async with aiohttp.ClientSession() as session:
        api = Api(session, ready["url"], "t")
        await api.call("POST", "/v1/servers", {"id": "node-1", "name": "node-1", "addresses": ["127.0.0.1"]})
        for number in range(3):
            await api.create(uid=f"u{number}", listeners=listeners, targets=[{"server": "node-1"}])
        before = (await api.get(LBS))["items"]
        await api.call("DELETE", f"{LBS}/{before[0]['id']}", Fencing_Token="lease:5")
        await api.call("PATCH", f"{LBS}/{before[1]['id']}", {"name": "patched"})
    await asyncio.to_thread(process.end, signal.SIGKILL)
    ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
    async with aiohttp.ClientSession() as session:
        api = Api(session, ready["url"], "t")
        after = (await api.get(LBS))["items"]
        assert [(item["id"], item["addresses"], item["name"]) for item in after] == [
            (before[1]["id"], before[1]["addresses"], "patched"),
            (before[2]["id"], before[2]["addresses"], "shop/web"),
        ]
        assert [item["generation"] for item in after] == [2, 1]
        assert [await greeting(address_of(item)) for item in after] == ["a", "a"]
        # The freed address, and only that one, is free; the fencing token is remembered.
        assert address_of(await api.create(uid="u9")) == address_of(before[0])
        stale = await api.call("POST", LBS, load_balancer(uid="u8"), Fencing_Token="lease:4")
        assert stale.problem == "stale-fencing-token"
    assert (await asyncio.to_thread(process.end))[0] == 0


async def test_a_port_that_is_busy_after_a_restart_is_an_error_of_that_listener_alone(
    tmp_path: Path, pool: Network, process: Process, backends: Backends
) -> None:
    port = await backends.start("a")
    arguments = ("--state", str(tmp_path / "cloud.db"), "--pool", str(pool), "--token", "t")
    ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
    async with aiohttp.ClientSession() as session:
        listeners = [{"port": 8080, "targetPort": port}, {"port": 8081, "targetPort": port}]
        item = await Api(session, ready["url"], "t").create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
    await asyncio.to_thread(process.end)
    with socket.create_server((address_of(item), 8080)):
        ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
        async with aiohttp.ClientSession() as session:
            status = (await Api(session, ready["url"], "t").get(f"{LBS}/{item['id']}"))["status"]
        assert [listener["open"] for listener in status["listeners"]] == [False, True]
        assert "in use" in status["listeners"][0]["error"]
        assert await greeting(address_of(item), 8081) == "a"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, pool: Network, process: Process, number: signal.Signals) -> None:
    ready = process.start(tmp_path, "--pool", str(pool), "--log-format", "json", "--token", "hush-hush")
    assert ready["pid"] == process.pid
    file = tmp_path / "ready.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    code, out, err = process.end(number)
    assert code == 0
    assert [json.loads(line)["message"] for line in err.splitlines()] == ["serving", "stopping"]
    assert ready["url"] in out
    assert "hush-hush" not in out + err


def test_a_random_token_is_printed_once_and_works(tmp_path: Path, pool: Network, process: Process) -> None:
    ready = process.start(tmp_path, environment={"FAKECLOUD_POOL": str(pool)})
    listed = run_fakecloud("server", "list", "-o", "json", FAKECLOUD_URL=ready["url"], FAKECLOUD_TOKEN=ready["token"])
    assert json.loads(listed.stdout) == []
    pools = run_fakecloud("lb", "list", FAKECLOUD_URL=ready["url"], FAKECLOUD_TOKEN="wrong")
    assert (pools.returncode, len(pools.stderr.splitlines())) == (2, 1)
    assert process.end()[1].count(ready["token"]) == 1


def test_the_command_line_shows_what_is_there(tmp_path: Path, pool: Network, process: Process) -> None:
    (tmp_path / "token").write_text("from-file\n")
    ready = process.start(tmp_path, "--pool", str(pool), "--token-file", str(tmp_path / "token"))

    def run(*arguments: str) -> str:
        ended = run_fakecloud(*arguments, "--url", ready["url"], "--token", "from-file")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run("server", "add", "node-1", "127.0.0.11", "--name", "first")
    assert "127.0.0.11" in run("server", "list")

    async def create() -> str:
        async with aiohttp.ClientSession() as session:
            item = await Api(session, ready["url"], "from-file").create(
                name="[bold]web", targets=[{"server": "node-1"}]
            )
            return str(item["id"])

    name = asyncio.run(create())
    assert "[bold]web" in run("lb", "list")
    assert json.loads(run("lb", "list", "--cluster", "c1", "-o", "json"))[0]["id"] == name
    assert "node-1" in run("lb", "show", name)
    run("lb", "delete", name)
    run("server", "delete", "node-1")
    gone = run_fakecloud("lb", "show", name, "--url", ready["url"], "--token", "from-file")
    assert (gone.returncode, f"{name}: no load balancer of this id or name" in gone.stderr) == (1, True)
    assert "DELETE" in run("journal", "list", "--mutating")
    assert {call["method"] for call in json.loads(run("journal", "list", "-o", "json", "--method", "POST"))} == {"POST"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--pool", "127.84.0.1/16"], ["--pool", "127.84.0.1/16", "CIDR"], id="host bits"),
        pytest.param(["--pool", "10.0.0.0/24"], ["10.0.0.0/24", "127.0.0.0/8"], id="pool outside of loopback"),
        pytest.param(
            ["--pool", "127.84.0.0/16", "--pool", "127.84.1.0/24"], ["127.84.1.0/24", "overlaps"], id="overlap"
        ),
        pytest.param(["--target-network", "everything"], ["--target-network", "everything"], id="no network"),
        pytest.param(["--token-file", "/nonexistent/token"], ["/nonexistent/token"], id="unreadable token file"),
        pytest.param(["--token", "a b"], ["--token", "blanks"], id="token with a blank"),
        pytest.param(["--state", "/nonexistent/cloud.db"], ["/nonexistent/cloud.db"], id="state nowhere"),
        pytest.param(["--port", "70000"], ["--port", "70000"], id="no port"),
        pytest.param(["--listen", "203.0.113.1"], ["203.0.113.1", "--port"], id="foreign address"),
        pytest.param(["--ready-file", "/nonexistent/r"], ["--ready-file /nonexistent/r"], id="ready file nowhere"),
        pytest.param(["--nonsense"], ["--nonsense"], id="unknown option"),
    ],
)
def test_a_wrong_option_is_one_clear_line_and_exit_code_2(arguments: list[str], words: list[str]) -> None:
    ended = run_fakecloud("serve", "--port", "0", *arguments)
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    assert [word for word in words if word not in line] == []


def test_a_busy_port_is_one_clear_line_and_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        ended = run_fakecloud("serve", "--port", port)
    assert (
        ended.returncode,
        ended.stderr.splitlines()[-1].startswith(f"Error: can't listen on 127.0.0.1 port {port}"),
    ) == (
        2,
        True,
    )


def test_a_state_file_is_used_by_one_process_and_refused_when_newer(
    tmp_path: Path, pool: Network, process: Process
) -> None:
    state = tmp_path / "cloud.db"
    process.start(tmp_path, "--state", str(state), "--pool", str(pool))
    second = run_fakecloud("serve", "--port", "0", "--state", str(state))
    assert (second.returncode, "locked" in second.stderr) == (2, True)
    process.end()
    (tmp_path / "text.db").write_text("no database " * 100)
    assert run_fakecloud("serve", "--port", "0", "--state", str(tmp_path / "text.db")).returncode == 2


def without_the_right_for_low_ports() -> list[str]:
    """A prefix for commands; skips where no such command can be made."""
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 81:
        pytest.skip("this machine lets everyone have ports under 1024")
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("runs as root, and setpriv (util-linux) is not there to drop the right")
    return ["setpriv", "--bounding-set", "-net_bind_service"]


async def test_a_privileged_port_is_refused_with_what_helps(tmp_path: Path, pool: Network, process: Process) -> None:
    prefix = without_the_right_for_low_ports()
    ready = await asyncio.to_thread(process.start, tmp_path, "--pool", str(pool), "--token", "t", prefix=prefix)
    async with aiohttp.ClientSession() as session:
        listeners = [{"port": 8080, "targetPort": 1}, {"port": 81, "targetPort": 1}]
        api = Api(session, ready["url"], "t")
        refused = await api.call("POST", LBS, load_balancer(listeners=listeners))
        assert (refused.status, refused.fields) == (422, ["listeners[1].port"])
        assert "net.ipv4.ip_unprivileged_port_start=81" in refused.body["detail"]
        assert (await api.get("/v1/address-pools"))["items"][0]["allocated"] == 0


def test_help_is_quick_and_shows_examples() -> None:
    for command in ([], ["serve"], ["lb", "list"], ["journal", "list"], ["server", "add"]):
        ended = run_fakecloud(*command, "--help")
        assert (ended.returncode, "Examples:" in ended.stdout) == (0, True)
