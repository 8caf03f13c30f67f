"""What our things are called in the cloud, and by what they are found: tags and descriptions, never names. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from urllib.parse import quote

from ccm_lb.objects import Service

LIMIT = 255  # characters of a name, tag or description
_CLUSTER, _UID = "ccm-lb.dev/cluster=", "ccm-lb.dev/service-uid="


def cut(text: str, limit: int = LIMIT) -> str:
    """The text, or its beginning with a hash of the whole, so that two long ones differ after the cut."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{text[: limit - len(digest) - 1]}-{digest}"


def load_balancer(cluster_id: str, service: Service) -> str:
    """A name for people, unique as long as clusters and Services are."""
    return cut(f"{_plain(cluster_id)}_{service.key.namespace}_{service.key.name}_{service.uid[:8]}")


def tags(cluster_id: str, uid: str) -> tuple[str, str]:
    """
    Both together are the owner of a load balancer.

    Escaped: a comma separates the tags of a query, and a cluster may be called anything.
    """
    return cut(_CLUSTER + quote(cluster_id, safe="")), _UID + uid


def owner(found: Sequence[str]) -> tuple[str, str] | None:
    """The tags of an owner among those of a load balancer."""
    cluster = next((tag for tag in found if tag.startswith(_CLUSTER)), None)
    uid = next((tag for tag in found if tag.startswith(_UID)), None)
    return (cluster, uid) if cluster and uid else None


def floating_ip(cluster_id: str, uid: str) -> str:
    """The description of a floating IP that was made for a Service, by which it is found again."""
    return " ".join(tags(cluster_id, uid))


def listener(protocol: str, port: int) -> str:
    return f"{protocol}-{port}".lower()


def pool(protocol: str, port: int, pool_protocol: str) -> str:
    """Another name for another protocol of the pool, since one is made while the other serves."""
    return listener(protocol, port) + ("" if pool_protocol == protocol else f"-{pool_protocol.lower()}")


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]", "-", text)
