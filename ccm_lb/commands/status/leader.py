"""Asking the holder of the Lease what only it knows: at a URL, or as a pod through the API server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import aiohttp

from ccm_lb.commands.status.rows import Leader, Progress
from ccm_lb.controller.predicates import Scope
from ccm_lb.errors import ApiError, CCMError
from ccm_lb.kube.api import KubeApi

_PATIENCE = aiohttp.ClientTimeout(total=5.0)
_WORK = "/work"  # process.health serves it
_WHAT_TO_DO = "give its address with --leader"


@dataclasses.dataclass(frozen=True)
class Where:
    """The Lease; the port of the pod that holds it, `https:10259` where that is TLS; and a URL to be asked in place of all this."""

    namespace: str
    name: str
    port: str
    url: str = ""


async def ask(api: KubeApi, where: Where) -> Leader:
    """What it said. Never raises for one that cannot be asked: what the cluster shows is worth something without it."""
    if where.url:
        return await _said(where.url, _by_url(where.url))
    lease = f"{where.namespace}/{where.name}"
    try:
        found = await api.get(f"/apis/coordination.k8s.io/v1/namespaces/{where.namespace}/leases/{where.name}")
    except ApiError as error:
        return Leader("", silent=f"the Lease {lease} cannot be read ({error}): {_WHAT_TO_DO}")
    identity = str(found.get("spec", {}).get("holderIdentity") or "")
    if not identity:
        return Leader("", silent=f"nobody holds the Lease {lease}")
    # A pod's host name is its own.
    pod = f"{identity.partition('_')[0]}:{where.port}"
    if where.port.startswith("https:"):
        pod = f"https:{identity.partition('_')[0]}:{where.port.removeprefix('https:')}"
    return await _said(identity, api.get(f"/api/v1/namespaces/{where.namespace}/pods/{pod}/proxy{_WORK}"))


async def _said(identity: str, answer: Any) -> Leader:
    try:
        said = await answer
        progress = {str(one["service"]): _progress(one) for one in said["services"]}
        scope = Scope(frozenset(said["classes"]), bool(said["unclassed"]))
        leading = said["leading"]
    except (CCMError, aiohttp.ClientError, TimeoutError) as error:
        return Leader(
            identity, silent=f"{identity} cannot be asked ({str(error) or type(error).__name__}): {_WHAT_TO_DO}"
        )
    except (KeyError, TypeError, ValueError):
        return Leader(identity, silent=f"{identity} answered with something else than ccm-lb does: {_WHAT_TO_DO}")
    if not leading:
        return Leader(identity, scope, silent=f"{identity} does not lead (any more): {_WHAT_TO_DO}")
    return Leader(identity, scope, progress)


def _progress(one: Mapping[str, Any]) -> Progress:
    return Progress(
        one["outcome"] or "",
        one["reason"] or "",
        one["failures"],
        one["queuedSeconds"],
        one["workingSeconds"],
        one["retryInSeconds"],
    )


async def _by_url(url: str) -> Mapping[str, Any]:
    async with (
        aiohttp.ClientSession(timeout=_PATIENCE) as session,
        session.get(f"{url.rstrip('/')}{_WORK}") as answer,
    ):
        answer.raise_for_status()
        found: Mapping[str, Any] = await answer.json()
        return found
