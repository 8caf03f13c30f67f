"""Where nothing is to be written: reads pass, and what would be written is named and not sent."""

from __future__ import annotations

import pytest

from ccm_lb.backends.base import Response
from ccm_lb.http.guard import Guard, WriteRefusedError


class Seen:
    """What reached the network, had there been one."""

    fencing_token = "a:1"

    def __init__(self) -> None:
        self.sent: list[tuple[str, object]] = []

    async def request(self, method: str, url: str, **more: object) -> Response:
        self.sent.append((method, more["writes"]))
        return Response(200, {}, b"")

    def permit(self) -> object:
        raise AssertionError("nobody asks for it")


@pytest.mark.parametrize(
    ("method", "writes", "passes"),
    [
        pytest.param("GET", None, True, id="a read"),
        pytest.param("get", None, True, id="in small letters"),
        pytest.param("POST", False, True, id="a login"),
        pytest.param("POST", None, False, id="a write"),
        pytest.param("DELETE", None, False, id="a deletion"),
        pytest.param("GET", True, False, id="a read that changes something"),
    ],
)
async def test_only_reads_pass(method: str, writes: bool | None, passes: bool) -> None:  # noqa: FBT001
    seen = Seen()
    guard = Guard(seen)  # type: ignore[arg-type] # as much of a transport as is needed
    if passes:
        await guard.request(method, "https://cloud/a", writes=writes)
        assert seen.sent == [(method, False)]
        return
    with pytest.raises(WriteRefusedError, match=f"{method.upper()} https://cloud/a was not sent"):
        await guard.request(method, "https://user:pass@cloud/a?token=x", writes=writes)
    assert seen.sent == []
    assert guard.refused() == (f"{method.upper()} https://cloud/a",)
    assert guard.refused() == (), "each is told once"


async def test_a_call_of_an_sdk_is_refused_since_nobody_knows_what_it_sends() -> None:
    guard = Guard(Seen())  # type: ignore[arg-type]
    with pytest.raises(WriteRefusedError, match="SDK"):
        async with guard.permit():
            raise AssertionError("it was let through")
