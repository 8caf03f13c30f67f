"""
The hosts of the lab and how they are wired, as text for iproute2 and nft.

All hosts but the pods are on one LAN, whose bridge is in a namespace of its own, so nothing of the lab is visible on this
machine but the names of its namespaces. Two pods are behind each node: one that serves and one that is a client.

    client ---+--- balancer (a cloud that opens connections of its own)
              +--- router (a cloud that keeps the destination)
              +--- node1 --- server1, caller1
              +--- node2 --- server2, caller2
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

NODES: Final = ("node1", "node2")
CLOUDS: Final = ("balancer", "router")
CLIENT: Final = "client"
PODS: Final = tuple(f"{kind}{number}" for number in (1, 2) for kind in ("server", "caller"))
LAN: Final = "lan"
HOSTS: Final = (LAN, CLIENT, *CLOUDS, *NODES, *PODS)

POD_NETWORKS: Final = ("10.244.0.0/16", "fd00:244::/32")
SERVICE_NETWORKS: Final = ("10.96.0.0/16", "fd00:96::/112")
# What each cloud gives out: documentation addresses, which the clients reach through it alone.
POOLS: Final = {
    "balancer": ("203.0.113.0/25", "2001:db8:f:1::/112"),
    "router": ("203.0.113.128/25", "2001:db8:f:2::/112"),
}
_ON_LAN: Final = {CLIENT: 50, "balancer": 20, "router": 21, "node1": 11, "node2": 12}
_SECOND_CLIENT: Final = 51


def lan_addresses(host: str) -> tuple[str, str]:
    """(IPv4, IPv6) of a host on the LAN."""
    return f"172.30.0.{_ON_LAN[host]}", f"fd00:30::{_ON_LAN[host]}"


def second_client_addresses() -> tuple[str, str]:
    """Other addresses of the same client, for source ranges and affinity."""
    return f"172.30.0.{_SECOND_CLIENT}", f"fd00:30::{_SECOND_CLIENT}"


def pod_addresses(pod: str) -> tuple[str, str]:
    """(IPv4, IPv6) of server1, caller2, ..."""
    number, subnet = pod[-1], _subnet(pod)
    return f"10.244.{number}.{subnet * 64 + 2}", f"fd00:244:{number}:{subnet + 1}::2"


def node_of(pod: str) -> str:
    """The node that a pod is on."""
    return f"node{pod[-1]}"


def bridge(name_of: Mapping[str, str], members: Iterable[str] = tuple(_ON_LAN)) -> Iterator[str]:
    """Lines for `ip -batch -` on the LAN itself, which come first; `name_of` has the namespaces' names."""
    yield "link add br0 type bridge"
    yield "link set br0 up"
    for member in members:
        yield f"link add {member} type veth peer name eth0 netns {name_of[member]}"
        yield f"link set {member} master br0 up"


def lan_links(host: str) -> Iterator[str]:
    """Lines for a host on the LAN."""
    addresses = [*lan_addresses(host), *(second_client_addresses() if host == CLIENT else ())]
    for address in addresses:
        # IPv6 would prefer the address that came last, unless that is deprecated.
        flags = f" nodad preferred_lft {0 if address in second_client_addresses() else 'forever'}"
        yield f"addr add {address}/64 dev eth0{flags}" if ":" in address else f"addr add {address}/24 dev eth0"
    yield "link set eth0 up"
    for cloud, networks in POOLS.items():
        if cloud != host:
            for network, gateway in zip(networks, lan_addresses(cloud), strict=True):
                yield f"route add {network} via {gateway}"
    if host in NODES:
        (other,) = set(NODES) - {host}
        for pod in PODS:
            if node_of(pod) == other:
                for address, gateway in zip(pod_addresses(pod), lan_addresses(other), strict=True):
                    yield f"route add {address} via {gateway}"


def pod_links(pod: str, name_of: Mapping[str, str]) -> Iterator[str]:
    """Lines for a pod."""
    yield f"link add eth0 type veth peer name {pod} netns {name_of[node_of(pod)]}"
    for address, gateway in zip(pod_addresses(pod), _gateways(pod), strict=True):
        flag = " nodad" if ":" in address else ""
        yield f"addr add {address}/{64 if ':' in address else 26} dev eth0{flag}"
        yield "link set eth0 up"
        yield f"route add default via {gateway}"


def node_side(pod: str) -> Iterator[str]:
    """Lines for the pod's node, after the pod's own."""
    v4, v6 = _gateways(pod)
    yield f"addr add {v4}/26 dev {pod}"
    yield f"addr add {v6}/64 dev {pod} nodad"
    yield f"link set {pod} up"


def network_plugin(node: str) -> str:
    """What a network plug-in does for pods that speak to somebody outside of the cluster: they get the node's address. For nft."""
    v4, v6 = POD_NETWORKS
    return f"""
    table inet network-plugin {{
      chain postrouting {{
        type nat hook postrouting priority srcnat + 10;
        oifname "eth0" ip saddr {v4} ip daddr != {v4} masquerade
        oifname "eth0" ip6 saddr {v6} ip6 daddr != {v6} masquerade
      }}
    }}
    """


def _subnet(pod: str) -> int:
    return 0 if pod.startswith("server") else 1


def _gateways(pod: str) -> tuple[str, str]:
    number, subnet = pod[-1], _subnet(pod)
    return f"10.244.{number}.{subnet * 64 + 1}", f"fd00:244:{number}:{subnet + 1}::1"
