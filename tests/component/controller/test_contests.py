"""Others who undo what the controller does: each is answered at once, then rarely, and told of once; nothing else waits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from ccm_lb.controller.predicates import Scope
from ccm_lb.errors import ApiError, RetryAfterError
from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Json, Tweak
from tests.component.world import KEY, CallTimes, World, settle

pytestmark = pytest.mark.looptime

WIPED = builders.published()
FOREIGN = builders.published({"ip": "198.51.100.9", "ipMode": "VIP"})
PAINTED: Tweak = {
    "status": {
        "loadBalancer": {
            "ingress": [{"ip": "203.0.113.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}]
        }
    }
}
STRIPPED: Tweak = {"metadata": {"finalizers": None}}
OURS = [{"ip": "203.0.113.1", "ipMode": "Proxy"}]


class Opponent:
    """Undoes by `tweak` whatever the controller writes, a moment later, until it is `tired`; `times` of what it answered."""

    def __init__(self, world: World, tweak: Tweak, *, delay: float = 0.05) -> None:
        self._world, self._tweak, self._delay = world, tweak, delay
        self.tired = False
        self.times: list[float] = []
        world.api.watch(self._see)

    def begin(self) -> None:
        self._world.edit(self._tweak, manager="rival")

    def _see(self, resource: str, event: str, obj: Json) -> None:
        published = obj.get("status", {}).get("loadBalancer", {}).get("ingress") == OURS
        guarded = CLEANUP_FINALIZER in obj["metadata"].get("finalizers", [])
        if resource == "services" and event == "MODIFIED" and published and guarded and not self.tired:
            self.times.append(round(asyncio.get_running_loop().time()))
            asyncio.get_running_loop().call_later(self._delay, self.begin)


def warnings(world: World) -> list[str]:
    return [one.message for one in world.events.all if one.reason == "LoadBalancerContested"]


def gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(times)]


FIELDS = [
    pytest.param(WIPED, "status", id="status-wiped"),
    pytest.param(FOREIGN, "status", id="status-of-another"),
    pytest.param(PAINTED, "status", id="ports-added"),
    pytest.param(STRIPPED, "finalizer", id="finalizer-stripped"),
]


@pytest.mark.parametrize(("tweak", "field"), FIELDS)
async def test_who_undoes_it_is_answered_at_once_then_after_5_seconds_doubling_to_300(tweak: Tweak, field: str) -> None:
    world = World()
    async with world.working():
        await world.served()
        opponent = Opponent(world, tweak)
        opponent.begin()
        await settle(1800)
        assert gaps(opponent.times) == [5, 10, 20, 40, 80, 160, 300, 300, 300, 300]
        assert len(world.api.patches) == len(opponent.times)
        assert world.cloud.calls == [], "the cloud has no part in it"
        assert len(warnings(world)) == 1
        assert world.outcomes.contests == [field]
        assert len(world.api.gets) <= 1, "the record is read once"


@pytest.mark.parametrize("tweak", [FOREIGN, PAINTED], ids=["another address", "ports"])
async def test_the_other_writer_is_named(tweak: Tweak) -> None:
    world = World()
    async with world.working():
        await world.served()
        Opponent(world, tweak).begin()
        await settle(30)
        [message] = warnings(world)
        assert message.endswith('by the field manager "rival"')


async def test_who_takes_something_away_leaves_no_record_and_that_is_said() -> None:
    world = World()
    async with world.working():
        await world.served()
        Opponent(world, STRIPPED).begin()
        await settle(30)
        [message] = warnings(world)
        assert "no record of by whom" in message


async def test_a_record_that_cannot_be_read_does_not_stop_the_answer() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.api.script.then("get_service", ApiError("etcd is slow", status=500))
        opponent = Opponent(world, FOREIGN)
        opponent.begin()
        await settle(30)
        assert len(opponent.times) == 3
        [message] = warnings(world)
        assert "no record of by whom" in message


@pytest.mark.parametrize(("tweak", "field"), FIELDS)
async def test_a_single_change_is_put_back_at_once_and_not_told(tweak: Tweak, field: str) -> None:
    world = World()
    async with world.working():
        await world.served()
        world.edit(tweak)
        await settle(600)
        assert (world.ingress, world.finalizers) == (OURS, [CLEANUP_FINALIZER])
        assert len(world.api.patches) == 1, field
        assert (world.cloud.calls, world.events.all, world.api.gets) == ([], [], [])


async def test_both_at_once_are_one_write() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.edit(STRIPPED, WIPED)
        await settle()
        assert (world.ingress, world.finalizers) == (OURS, [CLEANUP_FINALIZER])
        assert len(world.api.patches) == 1


async def test_who_gives_up_is_forgotten_and_the_last_word_is_ours() -> None:
    world = World()
    async with world.working():
        await world.served()
        opponent = Opponent(world, FOREIGN)
        opponent.begin()
        await settle(100)
        opponent.tired = True
        await settle(3000)
        assert world.ingress == OURS
        world.forget_history()
        world.edit(FOREIGN)
        await settle()
        assert world.ingress == OURS, "after an hour of calm it is a first time again"
        assert warnings(world) == []


async def contested(world: World, tweak: Tweak = FOREIGN) -> None:
    """Served, and in a quarrel that lets the next answer wait for more than a minute."""
    await world.served()
    Opponent(world, tweak).begin()
    await settle(80)
    world.forget_history()


@pytest.mark.parametrize("tweak", [FOREIGN, STRIPPED], ids=["status", "finalizer"])
async def test_nodes_do_not_wait_for_the_end_of_a_quarrel(tweak: Tweak) -> None:
    world = World()
    async with world.working():
        await contested(world, tweak)
        world.add_nodes("n4")
        await settle(2)
        assert world.targets == ("n1", "n2", "n3", "n4")
        assert world.api.patches == []
        assert world.node_syncs[-1] == pytest.approx(1.0, abs=0.1)
        await settle(100)
        assert len(world.api.patches) == 1, "the answer comes when it was to come"


async def test_a_change_of_the_service_does_not_wait_for_the_end_of_a_quarrel() -> None:
    world = World()
    async with world.working():
        await contested(world)
        world.edit(builders.port(81))
        await settle()
        assert world.cloud.changes() == ["UPDATE"]


@pytest.mark.parametrize(
    "end", [World.delete, lambda world: world.edit(builders.of_type("ClusterIP"))], ids=["deleted", "type-changed"]
)
async def test_a_clean_up_does_not_wait_for_the_end_of_a_quarrel(end: Callable[[World], None]) -> None:
    world = World()
    async with world.working():
        await contested(world)
        end(world)
        await settle()
        assert world.cloud.changes() == ["DELETE"]


async def test_a_service_that_vanishes_while_its_finalizer_is_contested_leaves_nothing() -> None:
    world = World()
    async with world.working():
        await contested(world, STRIPPED)
        world.delete()
        await settle()
        assert world.gone
        assert world.cloud.load_balancers == {}


async def test_what_the_server_itself_makes_of_what_is_written_is_no_contest() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.api.has_ip_mode = False  # what is put back comes out without it
        world.edit(WIPED)
        await settle(600)
        assert len(world.api.patches) == 1


# ---- parties that change the Service itself


async def alternate(world: World, *tweaks: Tweak, every: float, times: int) -> None:
    for number in range(times):
        world.edit(tweaks[number % len(tweaks)])
        await settle(every)


@pytest.mark.parametrize(
    "tweaks",
    [
        pytest.param((builders.annotated("a/b", "c"), builders.annotated("a/b", "d")), id="annotation"),
        pytest.param((builders.port(81), builders.port(82)), id="port"),
        pytest.param((builders.of_type("ClusterIP"), builders.of_type("LoadBalancer")), id="type"),
    ],
)
async def test_two_who_disagree_about_a_service_cost_the_cloud_little(tweaks: tuple[Tweak, Tweak]) -> None:
    world = World()
    async with world.working():
        await world.served()
        times = CallTimes(world, "ensure")
        await alternate(world, *tweaks, every=0.5, times=2400)
        assert len(times.all) < 20 + 30, "twenty at once, then one a minute"
        assert len(warnings(world)) == 1
        assert world.outcomes.contests == ["service"]
        world.edit(tweaks[1])
        await settle(61)
        assert world.cloud.load_balancers
        assert world.ingress


async def test_many_changes_in_a_row_are_followed_at_once() -> None:
    world = World()
    async with world.working():
        await world.served()
        for number in range(15):
            world.edit(builders.port(81 + number))
            await settle(0.2)
        assert world.cloud.changes() == ["UPDATE"] * 15
        assert warnings(world) == []


async def test_who_edits_a_service_each_minute_is_never_held_up() -> None:
    world = World()
    async with world.working():
        await world.served()
        for number in range(120):
            world.edit(builders.port(81 + number))
            await settle(60)
        assert world.cloud.changes() == ["UPDATE"] * 120
        assert warnings(world) == []


async def test_a_finalizer_that_is_put_on_again_and_again_is_taken_off_ever_more_rarely() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.edit(builders.of_type("ClusterIP"))
        await settle()
        world.forget_history()
        times = CallTimes(world, "delete")
        for _ in range(600):
            if world.finalizers == []:
                world.edit(builders.finalizers(), manager="rival")
            await settle(0.5)
        assert times.gaps() == [5, 10, 20, 40, 80]
        [message] = warnings(world)
        assert message.endswith('by the field manager "rival"')


async def test_two_who_disagree_about_the_class_cost_the_cloud_little() -> None:
    world = World(Scope(frozenset({"example.com/ours"}), unclassed=False))
    async with world.working():
        world.add_nodes()
        world.create(builders.of_class("example.com/ours"))
        await settle()
        world.forget_history()
        ours, theirs = builders.of_class("example.com/ours"), builders.of_class("example.com/theirs")
        await alternate(world, theirs, ours, every=0.5, times=2400)
        assert len(world.cloud.mutations) < 2 * (20 + 30)
        assert len(warnings(world)) == 1


# ---- a cloud that does not keep what is written


async def test_a_cloud_that_keeps_nothing_is_written_to_ever_more_rarely_and_told_of_once() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        times = CallTimes(world, "ensure")
        world.cloud.keeps_nothing = True
        world.create()
        await settle(2000)
        assert times.gaps()[:14] == [2] * 9 + [5, 10, 20, 40, 80]
        assert times.gaps()[-1] == 300
        [message] = warnings(world)
        assert "the cloud does not keep" in message
        assert world.outcomes.contests == ["cloud"]
        world.cloud.keeps_nothing = False
        await settle(300)
        assert world.ingress


async def test_a_cloud_that_takes_its_time_is_asked_as_often_as_it_says() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        times = CallTimes(world, "ensure")
        world.cloud.script.then("ensure", *[RetryAfterError("it works on it", 2)] * 200)
        world.create()
        await settle(500)
        assert times.gaps() == [2] * 200
        assert world.ingress
        assert warnings(world) == []


async def test_a_waiting_answer_to_one_service_holds_no_other_one_up() -> None:
    world = World()
    async with world.working():
        await contested(world)
        world.create(builders.named("other"), builders.uid("other"))
        await settle()
        other = world.api.object(KEY._replace(name="other"))
        assert other is not None
        assert other["status"]["loadBalancer"]["ingress"]
