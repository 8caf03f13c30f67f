"""What went through a listener, in all and by target."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Since the listener opened; UDP counts exchanges as connections."""

    connections: int = 0
    active: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def add(self, other: "Counters") -> None:
        self.connections += other.connections
        self.active += other.active
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
