"""`dpcrowd node`: run a live server, and ask, check and back up one.

The group is thin: running is in `dpcrowd.node.live.process`, the checks in `dpcrowd.node.doctor`, showing in
`dpcrowd.cli.node_show`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from dpcrowd.errors import MissingExtra

if TYPE_CHECKING:
    from dpcrowd.node.config import NodeConfig

__all__ = ["node"]

P = ParamSpec("P")
STORAGE, NO_ANSWER = 3, 4

_file = click.argument("file", metavar="[NODE.TOML]", default="node.toml", type=click.Path(path_type=Path))
_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")
_token = click.option("--token", envvar="DPCROWD_TOKEN", help="A token of the node.  [env: DPCROWD_TOKEN]")
_timeout = click.option(
    "--timeout", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Seconds to wait for an answer."
)


def _say(text: str) -> None:
    click.echo(f"dpcrowd: error: {' '.join(text.split())}", err=True)


def _numbered(command: Callable[P, int | None]) -> Callable[P, int]:
    """Exit codes beyond 2: storage, and a node that does not answer."""

    @wraps(command)
    def numbered(*arguments: P.args, **settings: P.kwargs) -> int:
        from dpcrowd.cli.asking import NoAnswer
        from dpcrowd.node.storage import StorageFailed

        try:
            return command(*arguments, **settings) or 0
        except StorageFailed as error:
            _say(str(error))
            return STORAGE
        except PermissionError as error:
            _say(f"'{error.filename}': {error.strerror}; run this as the user of the node.")
            return STORAGE
        except NoAnswer as error:
            _say(str(error))
            return NO_ANSWER

    return numbered


@click.group(name="node", context_settings={"help_option_names": ["-h", "--help"]})
def node() -> None:
    """Run a live server, and ask, check and back up one.

    \b
    Exit codes of all commands:
      0  done; `run`: stopped by SIGTERM or control-C
      1  the answer is no: `doctor` found a problem, `status` a node that is not ready, you did not confirm
      2  wrong input or configuration, or the node refused
      3  storage: the folder is in use, damaged, full or missing
      4  `run`: keys, certificates, ports or transport; the others: the node does not answer
      5  the node broke: a fault of dpcrowd; its log says where
    """


@node.command()
@_file
def run(file: Path) -> int:
    """Run a server until SIGTERM or control-C.

    Logs go to standard error, as [log] of node.toml says. Under systemd with Type=notify it tells when it is ready.
    """
    for library in ("cryptography", "zenoh", "starlette", "uvicorn"):
        if find_spec(library) is None:
            raise MissingExtra(library, "node", "dpcrowd node run")
    from dpcrowd.node.live.process import run_node

    return run_node(file, _say)


@node.command()
@_file
@_token
@_json
@_timeout
@_numbered
def doctor(file: Path, token: str | None, as_json: bool, timeout: float) -> int:
    """Check everything that a server needs, before or while it runs.

    Configuration, certificates, clock, disk, ports, database, neighbours, promises, files. Changes nothing.
    """
    from dpcrowd.cli.node_show import show_findings
    from dpcrowd.node.doctor import examine

    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd node doctor")
    return show_findings(examine(file, token=token, timeout=timeout), as_json=as_json)


@node.command()
@_file
@_token
@_json
@_timeout
@_numbered
def status(file: Path, token: str | None, as_json: bool, timeout: float) -> int:
    """Ask a running server how it is; exit code 1 if it is not ready."""
    from dpcrowd.cli.asking import ask
    from dpcrowd.cli.node_show import show_status

    config = _config(file)
    ready = ask(config, "/readyz", timeout=timeout, accept=(200, 503))
    network = ask(config, "/v1/network", token=token, timeout=timeout)
    budget_view = ask(config, "/v1/budget", token=token, timeout=timeout)
    show_status(ready, network, budget_view, as_json=as_json)
    return 0 if ready["ready"] else 1


@node.command()
@_file
@_token
@_json
@_timeout
@_numbered
def budget(file: Path, token: str | None, as_json: bool, timeout: float) -> None:
    """Show what was spent, what is left and when some comes back.

    Where the server does not run, its folder is read instead.
    """
    from dpcrowd.cli.asking import NoAnswer, ask
    from dpcrowd.cli.node_show import show_budget

    try:
        view = ask(_config(file), "/v1/budget", token=token, timeout=timeout)
    except NoAnswer:
        from dpcrowd.cli.node_folder import budget_of_folder

        view = budget_of_folder(file)
    show_budget(view, as_json=as_json)


@node.command()
@_file
@_token
@_json
@_timeout
@_numbered
def peers(file: Path, token: str | None, as_json: bool, timeout: float) -> None:
    """Show the neighbours of a running server: connected or not, last heard, refused."""
    from dpcrowd.cli.asking import ask
    from dpcrowd.cli.node_show import show_peers

    show_peers(ask(_config(file), "/v1/network", token=token, timeout=timeout), as_json=as_json)


def _tell(file: Path, what: str, token: str | None, timeout: float, as_json: bool, body: Any = None) -> None:
    from dpcrowd.cli.asking import ask

    done = ask(_config(file), f"/v1/admin/{what}", token=token, timeout=timeout, method="POST", body=body)
    click.echo(json.dumps(done) if as_json else done["text"])


@node.command()
@_file
@_token
@_json
@_timeout
@_numbered
def reload(file: Path, token: str | None, as_json: bool, timeout: float) -> None:
    """Have a running server take the next revision of network.toml."""
    _tell(file, "reload", token, timeout, as_json)


@node.command(name="log-level")
@_file
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error"]))
@_token
@_json
@_timeout
@_numbered
def log_level(file: Path, level: str, token: str | None, as_json: bool, timeout: float) -> None:
    """Change what a running server logs."""
    _tell(file, "log-level", token, timeout, as_json, {"level": level})


@node.command(name="confirm-loss")
@_file
@click.option("--yes", is_flag=True, help="Do not ask.")
@_token
@_json
@_timeout
@_numbered
def confirm_loss(file: Path, yes: bool, token: str | None, as_json: bool, timeout: float) -> int:
    """Confirm that payments are lost, after an old copy of the data folder was restored.

    The time that the folder does not know of counts as fully spent. Neighbours remember more than the folder: a server
    does not sample until this is confirmed.
    """
    question = "The time that the folder does not know of will count as fully spent, for good. Confirm?"
    if not yes and not _agreed(question):
        return 1
    _tell(file, "confirm-loss", token, timeout, as_json)
    return 0


@node.command()
@_file
@click.argument("to", metavar="FILE", type=click.Path(path_type=Path))
@_json
@_numbered
def backup(file: Path, to: Path, as_json: bool) -> None:
    """Copy the ledger, noisy values and releases into one new file, also while the server runs.

    Check-ins are not in it. A server that is restored from it has lost the payments since; its neighbours notice.
    """
    from dpcrowd.cli.node_folder import backup_folder

    counter = backup_folder(file, to)
    answer = {"file": str(to), "counter": counter}
    click.echo(json.dumps(answer) if as_json else f"'{to}' holds the ledger up to payment {counter}.")


@node.command(name="new-horizon")
@_file
@click.option("--yes", is_flag=True, help="Do not ask.")
@_json
@_numbered
def new_horizon(file: Path, yes: bool, as_json: bool) -> int:
    """Begin a new horizon of a finite guarantee, on a stopped server: a new promise, on top of the old one.

    Says what both promises add up to for a user who is in both, and asks. Logged in the ledger's folder for good.
    """
    from dpcrowd.cli.node_folder import NewHorizon

    with NewHorizon(file) as horizon:
        if not yes:
            click.echo(horizon.text, err=True)
            if not _agreed("Begin a new horizon?"):
                return 1
        horizon.begin()
        click.echo(json.dumps(horizon.facts) if as_json else f"A new horizon has begun. {horizon.text}")
        if horizon.next:
            click.echo(horizon.next, err=True)
    return 0


@node.command()
@click.argument("which", type=click.Choice(["network", "node"]))
def schema(which: str) -> None:
    """Print the JSON schema of network.toml or node.toml, for editors."""
    from dpcrowd.node.config import schema as schemas

    click.echo(json.dumps(schemas.network_schema() if which == "network" else schemas.node_schema(), indent=2))


def _config(file: Path) -> NodeConfig:
    from dpcrowd.node.config import load_node

    return load_node(file)


def _agreed(question: str) -> bool:
    """Where nobody can answer, the answer is no."""
    try:
        agreed = click.confirm(question, default=False, err=True)
    except click.Abort:
        agreed = False
    if not agreed:
        _say("not confirmed; nothing was changed. Give --yes where nobody can be asked.")
    return agreed
