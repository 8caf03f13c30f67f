"""Addresses and routes of this machine's network namespace, by rtnetlink."""

import errno
import importlib
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_NO_DAD = 0x02
# Before the rule of the main table (32766).
_PRIORITY = 20_643


class NetlinkError(Exception):
    """The kernel refused; the message says what was asked, why it was refused, and what helps."""


class Netlink:
    """
    One socket in a thread of its own: pyroute2 runs an event loop that must not meet ours.

    Calls block for well under a millisecond. Every change may be repeated: what is there already, or gone, is fine.
    """

    def __init__(self, interface: str) -> None:
        """Raises NetlinkError when pyroute2 is not installed, or there is no such interface."""
        try:
            self._pyroute2: Any = importlib.import_module("pyroute2")
        except ImportError as error:
            raise NetlinkError("--addresses interface needs the package pyroute2: pip install pyroute2") from error
        self._interface = interface
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="netlink")
        self._socket: Any = self._thread.submit(self._pyroute2.IPRoute).result()
        found = self._thread.submit(lambda: self._socket.link_lookup(ifname=interface)).result()
        if not found:
            self.close()
            raise NetlinkError(f"--interface {interface}: there is no such interface; ip link lists them")
        self._index = found[0]

    def add_address(self, address: str) -> None:
        """Raises NetlinkError."""
        # Without duplicate address detection, or an IPv6 address could not be listened on for a second.
        flags = {"flags": _NO_DAD} if ":" in address else {}
        self._change(f"add {address} to {self._interface}", "addr", "add", (errno.EEXIST,), **_own(address), **flags,
                     index=self._index)  # fmt: skip

    def remove_address(self, address: str) -> None:
        """Raises NetlinkError."""
        gone = (errno.EADDRNOTAVAIL, errno.ESRCH)
        self._change(f"remove {address}", "addr", "del", gone, **_own(address), index=self._index)

    def route(self, address: str, gateways: Sequence[tuple[str, int]]) -> None:
        """Send packets for an address to one of the gateways, each with its weight. Raises NetlinkError."""
        hops = [{"gateway": gateway, "hops": min(weight, 256) - 1} for gateway, weight in gateways]
        where = {"multipath": hops} if len(hops) > 1 else {"gateway": hops[0]["gateway"]} if hops else {}
        kind = {} if hops else {"type": "unreachable"}
        self._change(f"route {address}", "route", "replace", (), dst=_network(address), **where, **kind,
                     family=_family(address))  # fmt: skip

    def unroute(self, address: str) -> None:
        """Raises NetlinkError."""
        self._change(f"remove the route of {address}", "route", "del", (errno.ESRCH,), dst=_network(address),
                     family=_family(address))  # fmt: skip

    def steer(self, mark: int, mask: int, gateway: str) -> None:
        """Send packets with a mark to the gateway, by a table whose number is the mark. Raises NetlinkError."""
        family = _family(gateway)
        what = f"route packets to {gateway}"
        self._change(what, "route", "replace", (), dst="default", gateway=gateway, table=mark, family=family)
        self._change(what, "rule", "add", (errno.EEXIST,), **_marked(mark, mask), family=family)

    def unsteer(self, mark: int, mask: int, gateway: str) -> None:
        """Raises NetlinkError."""
        family, gone = _family(gateway), (errno.ENOENT, errno.ESRCH)
        self._change(f"remove the rule of {gateway}", "rule", "del", gone, **_marked(mark, mask), family=family)
        self._change(f"remove the route to {gateway}", "route", "del", gone, dst="default", table=mark, family=family)

    def close(self) -> None:
        self._thread.submit(self._socket.close).result()
        self._thread.shutdown()

    def _change(self, what: str, kind: str, verb: str, fine: tuple[int, ...], **arguments: Any) -> None:
        call: Callable[..., Any] = getattr(self._socket, kind)
        try:
            self._thread.submit(lambda: list(call(verb, **arguments))).result()
        except self._pyroute2.NetlinkError as error:
            if error.code in fine:
                return
            if error.code == errno.EPERM:
                reason = "it needs the right NET_ADMIN (root, or the capability in the pod's securityContext)"
            else:
                reason = str(error.args[1] if len(error.args) > 1 else error)
            raise NetlinkError(f"can't {what}: {reason}") from error


def _own(address: str) -> dict[str, Any]:
    return {"address": address, "prefixlen": 128 if ":" in address else 32, "family": _family(address)}


def _marked(mark: int, mask: int) -> dict[str, int]:
    return {"fwmark": mark, "fwmask": mask, "table": mark, "priority": _PRIORITY}


def _network(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
