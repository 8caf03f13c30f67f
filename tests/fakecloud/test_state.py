"""The pure core: states in, states out."""

import dataclasses
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakecloud.config import Settings
from fakecloud.dataplane.algorithms import Candidate, by_load, by_source, eligible, from_turn, turns
from fakecloud.errors import ProblemError, invalid
from fakecloud.health.verdicts import Result, Verdict
from fakecloud.models.base import Family, family_of
from fakecloud.models.inventory import AddressPool, ReservedAddress, Server
from fakecloud.models.journal import Outcome
from fakecloud.models.listeners import Listener, Target
from fakecloud.models.loadbalancers import LoadBalancer, LoadBalancerPatch, LoadBalancerSpec, Owner
from fakecloud.models.problems import FieldError
from fakecloud.models.queries import LoadBalancerQuery
from fakecloud.state import fencing, inventory, ipam, loadbalancers, reservations, settling
from fakecloud.state.fencing import FencingToken
from fakecloud.state.ipam import Pool
from fakecloud.state.loadbalancers import Stamp
from fakecloud.state.networks import target_networks
from fakecloud.state.policy import AddressMode, Policy
from fakecloud.state.pools import refusal as pool_refusal
from fakecloud.state.records import Kind, Record, State, restored
from fakecloud.state.routes import affected, route_of

NETWORKS = target_networks()
POLICY = Policy(NETWORKS)
STAMP = Stamp("lb-1", "2026-01-01T00:00:00Z")


def pool(cidr: str = "127.90.0.0/29") -> Pool:
    return Pool("p", ipaddress.ip_network(cidr))


def spec(
    uid: str = "u1",
    *,
    targets: tuple[Target, ...] = (),
    addresses: tuple[str, ...] = (),
    families: tuple[Family, ...] = ("IPv4",),
) -> LoadBalancerSpec:
    return LoadBalancerSpec(
        families=families,
        name="web",
        owner=Owner(cluster="c1", uid=uid),
        listeners=(Listener(port=80, target_port=30080),),
        targets=targets,
        addresses=addresses,
    )


def with_load_balancers(*ids: str, pools: tuple[Pool, ...] = (), servers: tuple[Server, ...] = ()) -> State:
    state = restored(pools or (pool(),), servers, (), ())
    for number in ids:
        state = loadbalancers.create(state, spec(number), POLICY, Stamp(f"lb-{number}", "t")).state
    return state


def problem_of(caught: pytest.ExceptionInfo[ProblemError]) -> tuple[int, str]:
    return caught.value.problem.status, caught.value.problem.type.rpartition("/")[2]


@pytest.mark.parametrize(
    ("cidr", "first", "size"),
    [
        pytest.param("127.90.0.0/24", "127.90.0.1", 254, id="network and broadcast stay unused"),
        pytest.param("127.90.0.0/30", "127.90.0.1", 2, id="the smallest with both"),
        pytest.param("127.90.0.0/31", "127.90.0.0", 2, id="a pair has neither"),
        pytest.param("127.90.0.7/32", "127.90.0.7", 1, id="a single address"),
        pytest.param("::/126", "::1", 2, id="a small IPv6 number stays IPv6"),
    ],
)
def test_a_pool_gives_out_its_lowest_free_address(cidr: str, first: str, size: int) -> None:
    assert (pool(cidr).lowest_free(), len(pool(cidr).usable)) == (first, size)
    assert pool(cidr).family == family_of(first)
    assert pool(cidr).with_taken(first).lowest_free() != first


@given(st.lists(st.integers(min_value=1, max_value=6)))
def test_no_address_is_given_out_twice_whatever_comes_back(returned: list[int]) -> None:
    current = pool()
    held: set[str] = set()
    for number in returned:
        address = current.lowest_free()
        if address is not None:
            assert address not in held
            assert current.is_free(address)
            current, held = current.with_taken(address), held | {address}
        back = str(current.network[number])
        current, held = current.without(back), held - {back}
    assert len(current.taken) == len(held)


def test_an_exhausted_pool_has_no_lowest_address_and_holds_only_its_own() -> None:
    assert pool("127.90.0.7/32").with_taken("127.90.0.7").lowest_free() is None
    assert (pool().holds("127.90.0.1"), pool().holds("127.90.0.0"), pool().holds("::1")) == (True, False, False)
    assert ipam.default_name(ipaddress.ip_network("127.84.0.0/16")) == "pool-127.84.0.0-16"


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", True),
        ("10.255.0.1", True),
        ("172.32.0.1", False),
        ("100.64.0.1", True),
        ("8.8.8.8", False),
        ("0.0.0.0", False),
        ("169.254.169.254", False),
        ("::1", True),
        ("2001:db8::1", False),
        ("::ffff:10.0.0.1", True),
        ("::ffff:8.8.8.8", False),
    ],
)
def test_only_private_networks_are_targets_by_default(address: str, *, allowed: bool) -> None:
    assert (address in NETWORKS) is allowed
    assert "10.0.0.0/8" in str(NETWORKS)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "::ffff:169.254.169.254",
        "100.100.100.200",
        "::ffff:100.100.100.200",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fe80::a9fe:a9fe",
        "64:ff9b::169.254.169.254",
    ],
)
def test_a_metadata_service_is_forwarded_to_only_when_it_is_named_itself(address: str) -> None:
    wide = ("0.0.0.0/0", "::/0")
    assert address not in NETWORKS
    assert address not in target_networks(wide)
    own = address.removeprefix("::ffff:")
    assert address in target_networks((*wide, own))
    assert "8.8.8.8" in target_networks((*wide, own))
    assert address not in target_networks((*wide, "127.0.0.0/8"))
    server = Server(id="n1", name="x", addresses=(address,))
    with pytest.raises(ProblemError) as refused:
        inventory.add_server(State(), server, NETWORKS)
    assert "metadata service" in refused.value.problem.detail


@pytest.mark.parametrize(
    ("cidr", "others", "word"),
    [
        pytest.param("127.90.0.0/24", (), None, id="fits"),
        pytest.param("10.0.0.0/24", (), "outside", id="not loopback"),
        pytest.param("::/64", (), "outside", id="IPv6"),
        pytest.param("127.90.0.0/24", ("127.91.0.0/24", "127.90.0.0/16"), "overlaps", id="overlap"),
    ],
)
def test_a_pool_that_can_not_work_is_refused(cidr: str, others: tuple[str, ...], word: str | None) -> None:
    reason = pool_refusal(ipaddress.ip_network(cidr), tuple(ipaddress.ip_network(other) for other in others))
    assert reason is None if word is None else reason is not None and word in reason


def test_settings_refuse_pools_that_overlap() -> None:
    network = ipaddress.ip_network("127.90.0.0/24")
    assert Settings(token="t", pools=(network,)).pools == (network,)
    with pytest.raises(ValueError, match="overlaps"):
        Settings(token="t", pools=(network, network))


def test_a_create_takes_an_address_and_says_what_to_store() -> None:
    before = with_load_balancers()
    change = loadbalancers.create(before, spec(), POLICY, STAMP)
    assert change.result.addresses[0].address == "127.90.0.1"
    assert change.records == (Record(Kind.LOAD_BALANCER, "lb-1", change.result),)
    assert (before.load_balancers, before.pools["p"].taken) == ({}, frozenset())
    again = loadbalancers.create(change.state, spec(), POLICY, Stamp("lb-2", "t"))
    assert (again.result, again.outcome, again.records) == (change.result, Outcome.EXISTING, ())


def test_a_requested_address_is_given_when_it_is_free_and_in_a_pool() -> None:
    state = with_load_balancers("u1", pools=(pool(), Pool("q", ipaddress.ip_network("127.91.0.0/29"))))
    given_out = loadbalancers.create(state, spec("u2", addresses=("127.91.0.3",)), POLICY, STAMP)
    assert given_out.result.addresses[0].address == "127.91.0.3"
    with pytest.raises(ProblemError) as caught:
        loadbalancers.create(given_out.state, spec("u3", addresses=("127.91.0.3",)), POLICY, Stamp("x", "t"))
    assert problem_of(caught) == (409, "address-in-use")
    with pytest.raises(ProblemError) as caught:
        loadbalancers.create(state, spec("u3", addresses=("127.92.0.1",)), POLICY, STAMP)
    assert "p (127.90.0.0/29), q (127.91.0.0/29)" in caught.value.problem.detail


def test_the_next_pool_is_used_when_one_is_full_and_none_left_is_a_conflict() -> None:
    single, other = Pool("a", ipaddress.ip_network("127.90.0.1/32")), Pool("b", ipaddress.ip_network("127.91.0.1/32"))
    state = with_load_balancers("u1", "u2", pools=(single, other))
    assert [lb.addresses[0].address for lb in state.load_balancers.values()] == ["127.90.0.1", "127.91.0.1"]
    with pytest.raises(ProblemError) as caught:
        loadbalancers.create(state, spec("u3"), POLICY, STAMP)
    assert problem_of(caught) == (409, "address-pool-exhausted")
    assert "a (127.90.0.1/32" in caught.value.problem.detail
    with pytest.raises(ProblemError, match="no IPv4 address pool"):
        loadbalancers.create(State(), spec(), POLICY, STAMP)
    freed = loadbalancers.delete(state, "lb-u1").state
    assert {name: len(left.taken) for name, left in freed.pools.items()} == {"a": 0, "b": 1}


def test_a_patch_checks_only_the_targets_that_it_names() -> None:
    server = Server(id="n1", name="n1", addresses=("10.0.0.1",))
    state = with_load_balancers("u1", servers=(server,))
    named = loadbalancers.patch(state, "lb-u1", LoadBalancerPatch(targets=(Target(server="n1"),)), POLICY, None)
    without = inventory.delete_server(named.state, "n1").state
    renamed = loadbalancers.patch(without, "lb-u1", LoadBalancerPatch(name="x"), POLICY, '"2"')
    assert (renamed.result.generation, renamed.result.spec.targets) == (3, (Target(server="n1"),))
    with pytest.raises(ProblemError, match="no server n1"):
        loadbalancers.patch(
            without, "lb-u1", LoadBalancerPatch(targets=(Target(server="n1"), Target(address="::1"))), POLICY, None
        )
    unchanged = loadbalancers.patch(renamed.state, "lb-u1", LoadBalancerPatch(name="x"), POLICY, None)
    assert (unchanged.outcome, unchanged.records) == (Outcome.UNCHANGED, ())


DUAL = Policy(NETWORKS, AddressMode.INTERFACE)


def with_both_families() -> tuple[State, LoadBalancer]:
    six = Pool("six", ipaddress.ip_network("fd90::/126"))
    asked = spec(addresses=("127.90.0.3", "fd90::2"), families=("IPv4", "IPv6"))
    change = loadbalancers.create(restored((pool(), six), (), (), ()), asked, DUAL, STAMP)
    return change.state, change.result


def test_the_address_of_a_family_that_goes_is_held_until_traffic_has_left_it() -> None:
    before, _ = with_both_families()
    went = loadbalancers.patch(before, "lb-1", LoadBalancerPatch(families=("IPv4",)), DUAL, None)
    assert [one.address for one in went.result.addresses] == ["127.90.0.3"]
    assert [one.address for one in went.result.leaving] == ["fd90::2"]
    # An address that was asked for is forgotten with its family, or else the row could not be read again.
    assert LoadBalancer.model_validate_json(went.result.model_dump_json()) == went.result
    assert not went.state.pools["six"].is_free("fd90::2")
    assert restored((pool(), before.pools["six"]), (), (went.result,), ()).pools == went.state.pools
    freed = loadbalancers.without_leaving(went.state, "lb-1")
    assert (freed.state.pools["six"].is_free("fd90::2"), freed.result.leaving) == (True, ())
    assert loadbalancers.without_leaving(freed.state, "lb-1").outcome is Outcome.UNCHANGED


def test_a_family_that_comes_back_before_its_address_left_keeps_it() -> None:
    before, created = with_both_families()
    went = loadbalancers.patch(before, "lb-1", LoadBalancerPatch(families=("IPv4",)), DUAL, None)
    back = loadbalancers.patch(went.state, "lb-1", LoadBalancerPatch(families=("IPv6", "IPv4")), DUAL, None)
    assert (back.result.addresses, back.result.leaving) == (created.addresses[::-1], ())
    assert back.state.pools == before.pools


def test_a_family_that_comes_gets_the_lowest_free_address_or_nothing_changes() -> None:
    state = with_load_balancers("u1", pools=(pool(), Pool("six", ipaddress.ip_network("fd90::7/128"))))
    both = LoadBalancerPatch(families=("IPv4", "IPv6"))
    with pytest.raises(ProblemError, match="--addresses interface"):
        loadbalancers.patch(state, "lb-u1", both, POLICY, None)
    change = loadbalancers.patch(state, "lb-u1", both, DUAL, None)
    assert [one.address for one in change.result.addresses] == ["127.90.0.1", "fd90::7"]
    second = loadbalancers.create(change.state, spec("u2"), DUAL, STAMP)
    with pytest.raises(ProblemError) as caught:
        loadbalancers.patch(second.state, "lb-1", both, DUAL, None)
    assert problem_of(caught) == (409, "address-pool-exhausted")
    assert [one.field for one in caught.value.problem.errors] == ["families[1]"]


def test_what_is_to_be_deleted_goes_when_that_is_done_and_stays_when_it_fails() -> None:
    state = with_load_balancers("u1")
    begun = loadbalancers.begin_delete(state, "lb-u1", '"1"')
    assert (begun.result.deleting, begun.state.pools) == (True, state.pools)
    assert loadbalancers.begin_delete(begun.state, "lb-u1", None).outcome is Outcome.UNCHANGED
    with pytest.raises(ProblemError) as caught:
        loadbalancers.create(begun.state, spec("u1"), POLICY, STAMP)
    assert problem_of(caught) == (409, "being-deleted")
    done = settling.settled(begun.state, begun.records, done=True)
    assert (done.state.load_balancers, done.records) == ({}, (Record(Kind.LOAD_BALANCER, "lb-u1", None),))
    failed = settling.settled(begun.state, begun.records, done=False)
    assert failed.state.load_balancers == state.load_balancers
    assert settling.settled(State(), begun.records, done=True).records == ()
    assert settling.settled(state, settling.everything(state), done=False).outcome is Outcome.UNCHANGED


def test_an_address_that_is_reserved_or_shared_is_not_free_when_a_load_balancer_goes() -> None:
    state = with_load_balancers("u1")
    kept = reservations.reserve(state, ReservedAddress(name="mine", address="127.90.0.1"), POLICY).state
    assert not loadbalancers.delete(kept, "lb-u1").state.pools["p"].is_free("127.90.0.1")
    shared = with_load_balancers("u1", "u2", pools=(Pool("s", ipaddress.ip_network("10.0.0.1/32"), shared=True),))
    assert len(loadbalancers.delete(shared, "lb-u1").state.pools["s"].taken) == 1


def owned_by(uid: str | None, cluster: str = "c1") -> LoadBalancerPatch:
    return LoadBalancerPatch(owner=None if uid is None else Owner(cluster=cluster, uid=uid))


def test_what_its_owner_lets_go_of_serves_on_and_another_takes_it_over() -> None:
    state = with_load_balancers("u1")
    free = loadbalancers.patch(state, "lb-u1", owned_by(None), POLICY, None)
    assert free.result.addresses == state.load_balancers["lb-u1"].addresses
    assert free.state.by_owner == {}
    assert loadbalancers.page(free.state, LoadBalancerQuery(cluster="c1")) == ([], None)
    assert loadbalancers.page(free.state, LoadBalancerQuery()) == ([free.result], None)
    taken = loadbalancers.patch(free.state, "lb-u1", owned_by("u9", "c2"), POLICY, None)
    assert taken.state.by_owner == {("c2", "u9"): "lb-u1"}
    again = loadbalancers.patch(taken.state, "lb-u1", owned_by("u9", "c2"), POLICY, None)
    assert again.outcome is Outcome.UNCHANGED
    assert restored((pool(),), (), taken.state.load_balancers.values(), ()).by_owner == taken.state.by_owner
    assert loadbalancers.delete(free.state, "lb-u1").state.load_balancers == {}


@pytest.mark.parametrize(
    ("uid", "cluster", "problem"),
    [
        pytest.param("u2", "c1", "owned", id="another Service's"),
        pytest.param("u1", "c2", "owned", id="another cluster's"),
    ],
)
def test_what_is_anothers_cannot_be_taken(uid: str, cluster: str, problem: str) -> None:
    with pytest.raises(ProblemError) as caught:
        loadbalancers.patch(with_load_balancers("u1"), "lb-u1", owned_by(uid, cluster), POLICY, None)
    assert problem_of(caught) == (409, problem)


def test_nobody_has_two() -> None:
    state = with_load_balancers("u1")
    made = loadbalancers.create(state, spec("x").model_copy(update={"owner": None}), POLICY, Stamp("lb-free", "t"))
    assert made.state.by_owner == state.by_owner
    with pytest.raises(ProblemError) as caught:
        loadbalancers.patch(made.state, "lb-free", owned_by("u1"), POLICY, None)
    assert problem_of(caught) == (409, "owner-has-one")


def in_pools(*names: str, families: tuple[Family, ...] = ("IPv4",)) -> LoadBalancerSpec:
    return spec("x", families=families).model_copy(update={"address_pools": names})


def test_an_address_comes_from_a_pool_that_was_asked_for() -> None:
    pools = (pool(), Pool("q", ipaddress.ip_network("127.91.0.0/29")), Pool("six", ipaddress.ip_network("fd99::/126")))
    policy = dataclasses.replace(POLICY, addresses=AddressMode.INTERFACE)
    made = loadbalancers.create(
        with_load_balancers(pools=pools), in_pools("q", families=("IPv4", "IPv6")), policy, STAMP
    )
    assert [one.address for one in made.result.addresses] == ["127.91.0.1", "fd99::1"]


def test_an_unknown_pool_is_named() -> None:
    with pytest.raises(ProblemError) as caught:
        loadbalancers.create(with_load_balancers(), in_pools("p", "nowhere"), POLICY, STAMP)
    [error] = caught.value.problem.errors or ()
    assert (error.field, error.value) == ("addressPools[1]", "nowhere")


def test_pages_are_in_order_of_creation_and_filtered_by_owner() -> None:
    state = with_load_balancers("a", "b", "c")
    shown, more = loadbalancers.page(state, LoadBalancerQuery(cluster="c1", limit=2))
    assert ([lb.id for lb in shown], more) == (["lb-a", "lb-b"], 2)
    assert loadbalancers.page(state, LoadBalancerQuery(owner="c", cursor="2", limit=2))[1] is None
    assert loadbalancers.page(state, LoadBalancerQuery(cluster="other")) == ([], None)


def test_the_restored_state_is_the_one_that_was_stored() -> None:
    server = Server(id="n1", name="n1", addresses=("10.0.0.1",))
    two = (Pool("q", ipaddress.ip_network("127.99.0.0/29")), pool())
    state = fencing.admit(with_load_balancers("a", "b", pools=two, servers=(server,)), "c1", FencingToken("l", 1)).state
    bodies = [LoadBalancer.model_validate_json(lb.model_dump_json()) for lb in state.load_balancers.values()]
    assert restored(two[::-1], (server,), reversed(bodies), state.fences.values()) == state
    assert restored((), (), bodies, ()).pools == {}


def test_servers_come_change_and_go() -> None:
    server = Server(id="n1", name="n1", addresses=("10.0.0.1",))
    added = inventory.add_server(State(), server, NETWORKS)
    assert inventory.add_server(added.state, server, NETWORKS).outcome is Outcome.UNCHANGED
    with pytest.raises(ProblemError, match="PUT replaces it"):
        inventory.add_server(added.state, Server(id="n1", name="x", addresses=("10.0.0.1",)), NETWORKS)
    with pytest.raises(ProblemError, match="outside the target networks"):
        inventory.put_server(State(), Server(id="n1", name="x", addresses=("10.0.0.1", "8.8.8.8")), NETWORKS)
    assert inventory.find_server(added.state, "n1") is server
    with pytest.raises(ProblemError, match="no server n1"):
        inventory.delete_server(State(), "n1")


def test_pools_come_and_go() -> None:
    body = AddressPool(name="p", cidr="127.90.0.0/29")
    added = inventory.add_pool(State(), body)
    assert (added.result, inventory.add_pool(added.state, body).outcome) == (pool(), Outcome.UNCHANGED)
    view = inventory.pool_view(pool().with_taken("127.90.0.1"))
    assert (view.family, view.size, view.allocated) == ("IPv4", 6, 1)
    for other, slug in (
        (AddressPool(name="p", cidr="127.91.0.0/29"), "address-pool-exists"),
        (AddressPool(name="q", cidr="127.90.0.0/30"), "address-pool-overlaps"),
        (AddressPool(name="q", cidr="10.0.0.0/30"), "invalid-request"),
    ):
        with pytest.raises(ProblemError) as caught:
            inventory.add_pool(added.state, other)
        assert problem_of(caught)[1] == slug
    with pytest.raises(ProblemError, match="1 addresses given out"):
        inventory.delete_pool(with_load_balancers("a"), "p")
    assert inventory.delete_pool(added.state, "p").state.pools == {}
    with pytest.raises(ProblemError, match="no address pool p"):
        inventory.delete_pool(State(), "p")


@pytest.mark.parametrize(
    "header", ["", "lease", "lease:", ":1", "lease:x", "lease:-1", "l" * 256 + ":1", "l:" + "9" * 19]
)
def test_a_malformed_fencing_token_is_refused(header: str) -> None:
    with pytest.raises(ProblemError) as caught:
        fencing.parse(header)
    assert caught.value.problem.status == 400


def test_a_lower_fencing_token_is_refused_for_its_cluster_and_lease_alone() -> None:
    assert fencing.parse("a:b:3") == FencingToken("a:b", 3)
    first = fencing.admit(State(), "c1", FencingToken("l1", 3))
    assert first.records[0].kind is Kind.FENCE
    assert fencing.admit(first.state, "c1", FencingToken("l1", 3)).records == ()
    assert fencing.admit(first.state, "c1", None).records == ()
    for cluster, lease in (("c2", "l1"), ("c1", "l2")):
        assert fencing.admit(first.state, cluster, FencingToken(lease, 1)).records
    with pytest.raises(ProblemError) as caught:
        fencing.admit(first.state, "c1", FencingToken("l1", 2))
    assert problem_of(caught) == (412, "stale-fencing-token")


def test_a_route_follows_the_servers_and_prefers_ipv4() -> None:
    servers = (
        Server(id="n1", name="n1", addresses=("::1", "10.0.0.1")),
        Server(id="n2", name="n2", addresses=("::1",)),
    )
    state = with_load_balancers("other", servers=servers)
    targets = (Target(server="n1"), Target(server="n2"), Target(address="127.0.0.1"))
    change = loadbalancers.create(state, spec(targets=targets), POLICY, STAMP)
    route = route_of(change.state, change.result)
    assert [to.address for to in route.destinations] == ["10.0.0.1", "::1", "127.0.0.1"]
    gone = inventory.delete_server(change.state, "n1")
    assert [lb.id for lb in affected(gone.state, gone.records)] == ["lb-1"]
    assert [lb.id for lb in affected(change.state, change.records)] == ["lb-1"]
    destination = route_of(gone.state, change.result).destinations[0]
    assert (destination.address, "does not exist any more" in destination.reason) == (None, True)


@pytest.mark.parametrize(
    ("families", "expected"), [(("IPv4",), "10.0.0.1"), (("IPv6",), "fd00::1"), (("IPv6", "IPv4"), "fd00::1")]
)
def test_a_server_is_reached_in_the_load_balancers_first_family(families: tuple[Family, ...], expected: str) -> None:
    server = Server(id="n1", name="n1", addresses=("10.0.0.1", "fd00::1"))
    pools = (pool(), Pool("six", ipaddress.ip_network("fd90::/120")))
    asked = spec(targets=(Target(server="n1"),), families=families)
    policy = Policy(NETWORKS, AddressMode.INTERFACE)
    change = loadbalancers.create(restored(pools, (server,), (), ()), asked, policy, STAMP)
    assert route_of(change.state, change.result).destinations[0].address == expected


def candidates(*parts: tuple[str, int, bool]) -> list[Candidate[str]]:
    return [Candidate(name, weight, usable) for name, weight, usable in parts]


def test_usable_targets_with_a_weight_are_eligible_and_a_wrong_check_fails_open_or_closed() -> None:
    some = candidates(("a", 1, True), ("b", 1, False), ("c", 0, True))
    assert [one.target for one in eligible(some, fail_open=True)] == ["a"]
    none = candidates(("a", 1, False), ("b", 1, False), ("c", 0, True))
    assert [one.target for one in eligible(none, fail_open=True)] == ["a", "b"]
    assert eligible(none, fail_open=False) == []


def test_equal_targets_take_turns_and_the_others_follow_for_when_one_can_not_be_reached() -> None:
    circle = turns(candidates(("a", 2, True), ("b", 2, True), ("c", 2, True)))
    assert [list(from_turn(circle, turn)) for turn in (0, 1, 5)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]
    assert list(from_turn(turns([]), 5)) == []


def test_a_weight_is_a_share_that_is_spread_out() -> None:
    circle = turns(candidates(("a", 3, True), ("b", 1, True)))
    assert "".join(circle) == "aaba"
    assert len(turns(candidates(*((str(n), 999 - n % 2, True) for n in range(500))))) < 25_000


def test_least_connections_goes_by_load_for_the_weight() -> None:
    load = {"a": 4, "b": 3, "c": 3}
    some = candidates(("a", 2, True), ("b", 1, True), ("c", 1, True))
    assert [list(by_load(some, load.__getitem__, turn)) for turn in (0, 2)] == [["a", "b", "c"], ["a", "c", "b"]]
    assert list(by_load([], load.__getitem__, 1)) == []


def test_a_source_keeps_its_target_when_others_go() -> None:
    all_three = candidates(("a", 1, True), ("b", 1, True), ("c", 1, True))
    sources = [f"10.0.0.{number}" for number in range(200)]
    before = {source: by_source(all_three, source)[0] for source in sources}
    assert set(before.values()) == {"a", "b", "c"}
    after = {source: by_source(all_three[:2], source)[0] for source in sources}
    assert {source for source in sources if before[source] != after[source]} == {
        source for source in sources if before[source] == "c"
    }


@pytest.mark.parametrize(
    ("results", "healthy"),
    [
        pytest.param("", None, id="unknown at first"),
        pytest.param("+", True, id="the first success is believed"),
        pytest.param("-", None, id="one failure is not"),
        pytest.param("--", False, id="failures up to the threshold are"),
        pytest.param("+-+-+-", True, id="failures must be consecutive"),
        pytest.param("+--", False, id="healthy turns unhealthy"),
        pytest.param("--++", False, id="too few successes"),
        pytest.param("--+++", True, id="enough successes"),
        pytest.param("--++-++", False, id="successes must be consecutive"),
    ],
)
def test_thresholds_decide_about_health(results: str, *, healthy: bool | None) -> None:
    verdict = Verdict()
    for result in results:
        verdict = verdict.after(Result(result == "+", result), healthy_threshold=3, unhealthy_threshold=2)
    assert verdict.healthy is healthy
    assert verdict.usable is (healthy is not False)


def test_a_problem_names_the_first_errors_and_counts_the_rest() -> None:
    many = [FieldError(field=f"f{number}", message="wrong") for number in range(7)]
    assert invalid(many).problem.detail.endswith("f4: wrong (and 2 more)")
