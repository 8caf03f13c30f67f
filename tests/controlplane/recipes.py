"""What can be built, from which Go module, and under which key the result is kept; no I/O but reading our own files."""

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PEER: Final = HERE / "peer"
HELM: Final = HERE / "helm"
# What a node needs besides, and Kubernetes' own end-to-end tests: the versions of HERE in a go.mod of its own, so that a change there
# makes nobody build kube-apiserver again.
CLUSTER: Final = HERE / "cluster"
COREDNS: Final = HERE / "coredns"

_VERSION = re.compile(r"1\.\d+\.\d+")


class BuildError(Exception):
    """The binaries can't be made; the text is one line for the person at the terminal."""


class UsageError(BuildError):
    """A version or name that was asked for does not exist."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """
    One binary, of a Go module in `folder`. `seconds` is what it takes on two cores from nothing, in the order of `RECIPES`.

    `on_demand`: it is built where it is asked for, and not with the others. `is_test`: the package is made of tests.
    """

    name: str
    package: str
    seconds: float
    folder: Path = HERE
    on_demand: bool = False
    is_test: bool = False

    @property
    def is_kubernetes(self) -> bool:
        """Whether it is Kubernetes' own program, of a version that can be chosen."""
        return self.package.startswith("k8s.io/kubernetes/")


# kube-apiserver comes first because the others share most of its packages.
RECIPES: Final = (
    Recipe("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 360.0),
    Recipe("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 110.0),
    Recipe("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", 45.0),
    Recipe("kubectl", "k8s.io/kubernetes/cmd/kubectl", 75.0),
    Recipe("etcd", "go.etcd.io/etcd/server/v3", 15.0),
    Recipe("peer", ".", 60.0, PEER),
    Recipe("peer-quick", ".", 10.0, PEER),
    Recipe("helm", "helm.sh/helm/v4/cmd/helm", 140.0, HELM),
    Recipe("kubelet", "k8s.io/kubernetes/cmd/kubelet", 130.0, CLUSTER),
    Recipe("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 40.0, CLUSTER),
    Recipe("pause", "./pause", 2.0, CLUSTER),
    Recipe("coredns", ".", 60.0, COREDNS),
    Recipe("agnhost", "k8s.io/kubernetes/test/images/agnhost", 60.0, CLUSTER, on_demand=True),
    Recipe("e2e.test", "./e2e", 450.0, CLUSTER, on_demand=True, is_test=True),
)
OLDEST_TESTED: Final = "1.34.4"  # what the README promises besides the default
CONTROL_PLANE: Final = ("kube-apiserver", "etcd")
NODE: Final = ("kubelet", "kube-scheduler", "kube-controller-manager", "kube-proxy", "kubectl", "coredns", "pause")
DEFAULT_NAMES: Final = tuple(recipe.name for recipe in RECIPES if not recipe.on_demand)
PEERS: Final = ("peer", "peer-quick")
# The peer as it is, but for how long it waits before it tries again: what random sequences of faults would spend their time on.
QUICK_MODULE: Final = "k8s.io/cloud-provider"
QUICK_FILE: Final = "controllers/service/controller.go"
QUICK_RETRIES: Final = {
    "minRetryDelay = 5 * time.Second": "minRetryDelay = 200 * time.Millisecond",
    "maxRetryDelay = 300 * time.Second": "maxRetryDelay = 2 * time.Second",
}


def pinned(module: str, folder: Path = HERE) -> str:
    """The version of a module that the go.mod in `folder` pins, without its v."""
    file = folder / "go.mod"
    found = re.search(rf"^(?:\s*|require ){re.escape(module)} v(\S+)", file.read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{file}: no requirement on {module}; restore the file from the repository")
    return found.group(1)


def default_kube_version() -> str:
    """The version that the committed go.mod pins, as `1.37.2`."""
    return pinned("k8s.io/kubernetes")


def checked_version(version: str) -> str:
    """`v1.34.4` and `1.34.4` both name a version; anything else is refused."""
    bare = version.removeprefix("v")
    if not _VERSION.fullmatch(bare):
        raise UsageError(
            f"KUBE_VERSION {version!r}: expected a full Kubernetes version such as {default_kube_version()}"
        )
    return bare


def cache_key(recipe: Recipe, kube_version: str) -> str:
    """
    The folder of the cache that holds this binary.

    It names the version for people and the hash of what it was built from, so that a changed pin is never served stale.
    """
    if recipe.folder == PEER:
        kind = "" if recipe.name == "peer" else "".join(QUICK_RETRIES.values())
        return f"peer-{_digest(*sorted(PEER.iterdir()), text=kind)}"
    if recipe.is_kubernetes and kube_version != default_kube_version():
        return f"kubernetes-{kube_version}"
    pins = _digest(recipe.folder / "go.mod", recipe.folder / "go.sum")
    if recipe.name == "etcd":
        return f"etcd-{pinned('go.etcd.io/etcd/server/v3')}-{pins}"
    if recipe.folder == HERE:
        return f"kubernetes-{kube_version}-{pins}"
    if recipe.package.startswith("."):
        pins = _digest(*sorted(recipe.folder.glob("go.*")), *sorted((recipe.folder / recipe.package).glob("*.go")))
    return f"{recipe.folder.name}-{pins}"


def _digest(*files: Path, text: str = "") -> str:
    whole = hashlib.sha256(text.encode())
    for file in files:
        whole.update(file.read_bytes())
    return whole.hexdigest()[:12]


def build_flags(recipe: Recipe, kube_version: str) -> list[str]:
    """Flags of `go build`: small, reproducible, and with the version that kube-apiserver reports at /version."""
    link = "-s -w"
    if recipe.is_kubernetes or recipe.is_test:
        version = kube_version if recipe.is_kubernetes else default_kube_version()
        major, minor, _ = version.split(".")
        base = "k8s.io/component-base/version"
        link += f" -X {base}.gitVersion=v{version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
    return ["-trimpath", "-ldflags", link]


def quick(controller: str) -> str:
    """The source of the Go service controller with its two retry delays made small. Raises BuildError if it has others."""
    for constant, instead in QUICK_RETRIES.items():
        if controller.count(constant) != 1:
            raise BuildError(f"{QUICK_MODULE}/{QUICK_FILE}: {constant!r} is not there once; adapt QUICK_RETRIES to it")
        controller = controller.replace(constant, instead)
    return controller


def derived_go_mod(version: str, upstream: str) -> str:
    """
    A go.mod for another Kubernetes version, from `upstream`, the go.mod of k8s.io/kubernetes at that version.

    Kubernetes requires its staging modules at v0.0.0, which only its own workspace resolves; each is replaced by its release.
    The `go` and `godebug` lines are the main module's to set, so they are taken over.
    """
    release = "v0." + version.split(".", 1)[1]
    staging = sorted(set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0(?:\s|$)", upstream, re.MULTILINE)))
    language = re.findall(r"^go \S+$|^godebug .*$", upstream, re.MULTILINE)
    block = re.search(r"^godebug \(.*?^\)$", upstream, re.MULTILINE | re.DOTALL)
    if block:
        language = [line for line in language if not line.startswith("godebug")] + [block.group(0)]
    replaced = [f"\t{module} => {module} {release}" for module in staging]
    return "\n".join(
        ["module controlplane", *language, f"require k8s.io/kubernetes v{version}", "replace (", *replaced, ")", ""]
    )


def go_version_needed(go_mod: str) -> tuple[int, int]:
    """The `go` line of a go.mod as (major, minor)."""
    found = re.search(r"^go (\d+)\.(\d+)", go_mod, re.MULTILINE)
    if found is None:
        raise BuildError("go.mod: no `go` line; restore the file from the repository")
    return int(found.group(1)), int(found.group(2))
