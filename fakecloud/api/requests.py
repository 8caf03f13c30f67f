"""From an HTTP request to validated models, with errors that name the field, the value and what is allowed."""

from typing import Any, TypeVar

from multidict import MultiMapping
from pydantic import ValidationError

from fakecloud import errors
from fakecloud.models.base import Model
from fakecloud.models.problems import FieldError

M = TypeVar("M", bound=Model)
_SHOWN = 80


def parse_body(model: type[M], body: bytes) -> M:
    """Raises ProblemError: 400 when it is no JSON, 422 when it is not what the model says."""
    try:
        return model.model_validate_json(body, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        if details[0]["type"] == "json_invalid":
            raise errors.problem(400, "malformed-json", f"body: {details[0]['msg']}") from error
        raise errors.invalid(_field_errors(error, "body")) from error


def parse_query(model: type[M], query: MultiMapping[str]) -> M:
    """Raises ProblemError (422), for a parameter too that is given twice and may occur once."""
    repeatable = {field.alias or name for name, field in model.model_fields.items() if isinstance(field.default, tuple)}
    given: dict[str, str | list[str]] = {}
    for name in query:
        values = query.getall(name)
        if len(values) > 1 and name not in repeatable:
            raise errors.invalid([FieldError(field=name, message="is given twice", value=values[-1])])
        given[name] = values if name in repeatable else values[0]
    try:
        return model.model_validate(given, by_alias=True, by_name=False)
    except ValidationError as error:
        raise errors.invalid(_field_errors(error, "query")) from error


def _field_errors(error: ValidationError, root: str) -> list[FieldError]:
    found = []
    details = error.errors(include_url=False, include_context=False)
    inside = {location[:depth] for location in (detail["loc"] for detail in details) for depth in range(len(location))}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in inside:
            # The list is not too short: its items are wrong, and pydantic does not count those.
            continue
        message = detail["msg"].removeprefix("Value error, ").replace("Tuple", "List").replace("tuple", "list")
        message = message[:1].lower() + message[1:]
        value = detail["input"] if detail["type"] != "missing" else None
        shown = value if isinstance(value, str | int | float | bool) else None
        if isinstance(shown, str) and len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "…"
        if shown is not None:
            message = f"{message}, got {shown!r}"
        found.append(FieldError(field=_path(detail["loc"]) or root, message=message, value=shown))
    return found


def _path(location: tuple[Any, ...]) -> str:
    """('listeners', 0, 'port') is written listeners[0].port, as a reader of JSON would."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{part}" if path else str(part)
    return path
