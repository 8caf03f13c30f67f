"""One cloud for the whole session; each test has a cluster id of its own, and leaves nothing behind."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.openstack import environment
from tests.openstack.cloud import OpenStack


@pytest.fixture(scope="session")
def cloud() -> Iterator[OpenStack]:
    """Genuine Keystone, Neutron and Octavia."""
    if missing := environment.missing():
        pytest.skip(f"{', '.join(missing)} not installed")
    if not environment.snapshot().exists():
        pytest.fail("the services are not built: python -m tests.openstack build", pytrace=False)
    found = OpenStack()
    asyncio.run(found.start())
    yield found
    asyncio.run(found.stop())
