"""Load balancers: what a client asks for, and what is kept."""

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.config import JsonDict

from fakecloud.models.base import Address, Cidr, Family, Model, Name, Seconds, family_of
from fakecloud.models.listeners import Algorithm, HealthCheck, Listener, SessionAffinity, Target, distinct_ports


class Owner(Model):
    """Whose load balancer it is: a cluster's id and the UID of the Service in it. Creation is idempotent by it."""

    cluster: Name
    uid: Name

    @property
    def key(self) -> tuple[str, str]:
        return self.cluster, self.uid


def _distinct_families(families: tuple[Family, ...]) -> tuple[Family, ...]:
    if len(set(families)) < len(families):
        raise ValueError("names one twice; each may occur once")
    return families


Tags = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=255)], Annotated[str, Field(max_length=1024)]],
    Field(max_length=64),
]
Listeners = Annotated[tuple[Listener, ...], Field(min_length=1, max_length=256), AfterValidator(distinct_ports)]
Targets = Annotated[tuple[Target, ...], Field(max_length=5000)]
SourceRanges = Annotated[tuple[Cidr, ...], Field(max_length=1024)]
Families = Annotated[tuple[Family, ...], Field(min_length=1, max_length=2), AfterValidator(_distinct_families)]
ConnectionLimit = Annotated[int, Field(ge=1, le=1_000_000)]
AddressPools = Annotated[tuple[Name, ...], Field(max_length=16)]
WhenAllUnhealthy = Literal["open", "closed"]

_EXAMPLE: JsonDict = {
    "name": "shop/web",
    "owner": {"cluster": "c1", "uid": "7d9a0f4e-0a5c-4a2c-9a51-6f0f7a0a1f10"},
    "tags": {"service": "shop/web"},
    "families": ["IPv4"],
    "listeners": [{"protocol": "TCP", "port": 8080, "targetPort": 30080, "name": "http"}],
    "targets": [{"server": "node-1"}, {"address": "127.0.0.12", "weight": 2}],
    "healthCheck": {"protocol": "tcp", "intervalSeconds": 2, "timeoutSeconds": 1},
    "sourceRanges": ["127.0.0.0/8"],
    "sessionAffinity": {"type": "ClientIP", "timeoutSeconds": 600},
}


class Behaviour(Model):
    """What a create and a partial update have in common, with the defaults of a create."""

    tags: Tags = Field(default_factory=dict)
    targets: Targets = ()
    health_check: HealthCheck | None = None
    source_ranges: SourceRanges = Field(default=(), description="Clients that may connect; empty means everyone")
    algorithm: Algorithm = "round-robin"
    session_affinity: SessionAffinity | None = None
    when_all_unhealthy: WhenAllUnhealthy = Field(
        default="open", description="open: all targets are tried; closed: clients are reset"
    )
    drain_timeout_seconds: Seconds | None = Field(
        default=None, description="Connections of a target that was removed or drains end after it; never when absent"
    )
    connection_limit: ConnectionLimit | None = Field(
        default=None, description="Connections at a time, by listener and address; further clients are reset"
    )
    delete_protection: bool = Field(default=False, description="A delete answers 409 until it is switched off")


class LoadBalancerSpec(Behaviour):
    """The body of a create: all that a client decides about a load balancer."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    name: Name
    owner: Owner | None = Field(default=None, description="None: nobody's, until a patch names one")
    families: Families = ("IPv4",)
    address_pools: AddressPools = Field(
        default=(), description="Pools to take addresses from, in families that one of them has; any pool otherwise"
    )
    addresses: Annotated[tuple[Address, ...], Field(max_length=2)] = Field(
        default=(), description="Addresses asked for by name; they must lie in a pool and be free, or reserved"
    )
    listeners: Listeners

    @field_validator("addresses")
    @classmethod
    def _one_of_each_family(cls, addresses: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        asked = [family_of(address) for address in addresses]
        # Without families there is an error about these already.
        if len(set(asked)) < len(asked) or not set(asked) <= set(info.data.get("families", asked)):
            raise ValueError("may name one address of each family in families")
        return addresses


class LoadBalancerPatch(Behaviour):
    """A partial update: each field named here replaces the whole field, the others stay as they are."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"targets": [{"server": "node-2"}]}]})

    name: Name = ""
    owner: Owner | None = Field(
        default=None,
        description="null lets go of it; an owner takes over what is nobody's, and is refused what is another's",
    )
    families: Families = Field(
        default=("IPv4",), description="A family that is new gets an address, one that goes gives its address back"
    )
    listeners: Listeners = ()

    def applied_to(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        """The spec with the fields that the client named replaced."""
        named = {field: getattr(self, field) for field in self.model_fields_set}
        # An address that was asked for by name is forgotten with its family.
        asked = tuple(one for one in spec.addresses if family_of(one) in named.get("families", spec.families))
        return spec.model_copy(update={**named, "addresses": asked})


class AssignedAddress(Model):
    family: Family
    address: Address


class LoadBalancer(Model):
    """
    What is kept: the request, and what the cloud decided. `sequence` orders the listing.

    An address in `leaving` is of a family that was taken away; nobody else gets it until traffic has left it. With `deleting`
    the whole load balancer goes, as soon as the action that deletes it is done.
    """

    id: str
    sequence: int
    generation: int
    created_at: str
    spec: LoadBalancerSpec
    addresses: tuple[AssignedAddress, ...]
    leaving: tuple[AssignedAddress, ...] = ()
    deleting: bool = False

    @property
    def etag(self) -> str:
        return f'"{self.generation}"'

    @property
    def held(self) -> tuple[str, ...]:
        """Every address that nobody else may have."""
        return tuple(one.address for one in (*self.addresses, *self.leaving))
