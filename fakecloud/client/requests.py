"""From the arguments of a method to a request, and from its answer to a model; no I/O."""

import os
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pydantic
import pydantic_core
from pydantic.alias_generators import to_camel

from fakecloud import __version__
from fakecloud.client.errors import FakecloudError
from fakecloud.models.base import Model

M = TypeVar("M", bound=Model)
Body = Model | Mapping[str, Any]
"""A model of the API, or a mapping in its words as JSON has them (`{"targetPort": 30080}`)."""

USER_AGENT = f"fakecloud-client/{__version__}"
SECONDS = 30.0
"""How long an answer may take unless told otherwise; faults make a cloud slow on purpose."""


@dataclass(frozen=True)
class Endpoint:
    """Where a fakecloud answers, and the token it wants."""

    url: str
    token: str | None

    @classmethod
    def given(cls, url: str | None, token: str | None) -> "Endpoint":
        """What was given, or else what FAKECLOUD_URL and FAKECLOUD_TOKEN say. Raises FakecloudError."""
        address = url or os.environ.get("FAKECLOUD_URL") or "http://127.0.0.1:8780"
        if not address.startswith(("http://", "https://")):
            raise FakecloudError(f"url {address}: expected http://HOST:PORT, as fakecloud prints it at its start")
        return cls(address.rstrip("/"), token if token is not None else os.environ.get("FAKECLOUD_TOKEN"))


@dataclass(frozen=True)
class Request:
    """One request, ready to be sent."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Path and query, quoted."""
        return f"{self.path}?{urllib.parse.urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


def path(template: str, *segments: str) -> str:
    """`template` with each `{}` replaced by a segment, whatever is in it."""
    return template.format(*(urllib.parse.quote(segment, safe="") for segment in segments))


def body(fields: Body) -> bytes:
    """As JSON: of a model what was set, of a mapping everything."""
    if isinstance(fields, Model):
        return fields.model_dump_json(by_alias=True, exclude_unset=True).encode()
    return pydantic_core.to_json(fields, by_alias=True)


def camelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Under the names that the API has for them."""
    return {to_camel(name): value for name, value in values.items()}


def query(**values: object) -> tuple[tuple[str, str], ...]:
    """The parameters that have a value, in the API's spelling; a sequence is repeated."""
    return tuple(
        (to_camel(name), _text(one))
        for name, value in values.items()
        for one in (value if isinstance(value, list | tuple) else (value,))
        if one is not None
    )


def answer(model: type[M], request: Request, content: bytes) -> M:
    """The answer; fields that this version does not know are left out. Raises FakecloudError when it is none."""
    try:
        return model.model_validate_json(content, extra="ignore")
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise FakecloudError(f"{request}: the answer is no {model.__name__}: {where}: {first['msg']}") from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
