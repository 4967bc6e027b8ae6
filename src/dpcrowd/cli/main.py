"""The entry point of the command line: it loads only the command that is called, and reports every error in one line.

Exit codes: 0 success, 1 the reader of the output closed it, 2 wrong input, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from dpcrowd.__about__ import __version__
from dpcrowd.errors import BadInput, DpcrowdError, plain, unknown_name
from dpcrowd.threads import begin_with_one_thread

__all__ = ["cli", "main"]

_COMMANDS = {
    "simulate": ("dpcrowd.cli.simulate", "simulate", "Compare schemes on the same simulated runs."),
    "reproduce": (
        "dpcrowd.cli.reproduce",
        "reproduce",
        "Draw every figure of the paper, judge every claim, and write a report.",
    ),
    "plan": ("dpcrowd.cli.plan", "plan", "Predict what a network will reach, before it exists."),
    "fit": ("dpcrowd.cli.fit", "fit", "Fit a process model on public data or on earlier releases."),
    "tune": ("dpcrowd.cli.tune", "tune", "Find a scheme's parameters on public data."),
    "schemes": (
        "dpcrowd.cli.schemes",
        "schemes",
        "List the schemes, or check one of them.",
    ),
    "data": ("dpcrowd.cli.data", "data", "List the data sets, write a synthetic one or download a public one."),
    "init": ("dpcrowd.cli.init", "init", "Write the configuration of a sample network of live servers."),
    "keys": ("dpcrowd.cli.keys", "keys", "Create and sign the keys of live servers."),
    "node": ("dpcrowd.cli.node", "node", "Run a live server, or check, query and back up one."),
    "feed": ("dpcrowd.cli.feed", "feed", "Send check-ins from a file or a pipe to a live server."),
    "watch": ("dpcrowd.cli.watch", "watch", "Show what live servers estimate and spend, live in a terminal."),
    "demo": ("dpcrowd.cli.demo", "demo", "Run a complete network on this machine, with a simulated crowd."),
}


_OF_SETTINGS = ("simulate", "reproduce", "plan", "fit", "tune")
"""Commands whose options are settings of the library, which messages of the library name as in Python."""

# Of two phrases with the same beginning the longer one comes first.
_PHRASES = {
    "a valid integer range": "a whole number",
    "a valid integer": "a whole number",
    "a valid float range": "a number",
    "a valid float": "a number",
}
_RANGE = re.compile(r"is not in the range (?:(\S+?)<(=?))?x(?:<(=?)(\S+?))?(?:>(=?)(\S+?))?\.(?= |$)")


class _Interrupted(Exception):
    """Control-C, as a class that click does not catch: click would print an empty line of its own."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which unwinds the program as Control-C does, so that no worker process stays behind."""


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are called; its help needs only their summaries."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise _Interrupted from stop
        except BadInput as error:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if name in _OF_SETTINGS else None
            if command is None:
                raise
            from dpcrowd.cli.option_names import with_options

            raise click.ClickException(with_options(str(error), command)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise unknown_name("command", args[0], _COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


@click.command(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="dpcrowd %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Estimate the counts of a crowd in real time, decentralised and differentially private."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; every error is one line on standard error and exit code 2."""
    begin_with_one_thread()
    try:
        with _sigterm_as_exception():
            result = cli.main(args=arguments, prog_name="dpcrowd", standalone_mode=False)
            sys.stdout.flush()  # a reader that closed the pipe is noticed here, not in a traceback at exit
    except click.UsageError as error:
        return _refuse(_usage(error))
    except click.ClickException as error:
        return _refuse(error.format_message())
    except DpcrowdError as error:
        return _refuse(str(error))
    except (MemoryError, OverflowError) as error:
        return _refuse(f"this does not fit into memory ({error}); use fewer servers, slots, runs or regions.")
    except (_Interrupted, KeyboardInterrupt, click.Abort) as stop:
        terminated = isinstance(stop, _Terminated) or isinstance(stop.__cause__ or stop.__context__, _Terminated)
        click.echo(f"dpcrowd: {'terminated' if terminated else 'interrupted'}", err=True)
        return 143 if terminated else 130
    except BrokenPipeError:
        # Nobody reads the output any more; what is still buffered has to go somewhere when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return result if isinstance(result, int) else 0


@contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    """Turn the first SIGTERM into an exception; a second one, or one with another handler, keeps its effect."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _usage(error: click.UsageError) -> str:
    """Return click's message in the words of dpcrowd, with the nearest option and where to read on."""
    text = error.format_message()
    for phrase, replacement in _PHRASES.items():
        text = text.replace(phrase, replacement)
    text = _RANGE.sub(_allowed_range, text)
    unknown = re.match(r"No such command '(.*?)'", text)
    if unknown is not None and error.ctx is not None and isinstance(error.ctx.command, click.Group):
        return str(unknown_name("command", unknown[1], error.ctx.command.commands))
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        options = [name for parameter in error.ctx.command.get_params(error.ctx) for name in parameter.opts]
        # Compared without the dashes, which all options have in common.
        names = {name.lstrip("-"): name for name in options}
        near = difflib.get_close_matches(error.option_name.lstrip("-"), names, n=1, cutoff=0.7)
        text = f"unknown option '{error.option_name}'." + (f" Did you mean '{names[near[0]]}'?" if near else "")
    command = "dpcrowd" if error.ctx is None else error.ctx.command_path
    return f"{text if text.endswith('?') else text.rstrip('.') + '.'} See '{command} --help'."


def _allowed_range(match: re.Match[str]) -> str:
    """Return click's range in words."""
    least, least_equal, most_equal, most, above_equal, above = match.groups()
    if least and most:
        ends = f"{least} to {most}"
    elif most:
        ends = f"{'at most' if most_equal else 'below'} {most}"
    else:
        ends = f"{'at least' if least_equal or above_equal else 'above'} {least or above}"
    return f"is not allowed; allowed: {ends}."


def _refuse(message: str) -> int:
    click.echo(f"dpcrowd: error: {plain(' '.join(message.split()))}", err=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
