"""How the file descriptors of a process are shared, so that nobody takes those that another one needs."""

from dataclasses import dataclass

_MOST_FOR_THE_API = 512


@dataclass(frozen=True)
class Descriptors:
    """Of each kind, how many there may be at a time."""

    # Connections of the API that have not shown the token yet. Those that have, and files, take what they leave of the API's share.
    strangers: int
    # Health checks that are under way.
    probes: int
    # Listeners, and two for each connection.
    traffic: int

    @classmethod
    def shared(cls, limit: int, used: int) -> "Descriptors":
        """`limit` is what the system allows the process, `used` what it has open before it serves anybody."""
        free = max(0, limit - used)
        api, probes = min(free // 4, _MOST_FOR_THE_API), free // 16
        return cls(max(1, api // 4), max(1, probes), max(0, free - api - probes))
