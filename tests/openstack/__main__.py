"""`python -m tests.openstack build`: the services' packages and first databases, into the cache; `up`: run them until Ctrl-C."""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence

from tests.openstack import environment


def main(arguments: Sequence[str]) -> int:
    """0 when done or when this machine lacks a program (the tests skip then and say so), 2 for what can't be understood."""
    if list(arguments) not in (["build"], ["up"]):
        print("usage: python -m tests.openstack build|up", file=sys.stderr)
        return 2
    if missing := environment.missing():
        print(f"openstack: {', '.join(missing)} not installed; the tests that need them are skipped")
        return 0
    began = time.monotonic()
    with environment.only_builder():
        _build()
    print(f"openstack: {environment.folder()} is there after {time.monotonic() - began:.1f} s")
    if list(arguments) == ["up"]:
        asyncio.run(_up())
    return 0


def _build() -> None:
    environment.install()
    if not environment.snapshot().exists():
        from tests.openstack.cloud import OpenStack

        asyncio.run(OpenStack().make_snapshot())


async def _up() -> None:
    from tests.openstack.cloud import OpenStack

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    began = time.monotonic()
    async with OpenStack() as cloud:
        print(f"openstack: started in {time.monotonic() - began:.1f} s")
        print(f"export OS_CLIENT_CONFIG_FILE={cloud.clouds_yaml} OS_CLOUD=demo", flush=True)
        await ended.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
