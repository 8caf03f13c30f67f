"""What the pages say of the code, held against the code."""

import inspect
import re

import pytest
import yaml

from ccm_lb import annotations
from ccm_lb.commands.main import cli
from ccm_lb.controller import capable, messages, serviceevents
from ccm_lb.controller.endings import Ending
from ccm_lb.dataplane.clients import mismatch
from ccm_lb.objects import CLEANUP_FINALIZER, EXCLUDE_LABEL, IPMode
from ccm_lb.settings.config import Config
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import RecordedEvents
from tests.controlplane import recipes
from tests.docs import pages


def test_the_readme_names_the_tested_versions() -> None:
    rows = dict(pages.table(pages.read("README.md").prose, "Kubernetes versions"))
    assert re.findall(r"\d+\.\d+\.\d+", rows["tested"]) == [recipes.OLDEST_TESTED, recipes.default_kube_version()]


def test_the_tables_of_events_and_code_agree() -> None:
    rows = pages.table(pages.read("docs/howto/operate.md").prose, "Events")
    by_the_backend = {("Warning", "UnknownServer"), ("Normal", "AdoptedLoadBalancer")}  # fakecloud's
    ours = {(kind, reason) for reason, kind in messages.TYPES.items()}
    ours |= {("Warning", mismatch.REASON), ("Warning", capable.LIMITED)}
    assert {(kind, reason) for reason, kind, _ in rows} == announced() | ours | by_the_backend


def announced() -> set[tuple[str, str]]:
    """Type and reason of everything that an ServiceEvents can say."""
    said = RecordedEvents()
    service_events = serviceevents.ServiceEvents(said)
    given = {
        "service": builders.service(),
        "error": ValueError("no"),
        "nodes": builders.nodes(),
        "news": (),
        "message": "because",
    }
    endings = [{"end": one} for one in Ending]
    for name, method in inspect.getmembers(service_events, inspect.ismethod):
        if not name.startswith("_"):
            names = inspect.signature(method).parameters
            for more in endings if "end" in names else [{}]:
                method(**{name: (given | more)[name] for name in names})
    return {(event.type, event.reason) for event in said.all}


def test_the_annotations_page_lists_them_all() -> None:
    rows = pages.table(pages.read("docs/reference/annotations.md").prose, "Annotations")
    declared = {value for name, value in vars(annotations).items() if name.isupper() and not name.startswith("_")}
    assert {row[0].strip("`") for row in rows} == declared
    assert rows[0][1] == ", ".join(f"`{mode}`" for mode in IPMode)


@pytest.mark.parametrize("name", ["docs/howto/operate.md", "docs/howto/ci.md", "docs/howto/write-a-backend.md"])
def test_flags_that_pages_name_exist(name: str) -> None:
    text = "\n".join(re.findall(r"ccm-lb (?:run|config)[^\n]*", (pages.ROOT / name).read_text()))
    text += "\n".join(re.findall(r"`(--[a-z-]+)(?:=[^`]*)?`", (pages.ROOT / name).read_text()))
    known = {field.replace("_", "-") for field in Config.model_fields} | {"config"}
    for command in cli.commands.values():
        known |= {option.removeprefix("--") for parameter in command.params for option in parameter.opts}
    others = {"controllers", "pool", "state", "port", "ready-file"}  # of the Go controller, and of fakecloud
    others |= {"delete", "yes"}  # of commands
    assert set(re.findall(r"--([a-z-]+)", text)) - known - others == set()


def test_the_rights_that_a_page_asks_for_are_those_of_the_manifests() -> None:
    blocks = [
        yaml.safe_load(one.text) for one in pages.read("docs/service-proxies.md").blocks if "kind: Role" in one.text
    ]
    manifest = (pages.ROOT / "manifests" / "components" / "service-proxy" / "rbac.yaml").read_text()
    assert blocks == [
        one
        for one in yaml.safe_load_all(manifest)
        if one["metadata"]["name"] == "ccm-lb-service-proxy" and "rules" in one
    ]


def test_constants_that_pages_name_are_the_code_s() -> None:
    text = (pages.ROOT / "docs/howto/operate.md").read_text()
    for constant in (CLEANUP_FINALIZER, EXCLUDE_LABEL, Config.model_fields["leader_elect_resource_name"].default):
        assert f"`{constant}`" in text
    for field in ("port", "leader_elect_lease_duration", "node_sync_debounce"):
        assert str(round(float(Config.model_fields[field].default))) in text


def test_the_example_backend_and_its_test_are_as_short_as_promised() -> None:
    blocks = {block.file: block for block in pages.read("docs/howto/write-a-backend.md").blocks}
    assert len(blocks["acme_lb.py"].text.splitlines()) <= 90
    assert len(blocks["test_acme_lb.py"].text.splitlines()) <= 30
