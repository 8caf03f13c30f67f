"""
The errors that callers tell apart.

A class exists here only where somebody acts differently on it; everything else a backend raises is "the cloud failed", is shown
to the user as it is, and is retried with a growing pause.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_lb.objects import PortStatus

__all__ = [
    "ApiError",
    "ApiUnreachableError",
    "CCMError",
    "CloudUnreachableError",
    "ConfigError",
    "ConflictError",
    "ForbiddenError",
    "ImplementedElsewhereError",
    "InvalidError",
    "NotFoundError",
    "NotLeaderError",
    "PortsError",
    "RetryAfterError",
    "TerminalError",
    "UnauthorizedError",
]


class CCMError(Exception):
    """The root of all errors that this package raises on purpose."""


class ConfigError(CCMError):
    """The configuration is wrong: said in one line, exit code 2, never retried."""


# ---- from and to a backend


class RetryAfterError(CCMError):
    """
    Not now: try again in `delay` seconds.

    Raised by a backend whose cloud accepted the request and is still working, or asked for a pause. It is no failure: the
    reconcile is repeated after exactly `delay`, the backoff neither grows nor resets, and the user is told what is waited for.
    """

    def __init__(self, message: str, delay: float) -> None:
        super().__init__(message)
        self.delay = max(0.0, delay)


class TerminalError(CCMError):
    """
    Nothing will help until the Service itself changes (a protocol that the cloud does not have, an invalid annotation).

    What served before goes on serving, with nodes kept up to date; the user gets the message as a Warning; a change of the
    Service is tried at once, and without one the reconcile is repeated only at the longest pause of the backoff.
    """


class PortsError(TerminalError):
    """
    The cloud serves none of the Service, because it cannot serve `ports`, each with its `error` (KEP-1435).

    As TerminalError, and the condition LoadBalancerPortsError says so. Where some ports are served, a backend answers with
    the errors in the status instead.
    """

    def __init__(self, message: str, ports: Sequence[PortStatus]) -> None:
        super().__init__(message)
        self.ports = tuple(ports)


class ImplementedElsewhereError(CCMError):
    """
    Another controller serves this Service (upstream's `cloudprovider.ImplementedElsewhere`).

    The Service counts as synced: no status is written, no event posted, the finalizer stays.
    """


class CloudUnreachableError(CCMError):
    """The cloud gave no answer within the transport's attempts, so whether the last request was applied is unknown."""


class NotLeaderError(CCMError):
    """The Lease is not (or no longer surely) held: nothing was sent."""


# ---- from the Kubernetes API


class ApiUnreachableError(CCMError):
    """The Kubernetes API gave no answer: refused, cut, timed out, or not HTTP."""


class ApiError(CCMError):
    """The Kubernetes API refused a request. `status` is the HTTP status, `reason` the machine-readable reason (`NotFound`)."""

    def __init__(self, message: str, *, status: int, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFoundError(ApiError):
    """404: the object does not exist."""


class ConflictError(ApiError):
    """409: it exists already, or it changed since it was read."""


class InvalidError(ApiError):
    """422: the API server does not take the object, for example because a patch names a UID that is not the object's."""


class UnauthorizedError(ApiError):
    """401: the credentials were refused, also after they were read anew."""


class ForbiddenError(ApiError):
    """403: RBAC does not grant it, or the namespace is being deleted."""
