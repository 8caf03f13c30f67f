"""The kernel's word on one connection, and what it amounts to."""

import asyncio
from pathlib import Path

import pytest

from ccm_lb.dataplane.clients import conntrack, probe
from ccm_lb.dataplane.clients.conntrack import Answer, Connection

CONNECTION = Connection("192.0.2.11", 40000, "203.0.113.10", 80)
OTHER = (
    "ipv4     2 tcp      6 117 TIME_WAIT src=192.0.2.11 dst=203.0.113.10 sport=40001 dport=80 "
    "src=203.0.113.10 dst=192.0.2.11 sport=80 dport=40001 [ASSURED] mark=0 zone=0 use=2"
)


def table(reply_source: str, port: int = 8080) -> str:
    return "\n".join(
        [
            OTHER,
            "ipv4     2 icmp     1 29 src=192.0.2.11 dst=192.0.2.12 type=8 code=0 id=5 src=192.0.2.12 dst=192.0.2.11 type=0",
            "ipv4     2 tcp      6 86399 ESTABLISHED src=192.0.2.11 dst=203.0.113.10 sport=40000 dport=80 "
            f"src={reply_source} dst=192.0.2.11 sport={port} dport=40000 [ASSURED] mark=0 zone=0 use=2",
        ]
    )


@pytest.mark.parametrize(
    ("text", "route", "on_a_node", "answer"),
    [
        (table("10.244.1.5"), None, True, Answer.SHORT_CUT),
        (table("10.244.1.5"), "203.0.113.10 via 192.0.2.1 dev eth0 src 192.0.2.11", None, Answer.SHORT_CUT),
        (table("203.0.113.10", 80), None, True, Answer.LOAD_BALANCER),
        (table("203.0.113.10", 80), None, False, Answer.CANNOT_TELL),
        (table("203.0.113.10", 80), None, None, Answer.CANNOT_TELL),
        (OTHER, None, True, Answer.CANNOT_TELL),
        (None, None, True, Answer.CANNOT_TELL),
        (None, "local 203.0.113.10 dev lo table local src 203.0.113.10 uid 0", None, Answer.SHORT_CUT),
        (None, "", True, Answer.CANNOT_TELL),
    ],
)
def test_what_the_table_and_the_route_amount_to(
    text: str | None,
    route: str | None,
    on_a_node: bool | None,  # noqa: FBT001
    answer: Answer,
) -> None:
    found = conntrack.judge(CONNECTION, text, route, on_a_node=on_a_node)
    assert found.answer is answer
    assert found.reason


def test_addresses_are_compared_as_addresses() -> None:
    line = (
        "ipv6     10 tcp      6 86399 ESTABLISHED src=2001:0db8:0000:0000:0000:0000:0000:0011 dst=2001:0db8:000f::0010 "
        "sport=40000 dport=80 src=2001:0db8:000f:0000:0000:0000:0000:0010 dst=2001:db8::11 sport=80 dport=40000"
    )
    found = conntrack.reply_source(line, Connection("2001:db8::11", 40000, "2001:db8:f::10", 80))
    assert found == "2001:0db8:000f:0000:0000:0000:0000:0010"
    assert conntrack.reply_source("src=x dst=y sport=40000 dport=80 src=a dst=b sport=1 dport=2", CONNECTION) is None


def test_a_node_is_known_by_its_addresses() -> None:
    assert conntrack.is_a_nodes(["127.0.0.1", "192.0.2.11"], ["192.0.2.11", "192.0.2.12"])
    assert not conntrack.is_a_nodes(["127.0.0.1", "junk"], ["192.0.2.11", "n1.example.com"])


async def test_a_real_connection_is_looked_for_and_held_open_meanwhile(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peername")[:2])
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        found = await probe.probe("127.0.0.1", port, ["127.0.0.1"], table=tmp_path / "absent")
    assert found.answer is not Answer.SHORT_CUT  # the rest is what this machine's own table says, if it may be read
    assert len(seen) == 1


async def test_no_connection_is_no_answer(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    found = await probe.probe("127.0.0.1", port, None, table=tmp_path / "absent")
    assert found.answer is Answer.CANNOT_TELL
    assert "no connection" in found.reason


@pytest.mark.parametrize(
    ("address", "route", "answer", "words"),
    [
        ("203.0.113.10", "local 203.0.113.10 dev lo", Answer.SHORT_CUT, "as IPVS does it, and nobody answers there: refused"),
        ("203.0.113.10", "203.0.113.10 via 192.0.2.1 dev eth0", Answer.CANNOT_TELL, "no connection to 203.0.113.10:80: refused"),
        ("203.0.113.10", None, Answer.CANNOT_TELL, "no connection to 203.0.113.10:80: refused"),
        ("127.0.0.9", "local 127.0.0.9 dev lo src 127.0.0.1", Answer.CANNOT_TELL, "no connection to 127.0.0.9:80: refused"),
    ],
)  # fmt: skip
def test_where_nobody_answers_the_route_tells_whether_the_address_is_bound(
    address: str, route: str | None, answer: Answer, words: str
) -> None:
    found = conntrack.unanswered(address, 80, route, "refused")
    assert found.answer is answer
    assert found.reason.endswith(words)


def test_a_loopback_address_is_every_machines_own_and_no_sign_of_ipvs() -> None:
    connection = Connection("127.0.0.1", 40000, "127.0.0.9", 80)
    line = "ipv4 2 tcp 6 10 src=127.0.0.1 dst=127.0.0.9 sport=40000 dport=80 src=127.0.0.9 dst=127.0.0.1 sport=80 dport=40000"
    found = conntrack.judge(connection, line, "local 127.0.0.9 dev lo src 127.0.0.1", on_a_node=True)
    assert found.answer is Answer.LOAD_BALANCER


@pytest.mark.parametrize(
    ("ip_mode", "answer", "contradiction"),
    [
        (None, Answer.SHORT_CUT, False),
        ("VIP", Answer.SHORT_CUT, False),
        ("VIP", Answer.LOAD_BALANCER, True),
        ("Proxy", Answer.LOAD_BALANCER, False),
        ("Proxy", Answer.SHORT_CUT, True),
        ("Proxy", Answer.CANNOT_TELL, False),
        ("Magic", Answer.SHORT_CUT, False),
    ],
)
def test_what_is_measured_may_contradict_the_ip_mode(
    ip_mode: str | None,
    answer: Answer,
    contradiction: bool,  # noqa: FBT001
) -> None:
    assert conntrack.contradicts(ip_mode, answer) is contradiction
