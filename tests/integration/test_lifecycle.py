"""The main job on the genuine API server: a Service gets its address, traffic flows, nothing is left behind."""

import asyncio

from tests.harness import objects
from tests.harness.cloud import listeners, targets
from tests.harness.stack import FINALIZER, Stack, answer


async def test_a_service_gets_its_address_and_ip_mode_and_traffic_flows(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        created = await stack.create(objects.service("web"))
        service = await stack.wait_served("web")

        (entry,) = objects.ingress(service)
        load_balancer = await stack.cloud.load_balancer(created["metadata"]["uid"])
        assert load_balancer is not None
        assert entry == {"ip": load_balancer["addresses"][0]["address"], "ipMode": "Proxy"}
        assert service["metadata"]["finalizers"] == [FINALIZER]
        await stack.serve(service, "n1")
        assert await answer(service) == "n1"


async def test_what_users_are_told_of_a_life_is_upstreams_to_the_letter(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        chosen = await stack.wait_event("web", "IPModeChosen")
        await stack.delete("web")
        await stack.wait_gone("web")
        await stack.wait_event("web", "DeletedLoadBalancer")
        assert await stack.events("web") == [
            ("Normal", "EnsuringLoadBalancer", "Ensuring load balancer"),
            ("Normal", "EnsuredLoadBalancer", "Ensured load balancer"),
            chosen,  # ours
            ("Normal", "DeletingLoadBalancer", "Deleting load balancer"),
            ("Normal", "DeletedLoadBalancer", "Deleted load balancer"),
        ]


async def test_the_annotation_chooses_the_ip_mode_and_a_change_of_it_is_published(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web", annotations={"ccm-lb.dev/ip-mode": "VIP"}))
        assert objects.ingress(await stack.wait_served("web"))[0]["ipMode"] == "VIP"
        await stack.patch("web", {"metadata": {"annotations": {"ccm-lb.dev/ip-mode": "Proxy"}}})
        await stack.wait("web", lambda service: objects.ingress(service)[0]["ipMode"] == "Proxy")


async def test_a_changed_port_moves_the_listener_and_keeps_the_address(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        uid = (await stack.create(objects.service("web", {"http": 18080})))["metadata"]["uid"]
        before = await stack.wait_served("web")
        await stack.patch("web", {"spec": {"ports": [{"name": "http", "port": 18081, "targetPort": 8080}]}})
        await stack.wait_balanced(uid, lambda lb: [port for _, port, _ in listeners(lb)] == [18081])

        after = await stack.get("web")
        assert objects.ingress(after) == objects.ingress(before)
        await stack.serve(after, "n1")
        assert await answer(after, 18081) == "n1"


async def test_nodes_that_come_and_go_are_targets(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        service = await stack.wait_served("web")
        await stack.add_node("n2")
        await stack.wait_balanced(uid, lambda lb: targets(lb) == stack.servers("n1", "n2"))
        await stack.remove_node("n1")
        await stack.wait_balanced(uid, lambda lb: targets(lb) == stack.servers("n2"))
        await stack.serve(service, "n2")
        assert await answer(service) == "n2"
        await stack.wait_event("web", "UpdatedLoadBalancer")


async def test_without_a_node_the_load_balancer_is_made_and_the_user_is_warned(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        told = await stack.wait_event("web", "UnAvailableLoadBalancer")
        assert told == ("Warning", "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")


async def test_a_change_of_type_and_back_removes_and_makes_the_load_balancer(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await stack.patch("web", {"spec": {"type": "ClusterIP"}})
        service = await stack.wait("web", lambda one: FINALIZER not in (one or {})["metadata"].get("finalizers", []))
        assert objects.ingress(service) == []
        assert await stack.cloud.load_balancers() == []
        await stack.patch("web", {"spec": {"type": "LoadBalancer"}})
        await stack.wait_served("web")
        assert len(await stack.cloud.load_balancers()) == 1


async def test_a_deleted_service_leaves_nothing_behind(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await stack.delete("web")
        await stack.wait_gone("web")
        assert await stack.cloud.load_balancers() == []


async def test_a_service_deleted_while_the_controller_is_down_is_cleaned_up_by_the_next_one(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.create(objects.service("was", {"http": 18090}))
        await stack.wait_served("web")
        await stack.wait_served("was")
        await controller.terminate()
        await stack.delete("web")
        await stack.patch("was", {"spec": {"type": "ClusterIP"}})
        assert len(await stack.cloud.load_balancers()) == 2
        await controller.start_ready()
        await stack.wait_gone("web")
        await stack.wait("was", lambda one: not (one or {})["metadata"].get("finalizers"))
        await stack.wait_unbalanced()


async def test_a_service_made_again_at_once_gets_a_load_balancer_of_its_own(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        first = await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await stack.delete("web")
        await stack.wait_gone("web")
        second = await stack.create(objects.service("web"))
        await stack.wait_served("web")
        owners = [one["owner"]["uid"] for one in await stack.cloud.load_balancers()]
        assert owners == [second["metadata"]["uid"]]
        assert first["metadata"]["uid"] not in owners


async def test_a_stripped_finalizer_does_not_leak_the_load_balancer(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await asyncio.gather(stack.patch("web", {"metadata": {"finalizers": None}}), stack.delete("web"))
        await stack.wait_gone("web")
        await stack.wait_unbalanced()


async def test_a_service_that_the_cloud_refuses_says_why_and_does_not_hold_up_the_others(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("bad", annotations={"ccm-lb.dev/proxy-protocol": "v3"}))
        await stack.create(objects.service("good", {"http": 18090}))
        await stack.wait_served("good")
        kind, _, message = await stack.wait_event("bad", "SyncLoadBalancerFailed")
        assert kind == "Warning"
        assert 'annotation ccm-lb.dev/proxy-protocol is "v3": expected none or v1 or v2' in message
        assert objects.ingress(await stack.get("bad")) == []
        await stack.patch("bad", {"metadata": {"annotations": {"ccm-lb.dev/proxy-protocol": "none"}}})
        await stack.wait_served("bad")


async def test_only_the_classes_that_it_was_given_are_served(stack: Stack) -> None:
    async with stack.controller("--load-balancer-class=example.com/ours", "--handle-unclassed=false") as controller:
        await controller.start_ready()
        await stack.create(objects.service("none"))
        await stack.create(objects.service("theirs", {"http": 18081}, loadBalancerClass="example.com/theirs"))
        ours = await stack.create(objects.service("ours", {"http": 18082}, loadBalancerClass="example.com/ours"))
        await stack.wait_served("ours")
        assert [one["owner"]["uid"] for one in await stack.cloud.load_balancers()] == [ours["metadata"]["uid"]]
        for name in ("none", "theirs"):
            assert "finalizers" not in (await stack.get(name))["metadata"]


async def test_a_wiped_status_is_restored(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        before = objects.ingress(await stack.wait_served("web"))
        await stack.kube.patch(
            "services", "web", {"status": {"loadBalancer": None}}, stack.namespace, kind="merge", subresource="status"
        )
        await stack.wait("web", lambda service: objects.ingress(service) == before)


async def test_a_service_that_the_cloud_cannot_serve_is_not_tried_hot(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        port = {"name": "sctp", "port": 18080, "protocol": "SCTP", "targetPort": 8080}
        await stack.create({**objects.service("bad"), "spec": {**objects.service("bad")["spec"], "ports": [port]}})
        kind, _, message = await stack.wait_event("bad", "SyncLoadBalancerFailed")
        assert (kind, "SCTP" in message) == ("Warning", True)
        await asyncio.sleep(10)
        tried = [one for one in await stack.cloud.journal() if one["method"] == "POST"]
        assert len(tried) <= 3, f"{len(tried)} attempts in 10 s"
