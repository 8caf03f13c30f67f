"""Tables for people, JSON for scripts."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

output_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--output",
    "-o",
    "output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table to read, or JSON to work with.",
)


def examples(*lines: str) -> str:
    """An epilog for --help; the first line keeps click from joining the others."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def readable(text: str) -> str:
    """With escapes for what a terminal would obey instead of show: names are other people's."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def say(line: str) -> None:
    """One line, whatever is in it."""
    click.echo(readable(line))


def show_json(value: Any) -> None:
    """Models in the words of the API."""
    click.echo(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def show_list(output: str, value: Any, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """What --output asks for: `value` as JSON, or the rows as a table."""
    if output == "json":
        show_json(value)
    else:
        show_table(columns, rows)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table that wraps to the terminal; piped, lines keep their full length."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=250)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Text, so that a name in square brackets is not taken for markup.
        table.add_row(*(Text(readable(cell)) for cell in row))
    console.print(table)
