"""
Where the Kubernetes API is and how to get in: a kubeconfig, or the files of a pod. The only file that imports `kubernetes`.

Of that package only the loaders are used, and only once they are needed: importing it takes two seconds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import copy
import dataclasses
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
import yarl

from ccm_lb.clock import SystemClock
from ccm_lb.errors import ConfigError
from ccm_lb.http import pacing
from ccm_lb.kube import authorization, credentials
from ccm_lb.kube.api import FIELD_MANAGER, Endpoint, KubeApi, Observer
from ccm_lb.redaction import Secrets, yaml_problem

__all__ = ["KubeApi", "Observer", "Pod", "connect"]

# What the loaders raise on files that are not what they expect, besides an exception of their own.
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError, OSError)


@dataclasses.dataclass(frozen=True)
class Pod:
    """What the kubelet gives to a process in a cluster: a folder with `token` and `ca.crt`, and two variables."""

    mount: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)


@dataclasses.dataclass(frozen=True)
class _Access:
    """What the loaders found. `where` is what a user would call the place."""

    where: str
    server: str
    source: credentials.Source
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None


async def connect(  # noqa: PLR0913 - each is a setting of its own
    kubeconfig: str | Path | None,
    master: str | None,
    *,
    user_agent: str,
    secrets: Secrets,
    qps: float | None = None,
    burst: int | None = None,
    field_manager: str = FIELD_MANAGER,
    observer: Observer | None = None,
    pod: Pod = Pod(),
) -> KubeApi:
    """
    The API of the cluster that `kubeconfig` names, or without one of the cluster that this pod runs in. Nothing is sent yet.

    `master` takes the place of the server's URL. With `qps` no more than so many requests a second go out, and `burst` at once
    (a second's worth if None). `secrets` is told of every credential. Raises ConfigError.
    """
    secrets.add_settings([master, kubeconfig and str(kubeconfig)])
    with contextlib.ExitStack() as unpacked:
        access = _from_pod(pod, master) if kubeconfig is None else await _from_file(Path(kubeconfig), unpacked, secrets)
        server, tls, proxy = _server(access, master), _tls(access), _proxy(access)
    clock = SystemClock()
    present = authorization.Credentials(access.source, clock, secrets)
    try:
        await asyncio.to_thread(present.read)
    except credentials.CredentialError as error:
        raise ConfigError(f"{access.where}: {error}") from error
    bucket = None if qps is None else pacing.TokenBucket(qps, burst or max(1, int(qps)), clock)
    endpoint = Endpoint(server, tls, present, secrets, access.tls_server_name, proxy)
    return KubeApi(
        endpoint, clock, user_agent=user_agent, field_manager=field_manager, bucket=bucket, observer=observer
    )


def _from_pod(pod: Pod, master: str | None) -> _Access:
    with _some_home():
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config import ConfigException
        from kubernetes.aio.config.incluster_config import InClusterConfigLoader

    token, ca_file, found = pod.mount / "token", pod.mount / "ca.crt", Configuration()
    loader = InClusterConfigLoader(str(token), str(ca_file), try_refresh_token=False, environ=pod.environ)
    try:
        loader.load_and_set(found)
    except (ConfigException, OSError) as error:
        if master is not None:
            return _Access("--master", master, credentials.Fixed(None))
        raise ConfigError(
            f"no Kubernetes API to talk to: --kubeconfig is not given, and this is not a pod with a service account "
            f"({str(error).rstrip('.')}); give --kubeconfig FILE"
        ) from error
    return _Access("the pod's service account", found.host, credentials.TokenFile(token), str(ca_file))


async def _from_file(path: Path, unpacked: contextlib.ExitStack, secrets: Secrets) -> _Access:
    """The files that `_Access` names are there until `unpacked` is closed; `secrets` is told of what the file holds."""
    with _some_home():
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config import ConfigException
        from kubernetes.aio.config.kube_config import KubeConfigLoader

    class Loader(KubeConfigLoader):  # type: ignore[misc] # not typed
        async def load_from_exec_plugin(self) -> bool:
            return True  # run by ours: again before the token ends, and with an error that says what happened

    where, found = f"--kubeconfig {path}", Configuration()
    config = _yaml(path, where)
    secrets.add_settings(config)
    try:
        loader = Loader(_unpack(config, unpacked), config_base_path=str(path.parent))
        await loader.load_and_set(found)
        user = _named(config.get("users"), loader.current_context["context"].get("user"), "user")
        cluster = _named(config["clusters"], loader.current_context["context"]["cluster"], "cluster")
        if not cluster.get("server"):
            raise ValueError("the cluster of the current context names no server")
        source = _source(user, cluster, path.parent, found.api_key.get("BearerToken"))
    except (ConfigException, *_MALFORMED) as error:
        raise ConfigError(f"{where} is not a usable kubeconfig: {_one_line(error)}") from error
    return _Access(
        where,
        found.host,
        source,
        ca_file=found.ssl_ca_cert,
        cert_file=found.cert_file,
        key_file=found.key_file,
        verify=found.verify_ssl,
        tls_server_name=found.tls_server_name,
        proxy=found.proxy,
    )


@contextlib.contextmanager
def _some_home() -> Iterator[None]:
    """A home folder while kubernetes is imported: it names a file there, and stops where a user has none, as an image's has."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = os.sep
        try:
            yield
        finally:
            del os.environ["HOME"]  # plug-ins are not to take it for one
    else:
        yield


def _unpack(config: Mapping[str, Any], unpacked: contextlib.ExitStack) -> dict[str, Any]:
    """The kubeconfig with files in the place of the certificates and keys inside it, which the loaders would write to /tmp."""
    made = copy.deepcopy(dict(config))
    for kind, names in (("cluster", ("certificate-authority",)), ("user", ("client-certificate", "client-key"))):
        for entry in made.get(f"{kind}s") or ():
            body = entry.get(kind) or {}
            for name in names:
                if data := body.pop(f"{name}-data", None):
                    body[name] = unpacked.enter_context(_file(_decoded(data, f"{kind} {entry['name']}: {name}-data")))
    return made


def _decoded(data: object, name: str) -> bytes:
    try:
        return base64.b64decode("".join(str(data).split()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is not base64: {error}") from None


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, in memory where the system can: a container may have no folder to write to."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("kubeconfig"), "wb") as file:  # noqa: PTH123 - it has no path before it is open
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _yaml(path: Path, where: str) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}; expected a kubeconfig file") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {yaml_problem(error)}; expected a kubeconfig file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not YAML: it is not text; expected a kubeconfig file") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{where} holds no kubeconfig: expected a mapping with clusters, contexts, users")
    return config


def _named(entries: Any, name: str | None, key: str) -> Mapping[str, Any]:
    return next((entry.get(key) or {} for entry in entries or () if entry["name"] == name), {})


def _source(
    user: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path, loaded: str | None
) -> credentials.Source:
    if plugin := user.get("exec"):
        command = str(plugin["command"])
        # As client-go: a path is relative to the kubeconfig, a bare name is looked up in PATH.
        if os.sep in command:
            command = str(folder / command)
        env = {str(one["name"]): str(one["value"]) for one in plugin.get("env") or ()}
        told = cluster if plugin.get("provideClusterInfo") else None
        return credentials.ExecPlugin([command, *(plugin.get("args") or ())], str(plugin["apiVersion"]), env, told)
    if path := user.get("tokenFile"):
        return credentials.TokenFile(folder / path)
    return credentials.Fixed(loaded and loaded.strip())


def _server(access: _Access, master: str | None) -> str:
    named, server = ("--master", master) if master is not None else (access.where, access.server)
    # As client-go: "host:port" means https where there is something to check the server by, else http.
    if server and "://" not in server:
        server = f"{'https' if access.ca_file or access.cert_file else 'http'}://{server}"
    try:
        url = yarl.URL(server)
        valid = url.scheme in ("http", "https") and url.host
        known = url.user or url.password
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{named}: {server!r} is not a server's URL; expected https://HOST:PORT")
    if known:
        # It would stand in metrics and in each error, and no API server since Kubernetes 1.19 takes it.
        raise ConfigError(
            f"{named}: {server!r} has a user in it; expected https://HOST:PORT, and a token as credential"
        )
    return server.rstrip("/")


def _proxy(access: _Access) -> str | None:
    if access.proxy and not access.proxy.startswith(("http://", "https://")):
        raise ConfigError(f"{access.where}: proxy-url {access.proxy!r} is not supported; expected http://HOST:PORT")
    return access.proxy


def _tls(access: _Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca_file)
        if access.cert_file:
            context.load_cert_chain(access.cert_file, access.key_file)
    except OSError as error:  # SSLError is one
        raise ConfigError(f"{access.where}: certificates or key cannot be used: {_one_line(error)}") from error
    # A cluster's own authority is often made without the extensions that strict checking, Python's default from 3.13 on, asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{text} is missing" if isinstance(error, KeyError) else text or type(error).__name__
