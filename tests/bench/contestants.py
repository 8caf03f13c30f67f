"""The controllers that are measured, each started the same way: against the same API server, with a cloud that answers at once."""

import dataclasses
import difflib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane.server import free_ports

_DIST_INFO = "bench_clouds-0.dist-info"


CATALOGUE: Mapping[str, str] = {
    "go": "the Go service controller, its defaults (1 worker, 20 requests/s)",
    "go-64": "the Go service controller, 64 workers, no limit",
    "ccm-lb": "ccm-lb, its defaults, with a cloud that answers at once",
    "ccm-lb-fakecloud": "ccm-lb, its defaults, with fakecloud over HTTP",
}
"""Every contestant in the order of play, and what it is."""


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A command and its environment."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


def needs_peer(name: str) -> bool:
    """Whether the Go controller has to be built for it."""
    return name.startswith("go")


def needs_fakecloud(name: str) -> bool:
    return name == "ccm-lb-fakecloud"


def made(name: str, kubeconfig: Path, *, peer: Path | None, cloud_config: Path | None) -> Contestant:
    """One of the catalogue; the Go controller needs its binary, fakecloud's backend its settings."""
    if needs_peer(name):
        assert peer is not None
        unlimited = ("--concurrent-service-syncs=64", "--kube-api-qps=100000", "--kube-api-burst=100000")
        return upstream(name, peer, kubeconfig, *(unlimited if name == "go-64" else ()))
    if needs_fakecloud(name):
        flags = ("--cloud-provider=fakecloud", f"--cloud-config={cloud_config}", "--allow-addresses=loopback")
        return ccm_lb(name, kubeconfig, *flags)
    return ccm_lb(name, kubeconfig, "--cloud-provider=instant")


def unknown(names: Sequence[str]) -> str:
    """What is wrong with the first of `names` that is not in the catalogue, with its neighbours; empty if all are."""
    for name in names:
        if name not in CATALOGUE:
            near = difflib.get_close_matches(name, CATALOGUE, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of: {', '.join(CATALOGUE)}"
            return f"no contestant {name!r}, {hint}"
    return ""


def ccm_lb(name: str, kubeconfig: Path, *flags: str) -> Contestant:
    """This product with these flags."""
    command = [
        sys.executable,
        "-m",
        "ccm_lb",
        "run",
        f"--kubeconfig={kubeconfig}",
        "--port=0",
        "--leader-elect=false",
        *flags,
    ]
    return Contestant(name, command, {"PYTHONPATH": str(_entry_point())})


def upstream(name: str, binary: Path, kubeconfig: Path, *flags: str) -> Contestant:
    """The Go service controller in front of its scripted cloud."""
    command = [
        *(
            str(binary),
            f"--kubeconfig={kubeconfig}",
            "--cloud-provider=peer",
            "--leader-elect=false",
            "--secure-port=0",
        ),
        *(
            "--controllers=service-lb-controller",
            "--configure-cloud-routes=false",
            "--authentication-skip-lookup",
            *flags,
        ),
    ]
    (port,) = free_ports(1)
    return Contestant(name, command, {"PEER_CONTROL": f"127.0.0.1:{port}"})


def _entry_point() -> Path:
    """A folder that makes `--cloud-provider=instant` known to a process that has it in its PYTHONPATH."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    (folder / _DIST_INFO).mkdir()
    (folder / _DIST_INFO / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-clouds\nVersion: 0\n")
    entry_point = "[ccm_lb.backends]\ninstant = tests.bench.instant_cloud:InstantCloud\n"
    (folder / _DIST_INFO / "entry_points.txt").write_text(entry_point)
    return folder


def environment_of(contestant: Contestant) -> dict[str, str]:
    """Its own variables on top of this process's."""
    return {**os.environ, **contestant.environment}
