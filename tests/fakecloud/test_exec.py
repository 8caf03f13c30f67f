"""`fakecloud exec`: a cloud for one command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakecloud.testing.process import FakecloudProcess, StartFailedError
from tests.fakecloud.clients import DEADLINE, fakecloud_command, run_fakecloud

SEEN = """
import json, os
from fakecloud.client import Client
cloud = Client()
servers = [(one.id, *one.addresses) for one in cloud.list_servers()]
faults = [one.model_dump(mode="json", by_alias=True) for one in cloud.list_faults()]
print(json.dumps({"url": cloud.url, "servers": servers, "faults": faults, "nodes": os.environ["FAKECLOUD_NODES"].split()}))
"""


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_command_finds_its_cloud_in_the_environment() -> None:
    done = run_fakecloud(
        *("exec", "--nodes=2", "--fault=status status=503 times=2 methods=POST,PUT path=/v1/servers"),
        *("--fault", '{"id": "mine", "effect": {"kind": "latency", "seconds": 0}}'),
        *("--", sys.executable, "-c", SEEN),
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert [one[0] for one in seen["servers"]] == ["node-1", "node-2"]
    assert [one[1] for one in seen["servers"]] == seen["nodes"]
    first, second = seen["faults"]
    assert (first["effect"]["status"], first["times"], first["match"]["methods"]) == (503, 2, ["POST", "PUT"])
    assert first["match"]["path"] == "/v1/servers"
    assert second["id"] == "mine"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_code_is_the_commands(command: list[str], code: int) -> None:
    assert run_fakecloud("exec", "--", *command).returncode == code


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fault", "status=503"], "--fault 'status=503': expected 'KIND [NAME=VALUE]...'"),
        (["--fault", "{oops"], "no JSON"),
        (["--fault", "status status=99"], "effect.status.status"),
        (["--serve=--pool=10.0.0.0/8"], "pool 10.0.0.0/8 lies outside 127.0.0.0/8"),
    ],
)
def test_what_cannot_be_had_is_said_and_the_command_is_not_run(options: list[str], said: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    done = run_fakecloud("exec", *options, "--", "touch", str(trace))
    assert (done.returncode, trace.exists()) == (2, False)
    assert said in done.stderr


def test_variables_meant_for_another_fakecloud_are_not_this_ones() -> None:
    done = run_fakecloud("exec", "--", "sh", "-c", "echo $FAKECLOUD_TOKEN", FAKECLOUD_TOKEN="other", FAKECLOUD_PORT="1")
    assert (done.returncode, done.stdout.strip() not in ("", "other")) == (0, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_command_which_decides(number: signal.Signals) -> None:
    script = f"trap 'echo told; exit 3' {number.name.removeprefix('SIG')}; echo up; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*fakecloud_command(), "exec", "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.readline() == "told\n"
        assert process.wait(DEADLINE) == 3


def test_nothing_of_a_killed_exec_stays() -> None:
    script = (
        "import os, json; from fakecloud.client import Client; print(os.getppid(), Client().url, flush=True); input()"
    )
    with subprocess.Popen(
        [*fakecloud_command(), "exec", "--", sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        process.stdout.readline()
        serving = [
            int(one) for one in children.read_text().split() if b"serve" in Path(f"/proc/{one}/cmdline").read_bytes()
        ]
        assert len(serving) == 1
        process.kill()
        process.wait(DEADLINE)
    last = time.monotonic() + DEADLINE
    while running(serving[0]):
        assert time.monotonic() < last, "fakecloud outlives who asked for it"
        time.sleep(0.02)


def test_several_at_once_do_not_meet() -> None:
    with FakecloudProcess() as one, FakecloudProcess() as two, one.client() as first, two.client() as second:
        pools = {first.list_address_pools()[0].cidr, second.list_address_pools()[0].cidr}
        assert (len(pools), one.node(1) == two.node(1), one.token == two.token) == (2, False, False)


def test_a_process_that_does_not_start_says_why() -> None:
    with pytest.raises(StartFailedError, match=r"(?i)no such option"), FakecloudProcess(["--nope"]):
        pass
    with pytest.raises(RuntimeError, match="use `with`"):
        FakecloudProcess().node(1)


def test_standard_input_that_is_no_pipe_is_refused() -> None:
    with Path("/dev/null").open() as nothing:
        done = subprocess.run(
            [*fakecloud_command(), "serve", "--port=0", "--until-stdin-ends"],
            stdin=nothing, capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
    assert (done.returncode, "--until-stdin-ends: standard input is no pipe" in done.stderr) == (2, True)
