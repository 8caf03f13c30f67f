"""
Credentials as openstacksdk reads them: one entry of clouds.yaml, with secure.yaml beside it merged over it; no I/O.

What is read: `auth` (password, application credential or token), `region_name`, `interface`, `cacert` and `<service>_endpoint_override`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccm_lb.errors import ConfigError

__all__ = ["Cloud", "choose", "places", "read"]

_INTERFACES = {"public": "public", "internal": "internal", "admin": "admin"}
_USER_DOMAIN = {"user_domain_id": "id", "user_domain_name": "name"}
_PROJECT_DOMAIN = {"project_domain_id": "id", "project_domain_name": "name"}


@dataclasses.dataclass(frozen=True)
class Cloud:
    """
    How to log in at one cloud, and which of its endpoints to use.

    `login` is the body of Keystone's POST /v3/auth/tokens. `overrides` are addresses by service type, in place of the catalogue's.
    """

    name: str
    auth_url: str
    login: Mapping[str, Any] = dataclasses.field(repr=False)
    secrets: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    region: str | None = None
    interface: str = "public"
    ca: Path | None = None
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)


def places(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Where clouds.yaml is looked for, the first that exists counts."""
    if chosen := environment.get("OS_CLIENT_CONFIG_FILE"):
        return (Path(chosen),)
    folders = (Path(), home / ".config" / "openstack", Path("/etc/openstack"))
    return tuple(folder / f"clouds.{ending}" for folder in folders for ending in ("yaml", "yml"))


def choose(content: Mapping[str, Any], wanted: str | None, where: str) -> str:
    """
    The name of the entry to use: the wanted one, or the only one.

    Raises ConfigError: it is not there, or there are several to choose from.
    """
    clouds = content.get("clouds")
    if not isinstance(clouds, Mapping) or not clouds:
        raise ConfigError(f"{where}: expected `clouds:` with an entry for each cloud")
    known = ", ".join(map(str, clouds))
    if wanted is None and len(clouds) > 1:
        raise ConfigError(
            f"{where} has several clouds ({known}): choose one with the setting `cloud`, or with OS_CLOUD"
        )
    name = wanted or str(next(iter(clouds)))
    if not isinstance(clouds.get(name), Mapping):
        raise ConfigError(f"{where} has no cloud {name!r}, expected one of: {known}")
    return name


def read(content: Mapping[str, Any], name: str, where: str) -> Cloud:
    """The entry `name`. Raises ConfigError, which names what is missing or not taken."""
    entry = content["clouds"][name]
    said = f"{where}: cloud {name!r}"
    if "profile" in entry:
        raise ConfigError(f"{said}: profile is not taken: write auth_url and region_name into the entry")
    if entry.get("verify", True) in (False, "false", "False"):
        raise ConfigError(f"{said}: verify: false is not taken: name the issuer of the certificates in cacert")
    if unknown := [key for key in ("cert", "key") if entry.get(key)]:
        raise ConfigError(f"{said}: {unknown[0]}: client certificates are not taken")
    auth = entry.get("auth")
    if not isinstance(auth, Mapping) or not auth.get("auth_url"):
        raise ConfigError(f"{said}: auth.auth_url is required")
    url = str(auth["auth_url"]).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{said}: auth.auth_url is {url!r}, expected a URL such as https://keystone.example.com/v3")
    login, secret = _login(auth, str(entry.get("auth_type", "")), said)
    return Cloud(
        name=name,
        auth_url=url if url.endswith("/v3") else f"{url}/v3",
        login=login,
        secrets=(secret,),
        region=str(entry["region_name"]) if entry.get("region_name") else None,
        interface=_interface(entry, said),
        ca=Path(entry["cacert"]) if entry.get("cacert") else None,
        overrides={
            key.removesuffix("_endpoint_override").replace("_", "-"): str(value)
            for key, value in entry.items()
            if key.endswith("_endpoint_override") and value
        },
    )


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, mapping by mapping, as secure.yaml lies over clouds.yaml."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def _interface(entry: Mapping[str, Any], said: str) -> str:
    given = str(entry.get("interface") or entry.get("endpoint_type") or "public")
    found = _INTERFACES.get(given.removesuffix("URL"))
    if found is None:
        raise ConfigError(f"{said}: interface is {given!r}, expected public, internal or admin")
    return found


def _login(auth: Mapping[str, Any], kind: str, said: str) -> tuple[dict[str, Any], str]:
    """The body that logs in, and the secret in it."""
    if "applicationcredential" in kind or "application_credential_secret" in auth:
        return _application_credential(auth, said)
    if kind in ("token", "v3token") or (not kind and "token" in auth):
        secret = _required(auth, "token", said)
        return _body("token", {"id": secret}, auth, said), secret
    if kind not in ("", "password", "v3password"):
        raise ConfigError(f"{said}: auth_type is {kind!r}, expected password, v3applicationcredential or token")
    secret = _required(auth, "password", said)
    user = {"password": secret, **_user(auth, said)}
    return _body("password", {"user": user}, auth, said), secret


def _application_credential(auth: Mapping[str, Any], said: str) -> tuple[dict[str, Any], str]:
    secret = _required(auth, "application_credential_secret", said)
    given: dict[str, Any] = {"secret": secret}
    if identifier := auth.get("application_credential_id"):
        given["id"] = str(identifier)
    else:
        given["name"] = _required(auth, "application_credential_name", said)
        given["user"] = _user(auth, said)
    # It belongs to one project, which a scope must not repeat.
    return {"auth": {"identity": {"methods": ["application_credential"], "application_credential": given}}}, secret


def _user(auth: Mapping[str, Any], said: str) -> dict[str, Any]:
    if identifier := auth.get("user_id"):
        return {"id": str(identifier)}
    return {"name": _required(auth, "username", said), "domain": _domain(auth, _USER_DOMAIN, said)}


def _body(method: str, given: Mapping[str, Any], auth: Mapping[str, Any], said: str) -> dict[str, Any]:
    if identifier := auth.get("project_id") or auth.get("tenant_id"):
        project: dict[str, Any] = {"id": str(identifier)}
    else:
        name = auth.get("project_name") or auth.get("tenant_name")
        if not name:
            raise ConfigError(f"{said}: auth.project_id or auth.project_name is required")
        project = {"name": str(name), "domain": _domain(auth, _PROJECT_DOMAIN, said)}
    return {"auth": {"identity": {"methods": [method], method: dict(given)}, "scope": {"project": project}}}


def _domain(auth: Mapping[str, Any], keys: Mapping[str, str], said: str) -> dict[str, str]:
    for key, field in (*keys.items(), ("domain_id", "id"), ("domain_name", "name")):
        if auth.get(key):
            return {field: str(auth[key])}
    raise ConfigError(f"{said}: auth.{next(iter(keys))} or auth.{list(keys)[1]} is required")


def _required(auth: Mapping[str, Any], key: str, said: str) -> str:
    value = auth.get(key)
    if value in (None, ""):
        raise ConfigError(f"{said}: auth.{key} is required")
    return str(value)
