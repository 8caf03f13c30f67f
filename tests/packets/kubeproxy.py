"""The genuine kube-proxy on one node: its process, its rules, and when it has taken in what the API server says."""

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.packets import clients
from tests.packets.cluster import SETTLE, Marker
from tests.packets.netns import HostProcess, Namespace, tool
from tests.packets.topology import POD_NETWORKS

_METRICS = 10249
_SYNC = re.compile(
    r'^kubeproxy_sync_proxy_rules_last_(queued_)?timestamp_seconds(?:\{ip_family="(IPv\d)"\})? (\S+)$', re.MULTILINE
)
_LEGACY = "xtables-legacy-multi"


def missing_tool(mode: str) -> str | None:
    """The Debian package whose program kube-proxy needs for `mode` and this machine lacks."""
    program, package = ("nft", "nftables") if mode == "nftables" else (_LEGACY, "iptables")
    return None if shutil.which(program) else package


class KubeProxy:
    """kube-proxy in a node's namespace; `async with` starts it, and kills it and only it."""

    def __init__(self, binary: Path, node: Namespace, mode: str, directory: Path, kubeconfig: Path) -> None:
        self.node = node
        self.mode = mode
        config = directory / f"{node.host}.yaml"
        config.write_text(yaml.safe_dump(_configuration(node.host, mode, kubeconfig)))
        path = f"PATH={_tools(directory)}:/usr/sbin:/usr/bin:/sbin:/bin"
        # Else all nodes of this machine, and of every other run on it, would wait for one lock; who waits too long gives up a sync.
        lock = f"XTABLES_LOCKFILE={directory / f'{node.host}.lock'}"
        command = [tool("env"), path, lock, str(binary), f"--config={config}", "-v=2"]
        self._process = HostProcess(node, f"kube-proxy of {node.host}", command, directory / f"{node.host}.log")

    async def __aenter__(self) -> "KubeProxy":
        self._process.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.stop()

    def rules(self) -> list[str]:
        """Every line of its rules, of both families. Where traffic flows meanwhile: in a thread, since this loop is the pods as well."""
        if self.mode == "nftables":
            texts = [self.node.run("nft", "--stateless", "list", "ruleset")]
        else:
            # IPv4 last: kube-proxy writes each family's filter table before its nat table.
            texts = [self.node.run(_LEGACY, f"{family}-save") for family in ("ip6tables", "iptables")]
        return [line.strip() for text in texts for line in text.splitlines()]

    async def naming(self, *words: str) -> dict[str, list[str]]:
        """The rules that name each of these addresses or ports."""
        rules = await asyncio.to_thread(self.rules)
        whole = {word: re.compile(rf"(?<![0-9a-f.:]){re.escape(word)}(?![0-9a-f.:]*[0-9a-f])") for word in words}
        return {word: [line for line in rules if pattern.search(line)] for word, pattern in whole.items()}

    async def wait_synced(self, markers: Sequence[Marker], timeout: float = SETTLE) -> None:
        """
        Wait until every one of `markers` is found in its rules, and the sync that brought them has ended.

        A marker comes with a change that was made after all that the test waits for, so that is in the rules as well. The rules
        alone would be too early: after them kube-proxy still clears conntrack.
        """
        try:
            async with asyncio.timeout(timeout):
                while not (await self._holds(markers) and await self._settled()):
                    assert self._process.pid is not None, f"it ended:\n{self._process.last_words()}"
                    await asyncio.sleep(0.03)
        except TimeoutError:
            words = self._process.last_words()
            raise AssertionError(f"{self.node.host}: no {markers} after {timeout:g} s:\n{words}") from None

    async def _settled(self) -> bool:
        return settled(await self._metrics())

    async def _metrics(self) -> str:
        try:
            return await clients.http_body(self.node, "127.0.0.1", _METRICS, "/metrics")
        except (OSError, TimeoutError):
            return ""

    async def _holds(self, markers: Sequence[Marker]) -> bool:
        text = "\n".join(await asyncio.to_thread(self.rules))
        # As 192.0.2.1:80, [2001:db8::1]:80, "192.0.2.1 . tcp . 80" or "-d 192.0.2.1/32 ... --dport 80".
        return all(re.search(rf"{re.escape(address)}\b.*\b{port}\b", text) for address, port in markers)


def settled(metrics: str, after: float = 0.0) -> bool:
    """Whether the last sync of each family ended after the last change was queued for it, and after that time (Unix, seconds)."""
    times = {(family, queued): float(seconds) for queued, family, seconds in _SYNC.findall(metrics)}
    families = {family for family, _ in times}
    ended = {family: times.get((family, ""), 0.0) for family in families}
    return bool(families) and all(ended[one] > max(times.get((one, "queued_"), 0.0), after) for one in families)


def _configuration(name: str, mode: str, kubeconfig: Path) -> dict[str, object]:
    quick = {"minSyncPeriod": "10ms", "syncPeriod": "10s"}  # the latter is also when a sync that failed is tried again
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": mode,
        mode: quick,
        "hostnameOverride": name,
        "clusterCIDR": ",".join(POD_NETWORKS),
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "healthzBindAddress": "0.0.0.0:10256",
        "metricsBindAddress": f"127.0.0.1:{_METRICS}",
        # Limits of the whole machine, which no test may change.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def _tools(directory: Path) -> Path:
    """A folder whose iptables are the legacy ones: the alternative that this kernel has modules for, whatever Debian's default is."""
    folder = directory / "iptables-legacy"
    folder.mkdir(exist_ok=True)
    legacy = shutil.which(_LEGACY)
    for name in (f"{family}{what}" for family in ("iptables", "ip6tables") for what in ("", "-save", "-restore")):
        link = folder / name
        if legacy is not None and not link.exists():
            link.symlink_to(legacy)
    return folder
