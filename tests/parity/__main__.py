"""`python -m tests.parity table|random`: play, and print what differs."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.controlplane import build, recipes
from tests.parity import divergences, play, randomly, sequences


def binaries() -> dict[str, Path]:
    version = recipes.checked_version(os.environ.get("KUBE_VERSION") or recipes.default_kube_version())
    return build.find_binaries([*recipes.CONTROL_PLANE, *recipes.PEERS], version)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parity")
    actions = parser.add_subparsers(dest="action", required=True)
    table = actions.add_parser("table", help="the scenarios, and every difference")
    table.add_argument("--only", default="", metavar="TEXT", help="scenarios whose names hold this")
    table.add_argument(
        "--write", action="store_true", help="rewrite the table of docs/divergences.md; new rows have no reason"
    )
    chance = actions.add_parser("random", help="random sequences, and those that fail, made short")
    chance.add_argument("--seed", type=int, default=1)
    chance.add_argument("--sequences", type=int, default=300)
    chance.add_argument("--one", default="", metavar="NAME", help="only this sequence of the seed, alone")
    options = parser.parse_args()
    if options.action == "random":
        return asyncio.run(_random(options.seed, options.sequences, options.one))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        results = asyncio.run(play.table(binaries(), Path(folder), options.only))
        if os.environ.get("PARITY_LOGS"):
            for log in Path(folder).glob("*.log"):
                (Path(os.environ["PARITY_LOGS"]) / log.name).write_text(log.read_text())
    equal, every = 0, []
    for name, sides in results.items():
        found = play.differences(name, sides)
        equal += not found
        every += found
        for one in found:
            print(f"{one.scenario} | {one.step} | {one.field}\n    theirs {one.theirs}\n    ours   {one.ours}")
        if wrong := play.wrong(name, sides):
            print(f"{name}: OURS IS WRONG: {wrong}")
    if options.write:
        divergences.PAGE.write_text(divergences.rewritten(divergences.read(), every))
    print(f"{equal} of {len(results)} scenarios are equal; {time.monotonic() - began:.0f} s")
    return 0


async def _random(seed: int, count: int, one: str) -> int:
    failed = wrong = 0
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        async with randomly.both(binaries(), Path(folder)) as pair:
            for number in range(0, count, randomly.BATCH):
                many = sequences.made(seed + number // randomly.BATCH, min(randomly.BATCH, count - number))
                many = [each for each in many if one in ("", each.name)]
                outcomes = await randomly.played(pair, many) if many else []
                wrong += sum(1 for each in outcomes if each.theirs.faults)
                for each in outcomes:
                    if each.failed:
                        failed += 1
                        print(each, "\nmade short:", await randomly.shortened(pair, each), flush=True)
                print(f"{number + len(many)} played: ours failed in {failed}, theirs is wrong in {wrong}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
