"""Opens one connection to a load balancer's address and asks this machine's kernel what it did with it. Changes nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from ccm_lb.dataplane.clients import conntrack
from ccm_lb.dataplane.clients.conntrack import Connection, Probed

TABLE = Path("/proc/net/nf_conntrack")
TIMEOUT = 5.0  # seconds for the connection, and for each command


async def probe(address: str, port: int, node_addresses: Sequence[str] | None, *, table: Path = TABLE) -> Probed:
    """
    Whether this machine short-cuts the address. `node_addresses` are the cluster's nodes', None if they are not known.

    The connection is held open while the kernel's table is read, and no byte is sent through it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        async with asyncio.timeout(TIMEOUT):
            _, writer = await asyncio.open_connection(address, port, family=family)
    except (OSError, TimeoutError) as error:
        route = await _output("ip", "route", "get", address)
        return conntrack.unanswered(address, port, route, str(error) or "no answer")
    try:
        source, source_port, *_ = writer.get_extra_info("sockname")
        connection = Connection(source, source_port, address, port)
        own = await _output("ip", "-o", "address", "show")
        on_a_node = conntrack.is_a_nodes(_addresses(own or ""), node_addresses) if node_addresses is not None else None
        found = await asyncio.to_thread(_read, table)
        if found is None:
            found = await _output("conntrack", "-L", "-p", "tcp", "--dport", str(port))
        return conntrack.judge(connection, found, await _output("ip", "route", "get", address), on_a_node=on_a_node)
    finally:
        writer.close()


def _addresses(output: str) -> list[str]:
    """Of `ip -o address show`: `2: eth0    inet 192.0.2.11/24 ...`."""
    words = [line.split() for line in output.splitlines()]
    return [one[3].partition("/")[0] for one in words if len(one) > 3 and one[2].startswith("inet")]


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


async def _output(*command: str) -> str | None:
    """What a command prints; None where it is missing or fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(TIMEOUT):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return printed.decode(errors="replace") if process.returncode == 0 else None
