"""Installed backends and their settings files. The backends here are genuine installed distributions in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ccm_lb.backends import registry
from ccm_lb.backends.base import BackendConfig, LoadBalancerBackend
from ccm_lb.commands import main
from ccm_lb.errors import ConfigError
from ccm_lb.objects import LoadBalancerStatus, Node, Service
from ccm_lb.redaction import Secrets

BACKEND = """
from pydantic import SecretStr
from ccm_lb.backends.base import BackendConfig, LoadBalancerBackend
class Acme(LoadBalancerBackend):
    async def get_load_balancer(self, service): ...
    async def ensure_load_balancer(self, service, nodes): ...
    async def update_load_balancer(self, service, nodes): ...
    async def ensure_load_balancer_deleted(self, service): ...
class Other: ...
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution `name` 1.2 whose module `name` has this code and these entry points (name to attribute)."""

    def put(name: str, code: str, **points: str) -> None:
        folder = tmp_path / name
        info = folder / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
        lines = [f"{point} = {name}:{attribute}" for point, attribute in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[ccm_lb.backends]", *lines, ""]), encoding="utf-8")
        monkeypatch.syspath_prepend(str(folder))

    return put


def test_an_installed_backend_is_loaded_by_its_name(install: Install) -> None:
    install("acme_loaded", BACKEND, acme="Acme")
    assert registry.load("acme").__name__ == "Acme"
    assert {"acme", "fakecloud"} <= set(registry.names())


def test_an_unknown_backend_is_answered_with_the_installed_ones(install: Install) -> None:
    install("acme_listed", BACKEND, acme="Acme")
    with pytest.raises(
        ConfigError, match=r"no backend 'amce' is installed, expected one of: acme, fakecloud, openstack$"
    ):
        registry.load("amce")


@pytest.mark.parametrize(
    ("module", "code", "attribute", "expected"),
    [
        pytest.param(
            "acme_e1", "import nowhere_at_all", "Acme", "ModuleNotFoundError: No module named", id="missing-module"
        ),
        pytest.param("acme_e2", "def (", "Acme", "SyntaxError", id="syntax-error"),
        pytest.param(
            "acme_e3", "import os; os.environ['NOT_SET_ANYWHERE']", "Acme", "KeyError", id="fails-while-imported"
        ),
        pytest.param("acme_e4", BACKEND, "Missing", "AttributeError", id="missing-attribute"),
        pytest.param(
            "acme_e5", BACKEND, "Other", "acme_e5:Other is not a subclass of LoadBalancerBackend", id="another-class"
        ),
        pytest.param(
            "acme_e6", "Acme = 5", "Acme", "acme_e6:Acme is not a subclass of LoadBalancerBackend", id="no-class"
        ),
    ],
)
def test_a_backend_that_cannot_be_used_says_why(
    module: str, code: str, attribute: str, expected: str, install: Install
) -> None:
    install(module, code, acme=attribute)
    with pytest.raises(ConfigError) as caught:
        registry.load("acme")
    assert str(caught.value).startswith("backend 'acme': ")
    assert expected in str(caught.value)


def test_a_name_that_two_distributions_claim_is_refused(install: Install) -> None:
    install("acme_first", BACKEND, acme="Acme")
    install("acme_second", BACKEND, acme="Acme")
    with pytest.raises(ConfigError, match=r"'acme' is installed more than once.*acme_second:Acme, acme_first:Acme"):
        registry.load("acme")


def test_the_command_lists_usable_and_broken_backends(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme_good", BACKEND, good="Acme")
    install("acme_bad", "import nowhere_at_all", bad="Acme")
    assert main.execute(["backends", "--output=json"]) == 0
    found = {one.pop("name"): one for one in json.loads(capsys.readouterr().out)}
    good = {"target": "acme_good:Acme", "distribution": "acme_good", "version": "1.2", "error": None}
    assert found["good"] == good
    assert "No module named 'nowhere_at_all'" in found["bad"]["error"]
    assert main.execute(["backends"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["NAME", "TARGET", "DISTRIBUTION", "VERSION", "ERROR"]
    assert ["good", "acme_good:Acme", "acme_good", "1.2", "-"] in [line.split() for line in table]


# ---- settings files


class Zone(BackendConfig):
    name: str
    weight: int = 1


class Settings(BackendConfig):
    endpoint: str
    api_token: str = ""
    timeout: float = 5.0
    zones: tuple[Zone, ...] = ()


class Backend(LoadBalancerBackend[Settings]):
    config_model: ClassVar[type[BackendConfig]] = Settings

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None: ...
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus: ...  # type: ignore[empty-body]
    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None: ...
    async def ensure_load_balancer_deleted(self, service: Service) -> None: ...


class PlainBackend(Backend):
    config_model = BackendConfig


def write(folder: Path, content: str) -> Path:
    path = folder / "acme.yaml"
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "content",
    ["endpoint: http://a\ntimeout: 2", '{"endpoint": "http://a", "timeout": 2}'],
    ids=["yaml", "json"],
)
def test_a_backends_settings_are_read_into_its_model(content: str, tmp_path: Path) -> None:
    assert registry.backend_config(Backend, write(tmp_path, content), Secrets()) == Settings(
        endpoint="http://a", timeout=2
    )


def test_without_a_file_a_backend_has_its_defaults() -> None:
    assert registry.backend_config(PlainBackend, None, Secrets()) == BackendConfig()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("", "endpoint: is required", id="missing"),
        pytest.param("endpoint: a\ntimeuot: 1", "timeuot: unknown key, did you mean timeout?", id="typo"),
        pytest.param("endpoint: a\nzzz: 1", "zzz: unknown key, expected one of: endpoint, api_token", id="unknown"),
        pytest.param("endpoint: 5", "endpoint: got 5, expected a valid string", id="wrong-type"),
        pytest.param(
            "endpoint: a\nzones: [{name: b, weight: x}]",
            "zones.0.weight: got 'x', expected a valid integer",
            id="nested",
        ),
        pytest.param(
            "endpoint: a\napi_token: 12345",
            "api_token: got a secret, expected a valid string",
            id="secret-is-not-shown",
        ),
    ],
)
def test_a_mistake_in_a_backends_settings_names_file_and_key(content: str, expected: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        registry.backend_config(Backend, path, Secrets())
    assert str(caught.value).startswith(f"{path}: {expected}")
    assert "12345" not in str(caught.value)


def test_settings_that_are_required_without_a_file_ask_for_it() -> None:
    with pytest.raises(ConfigError, match=r"^--cloud-config is not given: endpoint: is required$"):
        registry.backend_config(Backend, None, Secrets())


def test_a_rule_between_settings_is_said_in_its_own_words(tmp_path: Path) -> None:
    from pydantic import model_validator

    class Pair(BackendConfig):
        low: int
        high: int

        @model_validator(mode="after")
        def _ordered(self) -> Any:
            if self.low > self.high:
                raise ValueError("low must not be above high")
            return self

    class PairBackend(Backend):
        config_model = Pair

    with pytest.raises(ConfigError, match=r"acme.yaml: low must not be above high$"):
        registry.backend_config(PairBackend, write(tmp_path, "low: 2\nhigh: 1"), Secrets())
