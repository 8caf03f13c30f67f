"""The backends that are installed on this machine, and the files that hold their settings."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from ccm_lb.backends.base import BackendConfig, LoadBalancerBackend
from ccm_lb.errors import ConfigError
from ccm_lb.redaction import Secrets, yaml_problem

GROUP = "ccm_lb.backends"

AnyBackend = LoadBalancerBackend[Any]


class Installed(NamedTuple):
    """One entry point. `error` says why it cannot be used, None when it can."""

    name: str
    target: str
    distribution: str
    version: str
    error: str | None


def names() -> list[str]:
    """The names of the installed backends, sorted, whether or not they can be imported."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def installed() -> list[Installed]:
    """All installed backends by name; imports each of them to see whether it can be used."""
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
        try:
            _import(point)
            error = None
        except ConfigError as failure:
            error = str(failure)
        package, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
        found.append(Installed(point.name, point.value, package, version, error))
    return found


def load(name: str) -> type[AnyBackend]:
    """The backend of that name. Raises ConfigError: it is not installed, installed twice, not importable, or no backend."""
    points = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not points:
        raise ConfigError(
            f"--cloud-provider: no backend {name!r} is installed, expected one of: {', '.join(names()) or 'none'}"
        )
    if len(points) > 1:
        raise ConfigError(
            f"--cloud-provider: {name!r} is installed more than once, uninstall all but one of: {', '.join(points)}"
        )
    return _import(next(iter(points.values())))


def _import(point: EntryPoint) -> type[AnyBackend]:
    try:
        loaded = point.load()
    # What a stranger's module raises while it is imported is anybody's guess, and none of it is our fault.
    except Exception as error:
        raise ConfigError(
            f"backend {point.name!r}: cannot import {point.value}: {type(error).__name__}: {error}"
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, LoadBalancerBackend)):
        raise ConfigError(f"backend {point.name!r}: {point.value} is not a subclass of LoadBalancerBackend")
    return loaded


def backend_config(cls: type[AnyBackend], path: Path | None, secrets: Secrets) -> BackendConfig:
    """
    The backend's own settings out of the --cloud-config file (YAML or JSON); without a file, their defaults.

    `secrets` is told of those among them.

    Raises ConfigError: one line that names the file and, for each wrong setting, its key, value and what was expected.
    """
    content = read_settings(path) if path else {}
    secrets.add_settings(content)
    where = str(path) if path else "--cloud-config is not given"
    try:
        settings = cls.config_model.model_validate(content)
    except ValidationError as error:
        fields = cls.config_model.model_fields
        raise ConfigError("; ".join(f"{where}: {_complaint(one, fields)}" for one in error.errors())) from None
    secrets.add_settings(settings)
    return settings


def read_settings(path: Path) -> dict[str, object]:
    """A file of settings, YAML or JSON; empty is no setting. Raises ConfigError: unreadable, not YAML, or not a mapping."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not a text in UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not valid YAML: {yaml_problem(error)}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected settings as `key: value`, got {type(content).__name__}")
    if strange := [name for name in content if not isinstance(name, str)]:
        raise ConfigError(f"{path}: {strange[0]!r}: expected a name as key")
    return content


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001
        keys = [name for name, _ in node.value if isinstance(name, yaml.ScalarNode)]
        for name, count in Counter(name.value for name in keys).items():
            if count > 1 and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _complaint(error: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"{key}: is required"
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key{_nearest(key, known)}"
    said = str(error["msg"]).removeprefix("Value error, ")
    if not key:
        return said
    got = "a secret" if _secret(key) else repr(error["input"])
    return (
        f"{key}: got {got}, {'expected ' if 'Input should be ' in said else ''}{said.replace('Input should be ', '')}"
    )


def _secret(key: str) -> bool:
    # By name, since a setting that is declared as plain text may hold a token all the same.
    return re.search("token|secret|password|credential|key", key, re.IGNORECASE) is not None


def _nearest(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f", did you mean {close[0]}?" if close else f", expected one of: {', '.join(known) or 'none'}"
