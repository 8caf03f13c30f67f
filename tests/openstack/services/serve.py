"""
One of the genuine services in one process, for the interpreter that has them: serve.py keystone|neutron|octavia CONF PORT

RPC is in memory, so a service's API and its worker are together, and each service is alone: their settings are global to a process.
Octavia's load balancers go through its own states; no packets flow, since compute and amphorae are its own no-op drivers.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


def keystone(conf: str) -> Any:
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = conf
    from keystone.wsgi.api import application

    return application


def neutron(conf: str) -> Any:
    os.environ["OS_NEUTRON_CONFIG_DIR"] = "/"
    os.environ["OS_NEUTRON_CONFIG_FILES"] = conf
    from neutron.wsgi.api import application

    return application


def octavia(conf: str) -> Any:
    from octavia.api import app

    application = app.setup_app(argv=["octavia-api", "--config-file", conf])
    # These read the settings while they are imported.
    from octavia.controller.queue.v2 import consumer
    from octavia.controller.worker.v2.tasks import network_tasks
    from oslo_config import cfg

    network_tasks.BaseNetworkTask.network_driver = property(lambda task: _worker_network())
    threading.Thread(target=consumer.ConsumerService(0, cfg.CONF).run, daemon=True).start()
    return application


@functools.cache
def _worker_network() -> Any:
    """
    Octavia's no-op driver for plugging machines that are not there; ports of addresses, which the API makes in Neutron, are freed there.

    With the genuine driver throughout, each load balancer takes four times as long, and Nova's part would have to be stood in for.
    """
    from octavia.common import utils
    from octavia.network.drivers.noop_driver.driver import NoopNetworkDriver

    driver = NoopNetworkDriver()
    driver.deallocate_vip = utils.get_network_driver().deallocate_vip
    return driver


SERVICES: dict[str, Callable[[str], Any]] = {"keystone": keystone, "neutron": neutron, "octavia": octavia}

if __name__ == "__main__":
    name, conf, port = sys.argv[1:4]
    sys.argv[1:] = []  # they parse it themselves
    application = SERVICES[name](os.path.abspath(conf))  # noqa: PTH100 - a string is what they take
    make_server("127.0.0.1", int(port), application, server_class=_Server, handler_class=_Quiet).serve_forever()
