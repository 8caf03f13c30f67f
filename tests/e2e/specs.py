"""The tests of e2e.test, by their names: which there are, and what became of each."""

import asyncio
import dataclasses
import re
import signal
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.packets.netns import Namespace

# Those of load balancers, and the neighbours that use the type LoadBalancer.
FOCUS: Final = (
    "LoadBalancers|should complete a service status lifecycle"
    "|should fail health check node port if there are only terminating endpoints"
)
ROLLING: Final = "rolling update"  # ten minutes each
# A cloud that opens connections of its own needs the node ports, and says so in an event.
NEEDS_DIRECT: Final = "without NodePort"
LIMIT: Final = 300.0  # seconds for one
ROLLING_LIMIT: Final = 840.0
AT_ONCE: Final = 3
_GRACE: Final = 60.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one test: passed, failed or skipped (by itself), with what it said."""

    name: str
    verdict: str
    seconds: float
    said: str = ""


@dataclasses.dataclass(frozen=True)
class Runner:
    """e2e.test with a cluster admin's kubeconfig, on the network of `host`."""

    program: Path
    kubectl: Path
    kubeconfig: Path
    host: Namespace
    directory: Path

    async def listed(self) -> list[str]:
        """The names of all that FOCUS matches."""
        found = await self._run("list", ["--ginkgo.dry-run", f"--ginkgo.focus={FOCUS}"], LIMIT)
        return sorted(one.name for one in found if one.verdict != "skipped")

    async def play(self, names: Sequence[str]) -> list[Outcome]:
        """Each of them, some side by side."""
        side_by_side = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, name: str) -> Outcome:
            async with side_by_side:
                limit = ROLLING_LIMIT if ROLLING in name else LIMIT
                flags = [f"--ginkgo.focus={_quoted(name)}", f"--ginkgo.timeout={limit:g}s"]
                found = [each for each in await self._run(f"{number}", flags, limit + _GRACE) if each.name == name]
                outcome = found[0] if found else Outcome(name, "failed", limit, "it left no report")
                print(f"e2e: {outcome.verdict} after {outcome.seconds:.0f} s: {bare(name)}", flush=True)
                return outcome

        return list(await asyncio.gather(*(one(number, name) for number, name in enumerate(names))))

    async def _run(self, name: str, flags: Sequence[str], limit: float) -> list[Outcome]:
        reports = self.directory / name
        reports.mkdir(parents=True)
        command = [
            str(self.program),
            "--provider=skeleton",
            f"--kubeconfig={self.kubeconfig}",
            f"--kubectl-path={self.kubectl}",
            f"--report-dir={reports}",
            "--ginkgo.v",
            "--ginkgo.no-color",
            "--ginkgo.grace-period=20s",
            *flags,
        ]
        environment = {"PATH": f"{self.kubectl.parent}:/usr/bin:/bin", "HOME": str(reports)}
        with (self.directory / f"{name}.log").open("wb") as log, self.host.entered():
            running = subprocess.Popen(  # noqa: ASYNC220 - it is only started here, in the namespace of this thread
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            async with asyncio.timeout(limit):
                while running.poll() is None:
                    await asyncio.sleep(0.2)
        except TimeoutError:
            running.send_signal(signal.SIGKILL)
        finally:
            if running.poll() is None:
                running.kill()
            running.wait()
        return [one for file in sorted(reports.glob("junit*.xml")) for one in _outcomes(file)]


def _outcomes(report: Path) -> list[Outcome]:
    # Our own program wrote it.
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314
    return [_outcome(case.attrib, case) for case in cases if case.attrib["name"].startswith("[It]")]


def _outcome(told: Mapping[str, str], case: ET.Element) -> Outcome:
    told_why = [one for kind in ("failure", "error", "skipped") for one in case.iter(kind)]
    complaint = (told_why[0].get("message") or told_why[0].text or "") if told_why else ""
    verdict = told["status"] if told["status"] in ("passed", "skipped") else "failed"
    return Outcome(told["name"], verdict, float(told["time"]), " ".join(complaint.split())[:300])


def bare(name: str) -> str:
    """Without the kind of node, the group and the labels, for people."""
    return re.sub(r"\[[^\]]*\] ?", "", name).strip()


def _quoted(name: str) -> str:
    """A regular expression of Go's for this name alone; re.escape would escape spaces too, which Go refuses."""
    return re.sub(r"([][(){}.*+?^$|\\])", r"\\\1", name.removeprefix("[It] ")) + "$"
