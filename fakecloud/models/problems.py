"""Errors as RFC 9457 problem documents."""

from typing import Any

from pydantic import ConfigDict, Field

from fakecloud.models.base import Model


class FieldError(Model):
    """One thing that is wrong with the request, by the path of the field (`targets[0].server`) and its value."""

    field: str
    message: str
    value: Any = None


class Problem(Model):
    """`type` ends in a stable slug that a client can act on."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "/problems/not-found",
                    "title": "Not found",
                    "status": 404,
                    "detail": "no load balancer lb-1; GET /v1/load-balancers lists them",
                    "errors": [],
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[FieldError, ...] = Field(default=())
