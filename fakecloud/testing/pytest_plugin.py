"""
The pytest plug-in: `fakecloud`, a clean cloud for each test, and `fakecloud_faults`, which orders faults that end with the test.

One process serves a whole session, and each worker of xdist its own. Nothing is started for tests that do not ask for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    # Every run of pytest where fakecloud is installed imports this file: what it needs itself waits until a test asks for it.
    from fakecloud.client import Client
    from fakecloud.models.faults import FaultView
    from fakecloud.testing.process import FakecloudProcess


class OrderFault(Protocol):
    """`fakecloud_faults("reset", when="after", match={"methods": ["POST"]}, times=1)`: a fault in the words of the API."""

    def __call__(
        self,
        kind: str,
        *,
        match: Mapping[str, Any] | None = None,
        times: int | None = None,
        for_seconds: float | None = None,
        **effect: Any,
    ) -> FaultView: ...


_CLOUD: pytest.StashKey[Client] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "fakecloud_args", 'options for `fakecloud serve`, for example "--action-seconds=1"', type="args", default=[]
    )


@pytest.fixture(scope="session")
def fakecloud_process(pytestconfig: pytest.Config) -> Iterator[FakecloudProcess]:
    """The process that serves this session; its `environment` tells other programs where it is."""
    from fakecloud.testing.process import FakecloudProcess

    with FakecloudProcess(pytestconfig.getini("fakecloud_args")) as process:
        yield process


@pytest.fixture
def fakecloud(fakecloud_process: FakecloudProcess, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a cloud that has nothing in it: no load balancer, server, fault, nor call in the journal."""
    with fakecloud_process.client() as cloud:
        cloud.reset()
        request.node.stash[_CLOUD] = cloud
        yield cloud
        del request.node.stash[_CLOUD]


@pytest.fixture
def fakecloud_faults(fakecloud: Client) -> Iterator[OrderFault]:
    """Order faults; all of them are gone after the test."""

    def order(
        kind: str,
        *,
        match: Mapping[str, Any] | None = None,
        times: int | None = None,
        for_seconds: float | None = None,
        **effect: Any,
    ) -> FaultView:
        wanted = {"match": match or {}, "effect": {"kind": kind, **effect}, "times": times, "forSeconds": for_seconds}
        return fakecloud.add_fault(wanted)

    yield order
    fakecloud.remove_faults()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test shows what its cloud was asked."""
    result = yield
    cloud = item.stash.get(_CLOUD, None)
    if cloud is not None and result.when == "call" and result.failed:
        from fakecloud.testing import report

        result.sections.append(("fakecloud: the calls of this test", report.calls(cloud)))
    return result
