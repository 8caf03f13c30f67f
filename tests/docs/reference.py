"""The tables of the reference pages, made from the code. `python -m tests.docs` writes them into the pages."""

import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from ccm_lb import ipmode
from ccm_lb.backends import reference as settings
from ccm_lb.backends import registry
from ccm_lb.controller.census import Count
from ccm_lb.dataplane.model import unknown
from ccm_lb.process.metrics import Metrics
from fakecloud.api.server import OPERATIONS
from tests.docs.pages import ROOT
from tests.packets import picture
from tests.scenarios.verdicts import Reports

BEGIN = "<!-- made by `python -m tests.docs` -->"
END = "<!-- end -->"


def fakecloud_operations() -> str:
    rows = []
    for operation in OPERATIONS:
        query = sorted(operation.query.model_json_schema().get("properties", {}))
        takes = ", ".join(f"`{name}`" for name in [*(f"?{one}" for one in query), *sorted(operation.headers)])
        rows.append([f"`{operation.method} {operation.path}`", operation.summary, takes])
    return _table(["request", "what it does", "optional"], rows)


def metrics() -> str:
    rows = []
    for family in families():
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        name = family.name + ("_total" if family.type == "counter" else "")
        rows.append([f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), family.documentation])
    return _table(["metric", "type", "labels", "meaning"], rows)


def backends() -> str:
    """The settings of every installed backend that can be used."""
    usable = [one.name for one in registry.installed() if one.error is None]
    return "\n\n".join(f"## {name}\n\n{settings.table(registry.load(name).config_model)}" for name in usable)


def ip_modes() -> str:
    """Both tables of the policy: the rows that decide, and what a mode brings with it."""
    shown = {"ports": "the ports", "scope": "such", "taken": "a node or the API server", "mode": "`Proxy`"}
    rules = [
        [str(number), rule.when, f"`{rule.mode}`" if rule.mode else "that one", rule.because.format(**shown)]
        for number, rule in enumerate(ipmode.RULES, start=1)
    ]
    warnings = [[one.when, one.says.format(**shown)] for one in ipmode.WARNINGS]
    between = "What a mode brings with it is said in an event, once (`IPModeConflict`):"
    return "\n\n".join(
        [_table(["", "when", "ipMode", "because"], rules), between, _table(["when", "what will happen"], warnings)]
    )


PUBLIC = (
    *(
        "ccm_lb.backends.base",
        "ccm_lb.backends.abilities",
        "ccm_lb.backends.actual",
        "ccm_lb.backends.changes",
        "ccm_lb.objects",
        "ccm_lb.errors",
        "ccm_lb.annotations",
        "ccm_lb.ipmode",
    ),
    *(
        f"ccm_lb.testing.{name}"
        for name in ("bench", "builders", "conformance", "fakes", "memory", "script", "transports")
    ),
)
"""What provider authors may import; everything else may change in any release."""


def provider_api() -> str:
    """Every name of each public module's `__all__`, in its order."""
    parts = []
    for name in PUBLIC:
        module = importlib.import_module(name)
        rows = [[f"`{one}`", kind(getattr(module, one)), promise(getattr(module, one))] for one in module.__all__]
        parts += [
            f"## `{name}`",
            _first_sentence(inspect.getdoc(module) or ""),
            _table(["name", "", "what it is"], rows),
        ]
    return "\n\n".join(parts)


def kind(thing: object) -> str:
    """What a name of the public API stands for."""
    if inspect.isclass(thing):
        return "error" if issubclass(thing, BaseException) else "class"
    return "function" if inspect.isfunction(thing) else "value"


def promise(thing: object) -> str:
    """The first sentence of its docstring; empty where it has none of its own."""
    if inspect.isclass(thing) or inspect.isfunction(thing):
        said = thing.__doc__ or ""
        return "" if said.startswith(f"{thing.__name__}(") else _first_sentence(inspect.cleandoc(said))
    return f"`{thing}`" if isinstance(thing, str | int) else ""


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return paragraph.replace("|", "\\|")


def chart_values() -> str:
    """Every value of the Helm chart with its default, from the schema that checks them."""
    chart = ROOT / "manifests" / "chart"
    schema, defaults = (
        json.loads((chart / "values.schema.json").read_text()),
        yaml.safe_load((chart / "values.yaml").read_text()),
    )
    return _table(["value", "default", "what it is"], list(_values(schema["properties"], defaults, "")))


def _values(properties: Mapping[str, Any], defaults: Mapping[str, Any], before: str) -> Iterator[list[str]]:
    for name, one in properties.items():
        if "properties" in one:
            yield from _values(one["properties"], defaults[name], f"{before}{name}.")
        elif name in defaults:
            yield [f"`{before}{name}`", f"`{json.dumps(defaults[name])}`", one["description"]]


def scenarios() -> str:
    reports = Reports.read()
    played = [[name, title, "yes"] for name, title in reports.played.items()]
    waiting = [[name, title, f"waits for {reports.needs[name]}"] for name, title in reports.waiting.items()]
    return _table(["id", "what had gone wrong", "played"], [*played, *waiting])


def families() -> list[Metric]:
    """What a scrape shows once everything has happened; the process's own metrics, which every Python program has, left out."""
    measured = Metrics()
    measured.workqueue.added()
    measured.reconciled("ensure", "success", 0.1)
    measured.contested("status")
    measured.drifted("repaired")
    measured.kube_request("GET", "200", 0.1, "127.0.0.1")
    measured.cloud_request("GET", 200, 0.1)
    measured.leading("lease", holds=True)
    measured.event_dropped("spam")
    measured.counted(Count())
    measured.service_proxy(unknown("nobody looked"))
    found = text_string_to_metric_families(measured.render().decode())
    return sorted((one for one in found if not one.name.startswith("process_")), key=lambda one: one.name)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "docs/ipmode.md": ip_modes,
    "docs/ipmode-picture.md": picture.table,
    "docs/reference/backends.md": backends,
    "docs/reference/fakecloud-api.md": fakecloud_operations,
    "docs/reference/metrics.md": metrics,
    "docs/reference/provider-api.md": provider_api,
    "docs/reference/scenarios.md": scenarios,
    "manifests/chart/README.md": chart_values,
}


def renewed(name: str) -> str:
    """The page as it should be. Raises ValueError for a page without the two marks."""
    text = (ROOT / name).read_text(encoding="utf-8")
    made = f"{BEGIN}\n{TABLES[name]()}\n{END}"
    result, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{name}: expected one {BEGIN} and one {END}")
    return result


def write() -> None:
    for name in TABLES:
        (ROOT / name).write_text(renewed(name), encoding="utf-8")
