"""
The command line `ccm-lb`.

Whatever a command needs is imported when it runs: kopf and kubernetes cost seconds, and `--help` has no use for them.
Exit codes: 0 a clean stop, 1 a lost Lease or another failure that a restart may cure, 2 a mistake of the user's, 74 the output cannot be
written, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ccm_lb.commands import outputs, tables
from ccm_lb.commands.dataplane import dataplane
from ccm_lb.commands.status.command import status
from ccm_lb.errors import CCMError, ConfigError
from ccm_lb.process import log
from ccm_lb.redaction import Secrets
from ccm_lb.settings import config, precedence, upstream
from ccm_lb.settings.config import Config
from ccm_lb.settings.precedence import Setting, Source

if TYPE_CHECKING:
    from ccm_lb.commands import checks

_SOURCES = {
    ParameterSource.COMMANDLINE: Source.FLAG,
    ParameterSource.ENVIRONMENT: Source.ENV,
    ParameterSource.DEFAULT_MAP: Source.FILE,
}
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
_COMPLAINTS = "ccm_lb.complaints"
_EPILOG = """\b
Every setting is also an environment variable (--leader-elect: CCM_LB_LEADER_ELECT) and a key of the file (leader-elect:).
Precedence: flag, environment, file, default. `ccm-lb config` shows what applies and where it comes from.
Exit codes: 0 a clean stop, 1 a failure that a new start may cure, 2 a mistake in the command line or the settings,
74 the output cannot be written, 141 nobody reads it any more.

\b
Examples:
  ccm-lb run --cloud-provider fakecloud --cloud-config fakecloud.yaml --kubeconfig ~/.kube/config
  ccm-lb run --config ccm-lb.yaml --leader-elect=false -v 2
  CCM_LB_LOG_FORMAT=json ccm-lb run --config ccm-lb.yaml --load-balancer-class example.com/internal"""


def main() -> None:
    """The console script: runs the command of sys.argv and exits; a user's mistake is one line on stderr, never a traceback."""
    # A container's first process gets no signal that it does not handle: until `run` does, which imports for a second, this one.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    secrets = Secrets()
    # What libraries say, whichever the command; `run` has settings for it.
    log.configure("text", 0, sys.stderr, secrets)
    log.catch_what_nobody_catches()
    sys.exit(execute(sys.argv[1:], secrets))


def execute(arguments: Sequence[str], secrets: Secrets | None = None) -> int:
    """Run one command; the exit code. What it prints shows none of the secrets that it comes to know."""
    secrets = secrets or Secrets()
    try:
        result = cli.main(list(arguments), prog_name="ccm-lb", standalone_mode=False, obj=secrets)
        outputs.flush()
    except CCMError as error:
        return _complain(str(error), 2 if isinstance(error, ConfigError) else 1, secrets)
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code, secrets)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except SystemExit:
        return outputs.give_up(BrokenPipeError())  # how click ends where nobody reads; all else it leaves to us
    # The end of the program: Python would print the traceback as it is, with everything in it.
    except Exception as error:  # noqa: BLE001
        return outputs.give_up(error) if outputs.unwritable(error) else _crash(error, secrets)
    return result if isinstance(result, int) else 0


def _complain(message: str, code: int, secrets: Secrets) -> int:
    """One line on standard error."""
    with contextlib.suppress(OSError):  # nobody hears us
        click.echo(f"ccm-lb: {outputs.printable(' '.join(secrets.redact(message).split()))}", err=True)
    return code


def _crash(error: Exception, secrets: Secrets) -> int:
    with contextlib.suppress(OSError):
        click.echo("\n".join(log.trace(error, secrets)), err=True)
    said = secrets.line(log.causes(error), log.LINE)
    return _complain(f"a mistake in this program, please report it: {said}", 1, secrets)


# Upstream has a short form for one, and another name for the other.
_NAMES = {"v": ["-v", "--v", "v"], "log_format": ["--log-format", "--logging-format", "log_format"]}


class _Option(click.Option):
    """The option of one setting; parses nothing, so that flag, environment and file meet the same checks in `config`."""

    def __init__(self, field: str) -> None:
        info = Config.model_fields[field]
        default = "" if info.is_required() else precedence.as_text(field, info.default)
        # Both `--leader-elect` and Go's `--leader-elect=false` are right.
        switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if info.annotation is bool else {}
        super().__init__(
            _NAMES.get(field, [precedence.flag(field), field]),
            type=click.UNPROCESSED,
            metavar=config.kind(field).metavar,
            multiple=field == "load_balancer_class",
            envvar=precedence.variable(field),
            help=f"{info.description}{f'  [default: {default}]' if default else ''}",
            **switch,
        )

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        # For a Service named ccm-lb the kubelet sets CCM_LB_PORT=tcp://10.0.0.1:443 in every pod of its namespace.
        return None if value and precedence.is_service_link(value) else value


class _UpstreamOption(click.Option):
    """A flag of upstream's cloud-controller-manager that is accepted for the sake of command lines made for it."""

    def __init__(self, name: str) -> None:
        switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if name in upstream.SWITCHES else {}
        super().__init__(
            [f"--{name}", _upstream_field(name)], type=click.UNPROCESSED, multiple=True, hidden=True, **switch
        )


def _upstream_field(name: str) -> str:
    return "upstream_" + name.replace("-", "_")


def _notes(ctx: click.Context) -> list[str]:
    """What is to be said of the flags of upstream's that were given. Raises ConfigError for a choice that cannot be honoured."""
    names = (*upstream.NO_EFFECT, upstream.CONTROLLERS)
    given = {name: values for name in names if (values := ctx.params[_upstream_field(name)])}
    return list(upstream.notes(given))


def _read_file(ctx: click.Context, _: click.Parameter, path: str | None) -> str | None:
    if path is not None:
        from ccm_lb.backends import registry

        content = registry.read_settings(Path(path))
        try:
            given = precedence.from_file(content, path)
        except ConfigError as error:
            ctx.meta[_COMPLAINTS] = [str(error)]  # told with the others
            given = precedence.from_file(precedence.known(content), path)
        if not isinstance(classes := given.get("load_balancer_class", []), list):
            given["load_balancer_class"] = [classes]  # click iterates over the value of an option that may be repeated
        ctx.default_map = given
    return path


class _SettingsCommand(click.Command):
    """A command that takes all settings and the file they may stand in, listed under their headings."""

    def __init__(self, name: str, *, params: list[click.Parameter] | None = None, **attributes: Any) -> None:
        file = click.Option(
            ["--config", "file"],
            metavar="FILE",
            envvar="CCM_LB_CONFIG",
            is_eager=True,  # what it holds are the defaults of the others
            callback=_read_file,
            help="File (YAML) with settings; the keys are the flags' names.",
        )
        settings = [_Option(field) for field in Config.model_fields]
        accepted = [_UpstreamOption(name) for name in (*upstream.NO_EFFECT, upstream.CONTROLLERS)]
        every = [file, *settings, *accepted, *(params or [])]
        super().__init__(name, **{**attributes, "params": every, "epilog": _EPILOG})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            title = config.group(str(parameter.name)) if isinstance(parameter, _Option) else "Options"
            if (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _given(ctx: click.Context) -> dict[str, Setting]:
    """The settings that were given, by field name; those at their default are not among them."""
    given = {}
    for field in Config.model_fields:
        origin = ctx.get_parameter_source(field)
        if origin in _SOURCES:
            value = ctx.params[field]
            if field == "v" and origin is ParameterSource.COMMANDLINE:
                value = value.removeprefix("=")  # -v=4 is what Go's users write
            given[field] = Setting(value, _SOURCES[origin], str(ctx.params["file"]))
    return given


def _build(ctx: click.Context) -> tuple[Config, dict[str, Setting]]:
    """The settings. Raises ConfigError with all that is wrong, in what they name too where that is known to be wanted."""
    from ccm_lb.backends import registry

    given = _given(ctx)
    complaints = [*ctx.meta.get(_COMPLAINTS, []), *precedence.unknown_variables(os.environ)]
    try:
        settings = precedence.build(given, registry.names())
    except ConfigError as error:
        from ccm_lb.commands import checks

        complaints.append(str(error))
        raise ConfigError("; ".join([*complaints, *checks.mistakes(_named_by(given), ctx.obj)])) from None
    if complaints:
        raise ConfigError("; ".join([*complaints, *_mistakes(settings, ctx.obj)]))
    return settings, given


def _mistakes(settings: Config, secrets: Secrets) -> list[str]:
    from ccm_lb.commands import checks

    return checks.mistakes(checks.Named(*(getattr(settings, field) for field in checks.Named._fields)), secrets)


def _named_by(given: Mapping[str, Setting]) -> checks.Named:
    """As far as it was given as text: the rest of the settings is wrong."""
    from ccm_lb.commands import checks

    texts = {field: given[field].value for field in checks.Named._fields if field in given}
    named = {
        field: text if field in ("cloud_provider", "master") else Path(text)
        for field, text in texts.items()
        if text and isinstance(text, str)
    }
    return checks.Named(**named)  # type: ignore[arg-type] # each is of its field's type


@click.group(context_settings=_CONTEXT, invoke_without_command=True, epilog=_EPILOG)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Gives Kubernetes Services of type LoadBalancer their load balancer, address and ipMode."""
    if "NO_COLOR" in os.environ:
        ctx.color = False
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command(cls=_SettingsCommand)
@click.option("--dry-run", is_flag=True, help="Log once what would be done, write nothing, and end as `plan` does.")
@click.pass_context
def run(ctx: click.Context, /, dry_run: bool, **_: object) -> int:  # noqa: FBT001
    """Run the controller until SIGTERM or SIGINT."""
    settings, _given_settings = _build(ctx)
    notes = _notes(ctx)
    if dry_run:
        return _dry_run(settings, ctx.obj)
    from ccm_lb import app, loops

    try:
        with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
            return runner.run(app.run(settings, ctx.obj, notes))
    except ConfigError as error:
        # It stopped at the first; whoever mends it wants to know of the others.
        others = [one for one in _mistakes(settings, ctx.obj) if one != str(error)]
        raise ConfigError("; ".join([str(error), *others])) from error


def _dry_run(settings: Config, secrets: Secrets) -> int:
    from ccm_lb.commands import plan as planning

    log.configure(settings.log_format, settings.v, sys.stderr, secrets)
    steps = asyncio.run(planning.plan(settings, None, "", secrets))
    planning.journal(steps)
    return planning.exit_code(steps)


_OUTPUT = click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
)


@cli.command("config", cls=_SettingsCommand)
@_OUTPUT
@click.pass_context
def show_config(ctx: click.Context, /, output: str, **_: object) -> None:
    """Print what `run` would use, and where it comes from; end with 2 where `run` would."""
    settings, given = _build(ctx)
    mistakes = _mistakes(settings, ctx.obj)
    _show(settings, given, output)
    if mistakes:
        raise ConfigError("; ".join(mistakes))


def _show(settings: Config, given: Mapping[str, Setting], output: str) -> None:
    origins = {field: given[field].source if field in given else Source.DEFAULT for field in Config.model_fields}
    if output == "json":
        values = settings.model_dump(mode="json")
        rows = {precedence.key(field): {"value": values[field], "source": origins[field]} for field in origins}
        outputs.say(json.dumps(rows, indent=2))
        return
    texts = {field: precedence.as_text(field, getattr(settings, field)) for field in origins}
    outputs.say(
        _table([{"name": precedence.key(field), "value": texts[field], "source": origins[field]} for field in origins])
    )


@cli.command(cls=_SettingsCommand)
@click.argument("name", metavar="NAMESPACE/NAME")
@_OUTPUT
@click.pass_context
def explain(ctx: click.Context, /, name: str, output: str, **_: object) -> None:
    """
    Say what is decided for a Service, and why: its ipMode, the nodes that are left out, what the cloud has beside what is wanted.

    Takes the settings of `run`, and $KUBECONFIG where --kubeconfig is not given. Asks the cluster and the cloud, and writes nothing.
    """
    namespace, slash, service = name.partition("/")
    if not (namespace and slash and service) or "/" in service:
        raise click.BadParameter(f"got {name!r}, expected NAMESPACE/NAME", param_hint="NAMESPACE/NAME")
    settings, _given_settings = _build(ctx)
    if settings.kubeconfig is None and (kubeconfig := os.environ.get("KUBECONFIG")):
        settings = settings.model_copy(update={"kubeconfig": Path(kubeconfig)})
    from ccm_lb.commands import explain as explaining
    from ccm_lb.objects import Key

    found = asyncio.run(explaining.explain(settings, Key(namespace, service), ctx.obj))
    outputs.say(json.dumps(found.as_json(), indent=2) if output == "json" else "\n".join(found.lines()))


class _PlanCommand(_SettingsCommand):
    """Its exit code 2 says that there is something to do: a mistake on its command line is a 1, as everywhere in Terraform."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as error:
            raise click.ClickException(error.format_message()) from error  # whose exit code is 1


@cli.command(cls=_PlanCommand)
@click.option("--filename", "-f", "manifest", metavar="FILE", help="Services that are not applied yet, as YAML.")
@click.option("--namespace", "-n", default="default", metavar="NAME", help="For those in FILE that name none.")
@_OUTPUT
@click.pass_context
def plan(ctx: click.Context, /, manifest: str | None, namespace: str, output: str, **_: object) -> int:
    """
    Say what would be called for the Services of the cluster, or of a manifest. Writes nothing.

    Takes the settings of `run`, and $KUBECONFIG where --kubeconfig is not given. Ends as `terraform plan -detailed-exitcode`: 0 nothing
    is to be done, 2 something is, 1 an error, or a Service of which it cannot be said.
    """
    from ccm_lb.commands import plan as planning

    try:
        settings, _given_settings = _build(ctx)
        if settings.kubeconfig is None and (kubeconfig := os.environ.get("KUBECONFIG")):
            settings = settings.model_copy(update={"kubeconfig": Path(kubeconfig)})
        steps = asyncio.run(planning.plan(settings, Path(manifest) if manifest else None, namespace, ctx.obj))
    except CCMError as error:
        return outputs.complain(str(error), 1, output)
    if output == "json":
        outputs.say(json.dumps({"services": [one.as_json() for one in steps]}, indent=2))
    else:
        outputs.say("\n".join(planning.lines(steps)))
    return planning.exit_code(steps)


@cli.command(cls=_SettingsCommand, epilog=outputs.exit_codes(outputs.ORPHANS))
@_OUTPUT
@click.option("--delete", is_flag=True, help="Delete them, after a question.")
@click.option("--yes", is_flag=True, help="With --delete: ask nothing.")
@click.pass_context
def orphans(ctx: click.Context, /, output: str, delete: bool, yes: bool, **_: object) -> int:  # noqa: FBT001
    """
    List load balancers of this cluster that no Service wants.

    Takes the settings of `run`, and $KUBECONFIG where --kubeconfig is not given. Another cluster's are never among them.
    """
    if yes and not delete:
        raise click.UsageError("--yes answers what --delete asks: give both, or neither")
    if delete and output == "json" and not yes:
        raise click.UsageError("--delete with --output json needs --yes: there is nobody to be asked")
    settings, _given_settings = _build(ctx)
    if settings.kubeconfig is None and (kubeconfig := os.environ.get("KUBECONFIG")):
        settings = settings.model_copy(update={"kubeconfig": Path(kubeconfig)})
    return asyncio.run(_orphans(settings, ctx.obj, output, delete=delete, yes=yes))


async def _orphans(settings: Config, secrets: Secrets, output: str, *, delete: bool, yes: bool) -> int:
    import datetime as dt

    from ccm_lb.commands import orphans as orphaned

    async with orphaned.opened(settings, secrets) as finder:
        found = await finder.find()
        if output == "text":
            outputs.say("\n".join(orphaned.lines(found, dt.datetime.now(dt.UTC))))
        question = f"Delete {'this load balancer' if len(found) == 1 else f'these {len(found)} load balancers'}?"
        if delete and found and (yes or click.confirm(question)):
            gone = await finder.delete(found)
            left = [one for one in found if one not in gone]
        else:
            gone, left = [], found
        if output == "json":
            outputs.say(json.dumps({"orphans": orphaned.as_json(left), "deleted": orphaned.as_json(gone)}, indent=2))
        elif gone:
            outputs.say("\n".join(f"deleted {one.load_balancer.id}" for one in gone))
    return outputs.SOME if left else outputs.FINE


@cli.command()
@click.argument("name", required=False)
@_OUTPUT
def backends(name: str | None, output: str) -> None:
    """
    List the installed backends, and why one can't be used.

    With NAME: the settings of that backend, which stand in the file of --cloud-config.
    """
    from ccm_lb.backends import reference, registry

    if name is not None:
        keys = [one._asdict() for one in reference.settings(registry.load(name).config_model)]
        if output == "json" or keys:
            click.echo(json.dumps(keys, indent=2) if output == "json" else _table(keys))
        else:
            click.echo(f"{name} has no settings", err=True)
        return
    found = [one._asdict() for one in registry.installed()]
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    elif found:
        click.echo(_table(found))
    else:
        click.echo("no backend is installed", err=True)


@cli.command()
@_OUTPUT
def version(output: str) -> None:
    """Print the version."""
    versions = {name: metadata.version(name) for name in ("ccm-lb", "kopf")}
    versions["python"] = ".".join(str(part) for part in sys.version_info[:3])
    if output == "json":
        click.echo(json.dumps(versions, indent=2))
    else:
        click.echo(f"ccm-lb {versions['ccm-lb']} (kopf {versions['kopf']}, Python {versions['python']})")


@cli.command(hidden=True)
def reference() -> None:
    """Print docs/reference/configuration.md."""
    click.echo(precedence.reference(), nl=False)


cli.add_command(dataplane)
cli.add_command(status)


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    lines = [[name.upper() for name in rows[0]], *([str(cell or "-") for cell in row.values()] for row in rows)]
    header, *body = tables.aligned(lines)
    return "\n".join([click.style(header, bold=True), *body])
