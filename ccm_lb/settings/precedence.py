"""
Where settings come from, and how they are called there. The first that has a setting gives it:
flag (`--leader-elect`), environment (`CCM_LB_LEADER_ELECT`), file (`leader-elect:`), default.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from ccm_lb.errors import ConfigError
from ccm_lb.settings import config
from ccm_lb.settings.config import Config

ENV_PREFIX = "CCM_LB_"
# What the kubelet tells every pod of a namespace about its Services named ccm-lb and ccm-lb-...: the host, the ports by name and number.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$")

_REFERENCE = """# Configuration

Made from the settings' model by `ccm-lb reference`; do not edit.

Each setting can be given in three ways. The first that has it counts; `ccm-lb config` prints the result and where each value comes from.

1. a flag: `--leader-elect-lease-duration 30s`, or `--leader-elect-lease-duration=30s`
2. an environment variable: `CCM_LB_LEADER_ELECT_LEASE_DURATION=30s`
3. a key of the YAML file that `--config FILE` (or `CCM_LB_CONFIG`) names: `leader-elect-lease-duration: 30s`

DURATION is Go's form (`500ms`, `15s`, `1m30s`) or plain seconds. BOOL is `true` or `false`; as a flag it may stand alone
(`--leader-elect`) or with a value (`--leader-elect=false`). `--load-balancer-class` may be repeated; in the environment its names are
separated by commas, in the file they are a list. An empty text, or null in the file, is the same as not given. An unknown key, an unknown
variable or a wrong value ends the command with exit code 2 and one line that names it, and every other mistake with it. `ccm-lb config`
finds the same mistakes as `ccm-lb run`. A variable that the kubelet made for a Service named `ccm-lb` (`CCM_LB_PORT=tcp://...`) is
ignored.

Exit codes: 0 a clean stop, 1 a lost Lease or another failure that a new start may cure, 2 a mistake in the command line or the settings,
74 the output cannot be written, 130 interrupted, 141 nobody reads the output any more.
"""


class Source(enum.StrEnum):
    """Where a setting came from, the strongest first."""

    FLAG = "flag"
    ENV = "env"
    FILE = "file"
    DEFAULT = "default"


class Setting(NamedTuple):
    """A setting as it was given: unparsed text, or from a file whatever YAML made of it. `file` names that file."""

    value: object
    source: Source
    file: str = ""


def flag(field: str) -> str:
    """The flag of a field: `leader_elect` is `--leader-elect`."""
    return "--" + key(field)


def key(field: str) -> str:
    """The field's key in a file: `leader-elect`."""
    return field.replace("_", "-")


def variable(field: str) -> str:
    """The field's environment variable: `CCM_LB_LEADER_ELECT`."""
    return ENV_PREFIX + field.upper()


def from_file(content: Mapping[str, object], file: str) -> dict[str, object]:
    """A file's settings by field name; null counts as not given. Raises ConfigError that names the file and each unknown key."""
    fields = {key(field): field for field in Config.model_fields}
    unknown = [name for name in content if name not in fields]
    if unknown:
        raise ConfigError("; ".join(f"{file}: {name}: unknown key{nearest(name, fields)}" for name in unknown))
    return {fields[name]: value for name, value in content.items() if value is not None}


def known(content: Mapping[str, object]) -> dict[str, object]:
    """What is left of a file without its unknown keys."""
    keys = {key(field) for field in Config.model_fields}
    return {name: value for name, value in content.items() if name in keys}


def unknown_variables(names: Iterable[str]) -> list[str]:
    """A complaint about each variable that is called as ours are and is none of them; the kubelet's are left out."""
    ours = {ENV_PREFIX + "CONFIG", *(variable(field) for field in Config.model_fields)}
    strange = {name for name in names if name.startswith(ENV_PREFIX) and not _SERVICE_LINK.search(name)} - ours
    return [f"{name}: unknown variable{nearest(name, sorted(ours))}" for name in sorted(strange)]


def is_service_link(value: str) -> bool:
    """Whether the kubelet made a variable with this value, for a Service named ccm-lb: `CCM_LB_PORT=tcp://10.0.0.1:443`."""
    return value.startswith(("tcp://", "udp://", "sctp://"))


def nearest(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    """`, did you mean X?` for the known name that resembles `name` most; empty when none does."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""


def build(settings: Mapping[str, Setting], backends: Sequence[str]) -> Config:
    """
    The configuration out of what was given, by field name; `backends` are the installed ones, for the message.

    Raises ConfigError: one line that says for each wrong setting where it stands, its value and what was expected.
    """
    wrong = []
    if settings.get("cloud_provider", Setting("", Source.DEFAULT)).value == "":
        installed = ", ".join(backends) or "none"
        wrong = [f"--cloud-provider is required: name one of the installed backends ({installed})"]
        # So that the others are looked at all the same.
        settings = {**settings, "cloud_provider": Setting("-", Source.DEFAULT)}
    try:
        made = Config.model_validate({field: setting.value for field, setting in settings.items()})
    except ValidationError as error:
        wrong += [_complaint(settings, one) for one in error.errors()]
    if wrong:
        raise ConfigError("; ".join(wrong))
    return made


def _complaint(settings: Mapping[str, Setting], error: Mapping[str, Any]) -> str:
    if not error["loc"]:
        return str(error["ctx"]["error"])
    field = str(error["loc"][0])
    setting = settings[field]
    where = {
        Source.FLAG: flag(field),
        Source.ENV: variable(field),
        Source.FILE: f"{setting.file}: {key(field)}",
        Source.DEFAULT: field,
    }[setting.source]
    return f"{where}: got {error['input']!r}, expected {config.kind(field).expects}"


def as_text(field: str, value: object) -> str:
    """A value as one would write it after the flag: `15s`, `true`, `a,b`; empty when it is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return f"{value:g}s" if config.kind(field).metavar == "DURATION" else f"{value:g}"
    return str(value)


def reference() -> str:
    """The reference page of all settings, in Markdown."""
    parts = [_REFERENCE]
    title = ""
    for field, info in Config.model_fields.items():
        if config.group(field) != title:
            title = config.group(field)
            parts.append(f"\n## {title}\n\n| flag | default | meaning |\n|---|---|---|\n")
        default = "required" if info.is_required() else as_text(field, info.default)
        metavar = config.kind(field).metavar
        shown = f"`{default}`" if default not in ("", "required") else default
        parts.append(f"| `{flag(field)}` {metavar} | {shown} | {info.description} |\n")
    return "".join(parts)
