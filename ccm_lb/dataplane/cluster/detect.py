"""
Looks at a cluster and keeps looking. With `watches`, which it uses, the only module of this package that asks the Kubernetes API by itself.

Nothing here is needed for load balancers to work. What RBAC does not grant is "unknown, because ...", and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from ccm_lb.dataplane import workloads
from ccm_lb.dataplane.cluster import infer
from ccm_lb.dataplane.cluster.observed import KUBE_SYSTEM, Object, Observed, Withheld
from ccm_lb.dataplane.cluster.watches import BROKEN_PAUSE, Api, StreamingApi, Watch
from ccm_lb.dataplane.model import Kind, Mode, ServiceProxy, unknown
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
_SAMPLE = "500"  # nodes that are looked at: the tell-tale ones look alike


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
        self._looked = asyncio.Event()
        self._shown: dict[str, Hashable] = {}  # what each DaemonSet shows, by its name, as of the last look or event
        self.current = unknown("the cluster was not looked at yet")
        self._told: ServiceProxy | None = None

    async def run(self) -> None:
        """Look at once, after every change, and every period; until cancelled."""
        config_maps = [{"fieldSelector": f"metadata.name={name}"} for name in WATCHED_CONFIG_MAPS]
        async with self._api.kopf_session() as session, asyncio.TaskGroup() as tasks:
            watches = [
                Watch(self._api, session, _in_kube_system(), {}, self._daemonset_changed),
                *(
                    Watch(self._api, session, _config_map(KUBE_SYSTEM), one, self._config_map_changed)
                    for one in config_maps
                ),
            ]
            for watch in watches:
                tasks.create_task(watch.run())
            for watch in watches:
                await watch.begun.wait()  # what changes after this look is then sure to be seen
            while True:
                self._changed.clear()
                await self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._period):
                        await self._changed.wait()
                        await asyncio.sleep(DEBOUNCE)

    async def looked(self, patience: float) -> None:
        """Return after the first look, or after `patience` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._looked.wait()

    async def _look(self) -> None:
        try:
            found = await self._confirmed()
        except (ApiError, ApiUnreachableError) as error:
            # What was known stays true until somebody says otherwise.
            log.debug("service proxy not looked at", extra={"error": str(error)})
            await asyncio.sleep(BROKEN_PAUSE)
            self._changed.set()
            return
        previous, self.current = self._told, found
        if previous is None or found != previous:
            self._told = found
            doubt = found.kind is Kind.UNKNOWN or found.mode is Mode.UNKNOWN
            log.log(
                logging.WARNING if doubt else logging.INFO,
                "service proxy",
                extra={"found": found.sentence(), "evidence": "; ".join(map(str, found.evidence))},
            )
            for observer in self._observers:
                observer(found, previous)
        self._looked.set()

    async def _confirmed(self) -> ServiceProxy:
        found = await self._found()
        known = self._told is not None and self._told.kind is not Kind.UNKNOWN
        if known and found.kind is Kind.UNKNOWN:
            # An API server that has just started forbids what it will grant in a moment.
            await asyncio.sleep(CONFIRM)
            found = await self._found()
        return found

    async def _found(self) -> ServiceProxy:
        seen = await observe(self._api, everywhere=False, pods=False)
        self._shown = {workloads.name(one): _shows(one) for one in seen.known_daemonsets}
        return infer.service_proxy(seen)

    def _daemonset_changed(self, event: str, daemonset: Object) -> None:
        """Take note of a change; during a roll-out each node is one, and says nothing new."""
        name, shows = workloads.name(daemonset), () if event == "DELETED" else _shows(daemonset)
        if not daemonset or (infer.relevant(daemonset) and self._shown.get(name) != shows):
            self._shown[name] = shows
            self._changed.set()

    def _config_map_changed(self, _event: str, _config_map: Object) -> None:
        self._changed.set()


def _shows(daemonset: Object) -> Hashable:
    """What `infer` takes from it: template (by its number), whether it runs at all, whether it is being rolled out."""
    generation = daemonset.get("metadata", {}).get("generation")
    return generation, workloads.scheduled(daemonset) == 0, workloads.rolling(daemonset)
