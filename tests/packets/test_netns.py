"""The namespaces of the lab: whose they are, and that a run that was killed leaves none for long."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.packets import netns

pytestmark = pytest.mark.usefixtures("root")
RUN = Path("/run/netns")
MAKE_ONE_AND_DIE = """
import os, signal
from tests.packets import netns
print(netns.create(["lost"])["lost"].name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_is_swept_and_what_a_living_one_has_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", MAKE_ONE_AND_DIE], capture_output=True, text=True, check=False)
    lost = done.stdout.strip()
    mine = netns.create(["kept"])["kept"]
    try:
        assert (RUN / lost).exists()
        assert lost in netns.sweep()
        assert not (RUN / lost).exists()
        assert (RUN / mine.name).exists()
    finally:
        mine.remove()
    assert not (RUN / mine.name).exists()


def test_a_process_that_was_given_a_dead_runs_id_does_not_protect_what_that_left() -> None:
    reused = f"{netns.PREFIX}-1-0-node1"  # process 1 did not start at tick 0
    foreign = ["lab", "ccmlb-x-y-z", "ccmlb-1-2", "other-1-0-node1"]
    assert netns.stale([reused, f"{netns.run_name()}-node1", *foreign]) == [reused]


def test_a_socket_made_in_a_namespace_stays_there_and_the_thread_comes_back() -> None:
    here = Path("/proc/thread-self/ns/net")
    home = here.readlink()
    host = netns.create(["alone"])["alone"]
    try:
        with host.bound("127.0.0.1", 1) as listening:
            listening.listen()
            assert here.readlink() == home
            assert "127.0.0.1:1 " in host.run("ss", "-ltnH")
    finally:
        host.remove()


def test_a_connection_that_needs_a_second_packet_is_counted_as_one_that_lost_its_first() -> None:
    host = netns.create(["deaf"])["deaf"]
    try:
        assert host.lost_first_packets() == 0
        nobody = "neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev here"
        lines = (
            "link add here up type veth peer name there",
            "link set there up",
            "addr add 192.0.2.1/24 dev here",
            nobody,
        )
        host.run("ip", "-batch", "-", text="\n".join(lines))
        with host.open_socket("192.0.2.2") as connecting:
            connecting.connect_ex(("192.0.2.2", 1))
            until = time.monotonic() + 30
            while host.lost_first_packets() == 0:
                assert time.monotonic() < until
                time.sleep(0.05)
    finally:
        host.remove()
