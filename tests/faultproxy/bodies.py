"""JSON that is made, changed or cut into lines on its way; no I/O."""

import http
import json
import re
from typing import Any

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_object(code: int, reason: str | None, message: str, retry_after: int | None = None) -> dict[str, Any]:
    """A metav1.Status as the API server would send it; `reason` None takes the usual one."""
    usual = _REASONS.get(code) or http.HTTPStatus(code).phrase.replace(" ", "")
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason if reason is not None else usual,
        "code": code,
    }
    if retry_after is not None:
        status["details"] = {"retryAfterSeconds": retry_after}
    return status


def error_event(code: int, reason: str | None, message: str) -> dict[str, Any]:
    """The ERROR event that ends a watch."""
    return {"type": "ERROR", "object": status_object(code, reason, message)}


def line_of(event: object) -> bytes:
    """One event as a watch carries it."""
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def split_lines(rest: bytes, chunk: bytes) -> tuple[list[bytes], bytes]:
    """The whole lines in `rest` + `chunk`, each with its newline, and what is left of an unfinished one."""
    *whole, unfinished = (rest + chunk).split(b"\n")
    return [line + b"\n" for line in whole], unfinished


def drop_field(document: Any, path: str) -> None:
    """Remove `path` (`a.b[].c`) from an object in place; where it does not exist nothing happens."""
    head, _, tail = path.partition(".")
    name = head.removesuffix("[]")
    if not isinstance(document, dict) or name not in document:
        return
    if not tail:
        del document[name]
    elif head.endswith("[]"):
        for item in document[name] or []:
            drop_field(item, tail)
    else:
        drop_field(document[name], tail)


def without_field(body: bytes, path: str) -> bytes:
    """
    `body` without the field: of the object itself, of each item of a list, or of the object in a watch event.

    A body that is not a JSON object comes back as it was.
    """
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict):
        return body
    if isinstance(document.get("items"), list) and path.partition(".")[0] != "items[]":
        for item in document["items"]:
            drop_field(item, path)
    elif document.keys() == {"type", "object"}:
        drop_field(document["object"], path)
    else:
        drop_field(document, path)
    ending = b"\n" if body.endswith(b"\n") else b""
    return json.dumps(document, separators=(",", ":")).encode() + ending


def event_name_matches(line: bytes, name: str | None) -> bool:
    """Whether a watch event is about an object whose name contains a match of `name`; None matches every event."""
    if name is None:
        return True
    try:
        found = json.loads(line)["object"]["metadata"]["name"]
    except (ValueError, KeyError, TypeError):
        return False
    return re.search(name, found) is not None
