"""From headers to what a request means beside its body."""

import hashlib
from collections.abc import Mapping
from typing import Any

from fakecloud import errors
from fakecloud.api.operations import Exchange
from fakecloud.cloud.intents import Intent
from fakecloud.models.problems import FieldError
from fakecloud.state import fencing
from fakecloud.state.records import Change

CHANGES = {
    "Idempotency-Key": "A repeat with the same key and body returns what the first one did, even after a restart; "
    "the newest 10,000 are remembered"
}
_LONGEST_KEY = 255


def intent_of(call: Exchange[Any, Any], operation: str = "") -> Intent:
    """`operation` and the body tell requests apart for their idempotency key. Raises ProblemError (400)."""
    fencing_token, key = call.headers.get("Fencing-Token"), call.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
        message = f"expected 1 to {_LONGEST_KEY} printable ASCII characters"
        field = FieldError(field="Idempotency-Key", message=message, value=key[:_LONGEST_KEY])
        raise errors.problem(400, "malformed-idempotency-key", f"header Idempotency-Key: {message}", [field])
    content = f"{operation}\n{call.body.model_dump_json(exclude_unset=True)}"
    return Intent(
        token=None if fencing_token is None else fencing.parse(fencing_token),
        if_match=call.headers.get("If-Match"),
        key=key,
        fingerprint=hashlib.sha256(content.encode()).hexdigest() if key is not None else "",
        order=call.note.order,
    )


def action_header(change: Change[Any]) -> Mapping[str, str]:
    """Every change names its action; what changed nothing has none."""
    return {} if change.action is None else {"Action-Id": change.action}
