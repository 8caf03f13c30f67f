"""Requests made up from the OpenAPI document: no 5xx that was not ordered, no answer that the document does not know."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fakecloud.api import openapi
from fakecloud.api.server import OPERATIONS
from fakecloud.config import Settings
from tests.fakecloud.background import in_background
from tests.fakecloud.clients import DEADLINE, free_pool

HEADERS = {"Authorization": "Bearer secret"}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_dict(json.loads(json.dumps(openapi.document(OPERATIONS))))
# The stream of events does not end by itself; what it sends is tested elsewhere.
FUZZED = sorted(
    f"{operation.method} {operation.path}" for operation in OPERATIONS if operation.path != "/v1/journal/tail"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_background(Settings(port=0, token="secret", pools=(free_pool(random.Random()),))) as url:
        yield url


@pytest.mark.parametrize("described", FUZZED)
def test_made_up_requests_get_documented_answers(url: str, described: str) -> None:
    method, path = described.split(" ")
    strategy: st.SearchStrategy[Any] = SCHEMA[path][method].as_strategy()

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def asked(case: Any) -> None:
        try:
            case.validate_response(case.call(base_url=url, headers=HEADERS, timeout=DEADLINE), checks=CHECKS)
        finally:
            if path.startswith("/v1/faults"):
                # A fault that was made up would order the next answers.
                requests.delete(f"{url}/v1/faults", headers=HEADERS, timeout=DEADLINE)

    asked()
