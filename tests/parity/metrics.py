"""Two controllers' metrics side by side; pure."""

import dataclasses
from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

_ADDED = {"le", "quantile"}  # by the form of a histogram or a summary


@dataclasses.dataclass(frozen=True)
class Family:
    """A metric: its type and the names of its labels."""

    type: str
    labels: frozenset[str]


def families(text: str) -> Mapping[str, Family]:
    """The metrics in Prometheus' text format, by name as it stands in queries (a counter's ends in _total)."""
    found = {}
    for one in text_string_to_metric_families(text):
        name = f"{one.name}_total" if one.type == "counter" else one.name
        labels = frozenset(label for sample in one.samples for label in sample.labels) - _ADDED
        found[name] = Family(one.type, labels)
    return found


def missing(theirs: Mapping[str, Family], ours: Mapping[str, Family]) -> Iterator[str]:
    """The names of their metrics that ours has not, not with that type, or not with those labels."""
    for name, family in sorted(theirs.items()):
        own = ours.get(name)
        if own is None or own.type != family.type or not own.labels >= family.labels:
            yield name
