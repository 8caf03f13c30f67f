"""
What leaves this process in words: without the secrets that it knows, without control characters, and no longer than is useful.

A cloud's error may hold our own request, its token included, or a whole web page. Whoever hands texts on (events, log, health, the
command line) passes them through one `Secrets`, which is made at the start and told of every credential that is read.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

import yaml
from pydantic import BaseModel, SecretStr

__all__ = ["MASK", "Secrets", "clean", "cut", "yaml_problem"]

MASK: Final = "***"

MEMORY = 1000
"""So many secrets are remembered, the newest: a token that is renewed each hour stays one for weeks after its end."""

SHORTEST = 4
"""Characters; what is shorter is no secret, and to mask it would make texts unreadable."""

_HEAD = 16  # characters of a long secret by which it is found
_ENOUGH = 20  # as many of them are masked also where the rest of it was cut off
_WHOLE_WORDS = 8  # below so many characters a secret is masked only where it stands alone
_FAR_ENOUGH = 16_384  # characters of a text that are looked at: many times more than is ever shown

_SECRET_NAME = re.compile(r"token|secret|passw|credential|key", re.IGNORECASE)
_PATH_NAME = re.compile(r"(file|path|dir|^client-key)$", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^\s/@\"']+@")

# What is a secret by its looks, whoever it belongs to.
_LOOKS: Final = (
    (_USER_INFO, f"{MASK}@"),
    (re.compile(r"\b(bearer|basic)(\s+|%20|\+)[\w.~+/%=-]{16,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}(\.[\w-]*)?"), MASK),  # a JSON Web Token
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), MASK),
    (
        re.compile(r"([?&](?:access_?token|token|api_?key|password|secret|sig|signature)=)[^&\s\"']+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
)


class Secrets:
    """
    The secrets that this process knows, and texts without them. For any thread.

    A secret is found as it is, escaped (URL, JSON, HTML, Python), in base64 at any offset, and in hex; a long one also where a text was
    cut off in its middle. What was a secret stays one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: OrderedDict[str, tuple[str, ...]] = OrderedDict()  # by secret
        self._heads: dict[str, tuple[str, ...]] = {}
        self._shorts: Counter[str] = Counter()
        self._short: re.Pattern[str] | None = None

    # ---- what is a secret

    def add(self, *values: str | None) -> None:
        """From now on these are secrets; None and what is very short are none."""
        for value in values:
            secret = (value or "").strip()
            if len(secret) >= SHORTEST and secret not in self._forms:
                with self._lock:
                    self._remember(secret)

    def add_header(self, header: str | None) -> None:
        """The value of an Authorization header, or of one like it; a signature of one request alone is no secret."""
        scheme, _, rest = (header or "").strip().partition(" ")
        if not rest:
            self.add(scheme)
        elif scheme.lower() == "basic":
            self.add(rest)
            try:
                both = base64.b64decode(rest).decode()
            except (binascii.Error, UnicodeDecodeError):
                return
            self.add(both, both.partition(":")[2])
        elif scheme.lower() in ("bearer", "token", "apikey"):
            self.add(rest)

    def add_settings(self, content: object, name: str = "") -> None:
        """Everything in a file of settings, read or typed, that is a secret by its type or name, or a password in a URL."""
        if isinstance(content, SecretStr):
            self.add(content.get_secret_value())
        elif isinstance(content, str):
            if _SECRET_NAME.search(name) and not _PATH_NAME.search(name):
                self.add(content)
            for found in _USER_INFO.finditer(content):
                self.add(found[0][:-1], found[0][:-1].partition(":")[2])
        elif isinstance(content, BaseModel):
            for field, value in content:
                self.add_settings(value, field)
        elif isinstance(content, Mapping):
            # A plug-in's environment in a kubeconfig: {name: PASSWORD, value: ...}.
            named = str(content.get("name", "")) if "value" in content else ""
            for key, value in content.items():
                self.add_settings(value, named if named and key == "value" else str(key))
        elif isinstance(content, list | tuple):
            for value in content:
                self.add_settings(value, name)

    def _remember(self, secret: str) -> None:
        self._forms[secret] = forms = tuple(dict.fromkeys(_forms(secret)))
        for form in filter(_is_long, forms):
            self._heads[form[:_HEAD]] = (*self._heads.get(form[:_HEAD], ()), form)
        self._shorts.update(short := [form for form in forms if not _is_long(form)])
        if len(self._forms) > MEMORY:
            short += self._forget(self._forms.popitem(last=False)[1])
        if short:
            left = sorted(+self._shorts, key=len, reverse=True)
            self._short = re.compile("|".join(map(_pattern, left))) if left else None

    def _forget(self, forms: tuple[str, ...]) -> list[str]:
        """The short ones of them."""
        for form in filter(_is_long, forms):
            left = tuple(one for one in self._heads[form[:_HEAD]] if one != form)
            if left:
                self._heads[form[:_HEAD]] = left
            else:
                del self._heads[form[:_HEAD]]
        short = [form for form in forms if not _is_long(form)]
        self._shorts.subtract(short)
        return short

    # ---- texts without them

    def redact(self, text: str) -> str:
        """The text with MASK in place of each secret; line breaks and all else stay."""
        if self._heads:
            text = self._without_long(text)
        if self._short is not None:
            text = self._short.sub(MASK, text)
        for looks, instead in _LOOKS:
            text = looks.sub(instead, text)
        return text

    def line(self, text: str, limit: int) -> str:
        """The text as one line of at most `limit` bytes (UTF-8) that may leave this process."""
        whole = len(text) <= _FAR_ENOUGH
        return cut(clean(self.redact(text if whole else text[:_FAR_ENOUGH] + "…")), limit)

    def _without_long(self, text: str) -> str:
        kept, done = [], 0
        for run in re.finditer(rf"\S{{{_HEAD},}}", text):
            at = run.start()
            while at <= run.end() - _HEAD:
                length = max(
                    (_common(text, at, form) for form in self._heads.get(text[at : at + _HEAD], ())), default=0
                )
                if not length:
                    at += 1
                    continue
                kept.append(text[done:at])
                at = done = at + length
                kept.append(MASK)
        return "".join((*kept, text[done:]))


def clean(text: str) -> str:
    """
    The text as one line of printable characters.

    White space of any kind is one space; what steers terminals (escapes), hides, or turns the direction of reading becomes U+FFFD.
    """
    if not text.isprintable():
        text = "".join(one if one.isprintable() else " " if one.isspace() else "\ufffd" for one in text)
    return re.sub(" +", " ", text)


def cut(text: str, limit: int) -> str:
    """The text, or as much of its beginning as makes `limit` bytes of UTF-8 together with an ellipsis."""
    data = text.encode(errors="replace")
    return text if len(data) <= limit else data[: max(0, limit - 3)].decode(errors="ignore") + "…"


def yaml_problem(error: yaml.YAMLError) -> str:
    """What is wrong in a YAML text, and where, without the text: it may be a secret."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return "a character that YAML does not allow"
    problem = error.problem or "it cannot be read"
    if problem.startswith(("found undefined alias", "could not determine a constructor")):
        problem = re.sub(r"\s*(for the tag )?['\"].*['\"]", "", problem)  # a password that begins with * or !
    problem = f"{error.context}: {problem}" if error.context else problem
    mark = error.problem_mark
    return f"{problem}, line {mark.line + 1}, column {mark.column + 1}" if mark is not None else problem


def _is_long(form: str) -> bool:
    return len(form) >= _HEAD and not any(one.isspace() for one in form)


def _pattern(form: str) -> str:
    return rf"(?<!\w){re.escape(form)}(?!\w)" if len(form) < _WHOLE_WORDS else re.escape(form)


def _common(text: str, at: int, form: str) -> int:
    """How many characters of `form`, whose head does, stand in the text from `at` on; 0 if too few to tell."""
    if text.startswith(form, at):
        return len(form)
    low, high = _HEAD, len(form)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if text.startswith(form[:middle], at) else (low, middle)
    return low if low >= _ENOUGH else 0


def _forms(secret: str) -> Iterator[str]:
    """How a secret may stand in a text."""
    yield secret
    for escaped in (quote(secret, safe=""), quote(secret), quote_plus(secret)):
        yield from (escaped, re.sub("%..", lambda found: found[0].lower(), escaped))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield from (repr(secret)[1:-1], html.escape(secret))
    data = secret.encode(errors="replace")
    for before in range(3):
        # What of the code is the secret's alone, wherever it stands in what was encoded.
        start, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            code = encode(b"\0" * before + data).decode()[start:end]
            if len(code) >= _WHOLE_WORDS:
                yield from (code, code.replace("+", "%2B").replace("/", "%2F"))
    if len(data) >= _WHOLE_WORDS:
        yield from (data.hex(), data.hex().upper())
