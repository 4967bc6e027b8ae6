"""The entry point of the command line: finds the command, loads only what it needs, and says errors in one line.

Exit codes: 0 done, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from dpcrowd.errors import DpcrowdError, unknown_name

__all__ = ["cli", "main"]

_COMMANDS = {
    "simulate": ("dpcrowd.cli.simulate", "simulate", "Compare schemes on the same simulated runs."),
    "schemes": (
        "dpcrowd.cli.schemes",
        "schemes",
        "List the schemes: who talks to whom, when they sample, what they promise.",
    ),
    "data": ("dpcrowd.cli.data", "data", "List data sets, write synthetic ones, download public ones."),
}


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are called; help needs their one-line texts only."""

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


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="dpcrowd", message="dpcrowd %(version)s")
def cli() -> None:
    """Decentralised, differentially private estimates of a whole crowd's counts, in real time."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; every refusal is one line on standard error and exit code 2."""
    try:
        result = cli.main(args=arguments, prog_name="dpcrowd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return 0
    except click.ClickException as error:
        return _refuse(" ".join(error.format_message().split()))
    except DpcrowdError as error:
        return _refuse(" ".join(str(error).split()))
    except (KeyboardInterrupt, click.Abort):
        click.echo("dpcrowd: interrupted", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; nobody is left to tell
        return 0
    return result if isinstance(result, int) else 0


def _refuse(message: str) -> int:
    click.echo(f"dpcrowd: error: {message}", err=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
