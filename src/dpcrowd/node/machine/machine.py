"""The protocol of a node as a state machine without I/O: `handle(stimulus)` gives instructions.

Theory of operation. Time is cut into slots. Check-ins of slot t are collected while it is open and during its grace;
then it is sealed, and its counts reach the machine as `SlotSealed`. The server behind the machine decides whether to
sample. If it does, one durable transaction stores the price, the noisy values and the complete state; only then does
the message leave. Without a sample a heartbeat leaves, so that nobody waits. Slot t is then in exchange: neighbours'
messages are checked and kept until all have arrived or the deadline passes, then they are fused, and the release is
stored and published. Meanwhile slot t + 1 collects.

How long counting, drawing and storing take depends on what was counted, and nobody else may learn that. So the message
of a slot leaves at a moment of the clock, `send_offset` after the seal, a sample and a heartbeat alike; nothing is
fused before it; and check-ins are deleted after the release, since the time that this takes grows with their number.

Where the machine needs something from outside, it gives an instruction, and the answer comes back as a stimulus before
anything else is handled. So the end of a slot (`SlotEnded`) leads to `CountSlot`, and that to `SlotSealed`; a loss that
the operator confirms (`LossConfirmed`) leads to `BookLoss`, and only when that is durable (`LossBooked`) does the
machine trust its ledger again.

Where servers pass records on (`records`), the message of a slot carries the own record. What arrives is forwarded at
once to the neighbours that do not have it, together with what arrives within a few milliseconds, until the deadline;
later records go with the next slot. A slot is released when all neighbours have sent their messages and the records of
all servers that sample in it have arrived, or at the deadline. Nothing is forwarded between the seal and the own
message, because the node counts in that time, and check-ins are deleted after the deadline: the moment at which a
record is passed on depends on other servers, and on how busy the machine is, not on what was counted. A server that has
lost records which no server stores any longer asks its neighbours for the state that has followed from them (`join`).

The next revision of the network takes over between two slots: the exchange that is open is closed, what the revision
promises is declared, and the server's estimates go on under it (`go_on`). If that fails, a full disk say, the revision
in use stays in use, and it is tried again with the next slot.

What never happens: a second draw for a slot (the server refuses to observe a slot twice, and a restored state brings
its draw with it), a message before its payment is durable (order of instructions), a sample while the ledger may be
an old copy (`Trust`) or cannot be written, a raw count in an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters.calibration import CalibrationWindow, dependence_of
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.clock_return import check_acceptable, wait_text
from dpcrowd.node.machine.instructions import Instruction, Report, Unsampled
from dpcrowd.node.machine.join import Join
from dpcrowd.node.machine.messages import check_message, forward_message, join_answer, join_request, slot_message
from dpcrowd.node.machine.neighbours import (
    Early,
    Exchange,
    NeighbourMemory,
    Newcomers,
    Remembered,
    fuse_records,
)
from dpcrowd.node.machine.records import Records
from dpcrowd.node.machine.revision import NetworkView, Revision, begin_horizon, go_on
from dpcrowd.node.machine.trust import Trust, distrust, rollback_text, unproven_text
from dpcrowd.node.release import SlotRelease, Smoothing
from dpcrowd.node.wire import (
    CheckedMessage,
    MessageRefused,
    peek,
    peek_round,
    plausible_sample,
    proven,
    same_content,
)
from dpcrowd.privacy.account import Account
from dpcrowd.schemes.messages import InfoMessages, Messages
from dpcrowd.schemes.server import Server

__all__ = ["Machine"]

_BATCH_NS = 3_000_000  # how long records wait for others that are passed on with them
_ABSURD = (
    "cannot be noisy counts of this network's population, so neighbours would refuse it: it is neither sent nor used, "
    "and stays paid for. Check what feeds this server, and `population` in network.toml."
)
_BUSY = "passed without being sealed in time"


class Machine:
    """The state machine of one node: everything that its protocol knows.

    revision  of the network, in use now
    server    fresh, or restored from the state that was stored last
    counter   samples that the ledger has paid for
    heard     what neighbours sent of their own ledgers, by name; all of it is on disk
    vouched   whether the ledger is known to be complete, so that no neighbour has to say so first
    complete_until  the last slot up to which it was known to be complete; None: as far as the server's state goes
    following the next revision, if there is one: its number and its first slot
    stored    records of the last slots that are on disk
    earlier   revisions that were valid before this one, oldest first, as far as they are known

    What others may read, and nobody else changes:

    linked     names of the neighbours for whom links were opened
    present    names of those who can be reached now
    session    the number of times that links were opened
    used       by name: slot and time of the last message that was used
    expires    by name: when the neighbour's certificate expires, as it says itself
    went_back  when the clock was set, and by how much, if that was back
    records    of all servers, where they are passed on; None: the scheme exchanges estimates
    unused_since  first of the slots in a row whose own samples were paid for and not used; None: the last one was used
    calibration  innovations of others' measurements since the start, or since a revision or slots that began again
    """

    def __init__(
        self,
        revision: Revision,
        server: Server,
        *,
        counter: int = 0,
        heard: Mapping[str, Remembered] | None = None,
        vouched: bool = False,
        complete_until: int | None = None,
        following: tuple[int, int] | None = None,
        stored: Sequence[do.StoredRecord] = (),
        earlier: Sequence[NetworkView] = (),
    ) -> None:
        self.revision, self.following = revision, following
        self.records = None if revision.view.records is None else Records(revision.view, server, stored, earlier)
        self._join = Join(server.slot)
        self._forward_planned = False
        self._forgettable: int | None = None  # the slot whose check-ins are forgotten after its deadline
        self.server = server
        self.calibration = _calibration(server)
        self.trust = Trust(counter, vouched, complete_until=server.slot if complete_until is None else complete_until)
        self.linked: frozenset[str] = frozenset()
        self.present: set[str] = set()
        self.used: dict[str, tuple[int, int]] = {}
        self.expires: dict[str, int] = {}
        self.went_back: tuple[int, int] | None = None
        self.unused_since: int | None = None
        self.can_store = True
        self.session = 0
        self._memory = NeighbourMemory(dict(heard or {}))
        self._exchange: Exchange | None = None
        self._early = Early()
        self._newcomers = Newcomers()
        self._before: bytes | None = None  # the state before a draw that is not yet stored
        self._absence = "ended while this node was not running"  # why slots since the last seal would be missed
        self._own: tuple[int, InfoMessages | None] = -1, None  # the slot of the last own message, and the sample in it
        self._last_payloads: dict[str, bytes] = {}
        self._unsent: int | None = None  # the slot that was released before its message left
        self._renewed: tuple[int, on.KeyRenewed] | None = None  # a key that waits for the end of a slot's exchange
        self._returning: tuple[on.ClockLookedUp, Server] | None = None  # slots that begin again, once that is stored

    @property
    def view(self) -> NetworkView:
        """The revision in use, as this server sees it."""
        return self.revision.view

    @property
    def exchanging(self) -> int | None:
        """The slot in exchange, if any."""
        return None if self._exchange is None else self._exchange.slot

    @property
    def contradicting(self) -> tuple[str, ...]:
        """Neighbours whose states contradicted each other, or the one that was taken, when this node asked last."""
        return self._join.contradicting

    @property
    def remembered(self) -> Mapping[str, Remembered]:
        """What neighbours sent of their own ledgers, by name."""
        return self._memory.known

    def handle(self, stimulus: on.Stimulus) -> list[Instruction]:  # noqa: PLR0912
        """Return what has to be done about a stimulus, in this order, and before the next stimulus is given.

        `BadInput` refuses a decision of the operator; nothing has changed then.
        """
        if isinstance(stimulus, on.StorageFailed):
            self._memory.storing_failed()
            if self.records is not None:
                self.records.held.storing_failed()
        elif not isinstance(stimulus, on.SampleStored | on.LinksClosed | on.LinksOpened):
            # Those come in the middle of instructions, some of which are still to be carried out.
            self._memory.storing_done()
            if self.records is not None:
                self.records.held.storing_done()
        match stimulus:
            case on.SlotEnded(at_ns, slot):
                return self._end_slot(at_ns, slot)
            case on.SlotSealed(at_ns, slot, counts, account, why):
                return self._seal(at_ns, slot, counts, account, why)
            case on.SampleStored(_, counter):
                self.trust.set_counter(counter)
            case on.MessageArrived(at_ns, sender, payload):
                return self._hear(at_ns, sender, payload)
            case on.MessageSent(at_ns, slot):
                return [*self._sent(at_ns, slot), *self._tell_newcomers(at_ns)]
            case on.DeadlinePassed(at_ns, slot):
                return self._pass_deadline(at_ns, slot)
            case on.ForwardDue(at_ns):
                self._forward_planned = False
                return self._forward(at_ns)
            case on.NeighbourUp() | on.NeighbourDown() | on.LinksExpired() | on.LinksClosed() | on.LinksOpened():
                return self._change_links(stimulus)
            case on.KeyRenewed(at_ns):
                return self._renew(at_ns, stimulus)
            case on.StorageFailed(at_ns, failed, text, rest):
                return self._stop_paying(at_ns, failed, text, rest)
            case on.StorageRecovered():
                self.can_store = True
                return [Report("storage-mended", "storing works again; the node may sample.")]
            case on.ClockSet(at_ns, moved_ns):
                return self._set_clock(at_ns, moved_ns)
            case on.StoodStill(at_ns) | on.TimeLost(at_ns):
                self._newcomers.missed()
                self._absence = "ended while this node stood still" if self._absence == _BUSY else self._absence
                if isinstance(stimulus, on.TimeLost) and len(self.view.names) > 1:
                    self.trust.doubt(self.server.slot, self.view.next_seal(at_ns))
            case on.RevisionExpected(_, revision, first_slot):
                self.following = revision, first_slot
            case on.RevisionTaken():
                return self._take_over(stimulus)
            case _:
                return self._decide(stimulus)
        return []

    # --------------------------------------------------------------------------------------------- starts, decisions

    def _decide(self, stimulus: on.Stimulus) -> list[Instruction]:
        """Handle a start, and what only the operator can decide."""
        match stimulus:
            case on.Started(at_ns):
                following = self.view.next_seal(at_ns)
                self.trust.start(self.server.slot, following)
                resumed = [do.Link(max(following, 0), required=True), *self._resume(at_ns)]
                if self.records is not None:
                    resumed += self.records.report_invalid_proofs()
                    resumed += self._join.start(self.server, self.view, following - 1, self.records)
                return resumed
            case on.LossConfirmed(at_ns):
                lost_at = self.trust.lost_at
                if lost_at is None and not self.trust.nobody_remembers:
                    raise BadInput("no neighbour remembers more than this ledger: there is no loss to confirm.")
                return [do.BookLoss(at_ns, self.trust.counter, lost_at, self.view.next_seal(at_ns) - 1)]
            case on.LossBooked(at_ns, counter, text, account):
                if account is not None:
                    self.server.use(account)
                self.trust.confirm(counter, self.view.next_seal(at_ns) - 1)
                return [Report("loss-confirmed", text), do.Answer(text)]
            case on.ClockAccepted(at_ns):
                check_acceptable(self.view, self.server.slot, at_ns)
                return [do.LookBack(self.server.slot, max(self.view.next_seal(at_ns) - 1, -1))]
            case on.ClockLookedUp(at_ns, last, known, text, account):
                server = self.revision.make_server(account)
                server.restore(self.server.save())
                server.begin_again(last)
                self._returning = stimulus, server
                until = min(self.trust.complete_until, known)
                return [do.StoreReturn(at_ns, last, server.save(), until, text)]
            case on.ClockReturned(at_ns):
                return self._begin_again(at_ns)
        raise AssertionError(stimulus)

    def _set_clock(self, at_ns: int, moved_ns: int) -> list[Instruction]:
        """Book a step of the clock, and report if slots that it has sealed have to be waited for."""
        self.went_back = (at_ns, -moved_ns) if moved_ns < 0 else None
        if moved_ns > 0:
            self._absence = f"passed when the clock was set ahead by {moved_ns / 1e9:.1f} s"
        wait = wait_text(self.view, self.server.slot, at_ns, self.went_back)
        step = do.BookClockStep(at_ns - moved_ns, moved_ns)
        return [Report("clock", wait, grave=True), step] if wait else [step]

    def _begin_again(self, at_ns: int) -> list[Instruction]:
        """Let slots begin again, after a clock that was ahead and has come back; see `clock_return`.

        What is remembered of neighbours stays. What they, or this node, sent for slots that are still to come is void.
        """
        assert self._returning is not None
        (looked_up, self.server), self._returning = self._returning, None
        self._exchange, self._unsent, self._own = None, None, (-1, None)
        self._newcomers.missed()
        self._early, self._last_payloads, self._before = Early(), {}, None
        self._memory.last.clear()
        self._join.clear(looked_up.last)
        self.calibration = _calibration(self.server)
        if self.records is not None:
            self.records.clear()
        alone, text = len(self.view.names) == 1, looked_up.text
        self.trust.begin_again(looked_up.known, self.view.next_seal(at_ns), alone=alone)
        report = Report("clock-accepted", f"the clock is accepted: {text}")
        return [do.BeginAgain(looked_up.last), *self._use_renewed_key(at_ns), report, do.Answer(text)]

    # ----------------------------------------------------------------------------------------------------- revisions

    def _is_due(self, slot: int) -> bool:
        """Whether the next revision is valid in a slot."""
        return self.following is not None and slot >= self.following[1]

    def _take_over(self, stimulus: on.RevisionTaken) -> list[Instruction]:
        """Go on under the next revision: estimates stay; a new region has no information yet."""
        server, text = go_on(stimulus.revision, self.server.save(), self.revision, stimulus.account)
        text += begin_horizon(server)
        self.revision, self.server, self.following = stimulus.revision, server, None
        self._early.check_again()
        self._last_payloads, self._own, self._before = {}, (-1, None), None
        self.calibration = _calibration(self.server)
        self._newcomers = Newcomers()
        self._revise_records()
        report = Report("revision", f"revision {self.view.revision} took over: {text}")
        return [report, do.Link(stimulus.slot), do.CountSlot(stimulus.slot, self.view.regions)]

    def _revise_records(self) -> None:
        """Keep the records that there are, if the revision that has taken over passes records on, too."""
        self._join.answers.clear()  # they are of the revision before
        if self.view.records is None:
            self.records = None
        elif self.records is None:
            self.records = Records(self.view, self.server)
        else:
            self.records.take_over(self.view, self.server)

    def _last_slot(self, at_ns: int) -> int:
        """Return the last slot that was observed, or, if there was none, the last one that is over."""
        return self.server.slot if self.server.slot >= 0 else max(self.view.next_seal(at_ns) - 1, -1)

    # --------------------------------------------------------------------------------------------------------- links

    def _change_links(self, stimulus: on.Stimulus) -> list[Instruction]:
        """Follow which links there are, and who can be reached over them."""
        match stimulus:
            case on.NeighbourUp(at_ns, neighbour, session) if session == self.session:
                self.present.add(neighbour)
                self._newcomers.waiting.add(neighbour)
                return [
                    *self._send_again(neighbour),
                    *self._catch_up_with(at_ns, neighbour),
                    *self._ask([neighbour], self.view.next_seal(at_ns) - 1),
                    *self._tell_newcomers(at_ns),
                ]
            case on.NeighbourDown(at_ns, neighbour, session) if session == self.session:
                self.present.discard(neighbour)
                self._newcomers.waiting.discard(neighbour)
                return self._tell_newcomers(at_ns)
            case on.LinksExpired(at_ns, anew):
                return [do.Link(max(self.view.next_seal(at_ns), 0), anew)]
            case on.LinksClosed():
                self.linked, self.present = frozenset(), set()
            case on.LinksOpened(_, neighbours, session):
                self.linked, self.session = frozenset(neighbours), session
        return []

    def _renew(self, at_ns: int, renewed: on.KeyRenewed) -> list[Instruction]:
        """Use a renewed key, but not in the middle of an exchange, whose messages would be lost with its links."""
        self._renewed = -1 if self._exchange is None or not self.linked else self._exchange.slot, renewed
        return self._use_renewed_key(at_ns) if self._renewed[0] < 0 else []

    def _use_renewed_key(self, at_ns: int) -> list[Instruction]:
        """Sign with the key that has waited, if there is one, over links that are made with it."""
        if self._renewed is None:
            return []
        (_, renewed), self._renewed = self._renewed, None
        self.revision = replace(self.revision, view=replace(self.view, sign=renewed.sign, expires=renewed.expires))
        if self.records is not None:
            self.records.revisions.use_key(self.view)
        return [do.Link(max(self.view.next_seal(at_ns), 0), anew=True, rest=True)]

    # ------------------------------------------------------------------------------------------------- the slot

    def _resume(self, at_ns: int) -> list[Instruction]:
        """Send and fuse a slot that was sampled and not released before a restart."""
        slot = self.server.open_slot
        if slot is None:
            return []
        if at_ns >= self.view.ends(slot):
            self._exchange = Exchange(slot, b"", self.view.links(slot))
            return self._fuse()
        return self._open_exchange(at_ns, slot, self.server.pending_message(), again=True)

    def _end_slot(self, at_ns: int, slot: int) -> list[Instruction]:
        """Have a slot counted, under the revision that is valid in it."""
        if not self._is_due(slot):
            return [do.Link(slot), do.CountSlot(slot, self.view.regions)]
        assert self.following is not None
        instructions = [] if self._exchange is None else self._fuse()
        return [*instructions, do.TakeOver(self.following[0], slot, self._last_slot(at_ns))]

    def _pass_deadline(self, at_ns: int, slot: int) -> list[Instruction]:
        """Release a slot with what was heard by now, and do what had to wait for the end of its exchange."""
        instructions = self._fuse() if self._exchange is not None and self._exchange.slot == slot else []
        if self._renewed is not None and slot >= self._renewed[0]:
            instructions = [*instructions, *self._use_renewed_key(at_ns)]
        if self._links_change_after(slot):  # before the next seal, so that its message finds them
            instructions = [*instructions, do.Link(slot + 1)]
        instructions = [*instructions, *self._tell_newcomers(at_ns)]
        if self._forgettable is not None and self._unsent is None:  # last: its time grows with the number of check-ins
            instructions = [*instructions, do.ForgetCheckIns(self._forgettable)]
            self._forgettable = None
        return instructions

    def _links_change_after(self, slot: int) -> bool:
        """Whether a timed link begins or ends with the slot after this one."""
        return slot == self.server.slot and self.view.links(slot + 1) != self.view.links(slot)

    def _seal(
        self, at_ns: int, slot: int, counts: object | None, account: Account | None, why: Unsampled | None
    ) -> list[Instruction]:
        """Sample a slot that is over, if it may be sampled, and open its exchange: payment first, then the message."""
        if slot <= self.server.slot:
            text = f"slot {slot} was sealed again after slot {self.server.slot}: the clock went back; nothing is drawn."
            return [do.ForgetCheckIns(slot), Report("clock-behind", text)]
        instructions: list[Instruction] = []
        if self._exchange is not None:  # its deadline has passed, and the timer is late
            # Its check-ins are forgotten with those of this slot, whose message must not wait for that.
            instructions += [one for one in self._fuse(late=True) if not isinstance(one, do.ForgetCheckIns)]
        instructions += self._report_missed(slot)
        self._absence = _BUSY
        if self.records is not None:
            instructions += self._join.before_seal(self.server, self.view, slot, self.records)
        self._newcomers.sealed(slot)
        self._forgettable = None  # its check-ins are forgotten with those of this slot
        self._forward_planned = False  # a clock that was set back would keep it waiting
        if self.records is not None:
            self.records.begin_slot(slot)
        obstacle, text = self._obstacle(slot, why if counts is None else None)
        if obstacle is not None:
            counts = None
        self._before = self.server.save()
        if account is not None:
            self.server.use(account)
        message = self.server.observe(slot, counts)
        sample = self.server.open_sample()
        if sample is not None:
            nano, noisy = sample
            counter = self.trust.add_payment(slot)
            record, used = None, self._is_plausible(message, noisy)
            if used:
                self.unused_since = None
            else:
                self.unused_since = slot if self.unused_since is None else self.unused_since
                self.server.discard_sample()
                message = self.server.pending_message()
            if self.records is not None and used:
                own = self.records.add_own(slot, nano, noisy, self.server.open_groups())
                record = do.StoredRecord(slot, self.view.name, "record", own)
            state = self.server.save()
            instructions.append(do.StoreSample(slot, nano, counter, noisy.astype("<f8").tobytes(), state, record))
            if not used:
                instructions.append(Report("own-absurd", f"the sample of slot {slot} {_ABSURD}", grave=True))
        else:
            reason: Unsampled = "budget" if self.server.lacks_budget else "schedule"
            instructions.append(do.NotSampled(slot, obstacle or why or reason, text))
        return [*instructions, *self._open_exchange(at_ns, slot, message)]

    def _is_plausible(self, message: Messages | None, noisy: Floats) -> bool:
        """Whether neighbours will take the own sample for noisy counts: if not, nobody may use it, nor this server."""
        if self.records is not None:
            return self.records.terms.is_plausible(noisy)
        population = self.view.population
        return population is None or not isinstance(message, InfoMessages) or plausible_sample(message, population)

    def _obstacle(self, slot: int, why: Unsampled | None) -> tuple[Unsampled | None, str]:
        """Return why the next slot may not be sampled, and a text where none was logged yet; None: it may be.

        why  the reason for which it could not be counted
        """
        self.trust.before_seal(self.view.names[number] for number in self.view.links(slot))
        if why is not None:
            return why, ""
        if self._is_due(slot):
            assert self.following is not None
            return "revision", f"revision {self.following[0]} could not take over yet."
        if not self.trust.may_sample:
            return "ledger", distrust(self.trust)
        return (None, "") if self.can_store else ("storage", "")

    def _report_missed(self, slot: int) -> list[Instruction]:
        """Report slots that were missed since the last one: the server lets them pass without a sample."""
        last = self.server.slot
        if last < 0 or slot == last + 1:
            return []
        missed, they = f"slots {last + 1} to {slot - 1}", "they are"
        if slot == last + 2:
            missed, they = f"slot {last + 1}", "it is"
        return [Report("slots-missed", f"{missed} {self._absence}; {they} not sampled.")]

    def _open_exchange(self, at_ns: int, slot: int, message: object, *, again: bool = False) -> list[Instruction]:
        """Send the own message of a slot, and hear what neighbours have sent for it already.

        again  after a restart: a message whose time has passed leaves at once
        """
        view, expected = self.view, self.view.links(slot)
        instructions: list[Instruction] = []
        if self.can_store and self._memory.unsaved().keys() & {view.names[number] for number in expected}:
            instructions.append(do.StoreCounters(self._memory.store()))
        self._own = slot, message if isinstance(message, InfoMessages) else None
        waits = view.send_offset_ns > 0 and not (again and at_ns >= view.sends(slot))
        to = tuple(view.names[number] for number in sorted(expected))
        self._exchange = Exchange(slot, own := self._own_payload(), expected, sent=not waits)
        if self.records is not None:
            self._exchange.awaited = self.records.waiting.awaited(slot)
            self.records.forwarding.mark_own_sent(slot, to)
        self.trust.note_message(slot)
        if expected or waits:
            instructions.append(do.Send(slot, own, to, view.sends(slot) if waits else None, self._own_kind()))
        if expected or waits or self._links_change_after(slot):
            instructions.append(do.ScheduleDeadline(slot, view.ends(slot)))
        if not waits:
            instructions += self._forward(at_ns)
        for name, payload in self._early.take(slot):
            instructions += self._hear(at_ns, name, payload)
        return instructions if self._exchange is None or not self._exchange.complete else [*instructions, *self._fuse()]

    def _own_kind(self) -> do.SendKind:
        """Return whether the own message of the last slot carries a sample, or is a heartbeat."""
        slot, message = self._own
        sampled = message is not None if self.records is None else self.records.own(slot) is not None
        return "data" if sampled else "heartbeat"

    def _own_payload(self, newcomers: tuple[str, ...] = ()) -> bytes:
        """Return the own message of the last slot, with what is remembered of its neighbours as far as that is stored.

        newcomers  to whom it is written again, after its exchange
        """
        view, (slot, sample) = self.view, self._own
        numbers = {view.names[number]: number for number in view.links(slot)}
        numbers |= {name: view.names.index(name) for name in newcomers}
        echoes = self._memory.echoes(slot, numbers, prove_to=newcomers)
        record = None if self.records is None else self.records.own(slot)
        after = bool(newcomers)
        return slot_message(view, slot, self.trust.counter, echoes, sample=sample, record=record, after=after)

    def _fuse(self, *, late: bool = False) -> list[Instruction]:
        """End the exchange: fuse what was heard, store the release, and publish it.

        late  the next slot is sealed already, so that nothing may be sent that could wait
        """
        exchange = self._exchange
        assert exchange is not None
        self._exchange, self._last_payloads = None, exchange.payloads
        unfit: list[int] = []
        if self.records is None:
            fused, unfit = exchange.fuse(self.server)
        else:
            if exchange.heard:
                self._join.attend(exchange.slot)
            self.records.waiting.end_slot(exchange.slot)
            fused, usable = fuse_records(self.server, self.records.held.messages())
        self.calibration.add(exchange.slot, self.server.innovations, self.server.innovations_of_sums)
        view, names = self.view, self.view.names
        senders = tuple(names[number] for number in sorted(exchange.heard.keys() - set(unfit)))
        release = SlotRelease.of(fused, view.clock, view.regions, len(senders))
        refusals: list[Instruction] = [
            do.RefuseMessage(exchange.slot, names[number], "absurd", f"{names[number]} sent what no filter can take.")
            for number in unfit
        ]
        if self.records is not None and not usable:
            refusals.append(
                Report("records-unusable", "the filter cannot take the records that have arrived; they are left out.")
            )
        unproven = [Report("unproven-echo", unproven_text(name)) for name in self.trust.end_exchange(exchange.slot)]
        state, counters = self.server.save(), self._memory.store()
        store = do.StoreRelease(release, state, senders, counters, self.trust.complete_until)
        if self.records is not None:
            final, smoothed = exchange.slot - self.records.terms.lag, Smoothing(self.server, view.first_slot)
            store = replace(store, records=self.records.held.store(), final_until=final, smoothed=smoothed)
            refusals += self.records.suspect(self.server.suspects(), exchange.slot)
        self._unsent = None if exchange.sent else exchange.slot
        forget = [do.ForgetCheckIns(exchange.slot)] if exchange.sent else []
        if self.records is not None and forget and exchange.expected:
            self._forgettable, forget = exchange.slot, []
        joins = [*self._ask(self._near(), exchange.slot), *self._answer()] if exchange.sent and not late else []
        return [*refusals, store, do.Publish(release), *unproven, *joins, *forget]

    def _sent(self, at_ns: int, slot: int) -> list[Instruction]:
        """Note that the own message has left: fuse if all neighbours were heard, or forget a released slot."""
        exchange = self._exchange
        if exchange is not None and exchange.slot == slot:
            exchange.sent = True
            if self.records is not None:
                self.records.forwarding.mark_own_sent(slot, self._near())
            forwards = self._forward(at_ns)
            return [*forwards, *self._fuse()] if exchange.complete else forwards
        if self._unsent != slot:
            return []
        self._unsent = None
        return [*self._answer(), do.ForgetCheckIns(slot)]

    # ------------------------------------------------------------------------------------------------- messages

    def _hear(self, at_ns: int, sender: str, payload: bytes) -> list[Instruction]:
        """Handle a message; release the slot in exchange if it was the last one that was waited for."""
        if self.records is not None:
            self.records.arrivals.new_slots.clear()
        instructions = self._hear_message(at_ns, sender, payload)
        if self.records is not None:
            if self._exchange is not None and self._exchange.awaited:
                self._exchange.awaited = self.records.waiting.lacking(self._exchange.slot, self._exchange.awaited)
            instructions += self._plan_forward(at_ns)
        exchange = self._exchange
        return [*instructions, *self._fuse()] if exchange is not None and exchange.complete else instructions

    def _hear_message(self, at_ns: int, sender: str, payload: bytes) -> list[Instruction]:
        """Check a message, remember what it says of ledgers, and use it if it is of the slot in exchange."""
        view, exchange = self.view, self._exchange
        number = view.number(sender)
        following = view.next_seal(at_ns) if exchange is None else exchange.slot + 1
        slot = following if exchange is None else exchange.slot
        if number is None or number not in view.links(slot) | view.links(following):
            return [do.RefuseMessage(slot, sender, "not-a-neighbour", f"'{sender}' is not a neighbour in slot {slot}.")]
        instructions: list[Instruction] = []
        try:
            if len(payload) > view.most_bytes:
                raise MessageRefused("wrong-length", f"{sender} sent {len(payload)} bytes; allowed: {view.most_bytes}.")
            message_slot, digest = peek(payload)
            if self.records is not None and peek_round(payload) > 1:
                return self._hear_forward(sender, message_slot, digest, payload, following)
            self._count_check(sender)
            checked = check_message(self.view, number, payload) if digest == view.digest else None
            if checked is not None:
                # Whatever comes of it: what was sent is spent, and must be remembered, or its sender could lose it
                # from its ledger and nobody would know.
                instructions += self._learn(number, checked, following)
            sealed = self.server.slot if exchange is None else exchange.slot
            if self.records is not None and checked is not None and message_slot <= max(sealed, following - 1):
                # A message that is late, or was heard before, may bring a record that is not.
                instructions += self._take_records(sender, checked, following)
            if sealed < message_slot <= following:
                self._early.keep(sender, message_slot, payload, read=checked is not None)
                return instructions
            if message_slot > following:
                raise MessageRefused("wrong-slot", f"{sender} sent slot {message_slot}, which is not open yet.")
            if self._was_heard(sender, number, message_slot, payload, checked):
                return instructions
            assert exchange is not None
            if number not in exchange.expected:
                raise MessageRefused("not-a-neighbour", f"{sender} is not a neighbour in slot {exchange.slot}.")
            checked = checked or check_message(self.view, number, payload)
        except MessageRefused as refused:
            return [*instructions, do.RefuseMessage(slot, sender, refused.reason, str(refused))]
        exchange.heard[number], exchange.payloads[sender] = checked.message, payload
        self.used[sender] = message_slot, at_ns
        return instructions

    def _count_check(self, sender: str) -> None:
        """Count one more message whose signature is checked, where servers pass records on; refuse it if too many."""
        if self.records is not None and not self.records.arrivals.may_check_message(sender):
            raise MessageRefused("rate-limited", f"{sender} sends more than the schedule of all servers can explain.")

    def _was_heard(self, sender: str, number: int, slot: int, payload: bytes, checked: CheckedMessage | None) -> bool:
        """Whether a message was used already, and is sent again because one of the two servers has come up.

        `MessageRefused` says that it is of a slot that is over, or that another one was used instead.
        """
        exchange = self._exchange
        if exchange is None or slot < exchange.slot:
            last = self._last_payloads.get(sender)
            if (last is not None and same_content(last, payload)) or (checked is not None and checked.body.after):
                return True
            raise MessageRefused("late", f"{sender} sent slot {slot}, which is over.")
        if number not in exchange.heard:
            return False
        if same_content(exchange.payloads[sender], payload):
            return True
        if checked is None:
            check_message(self.view, number, payload)
        raise MessageRefused("replay", f"{sender} sent two different messages for slot {slot}.")

    def _learn(self, number: int, checked: CheckedMessage, following: int) -> list[Instruction]:
        """Remember a neighbour's counter, and see whether it remembers more of this node's than the ledger has.

        following  the next slot to be sealed; a message for a later one vouches for nothing
        """
        view, body, name = self.view, checked.body, self.view.names[number]
        instructions: list[Instruction] = []
        self._memory.hear(name, checked, ahead=body.slot > following)
        after = body.after and body.slot + 1 == following
        slot = None if body.slot > following else following if after else body.slot
        if body.expires:
            self.expires[name] = body.expires
        echo = body.heard.get(view.me)
        remembered = None if echo is None else (body.slot - echo.slots_ago, echo.counter)
        since = body.slot - body.since[view.me] if view.me in body.since else None
        proof = proven(body.proofs[view.me], view.me, view.verify) if view.me in body.proofs else None
        match self.trust.hear_echo(name, slot, remembered, proof, since, after=after):
            case "lost":
                assert proof is not None
                instructions.append(Report("ledger-rolled-back", rollback_text(self.trust, name, *proof), grave=True))
            case "unproven":
                instructions.append(Report("unproven-echo", unproven_text(name)))
        return instructions

    # --------------------------------------------------------------------------------------------------- records

    def _hear_forward(self, sender: str, slot: int, digest: bytes, payload: bytes, following: int) -> list[Instruction]:
        """Check a message that passes records on, and take them.

        following  the next slot to be sealed; a neighbour whose clock is a little ahead may be in it
        """
        assert self.records is not None
        if slot > following:
            raise MessageRefused("wrong-slot", f"{sender} sent slot {slot}, which is not open yet.")
        view = self.records.revisions.by_digest(digest)
        if slot == following:
            self._early.keep_forward(sender, slot, payload)
            return []
        number = None if view is None else view.number(sender)
        if view is None or number is None:
            view, number = self.view, self.view.number(sender)  # which says how they differ
        assert number is not None
        self._count_check(sender)
        checked = check_message(view, number, payload)
        instructions = self._take_records(sender, checked, following)
        if checked.body.state and view is self.view:
            self._join.take_answer(sender, slot, checked.body.state)
        if checked.body.asks:
            self._join.hear_request(sender, slot)
            instructions += self._answer()
        return instructions

    def _take_records(self, sender: str, checked: CheckedMessage, following: int) -> list[Instruction]:
        """Take the records of a message that was checked."""
        assert self.records is not None
        body, now = checked.body, max(self.server.slot, following - 1)
        return self.records.arrivals.receive(sender, body.relayed, body.equivocations, now, self.server)

    def _near(self) -> list[str]:
        """Return the neighbours in the slot that was sealed last that can be reached, in the order of their numbers.

        The others get everything of the last L slots when their links come up.
        """
        names = [self.view.names[number] for number in sorted(self.view.links(max(self.server.slot, 0)))]
        return [name for name in names if name in self.present]

    def _may_forward(self, at_ns: int) -> bool:
        """Whether records may be passed on now: the own message has left, and the deadline has not passed."""
        sent = self._exchange is None or self._exchange.sent
        return sent and self._unsent is None and self.server.slot >= 0 and at_ns < self.view.ends(self.server.slot)

    def _plan_forward(self, at_ns: int) -> list[Instruction]:
        """Have records passed on in a moment, if somebody lacks any."""
        assert self.records is not None
        if (
            self._forward_planned
            or not self._may_forward(at_ns)
            or not self.records.forwarding.has_outgoing(self._near())
        ):
            return []
        self._forward_planned = True
        return [do.ScheduleForward(at_ns + _BATCH_NS)]

    def _forward(self, at_ns: int) -> list[Instruction]:
        """Pass on what neighbours lack; what is not in time for this slot goes with the next one."""
        if self.records is None or not self._may_forward(at_ns):
            return []
        return self._send_records(self._near(), to_all=True)

    def _catch_up_with(self, at_ns: int, neighbour: str) -> list[Instruction]:
        """Send a neighbour whose link has come up all records of the last slots by the clock."""
        if self.records is None:
            return []
        self.records.forwarding.link_up(neighbour)
        exchange, number = self._exchange, self.view.number(neighbour)
        if number is None or self.server.slot < 0 or (exchange is not None and not exchange.sent):
            return []  # they leave when the own message has left
        if exchange is not None:
            self.records.forwarding.mark_own_sent(exchange.slot, [neighbour])  # it gets the slot's message once more
        first = self.view.next_seal(at_ns) - self.records.terms.lag
        return self._send_records([neighbour], to_all=False, first=first)

    def _send_records(self, neighbours: Sequence[str], *, to_all: bool, first: int = 0) -> list[Instruction]:
        assert self.records is not None
        view, slot, instructions = self.view, self.server.slot, list[Instruction]()
        for part in self.records.forwarding.outgoing(neighbours, to_all=to_all, first=first):
            payload = forward_message(view, slot, self.trust.counter, part)
            instructions.append(do.Send(slot, payload, part.to, kind="forward"))
        return instructions

    # --------------------------------------------------------------------------------------------------- late join

    def _ask(self, neighbours: Sequence[str], slot: int) -> list[Instruction]:
        """Ask neighbours for their finalised state after a slot, if this node has lost records."""
        if self.records is None or slot < 0 or (self._exchange is not None and not self._exchange.sent):
            return []
        asked = self._join.to_ask([name for name in neighbours if name in self.present], slot)
        if not asked:
            return []
        return [do.Send(slot, join_request(self.view, slot, self.trust.counter), tuple(asked), kind="join")]

    def _answer(self) -> list[Instruction]:
        """Send the finalised state, after the records that they lack, to neighbours that have asked for it."""
        if self.records is None or self._exchange is not None or self._unsent is not None:
            return []
        answered = self._join.to_answer(self._near(), self.server, self.view, self.records)
        if not answered:
            return []
        slot = self.server.slot
        payload = join_answer(self.view, slot, self.trust.counter, self.server.finalised_state())
        records = self._send_records(answered, to_all=False)
        return [*records, do.Send(slot, payload, tuple(answered), kind="join")]

    def _send_again(self, neighbour: str) -> list[Instruction]:
        """Send the own message once more to a neighbour that came up inside the exchange."""
        exchange, number = self._exchange, self.view.number(neighbour)
        if exchange is None or number not in exchange.expected or not exchange.sent:
            return []
        return [do.Send(exchange.slot, exchange.payload, (neighbour,), kind=self._own_kind())]

    def _tell_newcomers(self, at_ns: int) -> list[Instruction]:
        """Send neighbours that have come up what is remembered of them, as soon as that is possible."""
        slot = self._own[0]
        due = self._newcomers.due(self.view, slot, at_ns)
        instructions: list[Instruction] = []
        if not due or self._exchange is not None or self._unsent is not None:
            return instructions
        if self._memory.unsaved().keys() & set(due):
            if not self.can_store:
                return instructions  # an echo of less than was heard would vouch for too much
            instructions.append(do.StoreCounters(self._memory.store()))
        self._newcomers.waiting -= set(due)
        return [*instructions, do.Send(slot, self._own_payload(due), due, kind=self._own_kind())]

    # ------------------------------------------------------------------------------------------------------- storage

    def _stop_paying(
        self, at_ns: int, failed: Instruction, text: str, rest: tuple[Instruction, ...]
    ) -> list[Instruction]:
        """Stop sampling: a price that is not on disk is not paid, and the draw of this slot is thrown away, unseen.

        The instructions after the failure are still to be carried out: what could not be stored can be sent. But a
        sample among them was not paid for either, whatever it was that failed before it. A revision, or a decision,
        that cannot be stored changes nothing.
        """
        match failed:
            case do.TakeOver(revision, slot):
                text = f"revision {revision} cannot take over yet; it is tried again with the next slot: {text}"
                return [Report("revision", text, grave=True), do.Link(slot), do.CountSlot(slot, None)]
            case do.BookLoss() | do.LookBack() | do.StoreReturn():
                self._returning = None
                return []
        self.can_store = False
        failure = f"{text} The node has no samples of its own until storing works."
        instructions: list[Instruction] = [Report("storage-failed", failure, grave=True)]
        for place, dropped in enumerate((failed, *rest)):
            if isinstance(dropped, do.StoreSample):
                return [*instructions, *rest[: max(place - 1, 0)], *self._undraw(at_ns, dropped.slot)]
        return [*instructions, *map(self._without_unsaved, rest)]

    def _without_unsaved(self, instruction: Instruction) -> Instruction:
        """Return the same, but a message of the last slot echoes only what is on disk: the rest could not be stored."""
        if not isinstance(instruction, do.Send) or instruction.slot != self._own[0]:
            return instruction
        if instruction.kind in ("forward", "join"):
            return instruction
        payload = self._own_payload()
        if self._exchange is not None:
            self._exchange.payload = payload
        return replace(instruction, payload=payload)

    def _undraw(self, at_ns: int, slot: int) -> list[Instruction]:
        """Go on as if nothing had been sampled in this slot; what neighbours have sent for it is heard again."""
        assert self._before is not None
        payloads = self._last_payloads if self._exchange is None else self._exchange.payloads
        self._last_payloads = {}  # they are to be heard again
        self.server.restore(self._before)
        self.trust.undo_payment()
        if self.records is not None:
            self.records.drop_own(slot)
            self.records.forwarding.doubt_sent()
            if self._exchange is None:  # the slot was released with them
                self.records.held.undo_fusion()
        self.server.observe(slot, None)
        self._early.again(slot, payloads)
        return [do.NotSampled(slot, "storage"), *self._open_exchange(at_ns, slot, None)]


def _calibration(server: Server) -> CalibrationWindow:
    """Return an empty window for what a server expects of others, whose users may stay."""
    return CalibrationWindow(server.setting.regions, dependence=dependence_of(server.kept_deviation))
