"""ipMode on the genuine API server: values that it does not know, servers that drop the field, and their upgrade."""

import asyncio
import json
import subprocess

import pytest

from tests.faultproxy.effects import DropField
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects, pod
from tests.harness.stack import Stack

INGRESS = "status.loadBalancer.ingress[].ipMode"
STATUS = Match(method="PATCH", path="/services/[^/]+/status$")
RESYNC = "--resync-period=2s"


def before_ip_mode(proxy: FaultProxy) -> None:
    """The API server becomes one that does not know the field: neither from requests nor in answers and watches."""
    proxy.add(Rule(DropField(INGRESS, of="request"), STATUS, times=None))
    proxy.add(Rule(DropField(INGRESS), Match(path="/services/[^/]+(/status)?$"), times=None))
    proxy.add(Rule(DropField(INGRESS), Match(path="/services$"), times=None))


async def test_a_mode_that_the_server_refuses_is_warned_of_and_the_old_one_stays(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web", annotations={"ccm-lb.dev/ip-mode": "VIP"}))
        await stack.wait_served("web")
        await stack.patch("web", {"metadata": {"annotations": {"ccm-lb.dev/ip-mode": "Magic"}}})
        kind, _, message = await stack.wait_event("web", "IPModeRefused")
        assert kind == "Warning"
        assert 'ccm-lb.dev/ip-mode is "Magic"' in message
        assert objects.ingress(await stack.get("web"))[0]["ipMode"] == "VIP"
        await stack.patch("web", {"metadata": {"annotations": {"ccm-lb.dev/ip-mode": None}}})
        await stack.wait("web", lambda one: objects.ingress(one)[0]["ipMode"] == "Proxy")


@pytest.mark.scenario("B77")
async def test_a_server_that_drops_the_field_is_told_of_once_and_its_upgrade_is_noticed(
    stack: Stack, api_proxy: FaultProxy
) -> None:
    before_ip_mode(api_proxy)
    async with stack.controller(RESYNC, kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        # Behind the proxy it is the server of today, which makes VIP of a field that does not arrive.
        assert objects.ingress(await stack.wait_served("web"))[0]["ipMode"] == "VIP"
        kind, _, message = await stack.wait_event("web", "IPModeNotStored")
        assert kind == "Warning"
        assert "does not store ipMode (Proxy for 127." in message
        api_proxy.forget()
        await asyncio.sleep(5)
        written = [one for one in api_proxy.matching(STATUS) if one.request.query.get("dryRun") != "All"]
        assert written == [], "it is asked, and not written again"

        api_proxy.clear()
        await stack.wait("web", lambda one: objects.ingress(one)[0]["ipMode"] == "Proxy")
        await controller.terminate()
        assert [reason for _, reason, _ in await stack.events("web")].count("IPModeNotStored") == 1


async def test_on_such_a_server_a_host_name_stands_in(stack: Stack, api_proxy: FaultProxy) -> None:
    before_ip_mode(api_proxy)
    flags = (RESYNC, "--hostname-suffix=lb.example")
    async with stack.controller(*flags, kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        name = f"web.{stack.namespace}.lb.example"
        assert objects.ingress(await stack.wait_served("web")) == [{"hostname": name}]
        api_proxy.clear()
        await stack.wait("web", lambda one: objects.ingress(one)[0].get("ipMode") == "Proxy")


@pytest.mark.scenario("B16")
async def test_an_address_that_is_not_allowed_is_named_and_the_load_balancer_stays(stack: Stack) -> None:
    async with stack.controller("--allow-addresses=multicast") as controller:
        await controller.start_ready()
        created = await stack.create(objects.service("web"))
        _, _, message = await stack.wait_event("web", "SyncLoadBalancerFailed")
        load_balancer = await stack.cloud.load_balancer(created["metadata"]["uid"])
        assert load_balancer is not None
        address = load_balancer["addresses"][0]["address"]
        assert f"{address} is a loopback address: not published unless --allow-addresses names loopback" in message
        assert objects.ingress(await stack.get("web")) == []


@pytest.mark.scenario("B69")
async def test_a_port_that_the_cloud_refuses_is_in_the_status_and_in_a_condition_until_it_goes(stack: Stack) -> None:
    http = {"name": "http", "port": 18080, "protocol": "TCP", "targetPort": 8080}
    sctp = {"name": "sctp", "port": 18081, "protocol": "SCTP", "targetPort": 8081}
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await stack.patch("web", {"spec": {"ports": [http, sctp]}})
        served = await stack.wait("web", lambda one: (one or {})["status"].get("conditions"))
        assert [port.get("error") for port in objects.ingress(served)[0]["ports"]] == [None, "ProtocolNotSupported"]
        [condition] = served["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("LoadBalancerPortsError", "True")
        await stack.patch("web", {"spec": {"ports": [http]}})
        await stack.wait("web", lambda one: (one or {})["status"]["conditions"][0]["status"] == "False")


async def explained(stack: Stack, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    settings = ("--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}")
    arguments = ("explain", f"{stack.namespace}/{name}", *settings, f"--kubeconfig={stack.plane.kubeconfig}", *flags)
    return await asyncio.to_thread(
        subprocess.run, pod.command(*arguments), capture_output=True, text=True, timeout=120, check=False
    )


async def test_the_choice_is_explained_from_the_cluster_the_settings_and_the_cloud(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web", annotations={"ccm-lb.dev/proxy-protocol": "v2"}))
        await stack.wait_served("web")
        text = await explained(stack, "web", "--allow-addresses=loopback")
        assert text.returncode == 0, text.stderr
        assert (
            ": ipMode Proxy, because only the load balancer adds what 18080/TCP (PROXY protocol v2) expect"
            in text.stdout
        )
        assert "warning" not in text.stdout
        shown = json.loads((await explained(stack, "web", "--output=json")).stdout)
        assert shown["addresses"][0]["rule"] == "proxy-protocol"
        assert shown["addresses"][0]["published"] == "Proxy"
        assert "is a loopback address: not published unless" in shown["refused"][0], "without the setting of `run`"
        assert shown["addresses"][0]["inputs"]["delivery"] == "destination rewritten", "the cloud was asked"
        await stack.cloud.kill()
        alone = json.loads((await explained(stack, "web", "--output=json")).stdout)
        assert alone["addresses"][0]["inputs"]["delivery"] == "unknown"
        assert "/v1/cloud" in alone["cloudNotAsked"]
        missing = await explained(stack, "nothing")
        assert missing.returncode == 1
        assert missing.stderr.startswith("ccm-lb: ")
        assert missing.stderr.count("\n") == 1
