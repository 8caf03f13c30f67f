"""
fakecloud's data plane beside Debian's HAProxy, in one run: `python -m tests.bench.dataplane [--seconds N] [--rounds N]`.

Both stand before the same nginx and are asked by the same wrk, in turns, so that the ratios mean something on whatever machine
this is. On a machine with few cores the client and nginx take their share of every figure; the CPU time that the proxy itself
took for the same work is therefore printed too. Nothing here fails because a machine is slow.
"""

import contextlib
import dataclasses
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

Endpoint = tuple[str, int]
IDLE = 5000
RESTING = 1000
_TICKS = os.sysconf("SC_CLK_TCK")

NGINX = """
daemon off; master_process off; worker_rlimit_nofile 15000; pid {directory}/nginx.pid; error_log {directory}/error.log;
events {{ worker_connections 12000; }}
http {{
  access_log off; sendfile on; keepalive_requests 1000000000; keepalive_timeout 600;
  client_body_temp_path {directory}/1; proxy_temp_path {directory}/2; fastcgi_temp_path {directory}/3;
  uwsgi_temp_path {directory}/4; scgi_temp_path {directory}/5;
  server {{ listen 127.0.0.1:{port} backlog=4096; root {directory}; location = / {{ return 200 "ok"; }} }}
}}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 6000
defaults
  mode tcp
  option splice-auto
  timeout client 600s
  timeout server 600s
  timeout connect 5s
listen l
  bind 127.0.0.1:{port}
  server s 127.0.0.1:{target}
"""


_SENDER = """
import socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect((sys.argv[1], int(sys.argv[2])))
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    for _ in range(100):
        client.send(b"x" * 64)
"""


@dataclasses.dataclass(frozen=True)
class Proxy:
    name: str
    endpoint: Endpoint
    pid: int

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> float:
        """Resident KiB."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return float(found[1])


@dataclasses.dataclass(frozen=True)
class Figure:
    """Work in a second of time, and in a second of the proxy's CPU."""

    rate: float
    per_cpu: float


@dataclasses.dataclass(frozen=True)
class Row:
    what: str
    fakecloud: str
    haproxy: str
    ratio: str
    wanted: str


@click.command()
@click.option("--seconds", default=5, show_default=True, help="how long each measurement takes; wrk knows whole ones")
@click.option("--rounds", default=3, show_default=True, help="how often each is made; the median counts")
def main(*, seconds: int, rounds: int) -> None:
    """Print what fakecloud's data plane carries, beside HAProxy."""
    missing = [name for name in ("haproxy", "nginx", "wrk") if _program(name) is None]
    if missing:
        raise click.ClickException(f"not installed: {', '.join(missing)}; apt-get install {' '.join(missing)}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as running:
        rows = list(_measure(Path(name), running, seconds, rounds))
    click.echo(
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {_version('haproxy')}, median of {rounds} rounds\n"
    )
    click.echo("| | fakecloud | HAProxy | ratio | wanted |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        click.echo(f"| {row.what} | {row.fakecloud} | {row.haproxy} | {row.ratio} | {row.wanted} |")


def _measure(directory: Path, running: contextlib.ExitStack, seconds: int, rounds: int) -> Iterator[Row]:
    target = _free_port()
    (directory / "bulk").write_bytes(bytes(64 * 2**20))
    _start(running, directory, "nginx", NGINX.format(directory=directory, port=target))
    _wait(("127.0.0.1", target))
    cloud = Cloud(directory, running)
    port = _free_port()
    haproxy_pid = _start(running, directory, "haproxy", HAPROXY.format(port=port, target=target))
    _wait(("127.0.0.1", port))
    haproxy = Proxy("HAProxy", ("127.0.0.1", port), haproxy_pid)
    fakecloud = Proxy("fakecloud", cloud.create("bench", "TCP", target), cloud.pid)
    for what, path, header, wanted in (
        ("bulk TCP", "/bulk", None, 0.8),
        ("new connections", "/", "Connection: close", 0.5),
        ("requests over kept connections", "/", None, 0.6),
    ):
        yield _compared(what, path, header, wanted, (fakecloud, haproxy), seconds, rounds)
    yield _datagrams(cloud, seconds)
    yield _idle(fakecloud, haproxy)
    yield _rest(cloud, target, seconds)


def _compared(
    what: str, path: str, header: str | None, wanted: float, proxies: tuple[Proxy, Proxy], seconds: int, rounds: int
) -> Row:
    figures: dict[str, list[Figure]] = {proxy.name: [] for proxy in proxies}
    for _ in range(rounds):
        for proxy in proxies:
            figures[proxy.name].append(_ask(proxy, path, header, seconds))
    ours, theirs = (_median(figures[proxy.name]) for proxy in proxies)
    unit, scale = ("MiB/s", 2**20) if path == "/bulk" else ("/s", 1)

    def shown(figure: Figure) -> str:
        return f"{figure.rate / scale:,.0f} {unit} ({figure.per_cpu / scale:,.0f} by CPU second)"

    ratio = f"{ours.rate / theirs.rate:.2f} ({ours.per_cpu / theirs.per_cpu:.2f} by CPU)"
    return Row(what, shown(ours), shown(theirs), ratio, f"{wanted}")


def _ask(proxy: Proxy, path: str, header: str | None, seconds: int) -> Figure:
    address, port = proxy.endpoint
    connections = "4" if path == "/bulk" else "64"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", f"http://{address}:{port}{path}"]
    before = proxy.cpu()
    told = subprocess.run(command + (["-H", header] if header else []), check=True, capture_output=True, text=True)
    used = max(proxy.cpu() - before, 1 / _TICKS)
    found = re.search(r"(\d+) requests in ([\d.]+)(m?)s, ([\d.]+)([KMGT]?)B read", told.stdout)
    assert found is not None, told.stdout
    took = float(found[2]) * (60 if found[3] else 1)
    size = float(found[4]) * 1024 ** ("KMGT".index(found[5]) + 1 if found[5] else 0)
    work = size if path == "/bulk" else float(found[1])
    return Figure(work / took, work / used)


def _median(figures: list[Figure]) -> Figure:
    return Figure(statistics.median(one.rate for one in figures), statistics.median(one.per_cpu for one in figures))


def _datagrams(cloud: "Cloud", seconds: int) -> Row:
    """64 bytes each, one way: what arrives behind the load balancer while one client sends as fast as it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        receiver.settimeout(1)
        endpoint = cloud.create("udp", "UDP", receiver.getsockname()[1])
        sender_command = [sys.executable, "-c", _SENDER, *map(str, endpoint), str(seconds)]
        arrived = 0
        sender = subprocess.Popen(sender_command)
        try:
            with contextlib.suppress(TimeoutError):
                while receiver.recv(100):
                    arrived += 1
        finally:
            sender.wait()
    return Row("UDP packets one way", f"{arrived / seconds:,.0f} /s", "does not carry UDP", "", "")


def _idle(*proxies: Proxy) -> Row:
    """What 5,000 connections that do nothing cost."""
    shown = []
    for proxy in proxies:
        before = proxy.memory()
        held = [socket.create_connection(proxy.endpoint) for _ in range(IDLE)]
        time.sleep(2)
        shown.append((proxy.memory() - before) / IDLE)
        for one in held:
            one.close()
        time.sleep(1)
    ours, theirs = shown
    return Row(
        f"memory of {IDLE:,} idle connections",
        f"{ours:.1f} KiB each",
        f"{theirs:.1f} KiB each",
        f"{ours / theirs:.2f}",
        "",
    )


def _rest(cloud: "Cloud", target: int, seconds: int) -> Row:
    for number in range(RESTING):
        cloud.create(f"rest-{number}", "TCP", target)
    time.sleep(2)
    proxy = Proxy("fakecloud", ("", 0), cloud.pid)
    before, started = proxy.cpu(), time.monotonic()
    time.sleep(max(seconds, 10.0))
    share = (proxy.cpu() - before) / (time.monotonic() - started)
    return Row(f"CPU at rest with {RESTING:,} load balancers", f"{share:.1%} of one core", "", "", "")


class Cloud:
    """fakecloud as a process."""

    def __init__(self, directory: Path, running: contextlib.ExitStack) -> None:
        ready = directory / "ready.json"
        command = [*(sys.executable, "-m", "fakecloud", "serve", "--port", "0", "--pool", "127.85.0.0/16")]
        process = subprocess.Popen(
            [*command, "--ready-file", str(ready), "--log-level", "error"], stdout=subprocess.DEVNULL
        )
        running.callback(_end, process)
        while not ready.exists():
            if process.poll() is not None:
                raise click.ClickException("fakecloud ended; its words are above")
            time.sleep(0.05)
        self._ready: dict[str, Any] = json.loads(ready.read_text())
        self.pid = process.pid

    def create(self, uid: str, protocol: str, target: int) -> Endpoint:
        body = {
            "name": uid,
            "owner": {"cluster": "bench", "uid": uid},
            "listeners": [{"protocol": protocol, "port": 8080, "targetPort": target}],
            "targets": [{"address": "127.0.0.1"}],
        }
        request = urllib.request.Request(f"{self._ready['url']}/v1/load-balancers", json.dumps(body).encode())  # noqa: S310
        request.add_header("Authorization", f"Bearer {self._ready['token']}")
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - fakecloud's own URL
            return str(json.load(answer)["addresses"][0]["address"]), 8080


def _start(running: contextlib.ExitStack, directory: Path, name: str, configuration: str) -> int:
    file = directory / f"{name}.conf"
    file.write_text(configuration)
    flags = {"nginx": ["-p", str(directory), "-c", str(file)], "haproxy": ["-db", "-f", str(file)]}[name]
    process = subprocess.Popen([str(_program(name)), *flags], stderr=subprocess.DEVNULL)
    running.callback(_end, process)
    return process.pid


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def _wait(endpoint: Endpoint) -> None:
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(endpoint):
            return
        if time.monotonic() > deadline:
            raise click.ClickException(f"nobody listens on {endpoint}")
        time.sleep(0.05)


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _version(name: str) -> str:
    told = subprocess.run([str(_program(name)), "-v"], capture_output=True, text=True, check=True).stdout
    return " ".join(told.split()[:3])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
