"""Makes the binaries of the control plane, once, and finds them afterwards."""

import dataclasses
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane import recipes
from tests.controlplane.cache import Cache
from tests.controlplane.progress import Progress, clock_text, seconds_left
from tests.controlplane.recipes import BuildError, Recipe
from tests.controlplane.toolchain import find_go, go_environment

# The estimates of recipes.RECIPES were taken on two cores.
_REFERENCE_CORES = 2


def find_binaries(names: Sequence[str], version: str, environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Those of `names` that are at hand, in KUBEBUILDER_ASSETS (kube-apiserver and etcd only) or in the cache."""
    assets = environment.get("KUBEBUILDER_ASSETS")
    cache = Cache.from_environment(environment)
    found: dict[str, Path] = {}
    for recipe in _chosen(names):
        if assets and recipe.name in recipes.CONTROL_PLANE:
            path = Path(assets) / recipe.name
            if not os.access(path, os.X_OK):
                raise BuildError(
                    f"KUBEBUILDER_ASSETS={assets}: no executable {recipe.name} there; unset it to build our own"
                )
            found[recipe.name] = path
        elif at_hand := cache.find(recipe, version):
            found[recipe.name] = at_hand
    return found


def ensure_binaries(names: Sequence[str], version: str, progress: Progress) -> dict[str, Path]:
    """
    Paths of all `names`, built when absent.

    Raises:
        BuildError: with one line that says what failed and what to do.
    """
    found = find_binaries(names, version)
    if len(found) == len(names):
        return found
    cache = Cache.from_environment()
    with cache.only_builder(progress):
        found = find_binaries(names, version)  # another run may have made them meanwhile
        missing = [recipe for recipe in _chosen(names) if recipe.name not in found]
        for index, recipe in enumerate(missing):
            after = sum(later.seconds for later in missing[index + 1 :])
            found[recipe.name] = _build(recipe, version, cache, _Report(recipe, after, progress))
    return found


def _chosen(names: Sequence[str]) -> list[Recipe]:
    known = {recipe.name for recipe in recipes.RECIPES}
    for name in names:
        if name not in known:
            raise recipes.UsageError(f"{name!r}: unknown binary; expected some of {', '.join(sorted(known))}")
    return [recipe for recipe in recipes.RECIPES if recipe.name in names]


@dataclasses.dataclass(frozen=True, slots=True)
class _Report:
    """Progress of one binary, and the seconds foreseen for those after it (on the reference machine)."""

    recipe: Recipe
    after: float
    progress: Progress

    def compiling(self, done: int, packages: tuple[int, int], elapsed: float) -> None:
        stale, known = packages
        done = min(done, stale)
        slower = _REFERENCE_CORES / (os.cpu_count() or 1)
        expected = self.recipe.seconds * slower * stale / max(known, 1)
        left = seconds_left(elapsed, done / stale if stale else 1.0, expected) + self.after * slower
        counted = f"{self.recipe.name}: " + (f"{done} of {stale} packages" if stale else "linking")
        self.progress.update(f"{counted}, {clock_text(elapsed)} so far, about {clock_text(left)} left in all")


def _build(recipe: Recipe, version: str, cache: Cache, report: _Report) -> Path:
    place = cache.place(recipe, version)
    place.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=place.parent) as scratch:
        go = find_go(recipes.go_version_needed((recipes.HERE / "go.mod").read_text()), report.progress)
        module, mode = _module(go, recipe, version, Path(scratch), report.progress)
        report.progress.line(f"{recipe.name}: fetching its modules and counting packages")
        flags = [mode, *recipes.build_flags(recipe, version)]
        if recipe.name == "peer-quick":
            flags.append(f"-modfile={_quick(go, module, Path(scratch))}")
        made = Path(scratch) / recipe.name
        # Without -vet=off every dependency of a test is vetted too, which takes longer than to compile them.
        verb = ["test", "-c", "-vet=off"] if recipe.is_test else ["build"]
        command = [str(go), *verb, "-v", *flags, "-o", str(made), recipe.package]
        _compile(command, module, _count_packages(go, recipe, module, flags), report)
        made.replace(place)
    report.progress.line(f"{recipe.name}: built in {clock_text(time.monotonic() - started)}")
    return place


def _module(go: Path, recipe: Recipe, version: str, scratch: Path, progress: Progress) -> tuple[Path, str]:
    """The folder to build in and the -mod flag: the committed pins as they are, or a go.mod made for `version`."""
    if not recipe.is_kubernetes or version == recipes.default_kube_version():
        return recipe.folder, "-mod=readonly"
    progress.line(f"{recipe.name}: fetching Kubernetes {version}")
    asked = _go(go, ["mod", "download", "-json", f"k8s.io/kubernetes@v{version}"], scratch)
    upstream = json.loads(asked)["GoMod"]
    module = scratch / "module"
    module.mkdir()
    (module / "go.mod").write_text(recipes.derived_go_mod(version, Path(upstream).read_text()))
    return module, "-mod=mod"  # no go.sum yet: the checksums come from the checksum database


def _quick(go: Path, module: Path, scratch: Path) -> Path:
    """A go.mod of the peer in which the controller has small retry delays. (-overlay does not reach into Go's module cache.)"""
    _go(go, ["mod", "download", recipes.QUICK_MODULE], module)
    original = _go(go, ["list", "-m", "-f", "{{.Dir}}", recipes.QUICK_MODULE], module).strip()
    changed, go_mod = scratch / "changed", scratch / "go.mod"
    # Without modes: Go keeps its modules read-only.
    shutil.copytree(original, changed, copy_function=shutil.copyfile)
    controller = changed / recipes.QUICK_FILE
    for folder in (changed, *changed.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)
    controller.write_text(recipes.quick(controller.read_text()))
    go_mod.write_text((module / "go.mod").read_text() + f"\nreplace {recipes.QUICK_MODULE} => {changed}\n")
    shutil.copyfile(module / "go.sum", scratch / "go.sum")
    return go_mod


def _count_packages(go: Path, recipe: Recipe, module: Path, flags: Sequence[str]) -> tuple[int, int]:
    """(to compile, all): what Go's own build cache holds needs no compiling. Downloads the modules as a side effect."""
    form = ["-deps", *(["-test"] if recipe.is_test else []), "-f", "{{.ImportPath}}\t{{.StaleReason}}", recipe.package]
    reasons = [line.partition("\t")[2] for line in _go(go, ["list", *flags, *form], module).splitlines()]
    return sum(1 for reason in reasons if reason and not reason.endswith("available in build cache")), len(reasons)


def _go(go: Path, arguments: Sequence[str], folder: Path) -> str:
    command = [str(go), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=go_environment(os.environ), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BuildError(f"go {' '.join(arguments)} failed: {said[-1] if said else 'no output'}")
    return done.stdout


def _compile(command: Sequence[str], folder: Path, packages: tuple[int, int], report: _Report) -> None:
    """Run `go build -v`, which names each package as it is compiled, and show how far it is."""
    started = time.monotonic()
    last: deque[str] = deque(maxlen=15)
    done = 0
    with (
        subprocess.Popen(
            command, cwd=folder, env=go_environment(os.environ), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        ) as compiler,
        selectors.DefaultSelector() as ready,
    ):
        assert compiler.stderr is not None
        descriptor = compiler.stderr.fileno()
        os.set_blocking(descriptor, False)
        ready.register(descriptor, selectors.EVENT_READ)
        rest = b""
        while True:
            if ready.select(timeout=0.5):
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    break
                *lines, rest = (rest + chunk).split(b"\n")
                done += len(lines)
                last.extend(line.decode(errors="replace") for line in lines)
            report.compiling(done, packages, time.monotonic() - started)
    if compiler.returncode != 0:
        reason = "; ".join(line for line in last if line.strip()) or f"exit {compiler.returncode}"
        raise BuildError(f"go build {report.recipe.package} failed: {reason}")
