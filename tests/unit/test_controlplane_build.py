"""What is built, where it is kept, and how far a build says it is; nothing is compiled here."""

import fcntl
import io
import threading
import time
from pathlib import Path

import pytest

from tests.controlplane import __main__ as command
from tests.controlplane import build, recipes
from tests.controlplane.cache import Cache
from tests.controlplane.kube import resource_path
from tests.controlplane.progress import Progress, clock_text, seconds_left
from tests.controlplane.toolchain import go_environment

UPSTREAM = """module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	github.com/google/go-cmp v0.7.0
	k8s.io/api v0.0.0
	k8s.io/kubelet v0.0.0 // staging
	k8s.io/klog/v2 v2.130.1
)
"""

APISERVER, ETCD, PEER = (
    next(one for one in recipes.RECIPES if one.name == name) for name in ("kube-apiserver", "etcd", "peer")
)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def test_another_version_s_go_mod_replaces_the_staging_modules_and_keeps_the_language() -> None:
    assert recipes.derived_go_mod("1.34.4", UPSTREAM).splitlines() == [
        "module controlplane",
        "go 1.24.0",
        "godebug default=go1.24",
        "require k8s.io/kubernetes v1.34.4",
        "replace (",
        "\tk8s.io/api => k8s.io/api v0.34.4",
        "\tk8s.io/kubelet => k8s.io/kubelet v0.34.4",
        ")",
    ]


def test_a_block_of_godebug_settings_is_taken_over_whole() -> None:
    upstream = UPSTREAM.replace("godebug default=go1.24", "godebug (\n\tdefault=go1.24\n\tx=1\n)")
    assert "godebug (\n\tdefault=go1.24\n\tx=1\n)" in recipes.derived_go_mod("1.34.4", upstream)


@pytest.mark.parametrize("version", ["1.34.4", "v1.34.4"])
def test_a_version_is_written_with_or_without_v(version: str) -> None:
    assert recipes.checked_version(version) == "1.34.4"


@pytest.mark.parametrize("version", ["", "1.34", "latest", "1.34.4-rc.1", "../1.34.4"])
def test_anything_else_is_refused_with_an_example(version: str) -> None:
    with pytest.raises(
        recipes.UsageError, match=f"expected a full Kubernetes version such as {recipes.default_kube_version()}"
    ):
        recipes.checked_version(version)


def test_binaries_of_different_pins_never_share_a_folder() -> None:
    default = recipes.default_kube_version()
    keys = {
        recipes.cache_key(APISERVER, default),
        recipes.cache_key(APISERVER, "1.34.4"),
        recipes.cache_key(PEER, default),
    }
    assert len(keys) == 3
    assert recipes.cache_key(ETCD, default) == recipes.cache_key(ETCD, "1.34.4")


def test_a_node_and_the_end_to_end_tests_have_pins_of_their_own_with_the_control_planes_version() -> None:
    default = recipes.default_kube_version()
    assert recipes.pinned("k8s.io/kubernetes", recipes.CLUSTER) == default
    by_name = {recipe.name: recipe for recipe in recipes.RECIPES}
    keys = {
        name: recipes.cache_key(by_name[name], default) for name in ("kube-proxy", "kubelet", "coredns", "e2e.test")
    }
    assert len(set(keys.values())) == 4
    assert keys["kubelet"] == recipes.cache_key(by_name["agnhost"], default)
    assert recipes.cache_key(by_name["kubelet"], "1.34.4") == recipes.cache_key(by_name["kube-proxy"], "1.34.4")
    assert f"gitVersion=v{default}" in " ".join(recipes.build_flags(by_name["e2e.test"], "1.34.4"))


def test_what_is_built_on_demand_is_not_built_with_the_others() -> None:
    assert {"agnhost", "e2e.test"}.isdisjoint(recipes.DEFAULT_NAMES)
    assert set(recipes.NODE) <= set(recipes.DEFAULT_NAMES)


def test_the_version_is_linked_into_kubernetes_only() -> None:
    assert "gitVersion=v1.34.4 " in recipes.build_flags(APISERVER, "1.34.4")[2]
    assert recipes.build_flags(ETCD, "1.34.4")[2] == "-s -w"


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"CONTROLPLANE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/ccm-lb")),
        ({}, Path.home() / ".cache" / "ccm-lb"),
    ],
)
def test_the_cache_is_where_the_environment_says(environment: dict[str, str], root: Path) -> None:
    assert Cache.from_environment(environment).root == root


def test_only_finished_binaries_are_found(tmp_path: Path) -> None:
    environment = {"CONTROLPLANE_CACHE": str(tmp_path)}
    place = Cache(tmp_path).place(APISERVER, "1.34.4")
    assert build.find_binaries(["kube-apiserver"], "1.34.4", environment) == {}
    executable(place)
    assert build.find_binaries(["kube-apiserver"], "1.34.4", environment) == {"kube-apiserver": place}


def test_kubebuilder_s_binaries_come_first_and_must_be_complete(tmp_path: Path) -> None:
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "CONTROLPLANE_CACHE": str(tmp_path / "cache")}
    given = executable(tmp_path / "assets" / "kube-apiserver")
    executable(Cache(tmp_path / "cache").place(APISERVER, "1.34.4"))
    assert build.find_binaries(["kube-apiserver"], "1.34.4", environment) == {"kube-apiserver": given}
    with pytest.raises(recipes.BuildError, match="no executable etcd there"):
        build.find_binaries(["etcd"], "1.34.4", environment)


def test_a_second_builder_waits_for_the_first(tmp_path: Path) -> None:
    output = io.StringIO()
    cache = Cache(tmp_path)
    entered = threading.Event()

    def second() -> None:
        with cache.only_builder(Progress(output)):
            entered.set()

    (tmp_path / "controlplane").mkdir()
    with (tmp_path / "controlplane" / "lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        waiting = threading.Thread(target=second)
        waiting.start()
        deadline = time.monotonic() + 50
        while "waiting for it" not in output.getvalue():
            assert time.monotonic() < deadline, "it says nothing"
            time.sleep(0.01)
        assert not entered.wait(0.1)
    waiting.join(50)
    assert entered.is_set()


@pytest.mark.parametrize(
    ("elapsed", "fraction", "left"),
    [
        pytest.param(0.0, 0.0, 360.0, id="at the start the estimate is believed"),
        pytest.param(360.0, 1.0, 0.0, id="at the end nothing is left"),
        pytest.param(180.0, 0.5, 180.0, id="as fast as estimated"),
        pytest.param(360.0, 0.5, 318.5, id="half as fast: the clock outweighs the estimate"),
        pytest.param(10.0, 1.7, 0.0, id="more done than counted"),
    ],
)
def test_the_time_left_follows_the_clock_more_than_the_estimate(elapsed: float, fraction: float, left: float) -> None:
    assert seconds_left(elapsed, fraction, 360.0) == pytest.approx(left, abs=0.1)


def test_a_log_gets_a_line_every_fifteen_seconds() -> None:
    output, now = io.StringIO(), [0.0]
    progress = Progress(output, clock=lambda: now[0])
    for second in range(60):
        now[0] = float(second)
        progress.update(clock_text(second))
    assert output.getvalue().split() == ["0:03", "0:18", "0:33", "0:48"]


def test_a_terminal_gets_one_line_that_changes() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    output, now = Terminal(), [0.0]
    progress = Progress(output, clock=lambda: now[0])
    for step in range(3):
        now[0] = float(step)
        progress.update(str(step))
    progress.line("done")
    assert output.getvalue() == "\r\033[K0\r\033[K1\r\033[K2\r\033[Kdone\n"


def test_go_is_asked_for_our_pins_with_the_machine_s_toolchain() -> None:
    made = go_environment({"GOFLAGS": "-mod=vendor -x", "GOPROXY": "p", "GOTOOLCHAIN": "auto"})
    assert made == {
        "GOFLAGS": "-x -buildvcs=false",
        "GOPROXY": "p",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }


@pytest.mark.parametrize(
    "arguments", [["build", "--version", "1.34"], ["build", "--only", "kube-dns"]], ids=["version", "binary"]
)
def test_a_wrong_argument_is_one_line_and_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "expected" in said[0]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("nodes", None, "n1", None), "/api/v1/nodes/n1"),
        (("services", "a", "web", "status"), "/api/v1/namespaces/a/services/web/status"),
        (("coordination.k8s.io/v1/leases", "a", None, None), "/apis/coordination.k8s.io/v1/namespaces/a/leases"),
    ],
)
def test_a_resource_has_its_path(arguments: tuple[str, str | None, str | None, str | None], path: str) -> None:
    assert resource_path(*arguments) == path
