"""A small client of the API for the command line: standard library only."""

import functools
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import click

from fakecloud import __version__
from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import readable

Json = dict[str, Any]
_TIMEOUT = 30.0


class Client:
    """Speaks JSON with one fakecloud. Failures end the command with one line."""

    def __init__(self, url: str, token: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"--url {url}: expected http://HOST:PORT")
        self._url = url.rstrip("/")
        self._token = token

    def call(self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Json | None = None) -> Json:
        """The answer's JSON, empty when there is none."""
        with self._open(method, path, query, body) as response:
            content = response.read()
        return json.loads(content) if content else {}

    def events(self, path: str, query: Mapping[str, Any]) -> Iterator[Json]:
        """The data of server-sent events, as they come."""
        with self._open("GET", path, query, None, timeout=None) as response:
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Json | None,
        timeout: float | None = _TIMEOUT,
    ) -> Any:
        known = {name: value for name, value in (query or {}).items() if value is not None}
        suffix = f"?{urllib.parse.urlencode(known)}" if known else ""
        request = urllib.request.Request(  # noqa: S310 - http(s) only, checked above
            self._url + path + suffix, None if body is None else json.dumps(body).encode(), method=method
        )
        request.add_header("User-Agent", f"fakecloud-cli/{__version__}")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            # A proxy of the environment must not see calls to loopback.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            return opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                self._fail(error)
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise click.ClickException(
                readable(f"{self._url} does not answer: {reason}; is `fakecloud serve` running?")
            ) from error

    def pages(self, path: str, query: Mapping[str, Any]) -> Iterator[Json]:
        """The items of all pages."""
        cursor: str | None = None
        while True:
            page = self.call("GET", path, query={**query, "cursor": cursor, "limit": 1000})
            yield from page["items"]
            cursor = page["nextCursor"]
            if cursor is None:
                return

    def _fail(self, error: urllib.error.HTTPError) -> NoReturn:
        try:
            detail = json.loads(error.read())["detail"]
        except (ValueError, KeyError, TypeError):
            detail = error.reason
        if error.code == 401:
            raise ConfigurationError(f"{self._url} refuses the token; give --token or FAKECLOUD_TOKEN") from error
        raise click.ClickException(readable(f"{error.code}: {detail}")) from error


def path_segment(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options --url and --token; it gets a `client`."""

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
        command(client=Client(url, token), **arguments)

    return wrapped
