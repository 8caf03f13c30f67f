"""Listening sockets, and what to do when one can't be had."""

import contextlib
import errno
import os
import resource
import socket
import struct
from pathlib import Path
from typing import Any

_BACKLOG = 4096
_DATAGRAM_BUFFER = 4 * 2**20
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


class BindError(Exception):
    """An address and port can't be listened on; the message says why and what helps."""


def listen(address: str, port: int) -> socket.socket:
    """A socket that clients can connect to at once. Raises BindError."""
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it: a client that vanished without a word is noticed some day.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # This they inherit too: what is passed on has waited for its other bytes already, where it comes from.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setblocking(False)
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise BindError(_explanation(error, address, port)) from error
    return listening


def connect(endpoint: tuple[str, int]) -> socket.socket:
    """A connection that is under way; its error, if it comes at once, is raised as OSError."""
    family = socket.AF_INET6 if ":" in endpoint[0] else socket.AF_INET
    connecting = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    error = connecting.connect_ex(endpoint)
    if error not in {0, errno.EINPROGRESS}:
        connecting.close()
        raise OSError(error, os.strerror(error))
    return connecting


def bind_datagrams(address: str, port: int) -> socket.socket:
    """A UDP socket that clients can send to at once. Raises BindError."""
    bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        # Bursts wait in the kernel; it gives what its limit allows.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _DATAGRAM_BUFFER)
        bound.bind((address, port))
    except OSError as error:
        bound.close()
        raise BindError(_explanation(error, address, port)) from error
    return bound


def connect_datagrams(endpoint: tuple[str, int]) -> socket.socket:
    """A UDP socket for one peer alone. Raises OSError."""
    connected = socket.socket(socket.AF_INET6 if ":" in endpoint[0] else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        connected.setblocking(False)
        connected.connect(endpoint)
    except OSError:
        connected.close()
        raise
    return connected


def reset(transport: Any) -> None:
    """Close a connection so that the other side sees a reset instead of a regular end."""
    # Already gone is as good as reset.
    with contextlib.suppress(OSError, ValueError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


def exhausted(address: str, port: int) -> str:
    """Why there can't be one listener more, and what helps."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"port {port} on {address}: all file descriptors for listeners are taken, of {most} that this process may have. "
        "Allow it more: ulimit -n, or LimitNOFILE= of its systemd unit"
    )


def _explanation(error: OSError, address: str, port: int) -> str:
    where = f"port {port} on {address}"
    if error.errno == errno.EACCES:
        return (
            f"{where} needs a right: ports under {_first_unprivileged_port()} are privileged here. Use a higher port, "
            f"or allow it for everyone: sysctl -w net.ipv4.ip_unprivileged_port_start={port}"
        )
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return exhausted(address, port)
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process of this machine (ss -ltunp 'sport = :{port}' names it)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: the address does not belong to this machine"
    return f"{where}: {error.strerror}"


def _first_unprivileged_port() -> str:
    try:
        return _UNPRIVILEGED.read_text().strip()
    except OSError:
        return "1024"
