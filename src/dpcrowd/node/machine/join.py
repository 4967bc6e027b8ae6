"""Late join: a node that has lost the network's past takes it from its neighbours, and gives it to theirs.

A node that begins later than its network, or was away or cut off for L slots or more, has lost records that nobody
keeps any more. It asks its neighbours for their finalised state (`schemes.relay_join`), which follows from those
records:

    when a link comes up, and after the release of every slot     a request, at most one per neighbour and slot
    a neighbour, when its own exchange is over                    what the asking node lacks of the last records, and
                                                                  its state after the slot that it has released last
    before the next slot is sealed                                the asking node compares what has arrived, and joins

A state of slot t is used when slot t + 1 is sealed, and not later: the records after it would be gone. So there is time
for all neighbours to answer, and no release is delayed. A node that has not joined yet releases what it knows.

It is the neighbours' word. A state is checked number by number, against the population, and against what the public
schedule, shares and epsilon allow; shares come from the node's own configuration. Where several answer, more than half
of them must agree within their intervals, and the state that most of them have sent, bit for bit, is taken
(`most_trusted`). If there is no majority the node takes none, names them, goes on with what it knows itself, and asks
again L slots later, a few times. A single answer is taken, and shown as that neighbour's word. Whether the node may
sample is not affected by any of this: its ledger is another matter (`trust`).

A node answers each neighbour at most once per slot and a few times in L slots, and not while it asks itself. What it
sends follows from records that all servers have been sent.

Where a network begins, nobody has a past. Less than L slots after the epoch nobody asks: every record can still be had.
Where all servers begin later than that, all of them ask each other. A state travels one link per slot, so a node all of
whose neighbours have asked, too, in as many slots as there are servers knows that nobody has one. It stops asking, and
from then on answers those who come later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.instructions import Instruction, RefuseMessage, Report
from dpcrowd.node.machine.records import Records
from dpcrowd.node.machine.revision import NetworkView
from dpcrowd.node.wire import DEVIATIONS, most_counted
from dpcrowd.schemes.relay_join import FinalisedState, most_trusted
from dpcrowd.schemes.server import Server

__all__ = ["Join", "fits"]

_MOST_ANSWERS = 4  # to one neighbour in L slots
_MOST_ROUNDS = 4  # in which states are compared; after that the node goes on without
_BESIDES = 1024  # bytes of a message besides the state


@dataclass
class Join:
    """What a node asks of its neighbours, and what they have asked of it.

    attended  the last slot in which a neighbour was heard, or in which the node started
    asks      whether the node has lost the network's past and hopes for somebody's word
    answers   by name: the slot of a neighbour's state, and the state, unchecked; of each the last one
    contradicting  names of the neighbours whose states contradicted each other, or the one that was taken, when they
                   were compared last
    """

    attended: int = -1
    asks: bool = False
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    contradicting: tuple[str, ...] = ()
    _rounds: int = 0
    _tries: int = 0
    _last_try: int = -1
    _first: int = 0  # states of earlier slots are not asked for
    _too_large: bool = False
    _is_new: bool = False  # whether it had observed no slot when it began to ask, so that it has lost nothing itself
    _asked: dict[str, int] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _waiting: set[str] = field(default_factory=set)
    _answered: dict[str, list[int]] = field(default_factory=dict)
    _requests: dict[str, int] = field(default_factory=dict)  # by neighbour: the last slot after which it has asked
    _alone: int = 0  # slots in a row in which all neighbours that were asked have asked, too

    # -------------------------------------------------------------------------------------------------------- asking

    def start(self, server: Server, view: NetworkView, now: int, records: Records) -> list[Instruction]:
        """Ask from now on, if the node has lost records before this start, or cannot check some that still count.

        now  the last slot that is over
        """
        instructions = self._begin_if_lost(server, server.slot, now, view)
        self.attended = max(server.slot, now)
        return [*instructions, *self._miss_revision(server, view, self.attended, records)]

    def attend(self, slot: int) -> None:
        """Note that a neighbour was heard in a slot, so that its records could reach this node."""
        self.attended = slot

    def before_seal(self, server: Server, view: NetworkView, slot: int, records: Records) -> list[Instruction]:
        """Begin with neighbours' word before a slot is sealed, if this node has lost records and they have answered.

        records  of the last L slots that have arrived
        """
        joined, instructions = self.decide(server, view, slot, records)
        if joined:
            records.join(server)
            instructions += self._miss_revision(server, view, server.slot, records)
        elif server.slot >= 0 and view.links(slot):  # a process that stood still, or was cut off for long
            instructions += self._begin_if_lost(server, min(self.attended, server.slot), slot - 1, view)
        return instructions

    def _begin_if_lost(self, server: Server, attended: int, now: int, view: NetworkView) -> list[Instruction]:
        """Ask from now on, if records are lost.

        attended  the last slot whose records could reach this node
        now       the last slot that is over
        """
        assert view.records is not None
        return [] if now - attended < view.records.lag else self._begin(server, view, 0)

    def _miss_revision(self, server: Server, view: NetworkView, now: int, records: Records) -> list[Instruction]:
        """Ask for a state later, if records that still count in slot `now` cannot be checked.

        Their revision is not known: the node is new in the network, or its folder has no copy. After L slots of the
        revisions that are known, all those records are final, and a neighbour's state says what follows from them.
        """
        if not records.lacks_revision(server, now):
            return []
        known = records.revisions.first_known
        first = known + records.terms.lag - 1
        text = (
            f"the revision of the network that was valid before slot {known} is not known here, so records of "
            f"earlier slots cannot be checked. After slot {first} all of them are final: then this node asks its "
            "neighbours for what follows from them."
        )
        return [Report("revision-unknown", text), *self._begin(server, view, first)]

    def _begin(self, server: Server, view: NetworkView, first: int) -> list[Instruction]:
        """Ask for states of slot `first` and later."""
        assert view.records is not None
        if self.asks or self._too_large:
            return []
        if not fits(server, view):
            self._too_large = True
            text = (
                "this node lacks records of earlier slots, and the state that follows from them is too large for a "
                "message: it goes on with what it knows itself."
            )
            return [Report("join-none", text)]
        self.asks, self._tries, self._first, self._rounds = True, 2 * view.records.lag + 2, first, _MOST_ROUNDS
        self._is_new = server.slot < 0
        return []

    def to_ask(self, names: Collection[str], slot: int) -> list[str]:
        """Return whom to ask after a slot; from now on they are asked."""
        if not self.asks or slot < self._first:
            return []
        asked = [name for name in names if name not in self._refused and self._asked.get(name, -1) < slot]
        if names and slot > self._last_try:  # also if all of them have been refused
            self._tries, self._last_try = self._tries - 1, slot
        self._asked |= dict.fromkeys(asked, slot)
        return asked

    def take_answer(self, name: str, slot: int, state: bytes) -> None:
        """Keep the state that a neighbour has sent, if it was asked; it is checked before it is used."""
        if self.asks and name in self._asked:
            self.answers[name] = slot, state

    def decide(self, server: Server, view: NetworkView, slot: int, records: Records) -> tuple[bool, list[Instruction]]:
        """Join before a slot is sealed, if there are answers; return whether that was done, and what is said of it.

        records  of the last L slots that have arrived
        """
        if not self.asks:
            return False, []
        states: dict[str, FinalisedState] = {}
        instructions: list[Instruction] = []
        for name, (of, payload) in sorted(self.answers.items()):
            if of == slot - 1 and view.number(name) is not None:
                try:
                    state = _plausible(server.read_finalised(payload, view.first_slot), view, records)
                    if int(state.slot) != of:
                        raise BadInput(f"a finalised state of slot {int(state.slot)} in a message of slot {of}.")
                    states[name] = state
                except BadInput as error:
                    instructions.append(self._refuse(name, slot - 1, error))
        self.answers.clear()
        if states:
            joined, reports = self._choose(server, states, slot - 1, records)
            return joined, [*instructions, *reports]
        asked = [name for name, of in self._asked.items() if of == slot - 1]
        is_alone = bool(asked) and all(self._requests.get(name, -1) >= slot - 1 for name in asked)
        self._alone = self._alone + 1 if is_alone else 0
        if self._tries <= 0 or self._alone >= len(view.names):
            instructions.append(_nobody_sent(is_first=self._is_new and is_alone))
            self._end()
        return False, instructions

    def _refuse(self, name: str, slot: int, error: BadInput) -> RefuseMessage:
        """Refuse a neighbour's state, and do not ask it again."""
        self._refused.add(name)
        return RefuseMessage(slot, name, "absurd", f"{name} sent {error}")

    def _choose(
        self, server: Server, states: dict[str, FinalisedState], slot: int, records: Records
    ) -> tuple[bool, list[Instruction]]:
        """Join with the state that is trusted most; one with which there is no estimate is left out."""
        instructions: list[Instruction] = []
        while states:
            taken, others = most_trusted(states)
            self.contradicting = tuple(others)
            if not taken:
                return False, [*instructions, self._put_off(others, slot, records.terms.lag)]
            try:
                server.join(states[taken[0]], records.held.all_messages(), taken, records.revisions.lag_shares(slot))
            except BadInput as error:
                instructions += [self._refuse(name, slot, error) for name in taken]
                states = {name: state for name, state in states.items() if name not in taken}
                continue
            if others:
                text = f"{_listed(others)} sent a state that contradicts that of {_listed(taken)}, which most confirm."
                instructions.append(Report("join-disagreement", text, grave=True))
            witnesses = "one neighbour" if len(taken) == 1 else f"{len(taken)} neighbours"
            text = (
                f"the estimate begins with what {_listed(taken)} knew after slot {slot}: it is the word of "
                f"{witnesses}, and the signed records of the last slots."
            )
            self._end()
            return True, [*instructions, Report("joined", text)]
        return False, instructions

    def _put_off(self, others: list[str], slot: int, lag: int) -> Report:
        """Take no state now, and ask again L slots later, unless that was done often enough."""
        self._rounds -= 1
        again = f"It asks again after slot {slot + lag}."
        self._asked.clear()
        if self._rounds > 0:
            self._first, self._tries = slot + lag, 2 * lag + 2
        else:
            self._end()
            again = "It does not ask again."
        text = (
            f"the states of {_listed(others)} contradict each other: this node takes none of them, and goes on with "
            f"what it knows itself. {again} Compare what these servers release, and ask their operators."
        )
        return Report("join-disagreement", text, grave=True)

    def _end(self) -> None:
        self.asks = False
        self.answers.clear()
        self._asked.clear()
        self._refused.clear()
        self._alone, self._last_try = 0, -1

    def clear(self, last: int) -> None:
        """Forget everything: slots begin again after slot `last`."""
        self._end()
        self.attended = last
        self.contradicting = ()
        self._waiting.clear()
        self._answered.clear()
        self._requests.clear()

    # ----------------------------------------------------------------------------------------------------- answering

    def hear_request(self, name: str, slot: int) -> None:
        """Note that a neighbour asks for this node's state after a slot."""
        self._waiting.add(name)
        self._requests[name] = slot

    def to_answer(self, near: Collection[str], server: Server, view: NetworkView, records: Records) -> list[str]:
        """Return who is sent the state after the slot that was released last; from now on they have their answer."""
        assert view.records is not None
        slot, lag = server.slot, view.records.lag
        names = [name for name in near if name in self._waiting]
        self._waiting.clear()
        if self.asks or not names or not server.can_be_joined or not fits(server, view):
            return []
        if not _is_public(int(server.mailbox.since), slot, records):
            return []
        answered = []
        for name in names:
            before = [one for one in self._answered.get(name, ()) if slot - lag < one <= slot]
            if slot not in before and len(before) < _MOST_ANSWERS:
                self._answered[name] = [*before, slot]
                answered.append(name)
        return answered


def _nobody_sent(*, is_first: bool) -> Report:
    """Return what is said of a node that begins without a neighbour's state.

    is_first  whether nobody can have lost anything: this node is new, and its neighbours ask for records as it does
    """
    if is_first:
        text = "this is the first start: no neighbour has records of earlier slots, either, so estimates begin now."
        return Report("join-first", text)
    text = "no neighbour has sent what follows from earlier records: this node goes on with what it knows itself."
    return Report("join-none", text)


def fits(server: Server, view: NetworkView) -> bool:
    """Whether a finalised state fits into one message; it has the same size at all servers."""
    return len(server.finalised_state()) + _BESIDES <= view.most_bytes


def _plausible(state: FinalisedState, view: NetworkView, records: Records) -> FinalisedState:
    """Return a state whose estimates suit the population and whose accounts began when all did; refuse any other."""
    if view.population is not None:
        most = most_counted(view.population) + DEVIATIONS * view.coarsest
        if state.largest() > most:
            raise BadInput(f"a finalised state of up to {state.largest():.0f} people; allowed: {most:.0f}.")
    if not _is_public(int(state.since), int(state.slot), records):
        raise BadInput(
            f"a finalised state with accounts from slot {int(state.since)} on; allowed: the first slot of a revision "
            "or horizon, or a slot whose records are final, or cannot be checked here."
        )
    return state


def _is_public(since: int, slot: int, records: Records) -> bool:
    """Whether accounts can have begun with slot `since` at all servers: it decides which records are too late.

    A server that has returned to earlier slots, or took a revision late, has accounts of its own for L slots. Where an
    earlier revision is not known, any slot of it can be the first one; its records cannot be checked here anyway.
    """
    revisions = records.revisions
    return since <= max(slot - records.terms.lag + 1, revisions.first_known) or since in revisions.account_starts()


def _listed(names: Iterable[str]) -> str:
    """Return names as they are listed in a sentence."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
