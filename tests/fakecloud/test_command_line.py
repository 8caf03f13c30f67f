"""Each command of `fakecloud`: help with examples, JSON for scripts, a table for people, an exit code to act on."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import click
import pytest
from click.testing import CliRunner

from fakecloud.cli.commands import fakecloud
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import Api, Process, load_balancer, run_fakecloud

LBS = "/v1/load-balancers"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that call it."""
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from commands(one, (*path, name))
    else:
        yield path, command


COMMANDS = dict(commands(fakecloud))
# What shows something, and so has JSON too.
SHOWING = {
    ("lb", "list"),
    ("lb", "show"),
    ("server", "list"),
    ("journal", "list"),
    ("journal", "counts"),
    ("journal", "tail"),
    ("fault", "list"),
    ("fault", "scenarios"),
    ("verify",),
    ("lb", "create"),
    ("lb", "update"),
    ("pool", "list"),
    ("address", "list"),
    ("action", "list"),
    ("flow", "list"),
}
# What speaks to no cloud that is there already.
ALONE = {("serve",), ("exec",), ("completion",)}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_says_what_a_command_does_and_shows_it(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(fakecloud, [*path, "--help"])
    assert shown.exit_code == 0
    assert COMMANDS[path].help
    assert f"fakecloud {' '.join(path)}" in shown.output.partition("Examples:")[2]


def test_what_shows_something_has_json_too() -> None:
    assert {path for path, one in COMMANDS.items() if any(each.name == "output" for each in one.params)} == SHOWING
    talking = [one for path, one in COMMANDS.items() if path not in ALONE]
    assert all({"url", "token"} <= {each.name for each in one.params} for one in talking)


def test_a_server_listens_on_loopback_unless_told_otherwise_and_logs_no_secret(
    tmp_path: Path, pool: Network, process: Process
) -> None:
    ready = process.start(tmp_path, "--pool", str(pool), "--token", "hush-hush", "--log-level", "debug")
    assert ready["url"].startswith("http://127.0.0.1:")

    async def use() -> None:
        async with aiohttp.ClientSession() as session:
            api = Api(session, ready["url"], "hush-hush")
            assert (await api.call("POST", LBS, load_balancer(tags={"password": "in-a-body"}))).status == 201
            assert (await Api(session, ready["url"], "guessed-token").call("GET", LBS)).status == 401

    asyncio.run(use())
    _, out, err = process.end()
    assert "api call" in err
    assert [word for word in ("hush-hush", "guessed-token", "in-a-body") if word in out + err] == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--interface", "eth0"), "--interface eth0: it belongs to --addresses interface; addresses are loopback"),
        (
            ("--addresses", "interface", "--pool", "10.9.0.0/24", "--delivery", "direct", "--max-connections", "5"),
            "--max-connections 5: it belongs to --delivery proxy; with direct, connections end at the nodes",
        ),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(flags: tuple[str, ...], said: str) -> None:
    ended = run_fakecloud("serve", "--port", "0", *flags)
    assert ended.returncode != 0
    assert said in ended.stderr


def test_a_delete_that_takes_its_time_is_told_as_such(tmp_path: Path, pool: Network, process: Process) -> None:
    state = ("--state", str(tmp_path / "cloud.db"), "--pool", str(pool), "--token", "t")

    async def create(url: str) -> str:
        async with aiohttp.ClientSession() as session:
            return str((await Api(session, url, "t").create())["id"])

    name = asyncio.run(create(process.start(tmp_path, *state)["url"]))
    process.end()
    access = {
        "FAKECLOUD_URL": process.start(tmp_path, *state, "--action-seconds", "3600")["url"],
        "FAKECLOUD_TOKEN": "t",
    }
    deleted = run_fakecloud("lb", "delete", name, **access)
    shown = run_fakecloud("lb", "show", name, **access)
    listed = json.loads(run_fakecloud("lb", "list", "-o", "json", **access).stdout)
    assert (deleted.returncode, deleted.stdout) == (0, f"deleting {name} by {listed[0]['action']}\n")
    assert "deleting" in shown.stdout.splitlines()[0]


# What a terminal would obey: a colour, a cleared screen, a bell, a new line, a C1 control, and text turned around.
NASTY = "\x1b[31mred\x1b[2J\x07\nnext\x9b1m\u202egnp"


def test_names_and_paths_are_shown_without_what_a_terminal_would_obey(
    tmp_path: Path, pool: Network, process: Process
) -> None:
    (tmp_path / "scenarios.yaml").write_text(
        json.dumps(
            {
                "scenarios": {
                    "s": {"description": NASTY, "faults": [{"effect": {"kind": "outage"}, "match": {"path": NASTY}}]}
                }
            }
        )
    )
    log = ("--log-level", "debug")
    ready = process.start(
        tmp_path, "--pool", str(pool), "--token", "t", "--scenarios", str(tmp_path / "scenarios.yaml"), *log
    )
    access = {"FAKECLOUD_URL": ready["url"], "FAKECLOUD_TOKEN": "t"}

    async def create() -> str:
        async with aiohttp.ClientSession() as session:
            api = Api(session, ready["url"], "t")
            server = {"id": "node-1", "name": NASTY, "addresses": ["127.0.0.1"]}
            assert (await api.call("POST", "/v1/servers", server)).status == 201
            fault = {
                "id": "f",
                "match": {"path": NASTY, "owner": NASTY},
                "effect": {"kind": "action", "outcome": "error"},
            }
            assert (await api.call("POST", "/v1/faults", fault)).status == 201
            assert (await api.call("GET", f"{LBS}/{NASTY}")).status == 404
            return str((await api.create(name=NASTY, uid=NASTY, cluster=NASTY))["id"])

    name = asyncio.run(create())
    shown = [
        run_fakecloud(*arguments, **access)
        for arguments in (
            ["lb", "list"],
            ["lb", "show", name],
            ["lb", "show", NASTY],
            ["lb", "delete", NASTY],
            ["server", "list"],
            ["server", "add", "node-2", NASTY],
            ["fault", "list"],
            ["fault", "scenarios"],
            ["fault", "apply", NASTY],
            ["fault", "add", "outage", f"answer={NASTY}"],
            ["journal", "list"],
            ["journal", "counts"],
            ["verify", "--applied"],
            ["lb", "list", "-o", "json"],
            ["fault", "scenarios", "-o", "json"],
        )
    ]
    _, out, err = process.end()
    texts = [*(one.stdout + one.stderr for one in shown), out, err]
    assert [text for text in texts if not text.replace("\n", "").isprintable()] == []
    assert "\\x1b[31mred\\x1b[2J" in shown[0].stdout
    assert [line for text in texts for line in text.splitlines() if line.startswith("next")] == []
