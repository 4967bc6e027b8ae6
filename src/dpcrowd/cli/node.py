"""`dpcrowd node`: run a live server, or check, query and back up one.

Every command is thin: a server runs in `dpcrowd.node.live.process` and is examined by `dpcrowd.node.doctor`. Commands
that ask a running server use `dpcrowd.cli.asking`, those that work on a data folder use `dpcrowd.cli.node_folder`, and
answers are printed by `dpcrowd.cli.node_show`.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from dpcrowd.cli import node_options as options
from dpcrowd.errors import MissingExtra, plain

if TYPE_CHECKING:
    from dpcrowd.cli.node_folder import Decision
    from dpcrowd.node.config import NodeConfig

__all__ = ["node"]


@click.group(name="node", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def node(ctx: click.Context) -> None:
    """Run a live server, or check, query and back up one.

    \b
    Exit codes of all commands:
      0  success; `run`: stopped by SIGTERM or Control-C
      1  the answer is no: `doctor` found a problem, `status` a node that is not ready,
         `quality` intervals that are too narrow, `replay` a difference,
         `verify-proof` a proof that proves nothing, or you did not confirm
      2  wrong input or configuration, or the node refused the request
      3  storage: the folder is in use, damaged, full or missing
      4  `run`: keys, certificates, ports or transport; others: the node does not answer
      5  internal error of the node; its log says where
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@node.command()
@options.file
def run(file: Path) -> int:
    """Run a server until SIGTERM or Control-C.

    It logs to standard error, as [log] of node.toml says. Under systemd with Type=notify it reports when it is ready.
    """
    for library in ("cryptography", "zenoh", "starlette", "uvicorn"):
        if find_spec(library) is None:
            raise MissingExtra(library, "node", "dpcrowd node run")
    from dpcrowd.node.live.process import run_node

    return run_node(file, options.print_error)


@node.command()
@options.file
@options.asking
@click.option(
    "--listen",
    type=click.FloatRange(0, 600),
    default=10.0,
    show_default=True,
    help="If the server does not run: listen for neighbours for at most this many seconds; 0 does not listen.",
)
@options.numbered
def doctor(file: Path, token: str | None, as_json: bool, timeout: float, listen: float) -> int:
    """Check everything that a server needs.

    It checks configuration, certificates, files, clock, disk, ports, database, budget and neighbours, before the server
    runs or while it runs, and changes nothing. The exit code is 1 if there is a problem.
    """
    from dpcrowd.cli.asking import ask
    from dpcrowd.cli.node_show import show_findings
    from dpcrowd.node.doctor import examine

    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd node doctor")

    def ask_node(config: NodeConfig, path: str) -> Any:
        return ask(config, path, token=token, timeout=timeout, accept=(200, 503))

    return show_findings(examine(file, ask=ask_node, timeout=timeout, listen=listen), as_json=as_json)


@node.command()
@options.file
@options.asking
@options.numbered
def status(file: Path, token: str | None, as_json: bool, timeout: float) -> int:
    """Show the state of a running server.

    The exit code is 1 if the server is not ready.
    """
    from dpcrowd.cli.asking import ask
    from dpcrowd.cli.node_show import show_status

    config = _config(file)
    ready = ask(config, "/readyz", timeout=timeout, accept=(200, 503))
    network = ask(config, "/v1/network", token=token, timeout=timeout)
    budget_view = ask(config, "/v1/budget", token=token, timeout=timeout)
    quality = ask(config, "/v1/quality", token=token, timeout=timeout, accept=(200, 404))  # 404: an earlier version
    show_status(ready, network, budget_view, quality, as_json=as_json)
    return 0 if ready["ready"] else 1


@node.command()
@options.file
@options.asking
@options.numbered
def budget(file: Path, token: str | None, as_json: bool, timeout: float) -> None:
    """Show how much privacy budget is spent and left.

    It also shows when budget comes back. If the server does not run, the ledger in its data folder is read instead.
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
    """Show the neighbours of a running server.

    One line per neighbour: whether it is connected, its last message, and its refused messages by reason.
    """
    from dpcrowd.cli.asking import ask
    from dpcrowd.cli.node_show import show_peers

    show_peers(ask(_config(file), "/v1/network", token=token, timeout=timeout), as_json=as_json)


@node.command()
@options.file
@options.asking
@options.numbered
def quality(file: Path, token: str | None, as_json: bool, timeout: float) -> int:
    """Show whether the intervals of a running server are right.

    It compares records of other servers with what this server had expected of them, in all and by region. The exit code
    is 1 if intervals are too narrow, in all or in a region.
    """
    from dpcrowd.cli.asking import ask
    from dpcrowd.cli.node_show import show_quality

    view = ask(_config(file), "/v1/quality", token=token, timeout=timeout)
    show_quality(view, as_json=as_json)
    return 1 if view["verdict"] == "narrow" or any(region.get("narrow") for region in view["regions"]) else 0


def _send_command(file: Path, name: str, token: str | None, timeout: float, as_json: bool, body: Any = None) -> None:
    from dpcrowd.cli.asking import ask

    answer = ask(_config(file), f"/v1/admin/{name}", token=token, timeout=timeout, method="POST", body=body)
    click.echo(json.dumps(answer) if as_json else plain(answer["text"]))


@node.command()
@options.file
@options.asking
@options.numbered
def reload(file: Path, token: str | None, as_json: bool, timeout: float) -> None:
    """Make a running server read its files again.

    It takes the next revision of network.toml, tokens, log level and HTTPS certificate of node.toml, and renewed keys
    and certificates. Settings that need a restart are named. A file with an error changes nothing. SIGHUP does the
    same.
    """
    _send_command(file, "reload", token, timeout, as_json)


@node.command(name="log-level")
@options.file_and("level", "LEVEL", click.Choice(["debug", "info", "warning", "error"]))
@options.asking
@options.numbered
def log_level(file: Path, level: str, token: str | None, as_json: bool, timeout: float) -> None:
    """Set the log level of a running server.

    LEVEL is debug, info, warning or error.
    """
    _send_command(file, "log-level", token, timeout, as_json, {"level": level})


@node.command(name="confirm-loss")
@options.file
@options.yes
@options.asking
@options.numbered
def confirm_loss(file: Path, yes: bool, token: str | None, as_json: bool, timeout: float) -> int:
    """Confirm that payments are lost from the ledger.

    Needed after an old copy of the data folder was restored: neighbours know of payments that the folder does not have,
    or no neighbour knows this server, and it does not sample until the loss is confirmed. From then on the time that
    the folder does not cover counts as fully spent.
    """
    question = "The time that the folder does not cover will count as fully spent; this cannot be undone. Confirm?"
    if not yes and not options.confirmed(question):
        return 1
    _send_command(file, "confirm-loss", token, timeout, as_json)
    return 0


@node.command(name="accept-clock")
@options.file
@options.yes
@options.asking
@options.numbered
def accept_clock(file: Path, yes: bool, token: str | None, as_json: bool, timeout: float) -> int:
    """Accept a clock that was ahead and has been set back.

    A server whose clock was ahead has sealed slots of the future, and waits until they have passed. With this command
    they begin again. What was sampled ahead of time stays spent and is not sampled again. The ledger logs the command
    permanently.
    """
    question = (
        "Slots that were sealed while the clock was ahead will begin again; what was sampled in them stays spent, and "
        "counts longer than usual. Is this machine's clock correct now?"
    )
    if not yes and not options.confirmed(question):
        return 1
    _send_command(file, "accept-clock", token, timeout, as_json)
    return 0


@node.command()
@click.argument("which", metavar="network|node", type=click.Choice(["network", "node"]))
def schema(which: str) -> None:
    """Print the JSON schema of a configuration file.

    Editors use it to check and complete network.toml or node.toml.
    """
    from dpcrowd.node.config import schema as schemas

    click.echo(json.dumps(schemas.network_schema() if which == "network" else schemas.node_schema(), indent=2))


@node.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@options.as_json
def replay(file: Path, as_json: bool) -> int:
    """Replay a recording through a new state machine.

    `[debug] record` of node.toml writes recordings. The same stimuli must give the same instructions, bit for bit; the
    exit code is 1 if they do not.
    """
    from dpcrowd.cli.node_show import show_replay
    from dpcrowd.node.recording.replay import replay as run_again

    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd node replay")
    return show_replay(run_again(file), as_json=as_json)


@node.command(name="verify-proof")
@click.argument("proofs", type=click.File("rb"))
@click.option(
    "--network",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("network.toml"),
    show_default=True,
    help="Configuration of the network, which pins the keys of its servers.",
)
@options.as_json
def verify_proof(proofs: BinaryIO, network: Path, as_json: bool) -> int:  # fmt: skip
    """Verify proofs of equivocation.

    A proof shows that a server has signed two different records for one slot. PROOFS is the answer of /v1/proofs of any
    server, or - for standard input. Only the keys that network.toml pins are trusted. The exit code is 1 if a proof is
    not valid.
    """
    from dpcrowd.cli.node_show import show_proofs
    from dpcrowd.node.config import load_network

    if find_spec("cryptography") is None:
        raise MissingExtra("cryptography", "node", "dpcrowd node verify-proof")
    return show_proofs(proofs.read(), load_network(network), as_json=as_json)


@node.command()
@options.as_json
def token(as_json: bool) -> None:
    """Create a token for the HTTP API.

    It prints the token, which is shown only once, and its hash for [tokens] of node.toml.
    """
    import secrets

    from dpcrowd.node.config import token_hash

    new_token = secrets.token_urlsafe(24)
    if as_json:
        click.echo(json.dumps({"token": new_token, "hash": token_hash(new_token)}))
        return
    click.echo(f"{'token':<14}{new_token}")
    click.echo(f'{"node.toml":<14}"{token_hash(new_token)}"')
    click.echo("Add the hash to checkin, read or admin of [tokens], and give the token to whoever gets that right.")


def _config(file: Path) -> NodeConfig:
    from dpcrowd.node.config import load_node

    return load_node(file)


@node.command()
@options.file_and("to", "FILE", click.Path(path_type=Path))
@options.as_json
@options.numbered
def backup(file: Path, to: Path, as_json: bool) -> None:
    """Copy ledger, noisy values and releases into a file.

    The server may run meanwhile. Check-ins are not copied. A server that is restored from the copy has lost the
    payments made since; its neighbours notice that.
    """
    from dpcrowd.cli.node_folder import backup_folder

    counter = backup_folder(file, to)
    answer = {"file": str(to), "counter": counter}
    click.echo(json.dumps(answer) if as_json else f"'{to}' contains the ledger up to payment {counter}.")


@node.command(name="new-horizon")
@options.file
@options.yes
@options.as_json
@options.numbered
def new_horizon(file: Path, yes: bool, as_json: bool) -> int:
    """Begin a new horizon of a finite guarantee.

    The server has to be stopped. A new horizon is a new promise, on top of the old one: the command says what both add
    up to for a user who is in both, and asks for confirmation. The ledger logs it permanently. For pinned users only:
    if users roam, a revision of network.toml begins it at all servers (guarantee.horizon_from_slot).
    """
    from dpcrowd.cli.node_folder import new_horizon as decision

    return _decide(decision(file), "Begin a new horizon?", yes, as_json)


@node.command()
@options.file_and("network", "NETWORK", click.STRING)
@options.yes
@options.as_json
@options.numbered
def withdraw(file: Path, network: str, yes: bool, as_json: bool) -> int:
    """Withdraw the promise of a network that has ended.

    For a ledger that several networks share: the promise of NETWORK no longer limits it. The servers on this ledger
    have to be stopped. What was paid stays paid, and counts for the other networks. The command says what this means
    for the users of that network, and asks for confirmation. The ledger logs it permanently.
    """
    from dpcrowd.cli.node_folder import withdrawal

    return _decide(withdrawal(file, network), f"Withdraw the promise of '{network}'?", yes, as_json)


def _decide(decision: Decision, question: str, yes: bool, as_json: bool) -> int:
    with decision:
        if not yes:
            click.echo(decision.text, err=True)
            if not options.confirmed(question):
                return 1
        decision.carry_out()
        click.echo(json.dumps(decision.facts) if as_json else f"Done. {decision.text}")
    return 0


@node.command()
@options.file
@options.as_json
@options.numbered
def forget(file: Path, as_json: bool) -> None:
    """Delete the check-ins that a stopped server still has.

    They are those of the slot in which it was stopped, kept as hashes beside their key; a server that is started again
    counts them. Once they are deleted, the slot that is open at the next start is not sampled.
    """
    from dpcrowd.cli.node_folder import forget_checkins

    folder = forget_checkins(file)
    text = f"'{folder}' contains no check-ins any more."
    click.echo(json.dumps({"folder": str(folder), "forgotten": True}) if as_json else text)
