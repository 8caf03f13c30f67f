"""Keys, tokens and kubeconfig files, made without openssl or kubectl."""

import base64
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# An ECPrivateKey (RFC 5915) on P-256 is 32 secret bytes between these; the public key in it is optional and Go computes it.
_EC_HEAD = bytes.fromhex("303102010104 20")
_EC_TAIL = bytes.fromhex("a00a06082a8648ce3d030107")
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def write_signing_key(path: Path) -> None:
    """A new P-256 private key as PEM, readable by its owner: signs and verifies ServiceAccount tokens."""
    secret = (secrets.randbelow(_P256_ORDER - 1) + 1).to_bytes(32, "big")
    text = base64.encodebytes(_EC_HEAD + secret + _EC_TAIL).decode()
    _write_private(path, f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n")


def write_tokens(path: Path, token: str, others: Mapping[str, tuple[str, str]]) -> None:
    """A static token file with one cluster admin, and `others`: (user, group) by token."""
    users = {token: ("admin", "system:masters"), **others}
    _write_private(path, "".join(f'{one},{name},{name},"{group}"\n' for one, (name, group) in users.items()))


def kubeconfig(url: str, token: str, ca: Path | None, name: str = "admin") -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and one context; the CA is embedded, so the file can be moved."""
    cluster: dict[str, str] = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca.read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
        "current-context": "lab",
    }


def write_kubeconfig(path: Path, content: dict[str, Any]) -> Path:
    """Write a kubeconfig, readable by its owner."""
    _write_private(path, yaml.safe_dump(content, sort_keys=False))
    return path


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
