"""The protocol of a node as a state machine without I/O: `handle(stimulus)` gives instructions.

Theory of operation. Time is cut into slots. Check-ins of slot t are collected while it is open and during its grace;
then it is sealed, and its counts reach the machine as `SlotSealed`. The server behind the machine decides whether to
sample. If it does, one durable transaction stores the price, the noisy values and the whole state; only then does the
message leave. Without a sample a heartbeat leaves, so that nobody waits. Slot t is then in exchange: neighbours'
messages are checked and kept until all have spoken or the deadline passes, then they are fused, and the release is
stored and published. Meanwhile slot t + 1 collects.

How long counting, drawing and storing take depends on what was counted, which is nobody's business. So the message of a
slot leaves at a moment of the clock, `send_offset` after the seal, a sample and a heartbeat alike; nothing is fused
before it; and check-ins are forgotten after the release, since that takes the longer the more there are.

What never happens: a second draw for a slot (the server refuses to observe a slot twice, and a restored state brings
its draw with it), a message before its payment is durable (order of instructions), a sample while the ledger may be
an old copy (`Trust`) or cannot be written, a raw count in an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.early import Early
from dpcrowd.node.machine.exchange import Exchange
from dpcrowd.node.machine.fusing import fuse
from dpcrowd.node.machine.gate import check
from dpcrowd.node.machine.instructions import (
    ForgetCheckIns,
    Instruction,
    Publish,
    RefuseMessage,
    Report,
    ScheduleDeadline,
    Send,
    StoreCounters,
    StoreRelease,
    StoreSample,
)
from dpcrowd.node.machine.memory import NeighbourMemory, Remembered
from dpcrowd.node.machine.newcomers import Newcomers
from dpcrowd.node.machine.stimuli import (
    DeadlinePassed,
    LossConfirmed,
    MessageArrived,
    MessageSent,
    NeighbourDown,
    NeighbourUp,
    SlotSealed,
    Started,
    Stimulus,
    StoodStill,
    StorageFailed,
    StorageMended,
    TimeLost,
)
from dpcrowd.node.machine.trust import Trust
from dpcrowd.node.machine.view import NetworkView
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.wire import VERSION, Body, Heard, Record, Refused, encode, peek, proven, record_of, same_words
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.server import Server

__all__ = ["Machine"]

_MOST_MISSED = 100_000  # slots that are caught up one by one; after a longer absence nothing is known anyway


class Machine:
    """One node under one revision of the network.

    server    fresh, or restored from the state that was stored last
    counter   samples that the ledger has paid for
    heard     what neighbours said of their own ledgers, by name; all of it is on disk
    vouched   whether the ledger is known to be complete, so that no neighbour has to say so first
    complete_until  the last slot up to which it was known to be complete; None: as far as the server's state goes
    """

    def __init__(
        self,
        view: NetworkView,
        server: Server,
        *,
        counter: int = 0,
        heard: Mapping[str, Remembered] | None = None,
        vouched: bool = False,
        complete_until: int | None = None,
    ) -> None:
        self.view = view
        self.server = server
        self.trust = Trust(counter, vouched, complete_until=server.slot if complete_until is None else complete_until)
        numbers = {view.number(name): said for name, said in (heard or {}).items()}
        self._memory = NeighbourMemory({number: said for number, said in numbers.items() if number is not None})
        self._exchange: Exchange | None = None
        self._early = Early()
        self._newcomers = Newcomers()
        self._can_store = True
        self._before: bytes | None = None  # the state before a draw that is not yet stored
        self._own: tuple[int, InfoMessages | None] = -1, None  # the last slot that was told, and the sample in it
        self._last_payloads: dict[int, bytes] = {}
        self._unsent: int | None = None  # the slot that was released before its message left
        self.used: dict[int, tuple[int, int]] = {}  # number: slot and time of the last message that was used
        self.expires: dict[int, int] = {}  # number: when its certificate expires, by its own words
        self._told: list[Instruction] = []  # what was to be done about the last stimulus

    def handle(self, stimulus: Stimulus) -> list[Instruction]:
        """What has to be done about it, in this order, and before the next stimulus is given."""
        if isinstance(stimulus, StorageFailed):
            self._memory.storing_failed()
        else:
            self._memory.storing_done()
        self._told = self._answer(stimulus)
        return self._told

    def _answer(self, stimulus: Stimulus) -> list[Instruction]:
        match stimulus:
            case Started(at_ns):
                self.trust.start(self.server.slot, self.view.next_seal(at_ns))
                return self._resume(at_ns)
            case SlotSealed(at_ns, slot, counts, room):
                return self._seal(at_ns, slot, counts, room)
            case MessageArrived(at_ns, sender, payload):
                return self._hear(at_ns, sender, payload)
            case MessageSent(at_ns, slot):
                return [*self._sent(slot), *self._tell_newcomers(at_ns)]
            case DeadlinePassed(at_ns, slot):
                fused = self._fuse() if self._exchange is not None and self._exchange.slot == slot else []
                return [*fused, *self._tell_newcomers(at_ns)]
            case NeighbourUp(at_ns, neighbour) | NeighbourDown(at_ns, neighbour):
                self._newcomers.link(self.view.number(neighbour), up=isinstance(stimulus, NeighbourUp))
                return [*self._send_again(neighbour), *self._tell_newcomers(at_ns)]
            case StorageFailed(at_ns, failed, text):
                return self._stop_paying(at_ns, failed, text)
            case StorageMended():
                self._can_store = True
                return [Report("storage-mended", "storing works again; the node may sample.")]
            case StoodStill(at_ns) | TimeLost(at_ns):
                self._newcomers.missed()
                if isinstance(stimulus, TimeLost) and len(self.view.names) > 1:
                    self.trust.doubt(self.server.slot, self.view.next_seal(at_ns))
            case LossConfirmed():
                self.trust.confirm()
                return [Report("loss-confirmed", "the operator has confirmed the loss; the node may sample.")]
        return []

    def follow(self, before: Machine) -> None:
        """Take over from the machine of the revision before: its trust, and what neighbours said, by their names."""
        self.trust, self._can_store = before.trust, before._can_store
        renumbered = {number: self.view.number(name) for number, name in enumerate(before.view.names)}
        self._memory.follow(before._memory, renumbered)
        for number, used in before.used.items():
            if (new := renumbered[number]) is not None:
                self.used[new] = used
        for number, expires in before.expires.items():
            if (new := renumbered[number]) is not None:
                self.expires[new] = expires
        self._early.follow(before._early, renumbered)

    def begin_again(self, at_ns: int, known: int) -> None:
        """The server behind the machine has gone back to earlier slots, by a clock that was ahead and has come back.

        known  the last slot that was released before those that begin again

        What is remembered of neighbours stays. What they, or this node, said for slots that are still to come is void.
        """
        self._exchange, self._unsent, self._own = None, None, (-1, None)
        self._newcomers.missed()
        self._early, self._last_payloads, self._before = Early(), {}, None
        self._memory.last.clear()
        self.trust.begin_again(known, self.view.next_seal(at_ns), alone=len(self.view.names) == 1)

    def may_sample_in(self, slot: int) -> bool:
        """Whether the ledger is trusted at the seal of a slot, the next one."""
        self.trust.sealing(self.view.names[number] for number in self.view.links(slot))
        return self.trust.may_sample

    @property
    def exchanging(self) -> int | None:
        """The slot in exchange, if any."""
        return None if self._exchange is None else self._exchange.slot

    # ------------------------------------------------------------------------------------------------- the slot

    def _resume(self, at_ns: int) -> list[Instruction]:
        """After a restart: a slot that was sampled and not released is still to be told and fused."""
        slot = self.server.open_slot
        if slot is None:
            return []
        if at_ns >= self.view.ends(slot):
            self._exchange = Exchange(slot, b"", self.view.links(slot))
            return self._fuse()
        return self._open_exchange(at_ns, slot, self.server.pending_message(), again=True)

    def _seal(self, at_ns: int, slot: int, counts: object | None, room: int | None) -> list[Instruction]:
        if slot <= self.server.slot:
            text = f"slot {slot} was sealed again after slot {self.server.slot}: the clock went back; nothing is drawn."
            return [ForgetCheckIns(slot), Report("clock-behind", text)]
        done: list[Instruction] = []
        if self._exchange is not None:  # its deadline has passed, and the timer is late
            # Its check-ins are forgotten with those of this slot, whose message must not wait for that.
            done += [one for one in self._fuse() if not isinstance(one, ForgetCheckIns)]
        done += self._catch_up(slot)
        self._newcomers.sealed(slot)
        if counts is not None and not (self.may_sample_in(slot) and self._can_store):
            counts = None
        self._before = self.server.save()
        message = self.server.observe(slot, counts, room)
        sample = self.server.open_sample()
        if sample is not None:
            nano, noisy = sample
            counter = self.trust.paid(slot)
            done.append(StoreSample(slot, nano, counter, noisy.astype("<f8").tobytes(), self.server.save()))
        return [*done, *self._open_exchange(at_ns, slot, message)]

    def _catch_up(self, slot: int) -> list[Instruction]:
        """Slots that nobody was there for pass without a sample: the estimate is predicted, its interval widens."""
        last = self.server.slot
        if last < 0 or slot == last + 1:
            return []
        for missed in range(max(last + 1, slot - _MOST_MISSED), slot):
            self.server.observe(missed, None)
            self.server.hear()
        text = f"slots {last + 1} to {slot - 1} passed without this node: no samples there."
        if slot == last + 2:
            text = f"slot {last + 1} passed without this node: no sample there."
        return [Report("slots-missed", text)]

    def _open_exchange(self, at_ns: int, slot: int, message: object, *, again: bool = False) -> list[Instruction]:
        """again: after a restart; whatever was to be kept from telling by its time has been told or is over."""
        view, expected = self.view, self.view.links(slot)
        done: list[Instruction] = []
        if self._can_store and self._memory.unsaved().keys() & expected:
            done.append(StoreCounters(self._counters()))
        self._own = slot, message if isinstance(message, InfoMessages) else None
        waits = view.send_offset_ns > 0 and not (again and at_ns >= view.sends(slot))
        self._exchange = Exchange(slot, own := self._own_payload(), expected, sent=not waits)
        self.trust.told(slot)
        if expected or waits:
            to = tuple(view.names[number] for number in sorted(expected))
            done.append(Send(slot, own, to, view.sends(slot) if waits else None))
            done.append(ScheduleDeadline(slot, view.ends(slot)))
        for number, payload in self._early.take(slot):
            done += self._hear(at_ns, view.names[number], payload)
        return done if self._exchange is None or not self._exchange.complete else [*done, *self._fuse()]

    def _own_payload(self, newcomers: frozenset[int] = frozenset()) -> bytes:
        """The own message of the last slot, with what is remembered of its neighbours as far as that is stored.

        newcomers  to whom it is written again, after its exchange
        """
        view, (slot, message) = self.view, self._own
        records: tuple[Record, ...] = ()
        prior, known = b"", b""
        if message is not None:
            records = (record_of(message, digest=view.digest, origin=view.me, slot=slot, sign=view.sign),)
            prior = message.prior[0].astype("<f8").tobytes()
            known = message.prior_known[0].astype("u1").tobytes()
        echoes = self._memory.echoes(slot, view.links(slot) | newcomers, prove_to=newcomers)
        head, after = (VERSION, view.digest, view.me, slot, 1, self.trust.counter), bool(newcomers)
        body = Body(*head, echoes.heard, prior, known, records, echoes.proofs, echoes.since, view.expires, after)
        return encode(body, view.sign)

    def _counters(self) -> dict[str, Remembered]:
        """What is to be stored of neighbours' counters, by their names."""
        return {self.view.names[number]: said for number, said in self._memory.store().items()}

    def _fuse(self) -> list[Instruction]:
        exchange = self._exchange
        assert exchange is not None
        self._exchange, self._last_payloads = None, exchange.payloads
        fused, unfit = fuse(self.server, exchange.messages())
        view, names = self.view, self.view.names
        heard = tuple(names[number] for number in sorted(exchange.heard.keys() - set(unfit)))
        release = SlotRelease.of(fused, view.clock, view.regions, len(heard))
        done: list[Instruction] = [
            RefuseMessage(exchange.slot, names[number], "absurd", f"{names[number]} sent what no filter can take.")
            for number in unfit
        ]
        unproven = self.trust.passed(exchange.slot)
        state, counters = self.server.save(), self._counters()
        done += [StoreRelease(release, state, heard, counters, self.trust.complete_until), Publish(release)]
        self._unsent = None if exchange.sent else exchange.slot
        forget = [ForgetCheckIns(exchange.slot)] if exchange.sent else []
        return [*done, *map(_unproven, unproven), *forget]

    def _sent(self, slot: int) -> list[Instruction]:
        exchange = self._exchange
        if exchange is not None and exchange.slot == slot:
            exchange.sent = True
            return self._fuse() if exchange.complete else []
        if self._unsent != slot:
            return []
        self._unsent = None
        return [ForgetCheckIns(slot)]

    # ------------------------------------------------------------------------------------------------- messages

    def _hear(self, at_ns: int, sender: str, payload: bytes) -> list[Instruction]:
        view, exchange = self.view, self._exchange
        number = view.number(sender)
        following = view.next_seal(at_ns) if exchange is None else exchange.slot + 1
        slot = following if exchange is None else exchange.slot
        if number is None or number not in view.links(slot) | view.links(following):
            return [RefuseMessage(slot, sender, "not-a-neighbour", f"'{sender}' is not a neighbour in slot {slot}.")]
        done: list[Instruction] = []
        try:
            if len(payload) > view.most_bytes:
                raise Refused("wrong-length", f"{sender} sent {len(payload)} bytes; allowed: {view.most_bytes}.")
            said, under = peek(payload)
            heard = check(view, number, said, payload) if under == view.digest else None
            if heard is not None:
                # Whatever comes of it: what was sent is spent, and must be remembered, or its sender could lose it
                # from its ledger and nobody would know.
                done += self._learn(number, heard, following)
            sealed = self.server.slot if exchange is None else exchange.slot
            if sealed < said <= following:
                self._early.keep(number, sender, said, payload, read=heard is not None)
                return done
            if said > following:
                raise Refused("wrong-slot", f"{sender} sent slot {said}, which is not open yet.")
            if exchange is None or said < exchange.slot:
                last = self._last_payloads.get(number)
                if (last is not None and same_words(last, payload)) or (heard is not None and heard.body.after):
                    return done  # used already, and sent again because one of us came up
                raise Refused("late", f"{sender} sent slot {said}, which is over.")
            if number in exchange.heard:
                if same_words(exchange.payloads[number], payload):
                    return done  # sent again because one of us came up
                heard or check(view, number, said, payload)
                raise Refused("replay", f"{sender} sent two different messages for slot {said}.")
            if number not in exchange.expected:
                raise Refused("not-a-neighbour", f"{sender} is not a neighbour in slot {exchange.slot}.")
            heard = heard or check(view, number, said, payload)
        except Refused as refused:
            return [*done, RefuseMessage(slot, sender, refused.reason, str(refused))]
        except BadInput as error:
            return [*done, RefuseMessage(slot, sender, "absurd", str(error))]
        exchange.take(heard, payload)
        self.used[number] = said, at_ns
        return [*done, *self._fuse()] if exchange.complete else done

    def _learn(self, number: int, heard: Heard, following: int) -> list[Instruction]:
        """Counters: remember the neighbour's, and see whether it remembers more of ours than we do.

        following  the next slot to be sealed; what is said for a later one vouches for nothing
        """
        view, body, name = self.view, heard.body, self.view.names[number]
        done: list[Instruction] = []
        self._memory.hear(number, heard, ahead=body.slot > following)
        after = body.after and body.slot + 1 == following
        slot = None if body.slot > following else following if after else body.slot
        if body.expires:
            self.expires[number] = body.expires
        ago = body.heard.get(view.me)
        echoed = None if ago is None else (body.slot - ago[0], ago[1])
        since = body.slot - body.since[view.me] if view.me in body.since else None
        shown = proven(body.proofs[view.me], view.me, view.verify) if view.me in body.proofs else None
        match self.trust.echo(name, slot, echoed, shown, since, after=after):
            case "lost":
                assert shown is not None
                done.append(
                    Report(
                        "ledger-rolled-back",
                        f"{name} remembers {shown[1]} samples of this node by slot {shown[0]} and shows its signature; "
                        f"the ledger of {self.trust.counter} does not know them: the folder is an old copy. No sample "
                        "until the loss is confirmed.",
                    )
                )
            case "unproven":
                done.append(_unproven(name))
        return done

    def _send_again(self, neighbour: str) -> list[Instruction]:
        """To whoever came up inside the exchange."""
        exchange, number = self._exchange, self.view.number(neighbour)
        if exchange is None or number not in exchange.expected & self._newcomers.waiting or not exchange.sent:
            return []
        return [Send(exchange.slot, exchange.payload, (neighbour,))]

    def _tell_newcomers(self, at_ns: int) -> list[Instruction]:
        """Neighbours that have come up are told what is remembered of them, when it can be told."""
        view, slot = self.view, self._own[0]
        due = self._newcomers.due(view, slot, at_ns)
        done: list[Instruction] = []
        if self._exchange is not None or self._unsent is not None:
            return done
        if self._memory.unsaved().keys() & due:
            if not self._can_store:
                return done  # an echo of less than was heard would vouch for too much
            done.append(StoreCounters(self._counters()))
        self._newcomers.waiting -= due
        if due:
            done.append(Send(slot, self._own_payload(due), tuple(view.names[number] for number in sorted(due))))
        return done

    def _stop_paying(self, at_ns: int, failed: Instruction, text: str) -> list[Instruction]:
        """A price that is not on disk is not paid: the draw of this slot is thrown away, unseen by anybody.

        What was to be done after the failure is still to be done: what could not be kept can be told. But a sample
        among it was not paid for either, whatever it was that failed before it.
        """
        self._can_store = False
        done: list[Instruction] = [
            Report("storage-failed", f"{text} The node has no samples of its own until storing works.")
        ]
        places = [place for place, told in enumerate(self._told) if told is failed]
        rest = self._told[places[0] :] if places else [failed]
        for place, left in enumerate(rest):
            if isinstance(left, StoreSample):
                return [*done, *rest[1:place], *self._undraw(at_ns, left.slot)]
        return [*done, *map(self._without_unsaved, rest[1:])]

    def _without_unsaved(self, instruction: Instruction) -> Instruction:
        """The same, but a message of the last slot echoes only what is on disk: the rest could not be stored."""
        if not isinstance(instruction, Send) or instruction.slot != self._own[0]:
            return instruction
        payload = self._own_payload()
        if self._exchange is not None:
            self._exchange.payload = payload
        return replace(instruction, payload=payload)

    def _undraw(self, at_ns: int, slot: int) -> list[Instruction]:
        """Go on as if nothing had been sampled in this slot; what neighbours have said of it stays said."""
        assert self._before is not None
        payloads = self._last_payloads if self._exchange is None else self._exchange.payloads
        self._last_payloads = {}  # they are to be heard again
        self.server.restore(self._before)
        self.trust.unpaid()
        self.server.observe(slot, None)
        self._early.again(slot, payloads)
        return self._open_exchange(at_ns, slot, None)


def _unproven(name: str) -> Report:
    return Report(
        "unproven-echo",
        f"{name} says that it remembers more samples of this node than the ledger has, and does not prove it: not "
        "believed, and it cannot vouch until the next start.",
    )
