"""The PROXY protocol, read by Debian's nginx and haproxy and not by a parser of ours."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakecloud.dataplane.proxy.proxyprotocol import header
from tests.fakecloud.clients import DEADLINE, Api, address_of, connection

NGINX = """
daemon off; master_process off; pid {directory}/nginx.pid; error_log {directory}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {directory}/1; proxy_temp_path {directory}/2; fastcgi_temp_path {directory}/3;
  uwsgi_temp_path {directory}/4; scgi_temp_path {directory}/5;
  server {{
    listen 127.0.0.1:{port} proxy_protocol;
    listen [::1]:{port} proxy_protocol;
    location / {{ return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr $proxy_protocol_server_port"; }}
  }}
}}
"""
HAPROXY = """
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 60s
frontend f
  bind 127.0.0.1:{port} accept-proxy
  bind ::1:{port} accept-proxy
  http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(params=["nginx", "haproxy"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The port where a server shows who it was told its client is."""
    program = shutil.which(request.param) or shutil.which(request.param, path="/usr/sbin:/sbin")
    if program is None:
        pytest.skip(f"{request.param} is not installed here: apt-get install {request.param}")
    port = free_port()
    template = {"nginx": NGINX, "haproxy": HAPROXY}[request.param]
    file = tmp_path / "receiver.conf"
    file.write_text(template.format(directory=tmp_path, port=port))
    flags = {"nginx": ["-p", str(tmp_path), "-c", str(file)], "haproxy": ["-db", "-f", str(file)]}[request.param]
    process = subprocess.Popen([program, *flags], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + DEADLINE
        while True:
            assert process.poll() is None, process.communicate()[1]
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < deadline, f"{request.param} did not open its port"
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_receiver_is_told_the_clients_address_and_port(api: Api, receiver: int, version: str) -> None:
    listeners = [{"port": 8080, "targetPort": receiver, "proxyProtocol": version}]
    # A probe says no PROXY header: the check is that the port opens.
    item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
    async with connection(address_of(item), source="127.0.5.6") as (reader, writer):
        port = writer.get_extra_info("sockname")[1]
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = (await asyncio.wait_for(reader.read(), DEADLINE)).decode()
    assert answer.splitlines()[-1] == f"127.0.5.6 {port} {address_of(item)} 8080"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_receiver_understands_the_header_for_ipv6(receiver: int, version: str) -> None:
    client, destination = ("2001:db8::7", 40000), ("2001:db8:1::1", 443)
    with socket.create_connection(("127.0.0.1", receiver), DEADLINE) as sending:
        sending.sendall(header(version, client, destination) + b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while part := sending.recv(4096):
            answer += part
    assert answer.decode().splitlines()[-1] == "2001:db8::7 40000 2001:db8:1::1 443"


def test_none_is_no_header() -> None:
    assert header("none", ("127.0.0.1", 1), ("127.0.0.2", 2)) == b""


async def test_udp_with_a_proxy_header_is_refused(api: Api) -> None:
    listeners = [{"protocol": "UDP", "port": 53, "targetPort": 53, "proxyProtocol": "v1"}]
    body = {"name": "n", "owner": {"cluster": "c", "uid": "u"}, "listeners": listeners}
    answer = await api.call("POST", "/v1/load-balancers", body)
    assert (answer.status, answer.fields) == (422, ["listeners[0].proxyProtocol"])
