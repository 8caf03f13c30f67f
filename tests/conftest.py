"""What holds for every test."""

import asyncio
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.scenarios import record

# The same examples in each run, however slow the machine is: a run says something of the change, not of luck or of load.
# To look for new ones: pytest --hypothesis-profile=explore
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """
    Leave no event loop lying about, and take note of the scenarios.

    On Python 3.11 pytest-asyncio makes a loop where a synchronous test comes first, nobody closes it, and warnings are errors here.
    """
    asyncio.set_event_loop(None)
    # Ignored signals are inherited: started by nohup, or in the background of a script, no child of the tests could be told to end.
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    # What a worker of xdist plays is told to the process that started it, which takes the note.
    config.pluginmanager.register(record.from_environment(writes=not hasattr(config, "workerinput")), "scenarios")
