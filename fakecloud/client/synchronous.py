"""The client for programs without a loop; made from `asynchronous.py` by `python -m tests.docs`, not to be edited."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from fakecloud.client import requests
from fakecloud.client.conditions import Wanted, described, outcome
from fakecloud.client.connections import Connection
from fakecloud.client.errors import FakecloudError, NotFoundError, WaitTimeoutError
from fakecloud.client.requests import SECONDS, USER_AGENT, Endpoint, Request, path, query
from fakecloud.models.actions import Action, ActionList, ActionStatus
from fakecloud.models.cloud import CloudView
from fakecloud.models.faults import FaultList, FaultSpec, FaultView, NamedScenario, ScenarioList
from fakecloud.models.flows import Flow, FlowList
from fakecloud.models.inventory import (
    AddressPool,
    AddressPoolList,
    AddressPoolView,
    ReservedAddress,
    ReservedAddressList,
    ReservedAddressView,
    Server,
    ServerList,
)
from fakecloud.models.journal import Call, CallList, Count, CountList, Verification
from fakecloud.models.loadbalancers import LoadBalancerPatch, LoadBalancerSpec
from fakecloud.models.views import LoadBalancerList, LoadBalancerState, LoadBalancerView

_EVERY = 0.05  # seconds between two looks of a wait


class Client:
    """
    One fakecloud, by default the one that FAKECLOUD_URL and FAKECLOUD_TOKEN name.

    Each method is one request of the API under its name there (`GET /v1/load-balancers/{id}`, getLoadBalancer) and may raise
    RefusedError or UnreachableError; nothing is tried again. A body is a model, or a mapping in the words of the API.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = SECONDS,
        user_agent: str = USER_AGENT,
    ) -> None:
        endpoint = Endpoint.given(url, token)
        self.url = endpoint.url
        self.token = endpoint.token
        self._connection = Connection(endpoint, timeout, user_agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what is open; a later request opens it again."""
        self._connection.close()

    # ---- load balancers -----------------------------------------------------------------------------------------

    def list_load_balancers(
        self,
        *,
        owner: str | None = None,
        cluster: str | None = None,
        tag: Sequence[str] = (),
        id: Sequence[str] = (),  # noqa: A002 - the API's word
    ) -> list[LoadBalancerView]:
        """All that match, in the order of their creation; every page is read."""
        found: list[LoadBalancerView] = []
        cursor: str | None = None
        while True:
            asked = query(owner=owner, cluster=cluster, tag=tuple(tag), id=tuple(id), cursor=cursor, limit=1000)
            request = Request("GET", "/v1/load-balancers", asked)
            page = requests.answer(LoadBalancerList, request, self._connection.send(request))
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found

    def create_load_balancer(
        self,
        spec: LoadBalancerSpec | Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        fencing_token: str | None = None,
    ) -> LoadBalancerView:
        """Create it; the owner's that exists is answered unchanged."""
        headers = _headers(idempotency_key, fencing_token)
        request = Request("POST", "/v1/load-balancers", body=requests.body(spec), headers=headers)
        return requests.answer(LoadBalancerView, request, self._connection.send(request))

    def get_load_balancer(self, id: str) -> LoadBalancerView:  # noqa: A002 - the API's word
        """One, with its health and counters. Raises NotFoundError."""
        request = Request("GET", path("/v1/load-balancers/{}", id))
        return requests.answer(LoadBalancerView, request, self._connection.send(request))

    def patch_load_balancer(
        self,
        id: str,  # noqa: A002 - the API's word
        fields: LoadBalancerPatch | Mapping[str, Any],
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
        fencing_token: str | None = None,
    ) -> LoadBalancerView:
        """Replace the named fields as a whole. Raises NotFoundError, ConflictError, StaleError."""
        headers = _headers(idempotency_key, fencing_token, if_match)
        request = Request("PATCH", path("/v1/load-balancers/{}", id), body=requests.body(fields), headers=headers)
        return requests.answer(LoadBalancerView, request, self._connection.send(request))

    def delete_load_balancer(
        self,
        id: str,  # noqa: A002 - the API's word
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
        fencing_token: str | None = None,
    ) -> LoadBalancerView | None:
        """None: it is gone. Else it goes when its `action` is done. Raises NotFoundError, ConflictError, StaleError."""
        headers = _headers(idempotency_key, fencing_token, if_match)
        request = Request("DELETE", path("/v1/load-balancers/{}", id), headers=headers)
        content = self._connection.send(request)
        return requests.answer(LoadBalancerView, request, content) if content else None

    def wait_for(
        self,
        id: str,  # noqa: A002 - the API's word
        *,
        state: LoadBalancerState | None = "active",
        healthy: int | None = None,
        timeout: float = SECONDS,
    ) -> LoadBalancerView:
        """
        Wait until a load balancer is in a state and so many of its targets are healthy on each of their ports.

        Raises WaitTimeoutError, which says how it stood last; NotFoundError when there is none (any more).
        """
        wanted = Wanted(state, healthy)
        last = time.monotonic() + timeout
        while not wanted.holds(found := self.get_load_balancer(id)):
            if time.monotonic() > last:
                raise WaitTimeoutError(f"{id}: expected {wanted} within {timeout:g} s; it is {described(found)}")
            time.sleep(_EVERY)
        return found

    def wait_gone(self, id: str, *, timeout: float = SECONDS) -> None:  # noqa: A002 - the API's word
        """Wait until there is no such load balancer. Raises WaitTimeoutError."""
        last = time.monotonic() + timeout
        while True:
            try:
                found = self.get_load_balancer(id)
            except NotFoundError:
                return
            if time.monotonic() > last:
                raise WaitTimeoutError(f"{id}: expected to be gone within {timeout:g} s; it is {described(found)}")
            time.sleep(_EVERY)

    # ---- actions ------------------------------------------------------------------------------------------------

    def list_actions(
        self, *, resource: str | None = None, status: ActionStatus | None = None, limit: int = 1000
    ) -> list[Action]:
        """Newest first."""
        request = Request("GET", "/v1/actions", query(resource=resource, status=status, limit=limit))
        return list(requests.answer(ActionList, request, self._connection.send(request)).items)

    def get_action(self, id: str) -> Action:  # noqa: A002 - the API's word
        """Raises NotFoundError."""
        request = Request("GET", path("/v1/actions/{}", id))
        return requests.answer(Action, request, self._connection.send(request))

    def wait_for_action(self, id: str, *, timeout: float = SECONDS) -> Action:  # noqa: A002 - the API's word
        """Wait until it is done. Raises WaitTimeoutError; FakecloudError when it ends in an error."""
        last = time.monotonic() + timeout
        while not (found := self.get_action(id)).status.finished:
            if time.monotonic() > last:
                raise WaitTimeoutError(f"{id}: expected to be done within {timeout:g} s; {outcome(found)}")
            time.sleep(_EVERY)
        if found.status is ActionStatus.ERROR:
            raise FakecloudError(f"{id}: {outcome(found)}")
        return found

    # ---- servers, pools, addresses ------------------------------------------------------------------------------

    def list_servers(self) -> list[Server]:
        request = Request("GET", "/v1/servers")
        return list(requests.answer(ServerList, request, self._connection.send(request)).items)

    def add_server(self, server: Server | Mapping[str, Any]) -> Server:
        """Register a machine. Raises ConflictError when the id is another one's."""
        request = Request("POST", "/v1/servers", body=requests.body(server))
        return requests.answer(Server, request, self._connection.send(request))

    def get_server(self, id: str) -> Server:  # noqa: A002 - the API's word
        """Raises NotFoundError."""
        request = Request("GET", path("/v1/servers/{}", id))
        return requests.answer(Server, request, self._connection.send(request))

    def put_server(self, id: str, server: Server | Mapping[str, Any]) -> Server:  # noqa: A002 - the API's word
        """Register a machine, or replace the one of this id."""
        request = Request("PUT", path("/v1/servers/{}", id), body=requests.body(server))
        return requests.answer(Server, request, self._connection.send(request))

    def delete_server(self, id: str) -> None:  # noqa: A002 - the API's word
        """Where it is a target, that target becomes unhealthy. Raises NotFoundError."""
        self._connection.send(Request("DELETE", path("/v1/servers/{}", id)))

    def list_address_pools(self) -> list[AddressPoolView]:
        request = Request("GET", "/v1/address-pools")
        return list(requests.answer(AddressPoolList, request, self._connection.send(request)).items)

    def add_address_pool(self, pool: AddressPool | Mapping[str, Any]) -> AddressPoolView:
        """Raises ConflictError, InvalidRequestError."""
        request = Request("POST", "/v1/address-pools", body=requests.body(pool))
        return requests.answer(AddressPoolView, request, self._connection.send(request))

    def delete_address_pool(self, name: str) -> None:
        """Raises NotFoundError; ConflictError while it gives out an address."""
        self._connection.send(Request("DELETE", path("/v1/address-pools/{}", name)))

    def list_addresses(self) -> list[ReservedAddressView]:
        """The reserved ones."""
        request = Request("GET", "/v1/addresses")
        return list(requests.answer(ReservedAddressList, request, self._connection.send(request)).items)

    def reserve_address(self, address: ReservedAddress | Mapping[str, Any]) -> ReservedAddressView:
        """Keep an address for load balancers that ask for it. Raises ConflictError."""
        request = Request("POST", "/v1/addresses", body=requests.body(address))
        return requests.answer(ReservedAddressView, request, self._connection.send(request))

    def get_address(self, name: str) -> ReservedAddressView:
        """Raises NotFoundError."""
        request = Request("GET", path("/v1/addresses/{}", name))
        return requests.answer(ReservedAddressView, request, self._connection.send(request))

    def release_address(self, name: str) -> None:
        """A load balancer that uses it keeps it. Raises NotFoundError."""
        self._connection.send(Request("DELETE", path("/v1/addresses/{}", name)))

    # ---- faults -------------------------------------------------------------------------------------------------

    def list_faults(self) -> list[FaultView]:
        request = Request("GET", "/v1/faults")
        return list(requests.answer(FaultList, request, self._connection.send(request)).items)

    def add_fault(self, fault: FaultSpec | Mapping[str, Any]) -> FaultView:
        """Order a fault; one of the same id is replaced. Raises InvalidRequestError."""
        request = Request("POST", "/v1/faults", body=requests.body(fault))
        return requests.answer(FaultView, request, self._connection.send(request))

    def get_fault(self, id: str) -> FaultView:  # noqa: A002 - the API's word
        """How many calls or connections it has met. Raises NotFoundError."""
        request = Request("GET", path("/v1/faults/{}", id))
        return requests.answer(FaultView, request, self._connection.send(request))

    def remove_fault(self, id: str) -> None:  # noqa: A002 - the API's word
        """What it holds back goes on. Raises NotFoundError."""
        self._connection.send(Request("DELETE", path("/v1/faults/{}", id)))

    def remove_faults(self) -> None:
        """All of them."""
        self._connection.send(Request("DELETE", "/v1/faults"))

    def list_scenarios(self) -> list[NamedScenario]:
        """Those of the file that fakecloud was started with."""
        request = Request("GET", "/v1/scenarios")
        return list(requests.answer(ScenarioList, request, self._connection.send(request)).items)

    def apply_scenario(self, name: str) -> list[FaultView]:
        """Order all its faults. Raises NotFoundError."""
        request = Request("POST", path("/v1/scenarios/{}/apply", name))
        return list(requests.answer(FaultList, request, self._connection.send(request)).items)

    # ---- the cloud, and what it was asked -----------------------------------------------------------------------

    def get_cloud(self) -> CloudView:
        """How it was started."""
        request = Request("GET", "/v1/cloud")
        return requests.answer(CloudView, request, self._connection.send(request))

    def reset(self, *, state: bool = True, faults: bool = True, journal: bool = True) -> None:
        """Forget load balancers, servers and addresses; faults; the journal. Pools of the command line stay."""
        what = {"state": state, "faults": faults, "journal": journal}
        self._connection.send(Request("POST", "/v1/reset", body=requests.body(what)))

    def list_calls(self, *, limit: int = 1000, **calls: Any) -> CallList:
        """The journal, oldest first. `calls` are the parameters of the API: since, method, path, applied, owner, ..."""
        request = Request("GET", "/v1/journal", query(**calls, limit=limit))
        return requests.answer(CallList, request, self._connection.send(request))

    def count_calls(self, **calls: Any) -> list[Count]:
        """How many calls of each kind; `calls` as for `list_calls`."""
        request = Request("GET", "/v1/journal/counts", query(**calls))
        return list(requests.answer(CountList, request, self._connection.send(request)).items)

    def tail_calls(self, *, since: int | None = None, mutating: bool | None = None) -> Iterator[Call]:
        """Calls as they come, without end; without `since`, those from now on."""
        if since is None:
            since = (self.list_calls(since=2**53, limit=1)).last_seq
        request = Request("GET", "/v1/journal/tail", query(since=since, mutating=mutating))
        for data in self._connection.events(request):
            yield Call.model_validate(data, strict=False, extra="ignore")

    def verify_calls(
        self,
        *,
        exactly: int | None = None,
        at_least: int | None = None,
        at_most: int | None = None,
        **calls: Any,
    ) -> Verification:
        """Whether so many calls match `calls` (as for `list_calls`); without a number, none may."""
        bounds: Mapping[str, Any] = {"exactly": exactly, "atLeast": at_least, "atMost": at_most}
        matching = {name: value for name, value in requests.camelled(calls).items() if value is not None}
        request = Request("POST", "/v1/journal/verify", body=requests.body({"filter": matching, **bounds}))
        return requests.answer(Verification, request, self._connection.send(request))

    def list_flows(self, *, load_balancer: str | None = None, limit: int = 1000) -> list[Flow]:
        """Connections that have ended, newest first."""
        request = Request("GET", "/v1/flows", query(load_balancer=load_balancer, limit=limit))
        return list(requests.answer(FlowList, request, self._connection.send(request)).items)


def _headers(idempotency_key: str | None, fencing_token: str | None, if_match: str | None = None) -> Mapping[str, str]:
    named = {"Idempotency-Key": idempotency_key, "Fencing-Token": fencing_token, "If-Match": if_match}
    return {name: value for name, value in named.items() if value is not None}
