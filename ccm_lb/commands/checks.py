"""What `run` would find wrong before it asks anybody: the backend, its file, the kubeconfig, the certificate. All of it, not the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ccm_lb.errors import ConfigError
from ccm_lb.redaction import Secrets


class Named(NamedTuple):
    """What the settings name outside themselves; None for what is not given, or is wrong already."""

    cloud_provider: str | None = None
    cloud_config: Path | None = None
    kubeconfig: Path | None = None
    master: str | None = None
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None


def mistakes(named: Named, secrets: Secrets) -> list[str]:
    """One line for each; `secrets` is told of those that are read. A pod's own credentials are not looked for: only the pod has them."""
    return list(_mistakes(named, secrets))


def _mistakes(named: Named, secrets: Secrets) -> Iterator[str]:
    if named.cloud_provider:
        yield from _complaint(lambda: _backend(str(named.cloud_provider), named.cloud_config, secrets))
    if named.kubeconfig:
        yield from _complaint(lambda: asyncio.run(_connect(named, secrets)))
    if named.tls_cert_file and named.tls_private_key_file:
        yield from _complaint(lambda: _certificate(named))


def _complaint(check: Callable[[], None]) -> Iterator[str]:
    try:
        check()
    except ConfigError as error:
        yield str(error)


def _backend(name: str, file: Path | None, secrets: Secrets) -> None:
    from ccm_lb.backends import registry

    registry.backend_config(registry.load(name), file, secrets)


async def _connect(named: Named, secrets: Secrets) -> None:
    from ccm_lb.kube.connect import connect

    await (await connect(named.kubeconfig, named.master, user_agent="ccm-lb", secrets=secrets)).close()


def _certificate(named: Named) -> None:
    from ccm_lb.process import health

    health.server_tls(named.tls_cert_file, named.tls_private_key_file)
