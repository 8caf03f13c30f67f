"""Where the Authorization header for the Kubernetes API comes from. Reading may block: a file, a program that is run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

FILE_PERIOD = 60.0
"""Seconds between two readings of a token file: the kubelet writes a new token long before the old one ends."""

EXPIRY_MARGIN = 60.0
"""Seconds before the end of a plug-in's token at which it is asked again."""

EXEC_TIMEOUT = 60.0
"""Seconds that a plug-in may take."""


class CredentialError(Exception):
    """A credential could not be had: what, where, and why, in one line."""


@dataclasses.dataclass(frozen=True)
class Credential:
    """The Authorization header (None: anonymous, or a client certificate), and for how many seconds to use it unasked."""

    header: str | None = dataclasses.field(repr=False)
    fresh_for: float | None = None


class Source(Protocol):
    def read(self) -> Credential:
        """Read the credential anew; may block. Raises CredentialError."""
        ...


class Fixed:
    """A header that never changes: a token or a password written into the kubeconfig, or nothing."""

    def __init__(self, header: str | None) -> None:
        self._credential = Credential(header)

    def read(self) -> Credential:
        return self._credential


class TokenFile:
    """A file with a bearer token, which somebody else renews: the kubelet, or whoever wrote the kubeconfig."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Credential:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "not text"
            raise CredentialError(f"the token file {self._path} cannot be read: {cause}") from error
        if not token:
            raise CredentialError(f"the token file {self._path} is empty")
        return Credential(f"Bearer {token}", FILE_PERIOD)


class ExecPlugin:
    """A program that prints an ExecCredential (client.authentication.k8s.io), as `users[].user.exec` in a kubeconfig names it."""

    def __init__(
        self, command: Sequence[str], api_version: str, env: Mapping[str, str], cluster: Mapping[str, Any] | None
    ) -> None:
        """`cluster` is told to the plug-in when its configuration asks for that (provideClusterInfo)."""
        self._command, self._api_version = list(command), api_version
        spec = {"interactive": False, **({"cluster": cluster} if cluster else {})}
        info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": spec}
        self._env = {**env, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def read(self) -> Credential:
        status = self._run()
        token = status.get("token")
        if not isinstance(token, str) or not token:
            raise CredentialError(
                f"the exec plug-in {self._command[0]} gave no token; client certificates are not supported"
            )
        return Credential(f"Bearer {token}", _seconds_until(status.get("expirationTimestamp")))

    def _run(self) -> Mapping[str, Any]:
        name = f"the exec plug-in {self._command[0]}"
        try:
            done = subprocess.run(  # noqa: S603 - the command is the user's own
                self._command,
                env={**os.environ, **self._env},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=EXEC_TIMEOUT,
                check=False,
            )
        except OSError as error:
            raise CredentialError(f"{name} cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise CredentialError(f"{name} did not end within {EXEC_TIMEOUT:g} s") from error
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise CredentialError(f"{name} ended with {done.returncode}: {last}")
        try:
            answer = json.loads(done.stdout)
        except ValueError as error:
            raise CredentialError(f"{name} printed no JSON") from error
        if not isinstance(answer, dict) or answer.get("apiVersion") != self._api_version:
            raise CredentialError(f"{name} printed no ExecCredential of {self._api_version}")
        status = answer.get("status")
        return status if isinstance(status, dict) else {}


def _seconds_until(timestamp: object) -> float | None:
    try:
        until = dt.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return None
    if until.tzinfo is None:
        return None
    return max(1.0, (until - dt.datetime.now(dt.UTC)).total_seconds() - EXPIRY_MARGIN)
