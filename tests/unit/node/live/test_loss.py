"""A ledger that nobody remembers: what the operator is told and may confirm, and what the next start finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpcrowd.cli.main import main
from dpcrowd.node.build import make_machine, make_view, revision_of
from dpcrowd.node.config import NetworkConfig, NodeConfig, load_pair
from dpcrowd.node.live.decisions import book_loss, declare_promise
from dpcrowd.node.live.status import budget, distrust
from dpcrowd.node.machine import Machine
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine.trust import Trust
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import Storage
from dpcrowd.privacy import SecureNoise
from node_support_storage import release

Files = tuple[NodeConfig, NetworkConfig]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("trial") / "net"
    assert main(["init", str(folder), "--dev"]) == 0
    return load_pair(folder / "server-1" / "node.toml")


@pytest.fixture
def storage(files: Files, tmp_path: Path) -> Iterator[Storage]:
    with Storage.open(tmp_path, network_id=files[1].id) as opened:
        declare_promise(files[1], opened, files[1].clock().opens(0))
        yield opened


def at(files: Files, slot: int) -> int:
    """A moment at which a slot is open, and the one before it is sealed."""
    return files[1].clock().closes(slot) - 1


def machine_of(files: Files, storage: Storage, slot: int) -> Machine:
    return make_machine(revision_of(files[1], make_view(*files), SecureNoise()), files[1], storage, at(files, slot))[0]


def draw(files: Files, storage: Storage, slot: int) -> None:
    clock = files[1].clock()
    storage.commit_sample(slot, clock.opens(slot), clock.length_ns, 10**6, b"", b"no state of any scheme")


def forgotten(counter: int, complete_until: int) -> Trust:
    """Neighbours have spoken for three slots, and know nothing of this node but what it has said since."""
    trust = Trust(counter, complete_until=complete_until)
    trust.start(complete_until, 20)
    for slot in range(20, 23):
        trust.hear_echo("server-2", slot, (20, counter) if slot > 20 else None, None)
        trust.end_exchange(slot)
    return trust


def test_the_operator_is_asked_and_told_why(files: Files, storage: Storage) -> None:
    """A node that waits for neighbours which have all forgotten it would wait for ever, and say that it waits."""
    draw(files, storage, 3)
    trust = forgotten(1, 3)
    assert trust.nobody_remembers
    assert "remembers this ledger from before" in distrust(trust)
    assert "confirm-loss" in distrust(trust)
    asked = budget(files[1], storage, trust, at(files, 23))
    assert (asked.samples, asked.waits_for, asked.text) == (False, "operator", distrust(trust))


def test_confirming_it_books_a_whole_budget_and_lets_later_starts_be_vouched_for(
    files: Files, storage: Storage
) -> None:
    """Neighbours remember the node since slot 20, in which it waited: after the decision that is far enough back."""
    draw(files, storage, 3)
    assert forgotten(1, 3).nobody_remembers
    booked = book_loss(do.BookLoss(at(files, 23), 1, None, 22), files[1], storage)
    text = booked.text
    assert "fully spent" in text
    clock = files[1].clock()
    free = 23 + files[1].guarantee().length  # the loss lasts until the end of slot 23
    told = f"ε=1 for confirmed losses, until {rfc3339(clock.opens(free))}."
    assert f"blocked is {told}" in text
    assert f"ε=1 at slot {free}, {rfc3339(clock.opens(free))}." in text, "when it samples again"
    assert storage.ledger.counter() == booked.counter == 2
    assert "no neighbour that was heard remembers the 1 sample of" in storage.events.all()[-1].text
    assert storage.ledger.allowance(clock.opens(24)).nano == 0
    assert [storage.ledger.allowance(clock.opens(slot)).nano for slot in (free - 1, free)] == [0, 10**9]
    again = machine_of(files, storage, 24).trust
    again.start(23, 24)
    again.hear_echo("server-2", 24, (20, 1), None)
    assert again.vouched


def test_a_folder_of_version_0_1_is_complete_as_far_as_it_goes(files: Files, storage: Storage) -> None:
    """It does not say how far; if that meant "never", no node could be vouched for after an update."""
    machine = machine_of(files, storage, 10)
    machine.server.observe(17, None)
    machine.server.hear()
    storage.commit_release([release(17)], machine.server.save())
    assert storage.memory.complete_until() is None
    assert machine_of(files, storage, 20).trust.complete_until == 17


def test_nor_is_it_lost_with_a_state_that_no_longer_fits(files: Files, storage: Storage) -> None:
    """The configuration has changed: estimates begin anew, but what was known of the ledger stays known."""
    draw(files, storage, 3)
    assert machine_of(files, storage, 20).trust.complete_until == 3
