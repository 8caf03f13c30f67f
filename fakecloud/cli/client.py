"""From a command's --url and --token to a client, and from the client's errors to one line and an exit code."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fakecloud import __version__
from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import readable

if TYPE_CHECKING:
    from fakecloud.client import Client
    from fakecloud.models.views import LoadBalancerView


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options --url and --token; it gets a `client`, whose errors end the command."""

    @click.option(
        "--url",
        envvar="FAKECLOUD_URL",
        default="http://127.0.0.1:8780",
        show_default=True,
        show_envvar=True,
        help="Where fakecloud listens.",
    )
    @click.option("--token", envvar="FAKECLOUD_TOKEN", show_envvar=True, help="The token fakecloud was started with.")
    @functools.wraps(command)
    def wrapped(*, url: str, token: str | None, **arguments: Any) -> None:
        from fakecloud.client import Client, FakecloudError, RefusedError, UnauthorizedError

        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"--url {url}: expected http://HOST:PORT")
        try:
            with Client(url, token, user_agent=f"fakecloud-cli/{__version__}") as client:
                command(client=client, **arguments)
        except UnauthorizedError as error:
            raise ConfigurationError(f"{url} refuses the token; give --token or FAKECLOUD_TOKEN") from error
        except RefusedError as error:
            raise click.ClickException(readable(f"{error.status}: {error.detail or 'without a reason'}")) from error
        except FakecloudError as error:
            raise click.ClickException(readable(str(error))) from error

    return wrapped


def load_balancer(client: "Client", id_or_name: str) -> "LoadBalancerView":
    """The one of this id, or else of this name. Raises ClickException when there is none, or more than one of that name."""
    from fakecloud.client import NotFoundError

    try:
        return client.get_load_balancer(id_or_name)
    except NotFoundError:
        named = [one for one in client.list_load_balancers() if one.name == id_or_name]
    if not named:
        raise click.ClickException(
            readable(f"{id_or_name}: no load balancer of this id or name; `fakecloud lb list` shows them")
        )
    if len(named) > 1:
        ids = ", ".join(one.id for one in named)
        raise click.ClickException(
            readable(f"{id_or_name}: {len(named)} load balancers of this name; give an id: {ids}")
        )
    return named[0]
