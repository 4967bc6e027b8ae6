"""What the commands of `dpcrowd node` share: options, exit codes, and questions to the operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

__all__ = ["as_json", "asking", "confirmed", "file", "file_and", "numbered", "print_error", "yes"]

P = ParamSpec("P")
Command = TypeVar("Command", bound=Callable[..., object])
STORAGE, NO_ANSWER = 3, 4
_HERE = "node.toml"

file = click.argument("file", metavar="[NODE.TOML]", default=_HERE, type=click.Path(path_type=Path))
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_token = click.option(
    "--token",
    envvar="DPCROWD_TOKEN",
    help="Token of the node's API with the right that the command needs.  [env: DPCROWD_TOKEN]",
)
_timeout = click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    help="Wait this many seconds for an answer.",
)


def file_and(name: str, metavar: str, kind: click.ParamType[Any]) -> Callable[[Command], Command]:
    """Declare the arguments `[NODE.TOML] METAVAR`: the file may be left out, although it comes first.

    The command gets them as `file` and `name`. Click fills arguments from the left, so that a single one would be the
    file; here both are read as one list.
    """

    def split(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Any:
        if len(values) > 2:
            raise click.UsageError(f"{len(values)} arguments; allowed: {metavar}, or NODE.TOML and {metavar}", ctx)
        if len(values) == 1 and values[0].endswith(".toml"):
            raise click.UsageError(f"missing argument '{metavar}' after '{values[0]}'", ctx)
        ctx.params["file"] = Path(values[0] if len(values) == 2 else _HERE)
        try:
            return kind.convert(values[-1], parameter, ctx)
        except click.BadParameter as error:
            error.param_hint = f"'{metavar}'"
            raise

    return click.argument(name, metavar=f"[NODE.TOML] {metavar}", nargs=-1, required=True, callback=split)


def asking(command: Command) -> Command:
    """Add the options of a command that sends requests to a running node."""
    return _token(as_json(_timeout(command)))


def print_error(text: str) -> None:
    """Print one line on standard error."""
    click.echo(f"dpcrowd: error: {' '.join(text.split())}", err=True)


def numbered(command: Callable[P, int | None]) -> Callable[P, int]:
    """Give a command the exit codes beyond 2: those for storage, and for a node that does not answer."""

    @wraps(command)
    def with_exit_code(*arguments: P.args, **settings: P.kwargs) -> int:
        from dpcrowd.cli.asking import NoAnswer
        from dpcrowd.node.storage import StorageError

        try:
            return command(*arguments, **settings) or 0
        except StorageError as error:
            print_error(str(error))
            return STORAGE
        except PermissionError as error:
            print_error(f"cannot access '{error.filename}': {error.strerror}; run this as the user of the node.")
            return STORAGE
        except NoAnswer as error:
            print_error(str(error))
            return NO_ANSWER

    return with_exit_code


def confirmed(question: str) -> bool:
    """Ask the operator; without a terminal the answer is no."""
    try:
        answer, hint = click.confirm(question, default=False, err=True), ""
    except click.Abort:
        answer, hint = False, " Give --yes to run it without a terminal."
    if not answer:
        print_error(f"not confirmed; nothing was changed.{hint}")
    return answer
