"""The commands of the pages, typed by a reader who has what the page says he has."""

import pytest

from tests.docs.conftest import Reader

pytestmark = pytest.mark.timeout(120)


async def test_fakecloud_in_a_pipeline(reader: Reader) -> None:
    await reader.follow("docs/howto/ci.md")
