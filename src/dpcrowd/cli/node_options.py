"""What the commands of `dpcrowd node` share: options, exit codes, and asking the operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

__all__ = ["agreed", "as_json", "asking", "file", "file_and", "numbered", "say", "yes"]

P = ParamSpec("P")
Command = TypeVar("Command", bound=Callable[..., object])
STORAGE, NO_ANSWER = 3, 4
_HERE = "node.toml"

file = click.argument("file", metavar="[NODE.TOML]", default=_HERE, type=click.Path(path_type=Path))
as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")
yes = click.option("--yes", is_flag=True, help="Do not ask.")
_token = click.option("--token", envvar="DPCROWD_TOKEN", help="A token of the node.  [env: DPCROWD_TOKEN]")
_timeout = click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Seconds to wait for an answer."
)


def file_and(name: str, metavar: str, kind: click.ParamType[Any]) -> Callable[[Command], Command]:
    """`[NODE.TOML] THIS`: the file may be left out, although it comes first. Gives the command `file` and `name`.

    Click fills arguments from the left, so that a lone one would be the file: both are read as one list here.
    """

    def split(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Any:
        if len(given) > 2:
            raise click.UsageError(f"{len(given)} arguments; allowed: {metavar}, or NODE.TOML and {metavar}", ctx)
        if len(given) == 1 and given[0].endswith(".toml"):
            raise click.UsageError(f"missing argument '{metavar}' after '{given[0]}'", ctx)
        ctx.params["file"] = Path(given[0] if len(given) == 2 else _HERE)
        try:
            return kind.convert(given[-1], parameter, ctx)
        except click.BadParameter as error:
            error.param_hint = f"'{metavar}'"
            raise

    return click.argument(name, metavar=f"[NODE.TOML] {metavar}", nargs=-1, required=True, callback=split)


def asking(command: Command) -> Command:
    """The options of a command that asks a running node."""
    return _token(as_json(_timeout(command)))


def say(text: str) -> None:
    """One line on standard error."""
    click.echo(f"dpcrowd: error: {' '.join(text.split())}", err=True)


def numbered(command: Callable[P, int | None]) -> Callable[P, int]:
    """Exit codes beyond 2: storage, and a node that does not answer."""

    @wraps(command)
    def with_number(*arguments: P.args, **settings: P.kwargs) -> int:
        from dpcrowd.cli.asking import NoAnswer
        from dpcrowd.node.storage import StorageFailed

        try:
            return command(*arguments, **settings) or 0
        except StorageFailed as error:
            say(str(error))
            return STORAGE
        except PermissionError as error:
            say(f"'{error.filename}': {error.strerror}; run this as the user of the node.")
            return STORAGE
        except NoAnswer as error:
            say(str(error))
            return NO_ANSWER

    return with_number


def agreed(question: str) -> bool:
    """Where nobody can answer, the answer is no."""
    try:
        answer, hint = click.confirm(question, default=False, err=True), ""
    except click.Abort:
        answer, hint = False, " Give --yes where nobody can be asked."
    if not answer:
        say(f"not confirmed; nothing was changed.{hint}")
    return answer
