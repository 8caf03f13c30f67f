"""What all models share: strictness, spelling, and the scalar types that say what they accept."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

Family = Literal["IPv4", "IPv6"]


class Model(BaseModel):
    """A frozen shape; an unknown key or a value of another type is an error, never guessed at."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )


def _canonical_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("expected an IP address such as 127.0.0.1") from None


def _canonical_cidr(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        reason = "the address has bits set beyond the prefix" if "host bits" in str(error) else "not a network"
        raise ValueError(f"{reason}; expected CIDR notation such as 10.0.0.0/8") from None


def family_of(address: str) -> Family:
    """The family of an address that was validated before."""
    return "IPv6" if ":" in address else "IPv4"


_ADDRESS_SCHEMA = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}], "examples": ["127.0.0.11"]}
_CIDR_SCHEMA = {"type": "string", "maxLength": 64, "examples": ["10.0.0.0/8"]}

Address = Annotated[str, AfterValidator(_canonical_address), WithJsonSchema(_ADDRESS_SCHEMA)]
Cidr = Annotated[str, AfterValidator(_canonical_cidr), WithJsonSchema(_CIDR_SCHEMA)]
Port = Annotated[int, Field(ge=1, le=65535)]
Name = Annotated[str, Field(min_length=1, max_length=255)]
# One path segment of a URL, so no slash and no blank.
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,252}$")]
Seconds = Annotated[float, Field(ge=0.05, le=3600)]
