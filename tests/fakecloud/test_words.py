"""The command line has the words of the API: what the API does can be typed."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakecloud.client import Client
from fakecloud.testing.process import FakecloudProcess
from tests.fakecloud.clients import run_fakecloud

Ran = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def cloud() -> Iterator[FakecloudProcess]:
    with FakecloudProcess(["--action-seconds=0.1"]) as process:
        yield process


@pytest.fixture
def client(cloud: FakecloudProcess) -> Iterator[Client]:
    with cloud.client() as client:
        client.reset()
        yield client


@pytest.fixture
def run(cloud: FakecloudProcess, client: Client) -> Callable[..., Ran]:
    return lambda *words: run_fakecloud(*words, **cloud.environment)


@pytest.fixture
def said(run: Callable[..., Ran]) -> Callable[..., str]:
    def say(*words: str) -> str:
        done = run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return say


def test_a_load_balancer_is_made_changed_and_deleted_by_its_name(said: Callable[..., str], client: Client) -> None:
    said("server", "add", "node-1", "127.0.0.7")
    made = json.loads(
        said(
            *(
                "lb",
                "create",
                "web",
                "--listen=8080:30080",
                "--listen=5353/udp",
                "--target=127.0.0.9",
                "--target=node-1",
            ),
            *(
                "--tag=team=shop",
                "--range=127.0.0.0/8",
                "--algorithm=source-hash",
                "--health=http:/ready",
                "-o",
                "json",
            ),
        )
    )
    assert (made["owner"], made["tags"]) == ({"cluster": "fakecloud", "uid": "web"}, {"team": "shop"})
    assert [(one["protocol"], one["port"], one["targetPort"]) for one in made["listeners"]] == [
        ("TCP", 8080, 30080),
        ("UDP", 5353, 5353),
    ]
    assert [one.get("address") or one["server"] for one in made["targets"]] == ["127.0.0.9", "node-1"]
    assert (made["healthCheck"]["path"], made["sourceRanges"]) == ("/ready", ["127.0.0.0/8"])
    assert f"{made['id']} is active" in said("lb", "wait", "web")
    assert "shop" in said("lb", "update", "web", "--name=shop", "--target=127.0.0.8")
    changed = client.get_load_balancer(made["id"])
    assert ([one.address for one in changed.targets], changed.tags) == (["127.0.0.8"], {"team": "shop"})
    assert made["id"] in said("lb", "show", "shop")
    assert f"deleting {made['id']} by act-" in said("lb", "delete", "shop")
    assert said("lb", "wait", made["id"], "--gone") == f"{made['id']} is gone\n"


def test_create_waits_for_health_and_says_what_is_missing(run: Callable[..., Ran]) -> None:
    done = run(
        "lb", "create", "web", "--listen=8080:1", "--target=127.0.0.9", "--health=tcp", "--wait", "--timeout=0.5"
    )
    assert (done.returncode, "expected state active and 1 healthy within 0.5 s; it is" in done.stderr) == (1, True)


def test_fields_come_from_a_file_too(said: Callable[..., str], tmp_path: Path, client: Client) -> None:
    (tmp_path / "web.json").write_text('{"listeners": [{"port": 8081, "targetPort": 30081}], "connectionLimit": 3}')
    said("lb", "create", "web", "-f", str(tmp_path / "web.json"), "--owner=u", "--cluster=c")
    (made,) = client.list_load_balancers(owner="u", cluster="c")
    assert made.connection_limit == 3


@pytest.mark.parametrize(
    ("words", "code", "wrong"),
    [
        (["lb", "create", "web", "--listen=http"], 2, "--listen http: expected PORT:TARGETPORT"),
        (["lb", "create", "web", "--listen=80:80/sctp"], 2, "--listen 80:80/sctp"),
        (["lb", "create", "web", "--tag=team"], 2, "--tag team: expected KEY=VALUE"),
        (["lb", "create", "web", "--health=icmp"], 2, "--health icmp: expected tcp"),
        (["lb", "create", "web"], 1, "422"),
        (["lb", "create", "web", "-f", "/dev/null"], 2, "-f /dev/null: no JSON"),
        (["lb", "update", "web"], 2, "nothing to change"),
        (["lb", "show", "nope"], 1, "nope: no load balancer of this id or name"),
        (["lb", "wait", "nope"], 1, "no load balancer of this id or name"),
        (["action", "wait", "act-99"], 1, "404"),
        (["address", "release", "nope"], 1, "404"),
        (["verify", "--since", "yesterday"], 2, "sinceTime"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(
    run: Callable[..., Ran], words: list[str], code: int, wrong: str
) -> None:
    done = run(*words)
    assert (done.returncode, wrong in done.stderr) == (code, True), done.stderr


def test_one_name_for_two_is_no_name(run: Callable[..., Ran], client: Client) -> None:
    for uid in ("a", "b"):
        spec: dict[str, Any] = {"name": "web", "owner": {"cluster": "c", "uid": uid}}
        client.create_load_balancer({**spec, "listeners": [{"port": 8080, "targetPort": 1}]})
    done = run("lb", "show", "web")
    assert (done.returncode, "2 load balancers of this name; give an id" in done.stderr) == (1, True)


def test_pools_addresses_actions_flows_and_reset(said: Callable[..., str], client: Client) -> None:
    assert said("pool", "add", "blue", "127.201.7.0/24") == "added blue\n"
    assert "blue" in said("pool", "list")
    said("pool", "delete", "blue")
    assert said("address", "reserve", "shop").endswith(" as shop\n")
    assert json.loads(said("address", "list", "-o", "json"))[0]["name"] == "shop"
    said("address", "release", "shop")
    said("lb", "create", "web", "--listen=8080:30080")
    (made,) = client.list_load_balancers()
    (action,) = client.list_actions(resource=made.id)
    assert said("action", "wait", action.id) == f"{action.id} is done\n"
    assert action.id in said("action", "list", "--status=done")
    assert json.loads(said("flow", "list", "--load-balancer=web", "-o", "json")) == []
    said("fault", "add", "latency", "seconds=0")
    assert said("reset", "--only=faults") == "forgot faults\n"
    assert (len(client.list_load_balancers()), client.list_faults()) == (1, [])
    said("reset")
    assert client.list_load_balancers() == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(said: Callable[..., str], shell: str) -> None:
    assert "_FAKECLOUD_COMPLETE" in said("completion", shell)


def test_words_are_completed() -> None:
    done = run_fakecloud(_FAKECLOUD_COMPLETE="bash_complete", COMP_WORDS="fakecloud lb cr", COMP_CWORD="2")
    assert done.stdout == "plain,create\n"
