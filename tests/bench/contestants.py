"""The controllers that are measured, each started the same way: against the same API server, with a cloud that answers at once."""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane.server import free_ports

_DIST_INFO = "bench_clouds-0.dist-info"


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A command and its environment."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


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
