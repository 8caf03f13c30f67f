"""One probe: a real connection, and for http a real request."""

import asyncio
import functools
import os
import socket
import ssl
from dataclasses import dataclass

from fakecloud.health.verdicts import Result
from fakecloud.models.listeners import HealthCheck


@functools.cache
def _unverified() -> ssl.SSLContext:
    """A node's certificate is rarely one that the cloud could verify; what counts is that it answers."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(frozen=True)
class Probe:
    """What is probed; equal probes are made once, however many load balancers want them."""

    address: str
    port: int
    check: HealthCheck

    async def run(self) -> Result:
        """Probe once, within the check's timeout; any failure is a result, not an error."""
        attempt = self._tcp() if self.check.protocol == "tcp" else self._http()
        try:
            async with asyncio.timeout(self.check.timeout_seconds):
                return await attempt
        except TimeoutError:
            return Result(False, f"no answer within {self.check.timeout_seconds:g} s")
        except ssl.SSLError as error:
            return Result(False, f"no TLS: {error.reason or error}")
        except OSError as error:
            return Result(False, os.strerror(error.errno).lower() if error.errno else str(error))

    async def _tcp(self) -> Result:
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, (self.address, self.port))
        return Result(True, "connected")

    async def _http(self) -> Result:
        path = self.check.path or "/"
        secure = _unverified() if self.check.protocol == "https" else None
        reader, writer = await asyncio.open_connection(self.address, self.port, limit=4096, ssl=secure)
        try:
            host = f"[{self.address}]" if ":" in self.address else self.address
            request = (
                f"GET {path} HTTP/1.1\r\nHost: {host}:{self.port}\r\nUser-Agent: fakecloud\r\nConnection: close\r\n\r\n"
            )
            writer.write(request.encode("ascii"))
            try:
                line = await reader.readline()
            except ValueError:
                line = b""
        finally:
            writer.transport.abort()
        status = line.split(b" ")[1:2] if line.startswith(b"HTTP/") else []
        if not status or not status[0][:3].isdigit():
            return Result(False, f"GET {path}: not an HTTP answer")
        code = int(status[0][:3])
        return Result(200 <= code < 400, f"GET {path}: {code}")
