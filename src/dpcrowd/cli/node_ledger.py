"""The commands of `dpcrowd node` that work on the ledger's folder, without a running node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpcrowd.cli import node_options as options

if TYPE_CHECKING:
    from dpcrowd.cli.node_folder import Decision

__all__ = ["COMMANDS"]


@click.command()
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


@click.command(name="new-horizon")
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


@click.command()
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


@click.command()
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


COMMANDS = (backup, forget, new_horizon, withdraw)
