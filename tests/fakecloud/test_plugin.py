"""The pytest plug-in and the base for unittest, in a pytest of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakecloud.clients import DEADLINE

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_each_has_a_clean_cloud(fakecloud, number):
    assert fakecloud.list_servers() == []
    assert fakecloud.list_faults() == []
    fakecloud.put_server("n", {"id": "n", "name": "n", "addresses": ["127.0.0.9"]})

def test_faults_are_ordered_in_one_line(fakecloud, fakecloud_faults):
    met = fakecloud_faults("status", status=503, times=1)
    with pytest.raises(Exception, match="503"):
        fakecloud.list_servers()
    assert fakecloud.get_fault(met.id).applied == 1

def test_options_are_those_of_the_ini_file(fakecloud):
    assert fakecloud.get_cloud().action_seconds == 0.5

def test_that_asks_for_no_cloud():
    pass
"""

FAILING = """
def test_fails(fakecloud):
    fakecloud.put_server("n-17", {"id": "n-17", "name": "n", "addresses": ["127.0.0.9"]})
    assert False
"""

UNITTEST = """
import unittest
from fakecloud.testing.unittest import FakecloudTestCase

class Case(FakecloudTestCase):
    fakecloud_args = ("--action-seconds=0.25",)

    def test_a(self):
        self.assertEqual(self.fakecloud.list_servers(), [])
        self.fakecloud.put_server("n", {"id": "n", "name": "n", "addresses": ["127.0.0.9"]})
        self.assertEqual(self.fakecloud.get_cloud().action_seconds, 0.25)

    test_b = test_a

if __name__ == "__main__":
    unittest.main()
"""


def run(folder: Path, name: str, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text)
    (folder / "pytest.ini").write_text('[pytest]\nfakecloud_args = "--action-seconds=0.5"\n')
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *(command or ("-m", "pytest", "-q", "-p", "no:cacheprovider")), name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE * 4,
        check=False,
    )


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_every_test_has_a_clean_cloud_alone_and_with_workers(tmp_path: Path, workers: list[str]) -> None:
    done = run(tmp_path, "test_it.py", TESTS, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers)
    assert "7 passed" in done.stdout, done.stdout + done.stderr


def test_a_failing_test_shows_what_its_cloud_was_asked(tmp_path: Path) -> None:
    done = run(tmp_path, "test_it.py", FAILING)
    assert "fakecloud: the calls of this test" in done.stdout
    assert re.search(r"PUT /v1/servers/n-17  20[01]  applied", done.stdout), done.stdout


def test_nothing_heavy_is_imported_for_those_who_do_not_ask(tmp_path: Path) -> None:
    text = "import sys\n\ndef test_it():\n    assert 'pydantic' not in sys.modules and 'fakecloud.client' not in sys.modules\n"
    done = run(tmp_path, "test_it.py", text)
    assert "1 passed" in done.stdout, done.stdout


def test_unittest_has_the_same(tmp_path: Path) -> None:
    done = run(tmp_path, "case.py", UNITTEST, "-W", "error")
    assert (done.returncode, "Ran 2 tests" in done.stderr) == (0, True), done.stderr
