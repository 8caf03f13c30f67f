"""`ccm-lb ...` as a process of its own, as somebody types it."""

import asyncio
import os
import sys


async def run(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ccm_lb", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment(),
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


def environment() -> dict[str, str]:
    """This process's, without what would be taken for settings."""
    return {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "NO_COLOR")}
