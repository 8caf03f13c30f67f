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
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal
from urllib.parse import quote, quote_plus, unquote

import yaml
from pydantic import BaseModel, SecretStr

__all__ = ["MASK", "Secrets", "clean", "cut", "yaml_problem"]

MASK: Final = "***"

MEMORY = 200
"""So many secrets are remembered beside those of settings, the latest used: a token that is renewed each hour stays one for a week."""

SHORTEST = 4
"""Characters; what is shorter is no secret, and to mask it would make texts unreadable."""

_LONG = 16  # characters of a secret from which on its pieces are looked for, too
_GRAM, _STRIDE = 6, 5  # every piece of ten characters holds a whole one of these
_PIECE = 10  # characters of a long secret that are masked wherever they stand, unless they are plain words
_WORDS = 20  # as many of them are masked also if they are
_ALIKE = 16  # of so many secrets with the same piece the whole is compared: all tokens of a cluster begin alike
_EDGE = 40  # characters at both ends of an encoded secret of which pieces are looked for
_WHOLE_WORDS = 8  # below so many characters a secret is masked only where it stands alone
_FAR_ENOUGH = 16_384  # characters of a text that are looked at: many times more than is ever shown

_SECRET_NAME = re.compile(r"token|secret|passw|credential|key", re.IGNORECASE)
_PATH_NAME = re.compile(r"(file|path|dir|^client-key)$", re.IGNORECASE)
_ARGUMENT = re.compile(r"--?([\w-]+)=(.+)", re.DOTALL)  # of a plug-in
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

    A secret is found as it is, escaped (URL, JSON, HTML, Python), in base64 at any offset, and in hex; of a long one also the pieces that
    are left where a text was cut. What was a secret stays one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: set[str] = set()  # those of settings
        self._passing: OrderedDict[str, None] = OrderedDict()  # the others, the latest used last
        self._grams: dict[str, tuple[tuple[str, int], ...]] = {}  # where in which forms they stand
        self._shorts: Counter[str] = Counter()
        self._short: re.Pattern[str] | None = None  # made when it is needed: it costs more than all the rest
        self._short_is_old = False

    # ---- what is a secret

    def add(self, *values: str | None) -> None:
        """From now on these are secrets; None and what is very short are none."""
        for value in values:
            secret = (value or "").strip()
            if len(secret) >= SHORTEST and secret not in self._kept:
                with self._lock:
                    self._use(secret)

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

    def add_url(self, url: str) -> None:
        """What stands before the host in a URL."""
        if "@" in url:
            self.add(*_in_urls(url))

    def add_settings(self, content: object, name: str = "") -> None:
        """Everything in a file of settings, read or typed, that is a secret by its type or name, or a password in a URL."""
        if isinstance(content, SecretStr):
            self._keep(content.get_secret_value())
        elif isinstance(content, str):
            if _SECRET_NAME.search(name) and not _PATH_NAME.search(name):
                self._keep(content)
            elif argument := _ARGUMENT.fullmatch(content):
                self.add_settings(argument[2], argument[1])
            self._keep(*_in_urls(content))
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

    def _keep(self, *values: str) -> None:
        for value in values:
            secret = value.strip()
            if len(secret) >= SHORTEST and secret not in self._kept:
                with self._lock:
                    self._kept.add(secret)
                    if secret in self._passing:
                        del self._passing[secret]
                    else:
                        self._count(secret, 1)

    def _use(self, secret: str) -> None:
        if secret in self._passing:
            self._passing.move_to_end(secret)
            return
        self._passing[secret] = None
        self._count(secret, 1)
        if len(self._passing) > MEMORY:
            self._count(self._passing.popitem(last=False)[0], -1)

    def _count(self, secret: str, change: Literal[1, -1]) -> None:
        """Begin to look for `secret`, or end it."""
        for form in dict.fromkeys(_forms(secret)):
            if _is_long(form):
                self._index(form, change, whole=form == secret)
            else:
                self._shorts[form] += change
                if not self._shorts[form]:
                    del self._shorts[form]
                self._short_is_old = True

    def _index(self, form: str, change: Literal[1, -1], *, whole: bool) -> None:
        last = len(form) - _GRAM
        for at in dict.fromkeys((*range(0, last, _STRIDE), last)):
            if not (whole or at < _EDGE or at > last - _EDGE):
                continue
            gram, place = form[at : at + _GRAM], (form, at)
            others = tuple(one for one in self._grams.get(gram, ()) if one != place)
            self._grams[gram] = (*others, place) if change > 0 else others
            if not self._grams[gram]:
                del self._grams[gram]

    # ---- texts without them

    def redact(self, text: str) -> str:
        """The text with MASK in place of each secret; line breaks and all else stay."""
        if self._grams:
            text = self._without_long(text)
        if self._short_is_old:
            with self._lock:
                longest_first = sorted(self._shorts, key=len, reverse=True)
                self._short = re.compile("|".join(map(_pattern, longest_first))) if longest_first else None
                self._short_is_old = False
        if self._short is not None:
            text = self._short.sub(MASK, text)
        for looks, instead in _LOOKS:
            text = looks.sub(instead, text)
        return text

    def line(self, text: str, limit: int) -> str:
        """The text as one line of at most `limit` bytes (UTF-8) that may leave this process."""
        if len(text) > _FAR_ENOUGH:
            # What is left of a secret at the end of what is looked at would not be found.
            half = max([_WORDS, *map(len, list(self._shorts))])
            text = self.redact(text[:_FAR_ENOUGH])[:-half] + "…"
        else:
            text = self.redact(text)
        return cut(clean(text), limit)

    def _without_long(self, text: str) -> str:
        kept: list[str] = []
        done = 0
        for run in re.finditer(rf"\S{{{_PIECE},}}", text):
            at, last = run.start(), run.end() - _GRAM
            while at <= last:
                begin = end = at
                for form, place in self._grams.get(text[at : at + _GRAM], ())[-_ALIKE:]:
                    left, right = _before(text, at, done, form, place), _after(text, at, form, place)
                    whole = left + right == len(form)
                    if left + right > end - begin and (whole or _tells(text[at - left : at + right])):
                        begin, end = at - left, at + right
                if begin == end:
                    at += 1
                    continue
                if begin > done or not kept:
                    kept += [text[done:begin], MASK]
                at = done = end
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
    return len(form) >= _LONG and not any(one.isspace() for one in form)


def _tells(piece: str) -> bool:
    """Whether so much of a long secret is a secret; a few plain words of it may be anybody's."""
    return len(piece) >= _WORDS or (len(piece) >= _PIECE and re.search("[0-9A-Z]", piece) is not None)


def _pattern(form: str) -> str:
    words = r"\s+".join(map(re.escape, form.split()))
    return rf"(?<!\w){words}(?!\w)" if len(form) < _WHOLE_WORDS else words


def _after(text: str, at: int, form: str, place: int) -> int:
    """How many characters from `at` on are those of `form` from `place` on."""
    return _longest(len(form) - place, lambda length: text.startswith(form[place : place + length], at))


def _before(text: str, at: int, done: int, form: str, place: int) -> int:
    """How many characters before `at`, not before `done`, are those of `form` before `place`."""
    return _longest(min(place, at - done), lambda length: text.startswith(form[place - length : place], at - length))


def _longest(limit: int, matches: Callable[[int], bool]) -> int:
    """The greatest length up to `limit` that matches, where all below it do."""
    if matches(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if matches(middle) else (low, middle)
    return low


def _in_urls(text: str) -> Iterator[str]:
    """The user with his password, and the password, of each URL in it."""
    for found in _USER_INFO.finditer(text):
        both = found[0][:-1]
        password = both.partition(":")[2]
        yield from (both, password, unquote(password))


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
