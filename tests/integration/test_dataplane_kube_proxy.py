"""What `validate` says of configurations, held against the genuine kube-proxy: it checks a file without root and ends."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ccm_lb.dataplane.files import check, convert, documents, findings, kubeproxy, schema
from ccm_lb.dataplane.files.findings import Severity
from ccm_lb.dataplane.files.schema import Type
from tests.controlplane import build, recipes

SEED = 1860
FILES = 400
HEADER = {"apiVersion": schema.API_VERSION, "kind": schema.KIND}

# What kube-proxy takes and `validate` does not: by what the finding says, a file that shows it. The reason is in the words.
LISTED = {
    "kube-proxy logs it and goes on without it: unknown key": "Mode: ipvs\n",
    "kube-proxy logs it and goes on without it: stands here twice, the last one counts": "mode: iptables\nmode: ipvs\n",
    "not a scheduler of Linux: kube-proxy takes the file and ends when the kernel refuses it": (
        "mode: ipvs\nipvs: {scheduler: bogus}\n"
    ),
}

SEED_EXAMPLE = """{
  "enabled": true,
  "mode": "IPVS",
  "ipvsConfig": {
    "scheduler": "LeastConnection",
    "TCPTimeoutSeconds": 900,
    "TCPFINTimeoutSeconds": 120,
    "UDPTimeoutSeconds": 300
  }
}
"""

VALUES: dict[Type, list[Any]] = {
    Type.STRING: ["", "a", 5, True, ["a"], None],
    Type.BOOL: [True, False, "true", 0, None],
    Type.INT32: [0, 1, 5, -1, 31, 32, 2000, 3_000_000_000, 1.5, "1", None],
    Type.NUMBER: [0, 1, 1.5, -1, "x", None],
    Type.DURATION: [
        "0s",
        "0",
        "1s",
        "15m0s",
        "1.5h",
        "900s",
        "-5s",
        "",
        "5",
        5,
        "1d",
        "1h 5m",
        "100ms",
        ".5s",
        "5.s",
        None,
    ],
    Type.DURATION_OR_NULL: ["0s", "1h", "-1s", "x", None],
    Type.STRINGS: [[], ["10.0.0.0/8"], ["primary"], ["primary", "primary"], ["x"], [5], [None], "primary", None],
    Type.GATES: [
        {},
        {"KubeProxyIPVS": False},
        {"KubeProxyIPVS": True},
        {"KubeProxyIPVS": "x"},
        {"KubeProxyIPVS": None},
        [],
        None,
    ],
    Type.ANYTHING: [{"format": "text"}, {"format": "json"}, {"format": "xml"}, {}, None],
}
SPECIAL: dict[tuple[str, ...], list[Any]] = {
    ("mode",): ["iptables", "ipvs", "nftables", "", " ", "IPVS", "ipvs ", "userspace", "kernelspace", None, 5],
    ("ipvs", "scheduler"): ["rr", "lc", "wlc", "bogus", "LC", "", 5],
    ("detectLocalMode",): ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", "clustercidr", "x"],
    ("clusterCIDR",): ["", "10.0.0.0/8", "10.0.0.0/8,fd00::/48", "10.0.0.0/8,11.0.0.0/8", "10.0.0.0", "x", "010.0.0.0/8", "10.0.0.0/33"],
    ("bindAddress",): ["", "0.0.0.0", "::", "::1", "010.0.0.1", "host", "1.2.3", "fe80::1%eth0", "::ffff:1.2.3.4"],
    ("healthzBindAddress",): ["", "0.0.0.0", "0.0.0.0:10256", "[::]:10256", "::", "0.0.0.0:0", "0.0.0.0:99999", "x:1", ":1", "1.2.3.4:"],
    ("metricsBindAddress",): ["", "127.0.0.1", "[::1]:10249", "127.0.0.1:10249", "localhost:10249", "127.0.0.1:-1", "127.0.0.1:+5"],
    ("showHiddenMetricsForVersion",): [""],
    ("nodePortAddresses",): [["primary"], ["all", "localhost"], ["all", "all"], ["10.0.0.0/8", "fd00::/8"], ["10.0.0.0"], [""]],
}  # fmt: skip


class Verdict(NamedTuple):
    refused: bool
    said: str


@pytest.fixture(scope="module")
def kube_proxy() -> Path:
    version = recipes.default_kube_version()
    found = build.find_binaries(["kube-proxy"], version)
    if not found:
        pytest.fail(f"kube-proxy {version} not built: python -m tests.controlplane build", pytrace=False)
    return found["kube-proxy"]


async def verdict(kube_proxy: Path, file: Path) -> Verdict:
    process = await asyncio.create_subprocess_exec(
        *(str(kube_proxy), f"--config={file}", "--write-config-to=/dev/null"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        _, said = await process.communicate()
    return Verdict(process.returncode != 0, said.decode(errors="replace"))


def generated(number: int) -> str:
    """File `number` of the series: mostly right, so that what is wrong is one thing or two."""
    chance = random.Random(f"{SEED}/{number}")
    content: dict[str, Any] = dict(HEADER)
    leaves = list(_leaves(schema.KUBE_PROXY_CONFIGURATION, ()))
    for path, kind in chance.sample(leaves, chance.randint(1, 6)):
        pool = SPECIAL.get(path, VALUES[kind])
        _put(content, path, chance.choice(pool))
    if chance.random() < 0.6:
        content["mode"] = chance.choice(["iptables", "ipvs", "ipvs", "nftables"])
    if chance.random() < 0.05:
        content.update(mode="ipvs", featureGates={"KubeProxyIPVS": chance.choice([True, False, None])})
    if chance.random() < 0.08:
        _put(content, (chance.choice(["Mode", "ipvs", "iptable"]), "x"), 1)
    if chance.random() < 0.05:
        content[chance.choice(["ipvs", "conntrack", "detectLocal"])] = chance.choice([[], "x", None, {}])
    if chance.random() < 0.03:
        content.pop(chance.choice(["apiVersion", "kind"]))
    text = yaml.safe_dump(content, sort_keys=False)
    return text + ("mode: nftables\n" if chance.random() < 0.03 and "mode" in content else "")


def _leaves(part: schema.Schema, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Type]]:
    for name, wanted in part.items():
        if name in HEADER:
            continue
        if isinstance(wanted, Type):
            yield (*path, name), wanted
        else:
            yield from _leaves(wanted, (*path, name))


def _put(content: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        inner = content.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        content = inner
    content[path[-1]] = value


@pytest.mark.timeout(240)
async def test_what_kube_proxy_refuses_is_refused_before_it_is_asked(kube_proxy: Path, tmp_path: Path) -> None:
    two_at_once = asyncio.Semaphore(2)
    wrong: list[str] = []
    counts = {True: 0, False: 0}

    async def compare(number: int) -> None:
        text = generated(number)
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        async with two_at_once:
            its = await verdict(kube_proxy, file)
        counts[its.refused] += 1
        said = [one for document in documents.read(text, str(number)) for one in kubeproxy.check(document)]
        errors = [one for one in said if one.severity is Severity.ERROR]
        unlisted = [str(one) for one in errors if one.message not in LISTED]
        if its.refused != bool(unlisted):
            wrong.append(f"{number}: kube-proxy: {its.said.strip()[-300:]}\nwe: {errors}\n{text}")

    await asyncio.gather(*(compare(number) for number in range(FILES)))
    assert not wrong, f"{len(wrong)} of {FILES}:\n" + "\n".join(wrong[:5])
    assert min(counts.values()) > FILES / 8, f"a one-sided series proves little: {counts}"


@pytest.mark.parametrize("message", LISTED)
async def test_what_it_takes_and_we_refuse_is_listed(message: str, kube_proxy: Path, tmp_path: Path) -> None:
    text = yaml.safe_dump(HEADER) + LISTED[message]
    (tmp_path / "in.yaml").write_text(text)
    assert not (await verdict(kube_proxy, tmp_path / "in.yaml")).refused
    (checked,) = check.check(text, "in.yaml")
    assert [one.message for one in checked.findings if one.severity is Severity.ERROR] == [message]


async def test_the_example_of_the_azure_documentation_is_translated_and_taken(kube_proxy: Path, tmp_path: Path) -> None:
    (checked,) = check.check(SEED_EXAMPLE, "kube-proxy.json")
    assert not findings.failing(checked.findings)
    assert checked.aks is not None
    made = convert.to_kube_proxy(checked.aks)
    assert made.lost == ()
    assert made.text is not None
    written = await taken(kube_proxy, made.text, tmp_path)
    assert written["mode"] == "ipvs"
    kept = {name: written["ipvs"][name] for name in ("scheduler", "tcpTimeout", "tcpFinTimeout", "udpTimeout")}
    assert kept == {"scheduler": "lc", "tcpTimeout": "15m0s", "tcpFinTimeout": "2m0s", "udpTimeout": "5m0s"}
    # And back, from all that kube-proxy itself wrote.
    assert '"tcpFinTimeoutSeconds": 120' in (convert.to_aks(written).text or "")


@pytest.mark.parametrize("mode", ["IPTABLES", "NFTABLES"])
async def test_the_other_modes_are_translated_and_taken(mode: str, kube_proxy: Path, tmp_path: Path) -> None:
    (checked,) = check.check(f'{{"mode": "{mode}"}}', "kube-proxy.json")
    assert checked.aks is not None
    text = convert.to_kube_proxy(checked.aks).text
    assert text is not None
    assert (await taken(kube_proxy, text, tmp_path))["mode"] == mode.lower()


async def taken(kube_proxy: Path, text: str, folder: Path) -> dict[str, Any]:
    """The whole configuration that kube-proxy makes of this one, which it must take."""
    file, written = folder / "in.yaml", folder / "out.yaml"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(str(kube_proxy), f"--config={file}", f"--write-config-to={written}"), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(20):
        _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    content: dict[str, Any] = yaml.safe_load(written.read_text())
    return content
