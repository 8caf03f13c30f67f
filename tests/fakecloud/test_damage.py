"""A file that is damaged, and a disk that is full: named with what to do, and what served goes on."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
import pytest

from fakecloud import app
from fakecloud.config import Settings
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import (
    DEADLINE,
    Api,
    Backends,
    Process,
    address_of,
    fakecloud_command,
    greeting,
    load_balancer,
    run_fakecloud,
    until,
)

LBS = "/v1/load-balancers"


async def filled(settings: Settings, state: Path) -> None:
    """A state file of some pages, with rows of every kind but one."""
    async with app.running(settings.model_copy(update={"state": state})) as serving, aiohttp.ClientSession() as session:
        api = Api(session, serving.url, "secret")
        await api.call("POST", "/v1/servers", {"id": "node-1", "name": "node-1", "addresses": ["127.0.0.1"]})
        for number in range(50):
            body = load_balancer(uid=f"u{number}", targets=[{"server": "node-1"}])
            await api.call("POST", LBS, body, Fencing_Token="lease:1", Idempotency_Key=f"k{number}")


def cut_in_half(state: Path) -> None:
    os.truncate(state, state.stat().st_size // 2)


def with_a_hole(state: Path) -> None:
    content = bytearray(state.read_bytes())
    content[8192:20480] = b"\xa5" * 12288
    state.write_bytes(content)


def another_program(state: Path) -> None:
    state.write_text("no database " * 1000)


def statement(text: str) -> Callable[[Path], None]:
    def change(state: Path) -> None:
        database = sqlite3.connect(state)
        database.execute(text)
        database.commit()
        database.close()

    return change


DAMAGES = [
    pytest.param(cut_in_half, ["damaged", "copy", "-wal"], id="cut in half"),
    pytest.param(with_a_hole, ["damaged", "copy", "-wal"], id="pages overwritten"),
    pytest.param(another_program, ["not a database", "another file"], id="no database"),
    pytest.param(statement("DROP TABLE records"), ["no such table: records", "another file"], id="no table"),
    pytest.param(statement("DELETE FROM schema_version"), ["schema version None"], id="no version"),
    pytest.param(statement("UPDATE schema_version SET version = 'x'"), ["schema version 'x'"], id="no number"),
    pytest.param(
        statement("UPDATE records SET body = '{' WHERE kind = 'server'"), ["server node-1", "remove it"], id="no JSON"
    ),
    pytest.param(
        statement("UPDATE records SET body = CAST(x'7bff7d' AS TEXT) WHERE kind = 'server'"),
        ["server node-1", "remove it"],
        id="no text",
    ),
    pytest.param(
        statement("UPDATE records SET body = '{}' WHERE kind = 'server'"),
        ["server node-1", "id: "],
        id="no id",
    ),
    pytest.param(statement("UPDATE records SET body = 1 WHERE kind = 'server'"), ["server node-1"], id="a number"),
    pytest.param(
        statement("INSERT INTO records VALUES ('spell', CAST(x'1b5b33316d' AS TEXT), '{}')"),
        ["spell \\x1b[31m", "expected one of"],
        id="unknown kind",
    ),
    pytest.param(
        statement("UPDATE records SET body = replace(body, 'act-7\"', 'seven\"') WHERE key = 'act-7'"),
        ["action act-7"],
        id="an action without a number",
    ),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
async def test_a_damaged_state_file_is_one_clear_line_that_says_what_to_do(
    settings: Settings, tmp_path: Path, damage: Callable[[Path], None], words: list[str]
) -> None:
    state = tmp_path / "cloud.db"
    await filled(settings, state)
    damage(state)
    ended = await asyncio.to_thread(run_fakecloud, "serve", "--port", "0", "--state", str(state))
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended
    assert [word for word in [f"--state {state}", *words] if word not in ended.stderr] == [], ended.stderr


def on_a_small_disk(folder: Path, kibibytes: int) -> Sequence[str]:
    """A prefix for commands that see a disk of this size in the folder; skips where none can be made."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (util-linux)")
    mounted = f'mount -t tmpfs -o size={kibibytes}k small "{folder}" && exec "$@"'
    prefix = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", mounted, "sh"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"needs the right to mount: {tried.stderr.strip()}")
    return prefix


@pytest.mark.parametrize("kibibytes", [4, 12, 20, 28])
def test_a_disk_that_is_full_at_the_start_is_named(tmp_path: Path, kibibytes: int) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    command = [*on_a_small_disk(folder, kibibytes), *fakecloud_command(), "serve", "--port", "0"]
    ended = subprocess.run(
        [*command, "--state", str(folder / "cloud.db"), "--ready-file", str(folder / "ready")],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended
    assert "make room on its disk" in ended.stderr


async def test_a_disk_that_fills_up_refuses_changes_and_serves_on(
    tmp_path: Path, pool: Network, process: Process, backends: Backends
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    port = await backends.start("a")
    arguments = ("--pool", str(pool), "--token", "t", "--state", str(folder / "cloud.db"))
    logged = ("--flow-log", str(folder / "flows"))
    prefix = on_a_small_disk(folder, 512)
    ready = await asyncio.to_thread(process.start, tmp_path, *arguments, *logged, prefix=prefix)
    async with aiohttp.ClientSession() as session:
        api = Api(session, ready["url"], "t")
        item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
        refused = None
        for number in range(10_000):
            server = {"id": f"n{number}", "name": "n" * 255, "addresses": ["127.0.0.1"]}
            answer = await api.call("POST", "/v1/servers", server)
            if answer.status != 201:
                refused = answer
                break
        assert refused is not None
        assert (refused.status, refused.problem) == (503, "storage-failed")
        assert "make room on its disk" in refused.body["detail"]
        assert len((await api.get("/v1/servers"))["items"]) == number
        assert await greeting(address_of(item)) == "a"


async def test_a_flow_log_that_can_not_be_written_is_told_once_and_traffic_goes_on(
    tmp_path: Path, pool: Network, process: Process, backends: Backends
) -> None:
    port = await backends.start("a")
    arguments = ("--pool", str(pool), "--token", "t", "--flow-log", "/dev/full")
    ready = await asyncio.to_thread(process.start, tmp_path, *arguments)
    async with aiohttp.ClientSession() as session:
        api = Api(session, ready["url"], "t")
        item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
        for _ in range(200):
            assert await greeting(address_of(item)) == "a"

        async def all_ended() -> bool:
            (listener,) = (await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"]
            return (listener["connections"], listener["activeConnections"]) == (200, 0)

        await until(all_ended)
    code, _, log = await asyncio.to_thread(process.end)
    assert (code, "Traceback" in log) == (0, False)
    assert [line for line in log.splitlines() if "the flow log loses lines" in line] != []


class TestTheReadyFile:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_it_is_gone_when_the_process_has_ended(
        self, tmp_path: Path, pool: Network, process: Process, number: signal.Signals
    ) -> None:
        process.start(tmp_path, "--pool", str(pool))
        assert process.end(number)[0] == 0
        assert list(tmp_path.iterdir()) == []

    def test_one_that_a_killed_process_left_is_gone_before_the_next_one_is_ready(
        self, tmp_path: Path, pool: Network, process: Process
    ) -> None:
        process.start(tmp_path, "--pool", str(pool))
        process.end(signal.SIGKILL)
        left = tmp_path / "ready.json"
        assert left.exists()
        # One that can't start shows as well what it does first.
        ended = run_fakecloud("serve", "--listen", "203.0.113.1", "--ready-file", str(left))
        assert (ended.returncode, left.exists()) == (2, False)

    def test_one_of_a_living_process_is_left_alone(self, tmp_path: Path, pool: Network, process: Process) -> None:
        process.start(tmp_path, "--pool", str(pool))
        file = tmp_path / "ready.json"
        before = file.read_text()
        ended = run_fakecloud("serve", "--port", "0", "--ready-file", str(file))
        assert (ended.returncode, file.read_text()) == (2, before)
        assert f"--ready-file {file}: another fakecloud is ready by it" in ended.stderr

    def test_what_somebody_else_put_there_stays(self, tmp_path: Path, pool: Network, process: Process) -> None:
        process.start(tmp_path, "--pool", str(pool))
        file = tmp_path / "ready.json"
        file.unlink()
        file.write_text("mine")
        assert process.end()[0] == 0
        assert file.read_text() == "mine"

    def test_a_disk_that_is_full_is_named_and_no_draft_stays(self, tmp_path: Path, pool: Network) -> None:
        folder = tmp_path / "small"
        folder.mkdir()
        options = ["--port", "0", "--pool", str(pool), "--ready-file", str(folder / "ready")]
        # What is left on it, is shown before the disk is gone with the process.
        shown = [
            "sh",
            "-c",
            'dd if=/dev/zero of="$0/filler" 2>/dev/null; "$@"; code=$?; ls -A "$0"; exit $code',
            str(folder),
        ]
        ended = subprocess.run(
            [*on_a_small_disk(folder, 16), *shown, *fakecloud_command(), "serve", *options],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert (ended.returncode, ended.stdout.splitlines()[-1]) == (2, "filler"), ended
        assert "No space left on device" in ended.stderr.splitlines()[-1]
