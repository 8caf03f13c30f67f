"""A restart says nothing that was said: what fails, waits or stands as it did is news to nobody."""

from tests.faultproxy.effects import Answer
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects
from tests.harness.cloud import listeners
from tests.harness.stack import Stack

Said = dict[tuple[str, str], int]


async def said(stack: Stack, name: str) -> Said:
    """How often what was said of the Service, by name of the Event and its reason."""
    found = await stack.kube.list("events", stack.namespace)
    ours = [one for one in found if one["involvedObject"]["name"] == name]
    return {(one["metadata"]["name"], one["reason"]): one["count"] for one in ours}


async def test_a_failure_that_goes_on_is_not_told_again_by_the_next_process(stack: Stack) -> None:
    fault = await stack.cloud.fault("status", match={"methods": ["POST"]}, status=500)
    await stack.create(objects.service("web"))
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.wait_event("web", "SyncLoadBalancerFailed")
        for restarts in range(1, 4):
            await controller.terminate()  # which has written what it had to
            before, failed = await said(stack, "web"), controller.logged("will be retried")
            await controller.start_ready()
            await controller.wait_logged("will be retried")
            while controller.logged("will be retried") == failed:
                await stack.cloud.wait_struck(fault, restarts + 1)
            await controller.terminate()
            after = await said(stack, "web")
            assert {key: count for key, count in after.items() if key[1] == "SyncLoadBalancerFailed"} == {
                key: count for key, count in before.items() if key[1] == "SyncLoadBalancerFailed"
            }
        # What is new is told.
        await controller.start_ready()
        await stack.cloud.mend(fault)
        await stack.wait_served("web")


async def test_what_was_chosen_is_not_said_again_after_a_restart_and_a_change(stack: Stack) -> None:
    await stack.add_node("n1")
    made = await stack.create(objects.service("web", annotations={"cloud.google.com/network-tier": "x"}))
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.wait_served("web")
        await stack.wait_event("web", "IPModeChosen")
        await stack.wait_event("web", "AnnotationIgnored")
        await controller.terminate()
        before = await said(stack, "web")
        await stack.patch("web", {"spec": {"ports": [{**made["spec"]["ports"][0], "port": 18099}]}})
        await controller.start_ready()
        await stack.wait_balanced(made["metadata"]["uid"], lambda one: listeners(one)[0][1] == 18099)
        await controller.terminate()
        after = await said(stack, "web")
        standing = ("IPModeChosen", "AnnotationIgnored")
        assert {key: count for key, count in after.items() if key[1] in standing} == {
            key: count for key, count in before.items() if key[1] in standing
        }
        assert sum(count for (_, reason), count in after.items() if reason == "EnsuredLoadBalancer") == 2
        # Another choice is news, also for the next process.
        await controller.start_ready()
        await stack.patch("web", {"metadata": {"annotations": {"ccm-lb.dev/ip-mode": "VIP"}}})
        await stack.wait("web", lambda one: objects.ingress(one)[0]["ipMode"] == "VIP")
        await controller.terminate()
        chosen = [message for _, reason, message in await stack.events("web") if reason == "IPModeChosen"]
        assert ["ipMode VIP" in one for one in chosen] == [False, True]


async def test_without_the_right_to_read_events_a_replica_works_and_says_things_again(
    stack: Stack, api_proxy: FaultProxy
) -> None:
    api_proxy.add(
        Rule(Answer(403, "Forbidden", 'events is forbidden: cannot list resource "events"'), Match("GET", "/v1/events"))
    )
    await stack.create(objects.service("web"))
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.wait_served("web")
        assert controller.logged("earlier events cannot be read") == 1
        assert not controller.logged("WARNING ccm_lb.kube"), controller.last_words()
