"""The contracts of .importlinter can fail: each is broken once, in a copy."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]

PLANTED = {
    # The start of the contract's name, where the import is planted, and the import.
    "The controller and the fake cloud": ("ccm_lb/kube/planted.py", "import fakecloud.errors"),
    "ccm_lb, from the command line": ("ccm_lb/http/planted.py", "import ccm_lb.controller.plan"),
    "fakecloud, from the command line": ("fakecloud/state/planted.py", "import fakecloud.cloud.store"),
    "The rooms of the two data planes": (
        "fakecloud/dataplane/proxy/planted.py",
        "import fakecloud.dataplane.routed.chains",
    ),
    "kopf stays in kube/operator": ("ccm_lb/controller/planted.py", "import kopf"),
    "The decisions know no clock": ("ccm_lb/settings/planted.py", "import time"),
}


def test_each_contract_sees_a_forbidden_import(tmp_path: Path) -> None:
    for package in ("ccm_lb", "fakecloud"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    for place, statement in PLANTED.values():
        (tmp_path / place).write_text(f"{statement}\n")
    command = ["lint-imports", "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    told = [line for line in done.stdout.splitlines() if " KEPT" in line or " BROKEN" in line]
    broken = {name for name in PLANTED for line in told if line.startswith(name) and " BROKEN" in line}
    assert broken == set(PLANTED), done.stdout
    assert len(told) == len(PLANTED) <= 6
    assert done.returncode == 1
