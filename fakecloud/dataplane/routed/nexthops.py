"""Nodes as next hops that a packet's mark names: for each one a rule and a routing table of its own."""

from collections.abc import Collection, Mapping

from fakecloud.dataplane.netlink import Netlink, NetlinkError

# Marks are also the tables' numbers. The mask leaves out the two bits in which kube-proxy marks packets on the same machine.
MASK = 0xFFFF3FFF
_FIRST = 0x46430001
_LAST = 0x46433FFF


class NextHops:
    """Marks by the nodes' addresses; one keeps its mark until it is dropped, for connections that go on when it is no target."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._marks: dict[str, int] = {}

    @property
    def known(self) -> Mapping[str, int]:
        """Marks by the addresses of the nodes that have one."""
        return self._marks

    def mark_of(self, node: str) -> int:
        """Packets with this mark go to the node. Raises NetlinkError."""
        known = self._marks.get(node)
        if known is not None:
            return known
        taken = set(self._marks.values())
        mark = next((number for number in range(_FIRST, _LAST + 1) if number not in taken), None)
        if mark is None:
            raise NetlinkError(f"can't route packets to {node}: there are {len(taken)} nodes already")
        self._netlink.steer(mark, MASK, node)
        self._marks[node] = mark
        return mark

    def keep(self, nodes: Collection[str]) -> None:
        """Drop all others. Raises NetlinkError."""
        for node in self._marks.keys() - set(nodes):
            self._netlink.unsteer(self._marks.pop(node), MASK, node)
