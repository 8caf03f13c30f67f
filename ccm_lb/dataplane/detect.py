"""
Looks at a cluster and keeps looking: the only module of this package that asks the Kubernetes API by itself.

Nothing here is needed for load balancers to work. What RBAC does not grant is "unknown, because ...", and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

import aiohttp

from ccm_lb.dataplane import infer, workloads
from ccm_lb.dataplane.model import Kind, ServiceProxy, unknown
from ccm_lb.dataplane.observed import KUBE_SYSTEM, Object, Observed, Withheld
from ccm_lb.errors import ApiError, ApiUnreachableError, ForbiddenError, NotFoundError

log = logging.getLogger(__name__)

DAEMONSETS = "/apis/apps/v1/daemonsets"
NODES = "/api/v1/nodes"
FELIX = "/apis/crd.projectcalico.org/v1/felixconfigurations/default"
WATCHED_CONFIG_MAPS = ("kube-proxy", "kube-proxy-config", "cilium-config", "antrea-config")
"""By name, so that a Role can grant these and no others. A kube-proxy that mounts another one is looked at every `PERIOD`."""

PERIOD = 300.0  # seconds after which everything is looked at again: rights and other ConfigMaps may have changed
DEBOUNCE = 2.0  # seconds for changes that come together, such as a roll-out's
CONFIRM = 4.0  # seconds after which "unknown" is believed of a cluster that was known
WATCH_SECONDS = 280  # after which the server ends a watch, and we open the next
REFUSED_PAUSE = 60.0  # seconds before a watch that was refused is tried again
BROKEN_PAUSE = 5.0  # seconds before a watch that broke is opened again
_SAMPLE = "500"  # nodes that are looked at: the tell-tale ones look alike


class Api(Protocol):
    """What `kubeapi.KubeApi` offers; errors as in `ccm_lb.errors`."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]: ...


class StreamingApi(Api, Protocol):
    @property
    def server(self) -> str: ...

    def kopf_session(self) -> aiohttp.ClientSession:
        """A logged-in session of our own, to be closed by us."""
        ...


class Observer(Protocol):
    """Told of every answer that differs from the one before; `previous` is None at the start. Must not raise."""

    def __call__(self, proxy: ServiceProxy, previous: ServiceProxy | None) -> None: ...


# ---- once


async def service_proxy(api: Api, *, everywhere: bool = True, pods: bool = True) -> ServiceProxy:
    """
    The cluster's service proxy, by `infer`.

    Not `everywhere`: the DaemonSets of kube-system alone, without `pods`: no pods are asked for; both for those who hold no more rights.
    Raises ApiError or ApiUnreachableError when the API does not answer; what it forbids is no error.
    """
    return infer.service_proxy(await observe(api, everywhere=everywhere, pods=pods))


async def observe(api: Api, *, everywhere: bool = True, pods: bool = True) -> Observed:
    """Everything that `infer` and `baremetal.verify` look at. Raises as `service_proxy`."""
    daemonsets, whole = await _daemonsets(api, everywhere=everywhere)
    seen_pods = await _list(api, _pods_path()) if pods else Withheld("they were not asked for")
    nodes = await _list(api, NODES, {"limit": _SAMPLE})
    first = Observed(daemonsets, whole, {}, seen_pods, nodes)
    config_maps = {place: await _get(api, _config_map(*place)) for place in infer.config_maps(first)}
    calico = not isinstance(daemonsets, Withheld) and any(workloads.name(one) == "calico-node" for one in daemonsets)
    felix = await _get(api, FELIX) if calico else None
    return Observed(daemonsets, whole, config_maps, seen_pods, nodes, felix)


async def _daemonsets(api: Api, *, everywhere: bool) -> tuple[Sequence[Object] | Withheld, bool]:
    if everywhere:
        found = await _list(api, DAEMONSETS)
        if not isinstance(found, Withheld):
            return found, True
    return await _list(api, _in_kube_system()), False


async def _list(api: Api, path: str, params: Mapping[str, str] | None = None) -> Sequence[Object] | Withheld:
    try:
        items: Sequence[Object] = (await api.get(path, params)).get("items") or ()
    except (ForbiddenError, NotFoundError) as error:
        return Withheld(str(error))
    return items


async def _get(api: Api, path: str) -> Object | Withheld | None:
    try:
        return await api.get(path)
    except ForbiddenError as error:
        return Withheld(str(error))
    except ApiError as error:
        if error.status == 404:  # also the server's own words for a kind that it does not serve, which are no Status
            return None
        raise


def _in_kube_system() -> str:
    return f"/apis/apps/v1/namespaces/{KUBE_SYSTEM}/daemonsets"


def _pods_path() -> str:
    return f"/api/v1/namespaces/{KUBE_SYSTEM}/pods"


def _config_map(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps{'/' if name else ''}{name}"


# ---- and on


class ServiceProxyDetector:
    """
    Knows the service proxy of the cluster that the controller runs in, and tells when it changes.

    Needs get, list and watch on DaemonSets and on the ConfigMaps of `WATCHED_CONFIG_MAPS` in kube-system, and list on nodes; each of
    them is optional. `run` in a task; `current` and the observers belong to its event loop.
    """

    def __init__(self, api: StreamingApi, observers: Sequence[Observer], *, period: float = PERIOD) -> None:
        self._api, self._observers, self._period = api, tuple(observers), period
        self._changed = asyncio.Event()
        self.current = unknown("the cluster was not looked at yet")
        self._told: ServiceProxy | None = None

    async def run(self) -> None:
        """Look at once, after every change, and every period; until cancelled."""
        async with self._api.kopf_session() as session, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(session, _in_kube_system(), {}, self._daemonset_changed))
            for name in WATCHED_CONFIG_MAPS:
                selector = {"fieldSelector": f"metadata.name={name}"}
                tasks.create_task(self._watch(session, _config_map(KUBE_SYSTEM), selector, self._config_map_changed))
            while True:
                await self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._period):
                        await self._changed.wait()
                        await asyncio.sleep(DEBOUNCE)
                self._changed.clear()

    async def _look(self) -> None:
        try:
            found = await self._confirmed()
        except (ApiError, ApiUnreachableError) as error:
            # What was known stays true until somebody says otherwise.
            log.debug("service proxy not looked at", extra={"error": str(error)})
            self._changed.set()
            await asyncio.sleep(BROKEN_PAUSE)
            return
        previous, self.current = self._told, found
        if previous is None or found != previous:
            self._told = found
            log.info(
                "service proxy", extra={"found": found.sentence(), "evidence": "; ".join(map(str, found.evidence))}
            )
            for observer in self._observers:
                observer(found, previous)

    async def _confirmed(self) -> ServiceProxy:
        found = await service_proxy(self._api, everywhere=False, pods=False)
        known = self._told is not None and self._told.kind is not Kind.UNKNOWN
        if known and found.kind is Kind.UNKNOWN:
            # An API server that has just started forbids what it will grant in a moment.
            await asyncio.sleep(CONFIRM)
            found = await service_proxy(self._api, everywhere=False, pods=False)
        return found

    def _daemonset_changed(self, obj: Object) -> None:
        if infer.relevant(obj):
            self._changed.set()

    def _config_map_changed(self, _: Object) -> None:
        self._changed.set()

    async def _watch(
        self, session: aiohttp.ClientSession, path: str, params: Mapping[str, str], changed: Callable[[Object], None]
    ) -> None:
        """Call `changed` for every change, for ever. Each watch begins with a look at what there is, so none is missed."""
        while True:
            try:
                begin = await self._api.get(path, {**params, "limit": "1"})
                version = str((begin.get("metadata") or {}).get("resourceVersion") or "")
                self._changed.set()
                async for obj in _events(session, self._api.server + path, {**params, "resourceVersion": version}):
                    changed(obj)
            except (ApiError, ApiUnreachableError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                refused = isinstance(error, ForbiddenError)
                log.debug("watch for the service proxy ended", extra={"path": path, "error": str(error)})
                await asyncio.sleep(REFUSED_PAUSE if refused else BROKEN_PAUSE)


async def _events(session: aiohttp.ClientSession, url: str, params: Mapping[str, str]) -> AsyncIterator[Object]:
    """The changed objects of one watch, until the server ends it or says that it cannot go on."""
    timeout = aiohttp.ClientTimeout(total=WATCH_SECONDS + 20, sock_read=None)
    query = {**params, "watch": "true", "timeoutSeconds": str(WATCH_SECONDS)}
    async with session.get(url, params=query, headers={"Accept": "application/json"}, timeout=timeout) as answer:
        if answer.status >= 400:
            error = ForbiddenError if answer.status == 403 else ApiError
            raise error(f"GET {url} (watch): {answer.status} {answer.reason}", status=answer.status)
        async for line in _lines(answer.content):
            event = json.loads(line)
            if event.get("type") == "ERROR":
                return  # most often: the version is too old to go on from; the next watch begins with a new look
            yield event.get("object") or {}


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; aiohttp's own end at 128 KiB, and objects may be larger."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
