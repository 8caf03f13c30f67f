"""What can be set in --cloud-config, told from a backend's own model: for the reference page and for `ccm-lb backends NAME`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from ccm_lb.backends.base import BackendConfig

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "object": "a mapping",
    "array": "a list",
}
_BOUNDS = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "up to {}", "exclusiveMaximum": "below {}"}


class Setting(NamedTuple):
    """One key of the file: what it takes, its default as one writes it (empty: unset) and what it means."""

    key: str
    values: str
    default: str
    meaning: str


def settings(model: type[BackendConfig]) -> list[Setting]:
    """Every key of the model, in its order."""
    schemas = _schemas(model)
    return [
        Setting(
            key=(key := info.validation_alias if isinstance(info.validation_alias, str) else name),
            values=_values(schemas.get(key, {}), schemas) or "a value",
            default="required" if info.is_required() else _default(info),
            meaning=" ".join((info.description or "").split()),
        )
        for name, info in model.model_fields.items()
    ]


def table(model: type[BackendConfig]) -> str:
    """The same in Markdown."""
    found = settings(model)
    if not found:
        return "It has no settings."
    head = ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    rows = (
        (
            f"`{one.key}`",
            one.values,
            one.default if one.default in ("", "required") else f"`{one.default}`",
            one.meaning,
        )
        for one in found
    )
    return "\n".join([*head, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


class _Lenient(GenerateJsonSchema):
    """What JSON has no word for, such as an object of the backend's own, is any value."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:  # noqa: ARG002
        return {}

    def emit_warning(self, kind: Any, detail: str) -> None:
        """A default that JSON has no word for is none of its reader's business."""


def _schemas(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schemas of its keys, and those that they refer to under `$defs`."""
    try:
        document = model.model_json_schema(schema_generator=_Lenient)
    except PydanticInvalidForJsonSchema:
        return {}
    return {**document.get("properties", {}), "$defs": document.get("$defs", {})}


def _values(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _values(schemas["$defs"][schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(filter(None, (_values(one, schemas) for one in schema["anyOf"]))))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    if schema.get("format") in ("path", "file-path", "directory-path"):
        return "the path of a file"
    if schema.get("type") == "array":
        return f"a list of {_values(schema.get('items', {}), schemas) or 'values'}"
    said = [_TYPES.get(str(schema.get("type")), ""), *_bounds(schema)]
    if "pattern" in schema:
        said.append(f"that matches `{schema['pattern']}`")
    return " ".join(filter(None, said))


def _bounds(schema: Mapping[str, Any]) -> Iterable[str]:
    return (words.format(schema[name]) for name, words in _BOUNDS.items() if name in schema)


def _default(info: FieldInfo) -> str:
    value = info.default
    if value is None or info.default_factory is not None or info.repr is False:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
