"""fakecloud for unittest."""

import unittest
from collections.abc import Sequence
from typing import ClassVar

from fakecloud.client import Client
from fakecloud.testing.process import FakecloudProcess


class FakecloudTestCase(unittest.TestCase):
    """One fakecloud for the tests of a class, clean for each test: `self.fakecloud` is its client."""

    fakecloud_args: ClassVar[Sequence[str]] = ()
    """Further options of `fakecloud serve`."""

    fakecloud_process: ClassVar[FakecloudProcess]
    fakecloud: Client

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.fakecloud_process = cls.enterClassContext(FakecloudProcess(cls.fakecloud_args))

    def setUp(self) -> None:
        super().setUp()
        self.fakecloud = self.fakecloud_process.client()
        self.addCleanup(self.fakecloud.close)
        self.fakecloud.reset()
