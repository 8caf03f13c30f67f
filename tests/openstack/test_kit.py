"""The backend for OpenStack keeps the provider's contract, against the genuine Octavia."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ccm_lb.backends.base import Transport
from ccm_lb.backends.openstack import OpenStackBackend, OpenStackConfig
from ccm_lb.clock import SystemClock
from ccm_lb.http.transport import CloudTransport
from ccm_lb.redaction import Secrets
from ccm_lb.testing.conformance import LoadBalancerConformance
from ccm_lb.testing.fakes import OpenFence
from tests.openstack.cloud import OpenStack
from tests.openstack.inspector import Client, OctaviaInspector


class TestOpenStack(LoadBalancerConformance):
    backend_class = OpenStackBackend

    @pytest.fixture
    def config(self, cloud: OpenStack) -> OpenStackConfig:
        return OpenStackConfig(clouds_file=cloud.clouds_yaml, cloud="appcred", subnet=cloud.ids["subnet"])

    @pytest.fixture
    async def inspector(self, cloud: OpenStack) -> AsyncIterator[OctaviaInspector]:
        async with Client(cloud) as client:
            yield OctaviaInspector(client)
            await client.remove_everything()

    @pytest.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        transport = CloudTransport(OpenFence(), SystemClock(), secrets=Secrets())
        await transport.open()
        yield transport
        await transport.close()
