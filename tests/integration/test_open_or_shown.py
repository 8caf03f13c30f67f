"""What a Service asks for is carried out or named to its user: with the genuine API server, which checks some of it, and fakecloud."""

from __future__ import annotations

import asyncio

from ccm_lb.annotations import SOURCE_RANGES
from tests.harness import objects
from tests.harness.stack import SETTLE, Stack


async def wait_ranges(stack: Stack, uid: str, expected: list[str]) -> None:
    seen = None
    try:
        async with asyncio.timeout(SETTLE):
            while seen != expected:
                seen = (await stack.cloud.load_balancer(uid) or {}).get("sourceRanges")
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"the source ranges are {seen}, expected {expected}") from None


async def test_source_ranges_are_enforced_from_the_annotation_and_the_field_and_spaces_are_taken_off(
    stack: Stack,
) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        made = await stack.create(
            objects.service("guarded", annotations={SOURCE_RANGES: " 127.0.7.0/24 , 127.0.8.0/24"})
        )
        uid = made["metadata"]["uid"]
        await wait_ranges(stack, uid, ["127.0.7.0/24", "127.0.8.0/24"])
        await stack.patch("guarded", {"spec": {"loadBalancerSourceRanges": [" 127.0.9.0/24"]}})
        await wait_ranges(stack, uid, ["127.0.9.0/24"])
        _, _, message = await stack.wait_event("guarded", "AnnotationIgnored")
        assert SOURCE_RANGES in message
        await stack.patch("guarded", {"spec": {"loadBalancerSourceRanges": None}})
        await wait_ranges(stack, uid, ["127.0.7.0/24", "127.0.8.0/24"])


async def test_what_nobody_carries_out_is_told_once_in_an_event(stack: Stack) -> None:
    wanted = {
        "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
        "ccm-lb.dev/proxy-protcol": "v2",
        "service.kubernetes.io/topology-mode": "Auto",
    }
    async with stack.controller() as controller:
        await controller.start_ready()
        service = objects.service(
            "believing",
            annotations=wanted,
            sessionAffinity="ClientIP",
            externalTrafficPolicy="Local",
            internalTrafficPolicy="Local",
            publishNotReadyAddresses=True,
        )
        service["spec"]["ports"][0]["appProtocol"] = "kubernetes.io/h2c"
        await stack.create(service)
        await stack.wait_event("believing", "AppProtocolIgnored")
        await stack.patch("believing", {"metadata": {"annotations": {"example.com/touched": "1"}}})
        await stack.patch("believing", {"spec": {"loadBalancerSourceRanges": ["127.0.0.0/8"]}})
        await stack.wait_event("believing", "IPModeConflict")
        told = [
            (one["reason"], one["message"], one["count"])
            for one in await stack.kube.list("events", stack.namespace)
            if one["reason"].endswith("Ignored")
        ]
    assert [reason for reason, _, _ in sorted(told)] == ["AnnotationIgnored", "AnnotationIgnored", "AppProtocolIgnored"]
    assert {count for _, _, count in told} == {1}
    text = "\n".join(message for _, message, _ in told)
    for named in ("kubernetes.io/h2c", "aws-load-balancer-internal", "did you mean ccm-lb.dev/proxy-protocol?"):
        assert named in text
    assert "topology-mode" not in text
