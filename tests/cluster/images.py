"""Images that need no registry: files of this machine packed as `docker save` packs them, which containerd imports."""

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.packets.netns import tool

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def packed(archive: Path, name: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> Path:
    """An image with these files by their path inside, and nothing else."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", dereference=True) as tar:
        for inside, source in sorted(files.items()):
            tar.add(source, arcname=inside.lstrip("/"), filter=_owned_by_root)
    return from_layer(archive, name, layer.getvalue(), entrypoint)


def from_layer(
    archive: Path, name: str, layer: bytes, entrypoint: Sequence[str], arguments: Sequence[str] = ()
) -> Path:
    """An image of one layer, which is a tar."""
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Cmd": list(arguments), "Env": [_PATH]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    described = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": described, "RepoTags": [name], "Layers": [f"{digest}.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for path, content in ((described, config), (f"{digest}.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive


def with_libraries(program: str) -> dict[str, Path]:
    """A program of this machine and the libraries that it loads, by their paths."""
    path = tool(program)
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    found = [path, *re.findall(r"(/\S+) \(0x", listed)]
    return {one: Path(one) for one in found}


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
