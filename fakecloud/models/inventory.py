"""Servers (the nodes' machines) and address pools."""

from typing import Annotated

from pydantic import ConfigDict, Field

from fakecloud.models.base import Address, Cidr, Family, Identifier, Model, Name


class Server(Model):
    """A machine that load balancers can name as a target; the first address of the right family is used."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "node-1", "name": "node-1", "addresses": ["127.0.0.11"]}]}
    )

    id: Identifier
    name: Name
    addresses: Annotated[tuple[Address, ...], Field(min_length=1, max_length=16)]


class ServerList(Model):
    items: tuple[Server, ...]


class AddressPool(Model):
    """Addresses that load balancers are given; the network's first and last address stay unused."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "blue", "cidr": "127.90.0.0/24"}]})

    name: Identifier
    cidr: Cidr


class AddressPoolView(Model):
    name: Identifier
    cidr: Cidr
    family: Family
    size: Annotated[int, Field(description="How many addresses it can give out in all")]
    allocated: int


class AddressPoolList(Model):
    items: tuple[AddressPoolView, ...]


class ReservedAddress(Model):
    """An address that stays yours: a load balancer that asks for it by `addresses` gets it, and gives it back."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "shop", "family": "IPv4"}]})

    name: Identifier
    family: Family = "IPv4"
    address: Address | None = Field(default=None, description="A certain one; the lowest that is free when absent")


class ReservedAddressView(Model):
    name: Identifier
    family: Family
    address: Address
    load_balancer: Annotated[str | None, Field(description="Who uses it")]


class ReservedAddressList(Model):
    items: tuple[ReservedAddressView, ...]
