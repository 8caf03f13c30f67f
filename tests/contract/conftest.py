"""What several contract tests stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.fakecloud_world import World, running


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """fakecloud and its backend, both new."""
    async with running() as world:
        yield world
