"""The header that tells a target who its client is (haproxy's PROXY protocol, versions 1 and 2): pure."""

import ipaddress
import struct

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_PROXY = 0x21
_TCP4, _TCP6 = 0x11, 0x21

Endpoint = tuple[str, int]


def header(version: str, client: Endpoint, destination: Endpoint) -> bytes:
    """For a TCP connection that `client` made to `destination`, both of one family; `none` is no header."""
    if version == "none":
        return b""
    source, target = ipaddress.ip_address(client[0]), ipaddress.ip_address(destination[0])
    if version == "v1":
        return f"PROXY TCP{source.version} {source} {target} {client[1]} {destination[1]}\r\n".encode()
    addresses = source.packed + target.packed + struct.pack("!HH", client[1], destination[1])
    family = _TCP4 if source.version == 4 else _TCP6
    return _SIGNATURE + struct.pack("!BBH", _V2_PROXY, family, len(addresses)) + addresses
