"""The controller's container as the Dockerfile and the Deployment make it, on this machine."""

import compileall
import dataclasses
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tests.harness import container

ROOT = Path(__file__).parents[2]
DEPLOYMENT = ROOT / "manifests" / "base" / "deployment.yaml"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass(frozen=True)
class Mounts:
    """What a cluster adds to the image: files by their path inside, variables, and folders that change, as a Secret's does."""

    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    folders: Sequence[Path] = ()


def command(*arguments: str, mounts: Mounts = Mounts()) -> Sequence[str]:
    """
    The command line of `ccm-lb` with these arguments in the image's container.

    Of the machine's files it sees those that an argument names (`--flag=PATH`) and those of `mounts`, each as it is when the process
    starts.
    """
    named = [path for path in (one.partition("=")[2] for one in arguments) if path.startswith("/")]
    spec = {
        **_container(),
        "environment": {**_container()["environment"], **mounts.environment},
        "folders": [*_container()["folders"], *map(str, mounts.folders)],
        "files": {
            **{path: path for path in named if Path(path).is_file()},
            **{target: str(source) for target, source in mounts.files.items()},
        },
    }
    return [
        sys.executable,
        "-I",
        "-S",
        container.__file__,
        json.dumps(spec),
        sys.executable,
        "-m",
        "ccm_lb",
        *arguments,
    ]


def arguments() -> list[str]:
    """The Deployment's."""
    (ours,) = yaml.safe_load(DEPLOYMENT.read_text())["spec"]["template"]["spec"]["containers"]
    return list(ours["args"])


@functools.cache
def _container() -> container.Spec:
    # As in the image nobody can write there, and each start would compile it again.
    compileall.compile_dir(ROOT / "ccm_lb", quiet=2)
    image = _image_environment()
    pod = yaml.safe_load(DEPLOYMENT.read_text())["spec"]["template"]["spec"]
    (ours,) = pod["containers"]
    volatile = {one["name"] for one in pod["volumes"] if "emptyDir" in one}
    prefixes = dict.fromkeys([sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)])
    return {
        "uid": pod["securityContext"]["runAsUser"],
        "environment": {**image, **{one["name"]: one["value"] for one in ours.get("env", [])}},
        "root": None,
        "folders": [*(one for one in prefixes if not one.startswith("/usr")), str(ROOT / "ccm_lb")],
        "files": {},
        "scratch": [one["mountPath"] for one in ours["volumeMounts"] if one["name"] in volatile],
    }


def _image_environment() -> dict[str, str]:
    """What the Dockerfile sets for the last of its images, with this machine's folder in the place of the image's."""
    stages: dict[str, dict[str, str]] = {}
    told: dict[str, str] = {}
    for words in map(str.split, (ROOT / "Dockerfile").read_text().splitlines()):
        if words[:1] == ["FROM"]:
            told = stages[words[-1]] = dict(stages.get(words[1], {}))
        elif words[:1] == ["ENV"]:
            told.update({name: value for name, _, value in (word.partition("=") for word in words[1:])})
    return {**told, "PATH": f"{sys.prefix}/bin:{_SYSTEM_PATH}"}
