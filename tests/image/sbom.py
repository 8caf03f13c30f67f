"""What is in the image, as CycloneDX: Python's packages with their licences, and Debian's."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def made(root: Path, folder: Path) -> Json:
    """The list for the image that is mounted at `root`; the same for the same image. `folder` is for files on the way."""
    [packages] = (root / "opt/ccm-lb/lib").glob("python3*/site-packages")
    # cyclonedx-py asks an interpreter for its paths; the image's own would name them as seen from inside.
    interpreter = folder / "python"
    interpreter.write_text(f"#!/bin/sh\necho '{json.dumps([str(packages)])}'\n")
    interpreter.chmod(0o755)
    command = [str(Path(sys.prefix) / "bin" / "cyclonedx-py"), "environment", "--output-reproducible", str(interpreter)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: Json = json.loads(done.stdout)
    found["components"] = [*found["components"], *_debian(root / "var/lib/dpkg/status")]
    return found


def _debian(status: Path) -> Iterator[Json]:
    for paragraph in status.read_text().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            reference = f"pkg:deb/debian/{name}@{version}?arch={fields['Architecture']}"
            yield {"type": "library", "name": name, "version": version, "purl": reference, "bom-ref": reference}
