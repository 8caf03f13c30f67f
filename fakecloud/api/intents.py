"""From headers to what a request means beside its body."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from fakecloud import errors
from fakecloud.api.operations import Exchange
from fakecloud.cloud.intents import Intent
from fakecloud.state import fencing
from fakecloud.state.records import Change

CHANGES = {
    "Idempotency-Key": "A repeat with the same key and body returns what the first one did, even after a restart; "
    "the newest 10,000 are remembered"
}
_KEY = re.compile(r"[ -~]{1,255}")
_ETAG = r'(?:W/)?"[!#-~]*"'
_ETAGS = re.compile(rf"\*|{_ETAG}(?:[ \t]*,[ \t]*{_ETAG})*")


def intent_of(call: Exchange[Any, Any], operation: str = "") -> Intent:
    """`operation` and the body tell requests apart for their idempotency key. Raises ProblemError (400)."""
    fencing_token, key, if_match = map(call.headers.get, ("Fencing-Token", "Idempotency-Key", "If-Match"))
    if key is not None and _KEY.fullmatch(key) is None:
        raise errors.malformed_header("Idempotency-Key", "expected 1 to 255 printable ASCII characters", key)
    if if_match is not None and _ETAGS.fullmatch(if_match) is None:
        raise errors.malformed_header("If-Match", 'expected ETags as they were sent, e.g. "3", or *', if_match)
    content = f"{operation}\n{call.body.model_dump_json(exclude_unset=True)}"
    return Intent(
        token=None if fencing_token is None else fencing.parse(fencing_token),
        if_match=if_match,
        key=key,
        fingerprint=hashlib.sha256(content.encode()).hexdigest() if key is not None else "",
        order=call.note.order,
    )


def action_header(change: Change[Any]) -> Mapping[str, str]:
    """Every change names its action; what changed nothing has none."""
    return {} if change.action is None else {"Action-Id": change.action}
