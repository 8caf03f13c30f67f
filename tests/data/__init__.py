"""
Clusters as files, written by hand after what each project documents; the first line of a file names project, version and source.

Nothing here was taken from anybody's cluster.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ccm_lb.dataplane.cluster.observed import Observed, Withheld

CLUSTERS = Path(__file__).parent / "clusters"
Json = dict[str, Any]


def names() -> list[str]:
    return sorted(path.stem for path in CLUSTERS.glob("*.yaml"))


def objects(name: str, **replaced: str) -> list[Json]:
    """The objects of a cluster; words in capitals are replaced as the test says."""
    text = (CLUSTERS / f"{name}.yaml").read_text()
    for word, by in replaced.items():
        assert word in text, f"{name}: no {word} to replace"
        text = text.replace(word, by)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it exists
    return [one for one in yaml.load_all(text, loader) if one]


def observed(items: list[Json], *, everywhere: bool = True) -> Observed:
    """These objects, as `detect.observe` sees them with all rights."""

    def of(kind: str) -> list[Json]:
        return [one for one in items if one["kind"] == kind]

    config_maps: Mapping[tuple[str, str], Json | Withheld | None] = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one for one in of("ConfigMap")
    }
    felix = next(iter(of("FelixConfiguration")), None)
    return Observed(of("DaemonSet"), everywhere, config_maps, of("Pod"), of("Node"), felix)


def cluster(name: str, **replaced: str) -> Observed:
    return observed(objects(name, **replaced))
