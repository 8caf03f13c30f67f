"""A cloud that shows whoever asks his own request, credentials and all, in every way in which an answer can."""

import asyncio
import base64
import contextlib
import html
import json
from collections.abc import Callable
from typing import Self
from urllib.parse import quote, quote_plus

# How a text may stand in another one.
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "cut off": lambda text: text[: -len(text.rpartition("\n")[2]) // 2],
    "begun in the middle": lambda text: text.rpartition("\n")[2][len(text.rpartition("\n")[2]) // 2 :],
    "shortened in the middle": lambda text: f"{text.rpartition(chr(10))[2][:30]}...{text[-24:]}",
    "as Python shows it": repr,
    "in JSON": json.dumps,
    "in HTML": html.escape,
    "in a URL": lambda text: quote(text, safe=""),
    "in a form": quote_plus,
    "in base64": lambda text: base64.b64encode(text.encode()).decode(),
    "in base64 after a letter": lambda text: base64.b64encode(f"x{text}".encode()).decode(),
    "in base64 for URLs": lambda text: base64.urlsafe_b64encode(f"xx{text}".encode()).decode(),
    "in hex": lambda text: text.encode().hex(),
    "after a long page": lambda text: "x" * 600 + text,
    "often": lambda text: text * 60,
    "with escapes": lambda text: f"\x1b[31m{text}\x1b[0m\r\n\u202e",
}


def _problem(text: str) -> bytes:
    return _answer(500, json.dumps({"title": "failed", "detail": text}))


def _refusal(text: str) -> bytes:
    return _answer(422, json.dumps({"title": "refused", "errors": [{"field": "name", "message": text}]}))


def _unknown_server(text: str) -> bytes:
    error = {"field": "targets[0].server", "message": "unknown", "value": text}
    return _answer(422, json.dumps({"title": "refused", "errors": [error]}))


def _broken(text: str) -> bytes:
    return _answer(201, json.dumps({"id": text, "state": "error", "listeners": [], "addresses": [{"address": text}]}))


def _strange_address(text: str) -> bytes:
    made = {"id": "lb-1", "state": "active", "listeners": [], "targets": [], "addresses": [{"address": text}]}
    return _answer(201, json.dumps(made))


def _reason(text: str) -> bytes:
    return _answer(500, text, reason=_one_line(text))


def _no_http(text: str) -> bytes:
    return text.encode() + b"\r\n\r\n"


def _elsewhere(text: str) -> bytes:
    return _answer(302, "", f"Location: http://user:{quote(text, safe='')}@127.0.0.1:1/")


def _broken_header(text: str) -> bytes:
    return _answer(200, "{}", f"{_one_line(text)}: 1", "Content-Encoding: gzip")


ANSWERS = (
    _problem,
    _refusal,
    _unknown_server,
    _broken,
    _strange_address,
    _reason,
    _no_http,
    _elsewhere,
    _broken_header,
)


class EchoingCloud:
    """Answers with the whole request and each credential that it was ever sent; `async with` opens and closes it."""

    def __init__(self) -> None:
        self.well = True  # whether it says how it delivers, which the backend of fakecloud asks first
        self.refused = ""  # a text in a request that is answered with 401
        self.credentials: list[str] = []  # every one that it was sent
        self.echoes = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = {
                name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head.split("\r\n"))
            }
            body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
            for name in ("authorization", "x-auth-token"):
                if (sent := headers.get(name)) and sent not in self.credentials:
                    self.credentials.append(sent)
            writer.write(self._answer(head, body))
            await writer.drain()
        writer.close()

    def _answer(self, head: str, body: str) -> bytes:
        method, path, *_ = head.split(" ", 2)
        if path == "/v1/cloud" and self.well:
            return _answer(200, json.dumps({"delivery": "proxy"}))
        if method == "GET" and self.well and not (self.refused and self.refused in head):
            return _answer(200, json.dumps({"items": []}))
        forms = list(FORMS.values())
        text = forms[self.echoes % len(forms)](f"you said {head}{body}, earlier:\n" + "\n".join(self.credentials))
        self.echoes += 1
        if self.refused and self.refused in head:
            return _answer(401, json.dumps({"title": "unauthorized", "detail": text}))
        return ANSWERS[self.echoes % len(ANSWERS)](text)


def _answer(status: int, body: str, *headers: str, reason: str = "Said") -> bytes:
    content = body.encode()
    lines = [f"HTTP/1.1 {status} {reason}", "Connection: close", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


def _one_line(text: str) -> str:
    return " ".join("".join(one for one in text if one.isprintable()).split())[:4000]
