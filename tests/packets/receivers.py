"""Debian's nginx and HAProxy in a pod's place: receivers of the PROXY protocol that nobody here wrote."""

import asyncio
import shutil
from pathlib import Path
from typing import Final

from tests.packets.clients import http
from tests.packets.netns import HostProcess, Namespace, tool
from tests.packets.topology import pod_addresses

PORT: Final = 8081

_NGINX: Final = """
daemon off; master_process off; pid {directory}/nginx.pid; error_log stderr info;
events {{}}
http {{
  access_log off;
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  server {{
    {listen}
    location / {{ return 200 "$proxy_protocol_addr $proxy_protocol_server_addr"; }}
  }}
}}
"""
_HAPROXY: Final = """
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
frontend told
{listen}
  http-request return status 200 content-type text/plain lf-string "%[src] %[dst]"
"""
NAMES: Final = ("nginx", "haproxy")


class Receiver:
    """
    Answers each request with the client's and the server's address out of the PROXY header, and refuses connections without one.

    `async with` runs it in the namespace of a pod, on port 8081 of the pod's addresses.
    """

    def __init__(self, name: str, host: Namespace, directory: Path) -> None:
        self._host = host
        self._addresses = pod_addresses(host.host)
        config = directory / f"{name}.conf"
        log = directory / f"{name}.log"
        if name == "nginx":
            listen = "\n".join(f"listen {_endpoint(one)} proxy_protocol;" for one in self._addresses)
            config.write_text(_NGINX.format(directory=directory, listen=listen))
            command = [tool("nginx"), "-p", str(directory), "-c", str(config), "-e", "stderr"]
        else:
            listen = "\n".join(f"  bind {_endpoint(one)} accept-proxy" for one in self._addresses)
            config.write_text(_HAPROXY.format(listen=listen))
            command = [tool("haproxy"), "-db", "-f", str(config)]
        self._process = HostProcess(host, name, command, log)
        self.log = log

    async def __aenter__(self) -> "Receiver":
        self._process.start()
        async with asyncio.timeout(10.0):
            for address in self._addresses:
                while not await self._listens(address):
                    assert self._process.pid is not None, f"it ended:\n{self._process.last_words()}"
                    await asyncio.sleep(0.02)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.stop()

    async def _listens(self, address: str) -> bool:
        try:
            await http(self._host, address, PORT, "/")
        except ConnectionResetError:
            return True  # it is there, and wants a header
        except (OSError, TimeoutError):
            return False
        return True


def missing(name: str) -> bool:
    return shutil.which(name) is None


def _endpoint(address: str) -> str:
    return f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}"
