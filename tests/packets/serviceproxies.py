"""`ccm-lb dataplane` as it is typed on a host of a lab, and nodes with other service proxies than the lab's own."""

import asyncio
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.docs import pages
from tests.packets.kubeproxy import KubeProxy
from tests.packets.lab import Lab
from tests.packets.netns import Namespace
from tests.packets.pods import PORT

Json = dict[str, Any]
PATIENCE: Final = 60.0  # seconds for one command; starting Python alone takes one or two
# The file in Azure's documentation, as docs/service-proxies.md shows it.
AZURE_EXAMPLE: Final = next(
    block.text for block in pages.read("docs/service-proxies.md").blocks if block.text.startswith("{")
)
_HEADER: Final = ("apiVersion", "kind")


@dataclasses.dataclass(frozen=True)
class Said:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The output of `--output json`; AssertionError with what was said instead."""
        assert self.out, f"it ended with {self.code}: {self.err}"
        return json.loads(self.out)


async def dataplane(
    *arguments: str, host: Namespace | None = None, kubeconfig: Path | None = None, stdin: str = ""
) -> Said:
    """`ccm-lb dataplane ARGUMENTS`, on that host or on this machine."""
    command = [sys.executable, "-m", "ccm_lb", "dataplane", *arguments]
    environment = {**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig is not None else {})}

    def start() -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)

    if host is None:
        process = start()
    else:
        with host.entered():
            process = start()
    # In a thread: the relay through which it reaches the API server lives in this event loop.
    try:
        out, err = await asyncio.to_thread(process.communicate, stdin, PATIENCE)
    except BaseException:
        process.kill()
        raise
    return Said(process.returncode, out, err)


async def translated(azure: str) -> Json:
    """The KubeProxyConfiguration that `convert` makes of a file of Azure's, of which nothing may be lost."""
    said = await dataplane("convert", "--to", "kubeproxy", "-", stdin=azure)
    assert (said.code, said.err) == (0, ""), said
    made: Json = yaml.safe_load(said.out)
    return made


def on_a_node(configuration: Json, additions: Json) -> Json:
    """
    A translated configuration with what a node adds to it: its name, its kubeconfig.

    AssertionError where an addition would replace something, for then it would not be the translated one that is tried.
    """
    joined = dict(configuration)
    for name, value in additions.items():
        if name in _HEADER:
            continue
        if isinstance(value, dict) and isinstance(joined.get(name), dict):
            joined[name] = on_a_node(joined[name], value)
        else:
            assert name not in joined, f"{name} is in the translated configuration already"
            joined[name] = value
    return joined


class TranslatedKubeProxy(KubeProxy):
    """
    kube-proxy with a translated configuration in the place of the lab's own.

    Not `knows_pods`: it is not told which addresses are pods'.
    """

    def __init__(
        self,
        lab: Lab,
        node: str,
        configuration: Json,
        binary: Path,
        directory: Path,
        api: Path,
        *,
        knows_pods: bool = True,
    ) -> None:
        super().__init__(binary, lab.hosts[node], lab.mode, directory, api)
        file = directory / f"{node}.yaml"
        additions = yaml.safe_load(file.read_text())
        del additions["mode"]
        if not knows_pods:
            del additions["clusterCIDR"]
        file.write_text(yaml.safe_dump(on_a_node(configuration, additions)))


@contextlib.asynccontextmanager
async def without_kube_proxy(lab: Lab) -> AsyncIterator[None]:
    """The lab's nodes with neither kube-proxy nor its rules; at the end they have both again."""
    try:
        for proxy in lab.proxies.values():
            await proxy.__aexit__(None, None, None)
            _forget_rules(proxy)
        yield
    finally:
        for proxy in lab.proxies.values():
            _forget_rules(proxy)
            await proxy.__aenter__()
        await _started(lab)


def _forget_rules(proxy: KubeProxy) -> None:
    if proxy.mode == "nftables":
        for family in ("ip", "ip6"):
            # Adding what is there already is no error, removing what is not there is one.
            proxy.node.run("nft", f"add table {family} kube-proxy; delete table {family} kube-proxy")
    else:
        for family in ("iptables", "ip6tables"):
            for table in ("nat", "filter", "mangle"):
                for flag in ("-F", "-X"):
                    proxy.node.run("xtables-legacy-multi", family, "-t", table, flag)
    assert not any("kube" in line.lower() for line in proxy.rules())


@contextlib.asynccontextmanager
async def with_translated(
    lab: Lab, configuration: Json, binary: Path, directory: Path, api: Path, *, knows_pods: bool = True
) -> AsyncIterator[Lab]:
    """The lab with kube-proxies that run a translated configuration; its own are back at the end."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(without_kube_proxy(lab))
        proxies: dict[str, KubeProxy] = {}
        for node in lab.proxies:
            proxy = TranslatedKubeProxy(lab, node, configuration, binary, directory, api, knows_pods=knows_pods)
            proxies[node] = await stack.enter_async_context(proxy)
        changed = dataclasses.replace(lab, proxies=proxies)
        await _started(changed)
        yield changed


async def _started(lab: Lab) -> None:
    """As `Lab.settle`, with the patience that a process needs which has only just been started."""
    markers = await lab.barrier.raised()
    for proxy in lab.proxies.values():
        await proxy.wait_synced(markers, PATIENCE)


def replacement(address: str, node_port: int, pod: str, *, takes_the_address: bool) -> str:
    """
    A Service's implementation in kube-proxy's place, on one node, for nft: its node port, and its load balancer's address if it
    takes that as its own.
    """
    port_80 = f"ip daddr {address} tcp dport 80 dnat ip to {pod}:{PORT}" if takes_the_address else ""
    rules = f"fib daddr type local tcp dport {node_port} dnat ip to {pod}:{PORT}\n{port_80}"
    return f"""
    table inet replacement {{
      chain prerouting {{
        type nat hook prerouting priority dstnat;
        {rules}
      }}
      chain output {{
        type nat hook output priority -100;
        {rules}
      }}
      chain postrouting {{
        type nat hook postrouting priority srcnat;
        ct status dnat masquerade
      }}
    }}
    """


@contextlib.asynccontextmanager
async def ruled(lab: Lab, replacement: str) -> AsyncIterator[None]:
    """These rules on all nodes; gone at the end."""
    nodes = [proxy.node for proxy in lab.proxies.values()]
    try:
        for node in nodes:
            node.run("nft", "-f", "-", text=replacement)
        yield
    finally:
        for node in nodes:
            node.run("nft", "add table inet replacement; delete table inet replacement")
