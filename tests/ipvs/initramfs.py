"""The guest's whole file system as one cpio archive in memory: no disk, no root file system to mount."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.ipvs import interpreter
from tests.ipvs.packages import Unpacked

_GUEST: Final = Path(__file__).parent / "guest"
_FOLDERS: Final = (
    *("bin", "sbin", "usr", "usr/bin", "usr/sbin", "lib"),
    *("etc", "dev", "proc", "sys", "run", "tmp", "root", "srv"),
)
_FOLDER: Final = (stat.S_IFDIR | 0o755, b"")
_LIBRARY: Final = re.compile(r"(/\S+) \(0x")


class Tree:
    """Files by path; `archive` is what the kernel unpacks."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, bytes]] = dict.fromkeys(_FOLDERS, _FOLDER)

    def file(self, path: str, content: bytes, mode: int = 0o755) -> None:
        parents = list(Path(path).parents)[-2::-1]
        for parent in parents:
            self._entries.setdefault(str(parent), _FOLDER)
        self._entries[path] = (stat.S_IFREG | mode, content)

    def link(self, path: str, target: str) -> None:
        self._entries[path] = (stat.S_IFLNK | 0o777, target.encode())

    def program(self, name: str, path: str) -> None:
        """A program of this machine and the libraries it is linked with, which keep their paths."""
        source = shutil.which(name)
        assert source is not None, f"no {name} in PATH"
        self.loaded(Path(source), path)

    def loaded(self, source: Path, path: str) -> None:
        """The same for anything that is loaded, if it is linked with something."""
        self._linked(source, path, Path("/"))

    def unpacked(self, folder: Path, path: str) -> None:
        """The same for a program in an unpacked package, whose libraries may lie beside it."""
        self._linked(folder / path, path, folder)

    def _linked(self, source: Path, path: str, folder: Path) -> None:
        self.file(path, source.resolve().read_bytes())
        if source.suffix in (".py", ".pyc"):
            return
        beside = {str(one.parent) for one in folder.rglob("*.so.*")} if folder != Path("/") else set()
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(beside))}
        linked = subprocess.run(["ldd", source], capture_output=True, text=True, check=False, env=environment).stdout
        for library in map(Path, _LIBRARY.findall(linked)):
            inside = library.relative_to(folder if library.is_relative_to(folder) else "/")
            self.file(str(inside), library.resolve().read_bytes())

    def archive(self) -> Iterator[bytes]:
        """The archive in the format newc; parents come before what is in them."""
        for number, (path, (mode, content)) in enumerate(sorted(self._entries.items()), 1):
            yield _entry(path, content, mode, number)
        yield _entry("TRAILER!!!", b"", 0, 0)


def build(unpacked: Unpacked, kube_proxy: Path, target: Path) -> Path:
    """
    Write the initramfs to `target`; returns the kernel that belongs to it.

    Debian's busybox prefers its own applets over PATH, so the shell is dash: kube-proxy and iptables find the real `ip`.
    """
    (kernel,) = (unpacked.kernel / "boot").glob("vmlinuz-*")
    tree = Tree()
    busybox = unpacked.programs / "bin" / "busybox"
    tree.file("bin/busybox", busybox.read_bytes())
    for applet in _lines(busybox, "--list"):
        if applet not in ("ip", "sh", "ash", "busybox"):
            tree.link(f"bin/{applet}", "busybox")
    tree.link("sbin/modprobe", "../bin/busybox")
    tree.program("dash", "bin/sh")
    tree.program("ip", "usr/sbin/ip")
    tree.program("ipset", "usr/sbin/ipset")
    tree.program("xtables-legacy-multi", "usr/sbin/xtables-legacy-multi")
    for name in (f"{family}{what}" for family in ("iptables", "ip6tables") for what in ("", "-save", "-restore")):
        tree.link(f"usr/sbin/{name}", "xtables-legacy-multi")
    for extension in next(iter(Path("/usr/lib").glob("*/xtables"))).glob("*.so"):
        tree.file(str(extension).lstrip("/"), extension.read_bytes())
    tree.unpacked(unpacked.programs, "sbin/ipvsadm")
    for source, path in interpreter.files():
        tree.loaded(source, path)
    tree.file("root/probe.py", interpreter.SCRIPT.encode())
    _modules(tree, busybox, unpacked.kernel, kernel.name.removeprefix("vmlinuz-"))
    tree.file("usr/bin/kube-proxy", kube_proxy.read_bytes())
    tree.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
    # ipset looks protocols up by name.
    tree.file("etc/protocols", b"tcp 6 TCP\nudp 17 UDP\n", 0o644)
    tree.file("etc/nsswitch.conf", b"hosts: files\n", 0o644)
    tree.file("etc/hosts", b"127.0.0.1 localhost\n", 0o644)
    tree.file("init", (_GUEST / "init").read_bytes())
    tree.file("root/commands", (_GUEST / "commands").read_bytes())
    with target.open("wb") as archive:
        archive.writelines(tree.archive())
    return kernel


def _modules(tree: Tree, busybox: Path, unpacked: Path, version: str) -> None:
    folder = unpacked / "lib" / "modules" / version
    if not (folder / "modules.dep").exists():
        # busybox reads the running kernel's folder unless it is told another one.
        _lines(busybox, "depmod", "-b", str(unpacked), version)
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[Path(path).name.removesuffix(".ko").replace("-", "_")] = [path, *others.split()]
    known = [
        name for name in (_GUEST / "modules").read_text().split() if name in needs
    ]  # the others are part of the kernel
    for path in {path for name in known for path in needs[name]}:
        relative = path[path.index("kernel/") :] if "kernel/" in path else path
        tree.file(f"lib/modules/{version}/{relative}", (folder / relative).read_bytes(), 0o644)
    tree.file(f"lib/modules/{version}/modules.dep", (folder / "modules.dep").read_bytes(), 0o644)
    tree.file("etc/modules", "".join(f"{name}\n" for name in known).encode(), 0o644)


def _lines(*command: str | Path) -> list[str]:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    return done.stdout.split()


def _entry(path: str, content: bytes, mode: int, number: int) -> bytes:
    name = path.encode() + b"\0"
    fields: Iterable[int] = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
