"""A token bucket, as a plain value."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Bucket:
    """`tokens` were there at `at` (seconds); `rate` come per second, up to `size`."""

    size: int
    rate: float
    tokens: float
    at: float

    @classmethod
    def full(cls, size: int, rate: float, now: float) -> "Bucket":
        return cls(size, rate, float(size), now)

    def taken(self, now: float) -> tuple["Bucket", bool]:
        """The bucket after one request, and whether the request may pass; one that may not takes nothing."""
        tokens = min(self.size, self.tokens + (now - self.at) * self.rate)
        if tokens < 1:
            return replace(self, tokens=tokens, at=now), False
        return replace(self, tokens=tokens - 1, at=now), True

    @property
    def remaining(self) -> int:
        return int(self.tokens)

    @property
    def seconds_to_next(self) -> float:
        """Until one request may pass."""
        return max(0.0, (1 - self.tokens) / self.rate)

    @property
    def headers(self) -> dict[str, str]:
        """RateLimit-Reset is when the bucket is full again; whole seconds, never too early."""
        return {
            "RateLimit-Limit": str(self.size),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(math.ceil((self.size - self.tokens) / self.rate)),
        }
