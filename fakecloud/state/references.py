"""What a request names and must exist: servers, and targets inside the allowed networks."""

from collections.abc import Iterable, Mapping

from fakecloud.models.inventory import Server
from fakecloud.models.listeners import Target
from fakecloud.models.problems import FieldError
from fakecloud.state.networks import AddressSet


def target_errors(
    targets: Iterable[Target], servers: Mapping[str, Server], networks: AddressSet
) -> tuple[FieldError, ...]:
    """One error for each target that can't be used, with the value, so that a client can drop just that one."""
    found = []
    for index, target in enumerate(targets):
        if target.server is not None and target.server not in servers:
            message = f"no server {target.server}; GET /v1/servers lists them"
            found.append(FieldError(field=f"targets[{index}].server", message=message, value=target.server))
        elif target.address is not None and target.address not in networks:
            found.append(_outside(f"targets[{index}].address", target.address, networks))
    return tuple(found)


def server_errors(server: Server, networks: AddressSet) -> tuple[FieldError, ...]:
    return tuple(
        _outside(f"addresses[{index}]", address, networks)
        for index, address in enumerate(server.addresses)
        if address not in networks
    )


def _outside(field: str, address: str, networks: AddressSet) -> FieldError:
    metadata = networks.excluding(address)
    if metadata is None:
        message = f"{address} is outside the target networks ({networks}); fakecloud serve --target-network adds one"
    else:
        message = (
            f"{address} may be a cloud's metadata service ({metadata}), which hands out credentials; "
            f"fakecloud serve --target-network {address} allows it"
        )
    return FieldError(field=field, message=message, value=address)
