"""What holds for every test."""

import asyncio

import pytest

from tests.scenarios import record


def pytest_configure(config: pytest.Config) -> None:
    """
    Leave no event loop lying about, and take note of the scenarios.

    On Python 3.11 pytest-asyncio makes a loop where a synchronous test comes first, nobody closes it, and warnings are errors here.
    """
    asyncio.set_event_loop(None)
    config.pluginmanager.register(record.from_environment(), "scenarios")
