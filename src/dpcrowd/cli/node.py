"""`dpcrowd node`: run a live server, and ask, check and back up one.

Every command is thin: a server runs in `dpcrowd.node.live.process` and is examined by `dpcrowd.node.doctor`. Commands
that ask a running server use `dpcrowd.cli.asking`, those that work on a data folder use `dpcrowd.cli.node_folder`, and
answers are printed by `dpcrowd.cli.node_show`.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpcrowd.cli import node_options as options
from dpcrowd.errors import MissingExtra

if TYPE_CHECKING:
    from dpcrowd.cli.node_folder import Decision
    from dpcrowd.node.config import NodeConfig

__all__ = ["node"]


@click.group(name="node", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def node(ctx: click.Context) -> None:
    """Run a live server, and ask, check and back up one.

    \b
    Exit codes of all commands:
      0  done; `run`: stopped by SIGTERM or control-C
      1  the answer is no: `doctor` found a problem, `status` a node that is not ready, `replay` a difference,
         you did not confirm
      2  wrong input or configuration, or the node refused
      3  storage: the folder is in use, damaged, full or missing
      4  `run`: keys, certificates, ports or transport; the others: the node does not answer
      5  the node broke: a fault of dpcrowd; its log says where
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@node.command()
@options.file
def run(file: Path) -> int:
    """Run a server until SIGTERM or control-C.

    Logs go to standard error, as [log] of node.toml says. Under systemd with Type=notify it tells when it is ready.
    """
    for library in ("cryptography", "zenoh", "starlette", "uvicorn"):
        if find_spec(library) is None:
            raise MissingExtra(library, "node", "dpcrowd node run")
    from dpcrowd.node.live.process import run_node

    return run_node(file, options.say)


@node.command()
@options.file
@options.asking
@click.option(
    "--listen",
    type=click.FloatRange(0, 600),
    default=10.0,
    show_default=True,
    help="Seconds to listen for neighbours at most, where the server does not run; 0: not at all.",
)
@options.numbered
def doctor(file: Path, token: str | None, as_json: bool, timeout: float, listen: float) -> int:
    """Check everything that a server needs, before or while it runs.

    Configuration, certificates, files, clock, disk, ports, database, budget, neighbours. Changes nothing.
    """
    from dpcrowd.cli.asking import ask
    from dpcrowd.cli.node_show import show_findings
    from dpcrowd.node.doctor import examine

    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd node doctor")

    def asked(config: NodeConfig, path: str) -> Any:
        return ask(config, path, token=token, timeout=timeout, accept=(200, 503))

    return show_findings(examine(file, ask=asked, timeout=timeout, listen=listen), as_json=as_json)


@node.command()
@options.file
@options.asking
@options.numbered
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
@options.file
@options.asking
@options.numbered
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
@options.file
@options.asking
@options.numbered
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
@options.file
@options.asking
@options.numbered
def reload(file: Path, token: str | None, as_json: bool, timeout: float) -> None:
    """Have a running server take its files as they are now.

    The next revision of network.toml; tokens, log level and HTTPS certificate of node.toml; renewed keys and
    certificates. What needs a restart is named. A file that is wrong changes nothing. SIGHUP does the same.
    """
    _tell(file, "reload", token, timeout, as_json)


@node.command(name="log-level")
@options.file_and("level", "LEVEL", click.Choice(["debug", "info", "warning", "error"]))
@options.asking
@options.numbered
def log_level(file: Path, level: str, token: str | None, as_json: bool, timeout: float) -> None:
    """Change what a running server logs: LEVEL is debug, info, warning or error."""
    _tell(file, "log-level", token, timeout, as_json, {"level": level})


@node.command(name="confirm-loss")
@options.file
@options.yes
@options.asking
@options.numbered
def confirm_loss(file: Path, yes: bool, token: str | None, as_json: bool, timeout: float) -> int:
    """Confirm that payments are lost, after an old copy of the data folder was restored.

    The time that the folder does not know of counts as fully spent. Neighbours remember more than the folder, or none
    of them remembers this server at all: it does not sample until this is confirmed.
    """
    question = "The time that the folder does not know of will count as fully spent, for good. Confirm?"
    if not yes and not options.agreed(question):
        return 1
    _tell(file, "confirm-loss", token, timeout, as_json)
    return 0


@node.command(name="accept-clock")
@options.file
@options.yes
@options.asking
@options.numbered
def accept_clock(file: Path, yes: bool, token: str | None, as_json: bool, timeout: float) -> int:
    """Accept the clock as it is now, after it was ahead and has come back.

    A server whose clock was ahead has sealed slots that are still to come, and waits until they have passed. With this
    they begin again. What that clock has sampled stays spent and is not sampled again. Logged for good.
    """
    question = (
        "Slots that were sealed by a clock that was ahead will begin again; what was sampled by it stays spent, and "
        "counts longer than usual. Is this machine's clock right now?"
    )
    if not yes and not options.agreed(question):
        return 1
    _tell(file, "accept-clock", token, timeout, as_json)
    return 0


@node.command()
@click.argument("which", type=click.Choice(["network", "node"]))
def schema(which: str) -> None:
    """Print the JSON schema of network.toml or node.toml, for editors."""
    from dpcrowd.node.config import schema as schemas

    click.echo(json.dumps(schemas.network_schema() if which == "network" else schemas.node_schema(), indent=2))


@node.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@options.as_json
def replay(file: Path, as_json: bool) -> int:
    """Run a recording (`[debug] record` of node.toml) through a fresh state machine.

    The same stimuli have to give the same instructions, bit for bit; exit code 1 if they do not.
    """
    from dpcrowd.cli.node_show import show_replay
    from dpcrowd.node.recording.replay import replay as run_again

    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd node replay")
    return show_replay(run_again(file), as_json=as_json)


@node.command()
@options.as_json
def token(as_json: bool) -> None:
    """Make a token for the HTTP API: itself, shown this once, and the line for [tokens] of node.toml."""
    import secrets

    from dpcrowd.node.config import token_hash

    made = secrets.token_urlsafe(24)
    if as_json:
        click.echo(json.dumps({"token": made, "hash": token_hash(made)}))
        return
    click.echo(f"{'token':<14}{made}")
    click.echo(f'{"node.toml":<14}"{token_hash(made)}"')
    click.echo("Put the second one into checkin, read or admin of [tokens]; the first goes to whoever may do that.")


def _config(file: Path) -> NodeConfig:
    from dpcrowd.node.config import load_node

    return load_node(file)


@node.command()
@options.file_and("to", "FILE", click.Path(path_type=Path))
@options.as_json
@options.numbered
def backup(file: Path, to: Path, as_json: bool) -> None:
    """Copy the ledger, noisy values and releases into one new file, also while the server runs.

    Check-ins are not in it. A server that is restored from it has lost the payments since; its neighbours notice.
    """
    from dpcrowd.cli.node_folder import backup_folder

    counter = backup_folder(file, to)
    answer = {"file": str(to), "counter": counter}
    click.echo(json.dumps(answer) if as_json else f"'{to}' holds the ledger up to payment {counter}.")


@node.command(name="new-horizon")
@options.file
@options.yes
@options.as_json
@options.numbered
def new_horizon(file: Path, yes: bool, as_json: bool) -> int:
    """Begin a new horizon of a finite guarantee, on a stopped server: a new promise, on top of the old one.

    Says what both promises add up to for a user who is in both, and asks. Logged in the ledger's folder for good. For
    pinned users only: if users roam, a revision of network.toml begins it at all servers (guarantee.horizon_from_slot).
    """
    from dpcrowd.cli.node_folder import new_horizon as decision

    return _decide(decision(file), "Begin a new horizon?", yes, as_json)


@node.command()
@options.file_and("network", "NETWORK", click.STRING)
@options.yes
@options.as_json
@options.numbered
def withdraw(file: Path, network: str, yes: bool, as_json: bool) -> int:
    """Withdraw the promise of a NETWORK that has ended, so that it no longer binds the ledger.

    For a ledger that several networks share; their servers on it have to be stopped. What was paid stays paid, and
    counts for the other networks. Says what it means for that network's users, and asks. Logged for good.
    """
    from dpcrowd.cli.node_folder import withdrawal

    return _decide(withdrawal(file, network), f"Withdraw the promise of '{network}'?", yes, as_json)


def _decide(decision: Decision, question: str, yes: bool, as_json: bool) -> int:
    with decision:
        if not yes:
            click.echo(decision.text, err=True)
            if not options.agreed(question):
                return 1
        decision.carry_out()
        click.echo(json.dumps(decision.facts) if as_json else f"Done. {decision.text}")
    return 0


@node.command()
@options.file
@options.as_json
@options.numbered
def forget(file: Path, as_json: bool) -> None:
    """Delete the check-ins that a stopped server still holds for the slot in which it was stopped.

    A server that is started again counts them; one that stays down keeps them, as hashes beside their key. The slot
    that is open at the next start is then not sampled.
    """
    from dpcrowd.cli.node_folder import forget_checkins

    folder = forget_checkins(file)
    text = f"'{folder}' holds no check-ins any more."
    click.echo(json.dumps({"folder": str(folder), "forgotten": True}) if as_json else text)
