"""What runs in the cluster besides the controller: pods that say who they are, one on each node, and Services of them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from tests.cluster.cluster import Cluster
from tests.image import archive
from tests.packets.clients import Answer, UnservedError, ask
from tests.packets.netns import Namespace

Json = dict[str, Any]

NAMESPACE: Final = "default"
PORT: Final = 80
# Answers each line as the pods of tests/packets do; who probes says nothing.
_SERVER: Final = """
import json, os, socketserver
class Answers(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            said = {"pod": os.environ["NODE"], "peer": self.client_address[0], "header": None}
            self.wfile.write(json.dumps(said).encode() + b"\\n")
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128
Server(("", 8080), Answers).serve_forever()
"""
_ASK: Final = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as one:
    one.sendall(b"who\\n")
    print(one.makefile().readline())
"""


def apply(cluster: Cluster) -> None:
    """One pod on each node, ready."""
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": "web",
        "image": archive.NAME,
        "command": ["python", "-c", _SERVER],
        "env": [node],
        "readinessProbe": probe,
    }
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]},
    }
    daemonset = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(daemonset))
    cluster.kubectl("rollout", "status", "daemonset/web", "--timeout=120s")


def service(name: str, *, annotations: Mapping[str, str] | None = None, **spec: object) -> Json:
    """A Service of those pods."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"app": "web"},
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": "web"},
            "ports": [{"port": PORT, "targetPort": 8080}],
            **spec,
        },
    }


async def first_answer(host: Namespace, address: str, port: int = PORT) -> Answer:
    """What a client is answered once the nodes' kube-proxies know the Service and the cloud has seen that they do."""
    async with asyncio.timeout(60.0):
        while True:
            try:
                return await ask(host, address, port)
            except UnservedError:
                await asyncio.sleep(0.1)


def ask_from_pod(cluster: Cluster, address: str, port: int = PORT) -> Json:
    """What a pod is answered at that address."""
    said: Json = json.loads(cluster.kubectl("exec", "daemonset/web", "--", "python", "-c", _ASK, address, str(port)))
    return said
