"""What holds for every test."""

import asyncio


def pytest_configure() -> None:
    """
    Leave no event loop lying about.

    On Python 3.11 pytest-asyncio makes one where a synchronous test comes first, nobody closes it, and warnings are errors here.
    """
    asyncio.set_event_loop(None)
