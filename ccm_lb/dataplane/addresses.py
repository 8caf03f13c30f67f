"""Addresses and ranges as kube-proxy reads them (k8s.io/utils/net: leading zeros are taken, zones are not)."""

from __future__ import annotations

import ipaddress
import re

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def address(text: str) -> Address | None:
    """None for what is no address."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(_plain(text))
    except ValueError:
        return None


def cidr_family(text: str) -> int | None:
    """4 or 6 for a range, bits behind the mask allowed; None for what is none."""
    head, slash, length = text.partition("/")
    found = address(head)
    if found is None or not slash or not re.fullmatch(r"\d{1,3}", length, re.ASCII):
        return None
    return found.version if int(length) <= found.max_prefixlen else None


def host_and_port(text: str) -> tuple[str, str] | None:
    """What Go's net.SplitHostPort makes of it; None where it makes nothing."""
    found = re.fullmatch(r"\[(?P<v6>[^\[\]]*)\]:(?P<port>[^:\[\]]*)|(?P<host>[^:\[\]]*):(?P<bare>[^:\[\]]*)", text)
    if found is None:
        return None
    return (found["v6"], found["port"]) if found["v6"] is not None else (found["host"], found["bare"])


def _plain(text: str) -> str:
    """Without the leading zeros of decimal parts, which Python refuses."""
    head, colon, tail = text.rpartition(":")
    return head + colon + re.sub(r"(?<![\d])0+(?=\d)", "", tail) if "." in tail else text
