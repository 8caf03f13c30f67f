"""Files as data with line numbers: JSON and YAML, one or several documents, nothing but mappings, lists and scalars."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ccm_lb.dataplane.files.findings import Finding, Severity
from ccm_lb.errors import ConfigError

Path = tuple[str | int, ...]

_ENTRIES = 20_000  # aliases can make a small file endless


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
        shown = None if value is None else json.dumps(value, ensure_ascii=False, default=str)
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

    Raises ConfigError, with the line, for text that is neither JSON nor YAML, or empty.
    """
    is_json = _is_json(text)
    # Tabs may stand between JSON's tokens, where YAML has none; within its strings they may not.
    source = text.replace("\t", " ") if is_json else text
    try:
        nodes = yaml.compose_all(source, Loader=yaml.SafeLoader)
        documents = [_document(node, file, is_json=is_json) for node in nodes]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{file}{line}: neither JSON nor YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise ConfigError(f"{file}: neither JSON nor YAML: {' '.join(str(error).split())}") from error
    found = [one for one in documents if one.content is not None]
    if not found:
        raise ConfigError(f"{file}: empty; expected a JSON or YAML document")
    return found


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _document(node: yaml.Node, file: str, *, is_json: bool) -> Document:
    lines: dict[Path, int] = {}
    twice: list[Path] = []
    for path, one in _walk(node, ()):
        if path in lines:
            twice.append(path)
        lines[path] = one.start_mark.line + 1
        if len(lines) > _ENTRIES:
            raise ValueError(f"more than {_ENTRIES} entries")
    content = yaml.SafeLoader("").construct_document(node)
    return Document(file, content, lines, tuple(dict.fromkeys(twice)), is_json)


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
