"""What becomes of a load balancer whose Service has no more use for it, and what is told of that."""

from __future__ import annotations

import enum

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.abilities import Honoured
from ccm_lb.controller import predicates
from ccm_lb.errors import TerminalError
from ccm_lb.objects import Service


class Ending(enum.StrEnum):
    """Its message is for the user."""

    DELETE = "Deleted load balancer"
    RELEASE = f"annotation {ccm_annotations.KEEP} was true: the load balancer serves on and is nobody's any more"
    LEAVE = "The Service is gone, and its annotations asked to keep or to leave alone the load balancer, which is still in the cloud"

    @property
    def done(self) -> str:
        """For the log."""
        return "deleted the load balancer" if self is Ending.DELETE else "kept the load balancer"


def ending(service: Service, honours: frozenset[str]) -> Ending:
    """
    What its user wants, where the backend carries out `honours`.

    Raises TerminalError where that is not sure, or cannot be done: what cannot be undone waits until the annotation is right.
    """
    ccm_annotations.paused(service)  # misspelt, it may have been to prevent just this
    if not ccm_annotations.keep(service):
        return Ending.DELETE
    if Honoured.KEEP not in honours:
        raise TerminalError(
            f"annotation {ccm_annotations.KEEP} is true, but the backend does not say that it can let go of a load balancer: "
            "remove the annotation, and the load balancer is deleted"
        )
    return Ending.RELEASE


def of_vanished(service: Service, honours: frozenset[str]) -> Ending:
    """The same of a Service that is gone and did not wait: nobody can correct its annotations any more."""
    if predicates.is_paused(service):
        return Ending.LEAVE
    try:
        return ending(service, honours)
    except TerminalError:
        return Ending.LEAVE
