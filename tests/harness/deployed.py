"""What a kubelet does for the one Deployment of a test: processes that follow its command and args."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from tests.controlplane.kube import Kube
from tests.controlplane.process import Process

Json = dict[str, Any]
DEPLOYMENTS = "apps/v1/deployments"


@contextlib.asynccontextmanager
async def running(
    kube: Kube, name: str, programs: Mapping[str, list[str]], directory: Path, more: list[str]
) -> AsyncIterator[list[Process]]:
    """
    Keep one process for the Deployment `name` of kube-system, as a rolling update does: the new one starts, then the old one is ended.

    `programs` says what the first word of a command is here, `more` what this machine needs besides the args. The list has every process
    so far, the running one last.
    """
    processes: list[Process] = []

    async def follow() -> None:
        command: list[str] | None = None
        while True:
            found = await kube.find(DEPLOYMENTS, name, "kube-system")
            container = found["spec"]["template"]["spec"]["containers"][0] if found else None
            wanted = [*container["command"], *container["args"]] if container else None
            if wanted is not None and wanted != command:
                command, log = wanted, directory / f"{name}-{len(processes)}.log"
                process = Process(wanted[0], [*programs[wanted[0]], *wanted[1:], *more], log)
                process.start()
                processes.append(process)
                for old in processes[:-1]:
                    await old.stop(grace=30.0)
            assert not processes or processes[-1].pid is not None, processes[-1].last_words()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(follow())
    try:
        yield processes
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, AssertionError):
            await task
        for process in processes:
            await process.stop()
