"""What is written to a Service, and when two statuses are the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ccm_lb.kube import patches
from ccm_lb.objects import CLEANUP_FINALIZER, IPMode, LoadBalancerIngress, LoadBalancerStatus, PortStatus


def status(*entries: LoadBalancerIngress) -> LoadBalancerStatus:
    return LoadBalancerStatus(ingress=entries)


@pytest.mark.parametrize(
    "patch",
    [
        patches.finalizer_patch("u1"),
        patches.status_patch("u1", status()),
        patches.release_patch("u1", clear_status=True),
        patches.release_patch("u1", clear_status=False),
    ],
)
def test_every_patch_names_the_uid(patch: dict[str, Any]) -> None:
    assert patch["metadata"]["uid"] == "u1"


def test_the_finalizer_is_added_by_name() -> None:
    assert patches.finalizer_patch("u1") == {"metadata": {"uid": "u1", "finalizers": [CLEANUP_FINALIZER]}}


def test_the_finalizer_is_removed_by_name() -> None:
    assert patches.release_patch("u1", clear_status=False) == {
        "metadata": {"uid": "u1", "$deleteFromPrimitiveList/finalizers": [CLEANUP_FINALIZER]}
    }


def test_a_condition_is_written_beside_the_addresses_or_alone() -> None:
    condition = {"type": "A", "status": "True"}
    alone = patches.status_patch("u1", None, [condition])
    assert alone["status"] == {"conditions": [condition]}
    assert patches.status_patch("u1", status(), [condition])["status"] == {
        "loadBalancer": {"ingress": None},
        "conditions": [condition],
    }


def test_a_release_can_take_a_condition_along() -> None:
    removal = {"type": "A", "$patch": "delete"}
    patch = patches.release_patch("u1", clear_status=True, conditions=[removal])
    assert patch["status"] == {"loadBalancer": {"ingress": None}, "conditions": [removal]}


PROXY = LoadBalancerIngress(ip="203.0.113.1", ip_mode=IPMode.PROXY)
VIP = LoadBalancerIngress(ip="203.0.113.1", ip_mode=IPMode.VIP)
HOST = LoadBalancerIngress(hostname="a.example")


@pytest.mark.parametrize(
    ("sent", "stored", "shown"),
    [
        pytest.param(status(PROXY), status(PROXY), True, id="stored"),
        pytest.param(status(PROXY), status(VIP), False, id="dropped"),
        pytest.param(status(VIP), status(VIP), None, id="VIP shows nothing"),
        pytest.param(status(PROXY), status(HOST), None, id="somebody else's status"),
        pytest.param(status(HOST), status(HOST), None, id="no IP"),
    ],
)
def test_a_servers_answer_shows_whether_it_has_ip_mode(
    sent: LoadBalancerStatus, stored: LoadBalancerStatus, shown: object
) -> None:
    assert patches.stores_modes(sent, stored) is shown


def test_a_server_without_ip_mode_stores_what_counts_as_vip() -> None:
    assert patches.without_modes(status(PROXY, HOST)) == status(VIP, HOST)


def test_a_release_can_clear_the_addresses_in_the_same_write() -> None:
    assert patches.release_patch("u1", clear_status=True)["status"] == {"loadBalancer": {"ingress": None}}


@pytest.mark.parametrize(
    ("published", "written"),
    [
        pytest.param(status(), None, id="nothing"),
        pytest.param(
            status(LoadBalancerIngress(ip="203.0.113.1", ip_mode=IPMode.PROXY)),
            [{"ip": "203.0.113.1", "ipMode": "Proxy"}],
            id="ip",
        ),
        pytest.param(status(LoadBalancerIngress(hostname="a.example")), [{"hostname": "a.example"}], id="hostname"),
        pytest.param(
            status(LoadBalancerIngress(ip="203.0.113.1", ports=(PortStatus(port=80, protocol="TCP"),))),
            [{"ip": "203.0.113.1", "ports": [{"port": 80, "protocol": "TCP"}]}],
            id="ports",
        ),
    ],
)
def test_a_status_is_written_without_what_is_absent(published: LoadBalancerStatus, written: object) -> None:
    sent = json.loads(json.dumps(patches.status_patch("u1", published)))
    assert sent["status"] == {"loadBalancer": {"ingress": written}}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        pytest.param(LoadBalancerIngress(ip="203.0.113.1"), ("203.0.113.1", None, IPMode.VIP), id="ip-is-vip"),
        pytest.param(
            LoadBalancerIngress(ip="203.0.113.1", ip_mode="Proxy"), ("203.0.113.1", None, "Proxy"), id="proxy"
        ),
        pytest.param(
            LoadBalancerIngress(ip="203.0.113.1", ip_mode="Router"), ("203.0.113.1", None, "Router"), id="later"
        ),
        pytest.param(LoadBalancerIngress(hostname="a", ip_mode="VIP"), (None, "a", None), id="hostname-has-no-mode"),
        pytest.param(LoadBalancerIngress(ip="", hostname="a"), (None, "a", None), id="empty-ip-is-none"),
        pytest.param(LoadBalancerIngress(ip="2001:DB8:0::1"), ("2001:db8::1", None, IPMode.VIP), id="canonical"),
        pytest.param(LoadBalancerIngress(ip="nonsense"), ("nonsense", None, IPMode.VIP), id="nonsense-stays"),
        pytest.param(LoadBalancerIngress(ip="203.0.113.1", hostname="a"), ("203.0.113.1", "a", IPMode.VIP), id="both"),
    ],
)
def test_a_status_is_compared_as_the_api_server_stores_it(
    given: LoadBalancerIngress, stored: tuple[object, ...]
) -> None:
    [entry] = patches.comparable(status(given)).ingress
    assert (entry.ip, entry.hostname, entry.ip_mode) == stored


def test_the_order_of_the_ingress_counts() -> None:
    one, other = LoadBalancerIngress(ip="203.0.113.1"), LoadBalancerIngress(ip="203.0.113.2")
    assert patches.comparable(status(one, other)) != patches.comparable(status(other, one))


def test_comparing_twice_changes_nothing() -> None:
    once = patches.comparable(status(LoadBalancerIngress(ip="203.0.113.1"), LoadBalancerIngress(hostname="a")))
    assert patches.comparable(once) == once


def test_a_good_answer_is_checked_into_the_comparable_form() -> None:
    answer = status(LoadBalancerIngress(ip="203.0.113.1"), LoadBalancerIngress(hostname="a.example"))
    assert patches.checked(answer) == patches.comparable(answer)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(LoadBalancerIngress(), id="empty"),
        pytest.param(LoadBalancerIngress(ip=""), id="empty-ip"),
        pytest.param(LoadBalancerIngress(ip="300.0.0.1"), id="no-ip"),
        pytest.param(LoadBalancerIngress(ip="203.0.113.0/24"), id="a-network"),
    ],
)
def test_an_answer_that_cannot_be_published_is_refused(entry: LoadBalancerIngress) -> None:
    with pytest.raises(ValueError, match=r"ingress|IPv4"):
        patches.checked(status(LoadBalancerIngress(ip="203.0.113.1"), entry))


def managed(manager: str, *finalizers: str) -> dict[str, Any]:
    fields: dict[str, Any] = {f'v:"{name}"': {} for name in finalizers}
    return {"manager": manager, "fieldsV1": {"f:metadata": {"f:finalizers": fields}}}


@pytest.mark.parametrize(
    ("entries", "ours"),
    [
        pytest.param([], False, id="no-record"),
        pytest.param([managed("ccm-lb", CLEANUP_FINALIZER)], True, id="ours"),
        pytest.param([managed("other-ccm", CLEANUP_FINALIZER)], False, id="theirs"),
        pytest.param([managed("ccm-lb", "x/y"), managed("other-ccm", CLEANUP_FINALIZER)], False, id="ours-is-another"),
        pytest.param([{"manager": "ccm-lb", "fieldsV1": {"f:status": {}}}], False, id="only-the-status-is-ours"),
        pytest.param([{"manager": "ccm-lb"}], False, id="no-fields"),
    ],
)
def test_whose_finalizer_it_is_stands_in_the_record(entries: list[dict[str, Any]], ours: bool) -> None:  # noqa: FBT001
    assert patches.finalizer_set_by(entries, "ccm-lb") is ours


# ---- who wrote what


RECORD = [
    {"manager": "early", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:status": {"f:loadBalancer": {}}}},
    {
        "manager": "late",
        "time": "2026-01-01T00:00:09Z",
        "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}},
    },
    {"manager": "ccm-lb", "time": "2026-01-01T00:00:10Z", "fieldsV1": {"f:status": {"f:loadBalancer": {}}}},
    {"manager": "kubectl", "time": "2026-01-01T00:00:11Z", "fieldsV1": {"f:spec": {"f:type": {}}}},
    {"manager": "kubectl", "fieldsV1": {"f:metadata": {}}},
    {},
]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(("f:status", "f:loadBalancer"), ("late", "early"), id="status"),
        pytest.param(("f:metadata", "f:finalizers"), (), id="nobody"),
        pytest.param((), ("kubectl", "late", "early"), id="anything"),
    ],
)
def test_the_record_names_the_other_writers_of_a_field(path: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert patches.writers(RECORD, "ccm-lb", *path) == expected


def test_what_is_put_back_is_one_patch() -> None:
    status = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="203.0.113.1", ip_mode=IPMode.VIP),))
    ingress = {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "VIP"}]}}
    finalizers = {"uid": "u", "finalizers": [CLEANUP_FINALIZER]}
    assert patches.restore_patch("u", status, finalizer=True) == {"metadata": finalizers, "status": ingress}
    assert patches.restore_patch("u", status, finalizer=False) == {"metadata": {"uid": "u"}, "status": ingress}
    assert patches.restore_patch("u", None, finalizer=True) == {"metadata": finalizers}
