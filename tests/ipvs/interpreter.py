"""`ccm-lb dataplane probe` for the guest: the very modules that measure, this Python, and of its library what they need."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PYTHON: Final = Path(sys.executable).resolve()
PROBE: Final = f"{PYTHON} -S /root/probe.py"
_PACKAGES: Final = Path(__file__).parents[2]
SCRIPT: Final = """
import asyncio, sys
from ccm_lb.dataplane.clients import probe
address, port, node = sys.argv[1:4]
found = asyncio.run(probe.probe(address, int(port), [node]))
print(f"{found.answer}: {found.reason}")
"""
# What is imported when a connection of its own is looked at, to the last module that is imported late.
_WATCHED: Final = f"""
import socket, sys
sys.path.insert(0, {str(_PACKAGES)!r})
listening = socket.create_server(("127.0.0.1", 0))
sys.argv = ["probe", "127.0.0.1", str(listening.getsockname()[1]), "127.0.0.1"]
exec({SCRIPT!r})
for module in list(sys.modules.values()):
    if source := getattr(module, "__file__", None):
        print("needs", source, getattr(module, "__cached__", None), sep="\\t")
"""


def files() -> Iterator[tuple[Path, str]]:
    """Files of this machine and their paths in the guest; the interpreter keeps its path, by which it finds its library."""
    yield PYTHON, str(PYTHON).lstrip("/")
    command = [str(PYTHON), "-S", "-B", "-c", _WATCHED]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for word, *names in (line.split("\t") for line in printed.splitlines()):
        if word == "needs":
            source, compiled = map(Path, names)
            ours = source.is_relative_to(_PACKAGES)
            path = f"root/{source.relative_to(_PACKAGES)}" if ours else str(source).lstrip("/")
            # Compiled ones are taken without their source, since the archive has no times to compare; to compile there would take long.
            yield (compiled, f"{path}c") if compiled.is_file() and not ours else (source, path)
