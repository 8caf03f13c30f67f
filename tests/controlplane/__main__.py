"""`python -m tests.controlplane build|up`."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.controlplane import build, recipes
from tests.controlplane.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when done, 2 for a version or name that can't be understood, 1 for everything else."""
    options = _parser().parse_args(arguments)
    progress = Progress()
    try:
        version = recipes.checked_version(options.version)
        names = list(recipes.CONTROL_PLANE) if options.action == "up" else options.only.split(",")
        binaries = build.ensure_binaries(names, version, progress)
        if options.action == "up":
            asyncio.run(_up(binaries, options.directory))
        else:
            for name in names:
                print(binaries[name])
    except recipes.UsageError as error:
        print(f"controlplane: {error}", file=sys.stderr)
        return 2
    except recipes.BuildError as error:
        print(f"controlplane: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "controlplane: stopped; what was built so far is kept by Go and the next run goes on from there",
            file=sys.stderr,
        )
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.controlplane", description="A genuine kube-apiserver and etcd."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    default = os.environ.get("KUBE_VERSION") or recipes.default_kube_version()
    make = actions.add_parser("build", help="build the binaries that are not in the cache and print their paths")
    make.add_argument(
        "--only", default=",".join(recipes.DEFAULT_NAMES), help="names, separated by commas (default: %(default)s)"
    )
    run = actions.add_parser("up", help="build if needed, run until Ctrl-C, print the kubeconfig's path")
    run.add_argument(
        "--directory", type=Path, help="where data, logs and the kubeconfig are kept (default: a temporary folder)"
    )
    for action in (make, run):
        action.add_argument(
            "--version", default=default, help="Kubernetes version (default: $KUBE_VERSION or %(default)s)"
        )
    return parser


async def _up(binaries: dict[str, Path], directory: Path | None) -> None:
    from tests.controlplane.server import ControlPlane  # aiohttp is not needed to build

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with ControlPlane(binaries, directory=directory) as plane:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        await ended.wait()


if __name__ == "__main__":
    sys.exit(main())
