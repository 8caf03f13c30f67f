"""The API server paces Events and Services apart: who is told to wait with the one does not wait with the other."""

from tests.faultproxy.effects import Answer
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects
from tests.harness.stack import SETTLE, Stack

PAUSE = 240  # seconds that the API server asks for: more than a test waits


async def test_a_pause_for_events_puts_no_service_off(stack: Stack, api_proxy: FaultProxy) -> None:
    rule = api_proxy.add(Rule(Answer(429, "TooManyRequests", retry_after=PAUSE), Match("POST", "/events$")))
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.create(objects.service("first"))
        await stack.wait_served("first", SETTLE)
        await api_proxy.wait_for(Match("POST", "/events$"))
        await stack.create(objects.service("second", {"http": 18090}))
        await stack.wait_served("second", SETTLE)
        assert rule.hits


async def test_a_pause_for_services_puts_no_event_off(stack: Stack, api_proxy: FaultProxy) -> None:
    api_proxy.add(Rule(Answer(429, "TooManyRequests", retry_after=PAUSE), Match("PATCH", "/services/first/status$")))
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.create(objects.service("first"))
        message = (await stack.wait_event("first", "SyncLoadBalancerFailed", SETTLE))[2]
        assert "asked for a pause" in message or "fault" in message
