"""`python -m tests.bench`, as a user runs it, with few Services."""

import asyncio
import json
import subprocess
import sys


async def test_each_result_comes_as_soon_as_its_contestant_has_played() -> None:
    flags = ("--services=3", "--only=ccm-lb-fakecloud", "--only=ccm-lb", "--output=json")
    command = [sys.executable, "-m", "tests.bench", *flags]
    ended = await asyncio.to_thread(
        subprocess.run, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stdout
    lines = ended.stdout.splitlines()
    results = {number: json.loads(line) for number, line in enumerate(lines) if line.startswith("{")}
    first, second = results
    assert [one["name"] for one in results.values()] == ["ccm-lb", "ccm-lb-fakecloud"]
    assert all(one["services"] == 3 and one["seconds"] > 0 for one in results.values())
    steps = [number for number, line in enumerate(lines) if "ccm-lb-fakecloud: creating 3 Services" in line]
    assert first < steps[0] < second
    assert not any("Go" in line or "peer" in line for line in lines), "what does not play is not built"
