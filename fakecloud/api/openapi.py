"""The OpenAPI 3.1 document, made from the operations and their models."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from fakecloud import __version__
from fakecloud.api.operations import NoBody, Operation
from fakecloud.models.problems import Problem

Json = dict[str, Any]
_COMMON = {400: "Not understood", 401: "No token, or a wrong one", 422: "Understood and not possible"}
_OF_BODIES = {
    408: "The body does not come",
    413: "The body is too large",
    415: "The body is packed otherwise than by gzip",
}


def document(operations: Iterable[Operation[Any, Any]]) -> Json:
    """The whole document; JSON types only."""
    operations = tuple(operations)
    schemas = _schemas(operations)
    paths: dict[str, Json] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fakecloud",
            "version": __version__,
            "description": "A cloud for tests: load balancers that carry real traffic on loopback addresses.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {
                str(status): {"description": text, "content": _content(Problem, "application/problem+json")}
                for status, text in (_COMMON | _OF_BODIES).items()
            },
        },
    }


def _schemas(operations: Iterable[Operation[Any, Any]]) -> Json:
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(Problem, "serialization"): None}
    for operation in operations:
        if operation.body is not NoBody:
            wanted[operation.body, "validation"] = None
        for answer in operation.answers.values():
            if answer.model is not None:
                wanted[answer.model, "validation"] = None
    _, definitions = models_json_schema(list(wanted), ref_template="#/components/schemas/{model}")
    schemas: Json = definitions["$defs"]
    return schemas


def _content(model: type[BaseModel], media_type: str = "application/json") -> Json:
    return {media_type: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def _operation(operation: Operation[Any, Any]) -> Json:
    common = _COMMON if operation.body is NoBody else _COMMON | _OF_BODIES
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path),
            *_query_parameters(operation.query.model_json_schema()),
            *_header_parameters(operation.headers),
        ],
        "responses": {
            **{
                str(status): {
                    "description": answer.description,
                    **(
                        {"content": _content(answer.model, answer.media_type)}
                        if answer.model is not None
                        else _problem(status)
                    ),
                }
                for status, answer in operation.answers.items()
            },
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in common},
        },
    }
    if operation.body is not NoBody:
        described["requestBody"] = {"required": not operation.body_optional, "content": _content(operation.body)}
    return described


def _problem(status: int) -> Json:
    return {"content": _content(Problem, "application/problem+json")} if status >= HTTPStatus.BAD_REQUEST else {}


def _path_parameters(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(schema: Mapping[str, Any]) -> list[Json]:
    return [
        {"name": name, "in": "query", "required": False, "schema": of}
        for name, of in schema.get("properties", {}).items()
    ]


def _header_parameters(headers: Mapping[str, str]) -> list[Json]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in headers.items()
    ]
