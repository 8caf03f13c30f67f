"""Scenarios out of a YAML file."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from fakecloud.models.faults import Scenario, ScenarioFile


class ScenarioError(Exception):
    """The file can't be used; the message names the file, the place, and what was expected."""


def read(path: Path) -> Mapping[str, Scenario]:
    """Raises ScenarioError."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"--scenarios {path}: {error.strerror}; expected a readable YAML file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"--scenarios {path}: {' '.join(str(error).split())}; expected YAML") from error
    try:
        return ScenarioFile.model_validate_json(
            json.dumps(content, default=str), by_alias=True, by_name=False
        ).scenarios
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ScenarioError(
            f"--scenarios {path}: {place}: {first['msg'].removeprefix('Value error, ')}; "
            "expected scenarios: {NAME: {faults: [{match: {...}, effect: {kind: ...}}]}}"
        ) from error
