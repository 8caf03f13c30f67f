"""Files as data with line numbers: JSON and YAML, one or several documents, nothing but mappings, lists and scalars."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ccm_lb.dataplane.files.findings import Finding, Severity
from ccm_lb.errors import ConfigError

Path = tuple[str | int, ...]

_ENTRIES = 20_000  # aliases can make a small file endless
_SHOWN = 200  # characters of a value; aliases can make it endless too


@dataclasses.dataclass(frozen=True)
class Document:
    """One document of a file. `lines` has the line of every key and list item, `twice` the keys that stand in a mapping again."""

    file: str
    content: Any
    lines: Mapping[Path, int] = dataclasses.field(default_factory=dict)
    twice: tuple[Path, ...] = ()
    is_json: bool = False

    def finding(
        self, severity: Severity, path: Path, message: str, *, value: Any = None, allowed: str = "", nearest: str = ""
    ) -> Finding:
        """A finding at `path`; a `value` of None is not shown, so give "null" for one."""
        shown = None if value is None else _shown(value)
        return Finding(severity, self.file, self.line(path), key(path), message, shown, allowed, nearest)

    def line(self, path: Path) -> int | None:
        """The line of `path`, or of the nearest that holds it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    @property
    def kind(self) -> tuple[str, str]:
        """The API version and the kind, empty where there are none."""
        if not isinstance(self.content, dict):
            return "", ""
        return str(self.content.get("apiVersion") or ""), str(self.content.get("kind") or "")


def key(path: Path) -> str:
    """`ipvs.excludeCIDRs[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read(text: str, file: str) -> list[Document]:
    """
    The documents of a file that hold anything.

    What begins as JSON is taken for JSON, unless it is YAML that says its kind.
    Raises ConfigError, with the place, for text that is neither JSON nor YAML, or empty.
    """
    content, problem = _json(text)
    if problem is None:
        found = [_of_json(text, content, file)]
    else:
        try:
            found = _of_yaml(text, file)
        except ConfigError as error:
            if _begins_as_json(text):
                raise ConfigError(f"{file}{problem}") from error
            raise
        if _begins_as_json(text) and not all(one.kind[1] for one in found):
            raise ConfigError(f"{file}{problem}")
    found = [one for one in found if one.content is not None]
    if not found:
        raise ConfigError(f"{file}: empty; expected a JSON or YAML document")
    return found


def within(document: Document, path: Path, content: Any) -> Document:
    """The part of a document at `path` as a document of its own, with its lines."""
    depth = len(path)
    lines = {
        place[depth:]: line for place, line in document.lines.items() if place[:depth] == path and len(place) > depth
    }
    twice = tuple(place[depth:] for place in document.twice if place[:depth] == path)
    return Document(document.file, content, lines, twice, document.is_json)


# ---- JSON


def _begins_as_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


def _json(text: str) -> tuple[Any, str | None]:
    """The content, or `:LINE:COLUMN: not JSON: why`; lines and columns count from 1."""
    try:
        try:
            return json.loads(text, parse_constant=_refuse), None
        except _ConstantError:
            raise _constant(text) from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            error.msg = "something stands behind its end"
        return None, f":{error.lineno}:{error.colno}: not JSON: {error.msg}"
    except RecursionError:
        return None, ": not JSON: nested too deeply"
    except ValueError as error:
        return None, f": not JSON: {error}"


class _ConstantError(Exception):
    """NaN or Infinity, which Python's own reader takes and nobody else's does."""


def _refuse(name: str) -> None:
    raise _ConstantError(name)


_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<constant>NaN|-?Infinity)')


def _constant(text: str) -> json.JSONDecodeError:
    """The first of them, with its place."""
    place = next(found.start() for found in _STRING_OR_CONSTANT.finditer(text) if found["constant"])
    return json.JSONDecodeError("NaN and Infinity are no values of JSON", text, place)


def _of_json(text: str, content: Any, file: str) -> Document:
    """JSON's content with YAML's line numbers, since nearly all JSON is YAML; without them where it is not."""
    try:
        # Tabs may stand between JSON's tokens, where YAML has none; within its strings they may not.
        node = next(iter(yaml.compose_all(text.replace("\t", " "), Loader=yaml.SafeLoader)))
    except yaml.YAMLError:
        return Document(file, content, is_json=True)
    except RecursionError as error:
        raise ConfigError(f"{file}: nested too deeply") from error
    try:
        lines, twice = _lines(node)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from error
    return Document(file, content, lines, twice, is_json=True)


# ---- YAML


def _of_yaml(text: str, file: str) -> list[Document]:
    try:
        return [_document(node, file) for node in yaml.compose_all(text, Loader=yaml.SafeLoader)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{file}{line}: neither JSON nor YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise ConfigError(f"{file}: neither JSON nor YAML: {' '.join(str(error).split())}") from error


def _document(node: yaml.Node, file: str) -> Document:
    lines, twice = _lines(node)
    return Document(file, yaml.SafeLoader("").construct_document(node), lines, twice)


def _lines(node: yaml.Node) -> tuple[dict[Path, int], tuple[Path, ...]]:
    """The line of every key and item, and the keys that stand twice. Raises ValueError for what is endless."""
    lines: dict[Path, int] = {}
    twice: list[Path] = []
    for path, one in _walk(node, ()):
        if path in lines:
            twice.append(path)
        lines[path] = one.start_mark.line + 1
        if len(lines) > _ENTRIES:
            raise ValueError(f"more than {_ENTRIES} entries")
    return lines, tuple(dict.fromkeys(twice))


def _shown(value: Any) -> str:
    """As JSON, as much of it as helps."""
    text = ""
    for part in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += part[: _SHOWN + 1]
        if len(text) > _SHOWN:
            return f"{text[:_SHOWN]}..."
    return text


def _walk(node: yaml.Node, path: Path) -> Iterator[tuple[Path, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode):
                yield (*path, name.value), name
                yield from _walk(value, (*path, name.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*path, index), value
            yield from _walk(value, (*path, index))
