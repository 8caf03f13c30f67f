"""The one error that the cloud answers with, and the problems that it says."""

from collections.abc import Sequence

from fakecloud.models.problems import FieldError, Problem


def legible(text: str) -> str:
    """The text, with what can't be sent (bytes of a header that are not UTF-8) written as an escape."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


_SHOWN = 255


class ProblemError(Exception):
    """A request that was understood and refused; nothing was changed. The API answers with `problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def problem(status: int, slug: str, detail: str, errors: Sequence[FieldError] = ()) -> ProblemError:
    """Build an error; `slug` is stable, and its words are the title."""
    title = slug.replace("-", " ").capitalize()
    return ProblemError(
        Problem(type=f"/problems/{slug}", title=title, status=status, detail=detail, errors=tuple(errors))
    )


def malformed_header(name: str, expected: str, value: str) -> ProblemError:
    """A header that means something here and has another form."""
    shown = legible(value[:_SHOWN])
    field = FieldError(field=name, message=expected, value=shown)
    return problem(400, f"malformed-{name.lower()}", f"header {name}: {expected}, got {shown!r}", [field])


def not_found(what: str, name: str, listed_at: str) -> ProblemError:
    return problem(404, "not-found", f"no {what} {name}; GET {listed_at} lists them")


def invalid(errors: Sequence[FieldError]) -> ProblemError:
    """The request is well-formed and can't be done; every error names its field."""
    detail = "; ".join(f"{error.field}: {error.message}" for error in errors[:5])
    more = f" (and {len(errors) - 5} more)" if len(errors) > 5 else ""
    return problem(422, "invalid-request", detail + more, errors)


def conflict(slug: str, detail: str, errors: Sequence[FieldError] = ()) -> ProblemError:
    return problem(409, slug, detail, errors)
