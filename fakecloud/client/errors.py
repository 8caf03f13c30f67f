"""What can go wrong between a program and fakecloud, each with what is known of it."""

from collections.abc import Mapping

from pydantic import ValidationError

from fakecloud.models.problems import FieldError, Problem


class FakecloudError(Exception):
    """The base of all errors here; the message is one line for a person."""


class UnreachableError(FakecloudError):
    """No answer, or half of one; a change that was asked for may have been made."""


class WaitTimeoutError(FakecloudError):
    """What was waited for did not come; the message says how things stood last."""


class RefusedError(FakecloudError):
    """An answer of 400 or more. A status with a meaning of its own has a class of its own below."""

    def __init__(self, asked: str, status: int, problem: Problem | None, retry_after: float | None) -> None:
        self.status = status
        self.slug = "" if problem is None else problem.type.rpartition("/")[2]
        """What a program can act on: `not-found`, `address-taken`; empty when something else than fakecloud answered."""
        self.detail = "" if problem is None else problem.detail
        self.errors: tuple[FieldError, ...] = () if problem is None else problem.errors
        """Each wrong field of the request, with its value and what was expected."""
        self.retry_after = retry_after
        """Seconds, when the answer says so."""
        wrong = "".join(f"; {one.field}: {one.message}" for one in self.errors if one.message not in self.detail)
        super().__init__(f"{asked}: {status} {self.detail or 'without a reason'}{wrong}")


class InvalidRequestError(RefusedError):
    """400, 413, 415 or 422: the request itself is wrong; `errors` says where."""


class UnauthorizedError(RefusedError):
    """401: no token, another one, or one that is refused as expired."""


class NotFoundError(RefusedError):
    """404."""


class ConflictError(RefusedError):
    """409: taken, too many, or being deleted."""


class StaleError(RefusedError):
    """412: another version than If-Match, or a fencing token that is stale."""


_CLASSES: Mapping[int, type[RefusedError]] = {
    400: InvalidRequestError,
    401: UnauthorizedError,
    404: NotFoundError,
    409: ConflictError,
    412: StaleError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
}


def refused(asked: str, status: int, body: bytes, retry_after: str | None) -> RefusedError:
    """The error of an answer; a body that is no problem document (of a fault, of a proxy) is left out."""
    try:
        problem = Problem.model_validate_json(body, extra="ignore")
    except ValidationError:
        problem = None
    try:
        seconds = None if retry_after is None else float(retry_after)
    except ValueError:
        seconds = None
    return _CLASSES.get(status, RefusedError)(asked, status, problem, seconds)
