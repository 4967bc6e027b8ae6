"""Whether the ledger in the folder can be trusted: a folder that was restored from an old copy would pay twice.

A node sends its ledger's counter in every message, and neighbours echo the highest one that they ever received, with
the slot in which they first received it. After a start the node samples only when a neighbour has vouched for it: one
that remembers the node from before, and echoes no more than the node itself knows, shows that nothing is lost.

A neighbour that echoes more claims that something is lost. Organisations do not trust one another: its claim alone
would let it stop the node for good. So only its *proof* counts, the node's own signature under the higher counter; then
sampling waits until the operator has confirmed the loss. A neighbour sends the proof with its echo when the node's last
message had a lower counter than it remembers, or when it received no message of the node for the slot before.

A claim without proof is not believed, but the node waits for its proof. Let h be the earliest slot of a message that
could vouch. The node samples only when an exchange of slot h or later is over, so that every neighbour could send its
message, however early another one has vouched. If a neighbour has claimed more by then, or does so later, the node does
not sample until an exchange of slot h + 2 or later is over. From then on the claim is ignored in this run, and its
sender cannot vouch either; a proof counts at any time. So a liar costs two slots after a start, and nothing later.

Why an old copy is exposed in time. Assume that an honest neighbour remembers more than the copy knows, and that its
messages arrive in every exchange. The run that was lost ended before this one began, so the last slot of which it sent
a message is h at the latest (h - 1 by its own clock; clocks may differ by less than a slot). In the first exchange of
slot h or later the neighbour echoes the higher counter, with proof or without: the copy has not sampled yet, and does
not from then on. In any slot t >= h + 2 the proof is there: for slot t - 1 > h the neighbour has received a message of
this run, with a lower counter, or none. The proof arrives before the exchange of slot t is over, hence before the copy
may sample.

A neighbour writes its message of slot t before it receives those of slot t. So an old message must not vouch: samples
that are lost may be as young as the slot that was sealed last, and only messages of later slots can know of them.

Why an echo of the copy's own messages does not vouch. A neighbour that has lost its memory, or is new, receives a
message of the copy, remembers it, and echoes it in the next slot. Such an echo knows nothing of what was lost. So the
folder keeps with every commit the last slot c up to which its ledger was known to be complete (`complete_until`): the
last one of which a run that could sample sent a message. A neighbour vouches only if its memory of the node reaches
back to slot c or further: it would know of every later sample that it received. Messages of runs that nobody has
vouched for are of slots after c, because a folder seals no slot twice and such runs do not move c. So a memory that
began with such runs never reaches back far enough, however often the node is restarted, or the same copy put back.

- c is moved when a sample is paid, in the same transaction; when a slot is released while the node may sample, which
  includes the slot in whose exchange the node is vouched for; and when a loss is confirmed. An old copy has an old c.
- Two runs may send the message of a slot c: a sample that was stored and not released yet is sent again after a
  restart. A neighbour that knows no more than that vouches, and rightly: its exchange is still open, so no later slot
  has been sealed, and nothing can be lost.
- How far a memory reaches back (`since`) is the slot in which the neighbour first received a message of the node, or
  one whose counter rose with a sample: samples are sent by runs that were vouched for, and their slots are at most c. A
  counter that the neighbour learns later, from a run that waits, because it had missed the sample, does not shorten its
  memory. So two nodes that were cut off by the same power failure vouch for each other, whichever sends first.
- Neighbours of version 0.1.0 do not send how far back they remember. For them it is the slot in which they first
  received the counter, which is later or the same: they vouch less often, and for nothing more.
- After time that has passed unseen (`doubt`) c is the last slot of which a message was sent before. A snapshot of this
  process, with the same memory, cannot be vouched for by echoes of its own messages.
- When a clock that was ahead has come back and is accepted (`begin_again`), messages of the same slots are sent a
  second time, so numbers of slots no longer show what came first. c is then the last slot before them that was
  released. A memory that reaches back to a slot that is still to come can only be of the clock that was ahead, when
  numbers did show it: it is compared with the c of that time (`complete_ahead`), as long as the clock is not set ahead
  again.
- An empty ledger may begin: there is nothing yet that anybody could remember. A folder that was emptied is exposed by
  a proof, as any old copy.
- What a neighbour echoes is on its disk before (`NeighbourMemory`): after a crash it does not remember less than that.

Vouching before the next seal. A message of slot h comes after the seal of slot h, which is lost to a node that has to
wait for it. So a neighbour whose link to the node comes up sends at once what it remembers, after the exchange of slot
h - 1 has had its complete time and before slot h is sealed (`Newcomers`), always with its proof. Such an early message
vouches as a message of slot h does; and if *all* neighbours of slot h have sent theirs since the start, nobody is left
to wait for, and the node may sample in slot h already. Why an old copy is exposed all the same:

- No run of the node that ended before this start has sent a message of slot h or a later one: by its clock, which is
  this one's, h was not sealed yet. So whatever is lost was sent in messages of slots up to h - 1.
- An honest neighbour has received them before it wrote. Like every exchange this relies on a message arriving before
  the exchange of its slot is over, or never: one that the lost run has sent may still be on its way when the link to
  the new run comes up, and that is why the neighbour waits until then. It also sends nothing early if it was not
  running during the complete exchange, or stood still.
- The proof comes with the early message, so that no honest neighbour makes a claim whose proof has to be waited for. A
  claim without proof is treated as any other: it costs two slots.
- The early message counts only for the slot that this node seals next. A neighbour whose clock differs by so much that
  it means another slot is not believed early, nor is an old message that arrives late.
- A neighbour that sends nothing early, because it is down, has just started itself, or is of version 0.1.0, is waited
  for as before: the node does not sample before an exchange is over in which it could send its message.

If every neighbour that sends messages has forgotten the node, only the operator can decide (`nobody_remembers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from dpcrowd.errors import counted

__all__ = ["Trust", "distrust", "needs_operator", "rollback_text", "unproven_text"]

_REMEMBERED = 1000
_PATIENCE = 2
_MOST_UNPROVEN = 1 << 40
"""Largest counter to which a claim without proof is limited: one sample per second for thirty thousand years."""

Verdict = Literal["lost", "unproven"]


@dataclass
class Trust:
    """Whether the ledger can be trusted to be complete, during one run of a node: from start to stop.

    counter   samples that this ledger has paid for
    shown_at  what the node itself has signed beyond that, as a neighbour has shown
    shown_by  that neighbour
    since     the first slot whose messages can vouch; None before the start
    first     the earliest slot of a message that could vouch
    listened  whether all neighbours could send a message since then
    claims    counters beyond the ledger's that neighbours echo without proof, by name
    settled   whether the time to prove them is over
    spoken    neighbours that have sent what they remember between the start and the next seal
    paid_in   slots of the last samples of this run, newest last
    complete_until  the last slot up to which the ledger was known to be complete; -1: never
    complete_ahead  the same by a clock that was ahead and has come back since; -1: there was none
    """

    counter: int
    vouched: bool = False
    shown_at: int | None = None
    shown_by: str = "a neighbour"
    since: int | None = None
    first: int | None = None
    claims: dict[str, int] = field(default_factory=dict)
    spoken: set[str] = field(default_factory=set)
    complete_until: int = -1
    complete_ahead: int = -1
    listened: bool = field(init=False)
    settled: bool = field(init=False)
    paid_in: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def __post_init__(self) -> None:
        self.listened = self.settled = self.vouched

    @property
    def may_sample(self) -> bool:
        return self.vouched and self.lost_at is None and (self.settled or (self.listened and not self.claims))

    @property
    def lost_at(self) -> int | None:
        """The counter of a loss that only the operator can confirm.

        A claim without proof is one only if nobody vouches: it may be true, of a key that is no longer pinned.
        """
        if self.shown_at is not None:
            return self.shown_at
        return max(self.claims.values(), default=None) if self.settled and not self.vouched else None

    @property
    def lost_by(self) -> str:
        """The neighbour that remembers this many."""
        return self.shown_by if self.shown_at is not None else max(self.claims, key=self.claims.__getitem__, default="")

    @property
    def nobody_remembers(self) -> bool:
        """Whether neighbours have sent messages, had time to, and none of them remembers this ledger from before."""
        return self.settled and not self.vouched and self.lost_at is None

    def start(self, last: int, following: int) -> None:
        """Begin a run: the folder knows slots up to `last`, the next one to be sealed is `following`."""
        self.since = last if last >= following - 1 else following
        self.listened = self.settled = self.vouched
        self.first = None
        self.claims.clear()
        self.spoken.clear()

    def doubt(self, last: int, following: int) -> None:
        """Have a neighbour vouch again, as after a start: time has passed unseen."""
        self.vouched = False
        self.complete_ahead = -1
        self.start(last, following)

    def begin_again(self, known: int, following: int, *, alone: bool) -> None:
        """Let slots begin again with `following`, the next one to be sealed; `known` is the last one released before.

        A server that is `alone` in a network has no neighbour that could vouch, and needs none.
        """
        self.complete_ahead = self.complete_until if self.complete_until >= following else -1
        self.complete_until = min(self.complete_until, known)
        self.vouched = alone
        self.start(following - 2, following)  # only what is sealed from now on vouches, not what was sealed last

    def hear_echo(
        self,
        who: str,
        slot: int | None,
        remembered: tuple[int, int] | None,
        proof: tuple[int, int] | None,
        since: int | None = None,
        *,
        after: bool = False,
    ) -> Verdict | None:
        """Take what a neighbour's message of a slot says of this node's ledger.

        slot        None: its message cannot vouch for anything
        remembered  the (slot, counter) of this node that it echoes; None: it echoes none
        proof       what this node itself has signed, as (slot, counter), if the neighbour shows that
        since       the slot to which its memory of this node reaches back; None: that of the echo
        after       it has written so after all earlier exchanges, and the slot, which is the next to be sealed, is open
        Returns what is new: a loss, or a claim without proof.
        """
        fresh = slot is not None and self.since is not None and slot >= self.since
        if fresh and slot is not None:
            self.first = slot if self.first is None else min(slot, self.first)
            self.spoken |= {who} if after else set()
        if proof is not None and self._is_unknown(*proof):
            return self._note_loss(who, proof[1])
        if remembered is not None and self._is_unknown(*remembered):
            return self._note_unproven(who, remembered[1])
        if slot is not None and fresh and who not in self.claims:
            self.vouched |= self.counter == 0 or self._reaches_back(slot, remembered, since)
        return None

    def _reaches_back(self, slot: int, remembered: tuple[int, int] | None, since: int | None) -> bool:
        """Whether a neighbour that sends a message in a slot would know of a sample that this ledger has lost."""
        if remembered is None:
            return False
        began = remembered[0] if since is None else since
        return began <= self.complete_until or slot < began <= self.complete_ahead

    def _note_loss(self, who: str, counter: int) -> Verdict | None:
        anew = self.shown_at is None
        self.shown_by = who if counter > (self.shown_at or 0) else self.shown_by
        self.shown_at = max(counter, self.shown_at or 0)
        self.claims = {who: count for who, count in self.claims.items() if count > self.shown_at}
        return "lost" if anew else None

    def _note_unproven(self, who: str, counter: int) -> Verdict | None:
        if self.shown_at is not None and counter <= self.shown_at:
            return None  # somebody has proven it
        anew = who not in self.claims
        self.claims[who] = min(max(counter, self.claims.get(who, 0)), _MOST_UNPROVEN)
        return "unproven" if anew and self.settled else None

    def before_seal(self, neighbours: Iterable[str]) -> None:
        """Note that a slot is about to be sealed: once all neighbours have sent an early message, it has listened."""
        expected = set(neighbours)
        self.listened |= bool(expected) and expected <= self.spoken

    def note_message(self, slot: int) -> None:
        """Note that the own message of a slot leaves: if the ledger is complete, it is so up to this slot."""
        if self.may_sample:
            self.complete_until = max(slot, self.complete_until)

    def end_exchange(self, slot: int) -> list[str]:
        """End the exchange of a slot; return the neighbours whose claims are ignored from now on."""
        unproven: list[str] = []
        if not self.settled and self.first is not None and slot >= self.first:
            self.listened, self.settled = True, slot >= self.first + _PATIENCE
            unproven = sorted(self.claims) if self.settled else []
        self.note_message(slot)
        return unproven

    def _is_unknown(self, slot: int, counter: int) -> bool:
        """Whether this ledger had not paid for this many samples by that slot.

        More than it has now, or as many, but in this run and later: then another run has sent them to the neighbour.
        """
        newer = self.counter - counter
        return newer < 0 or (newer < len(self.paid_in) and slot < self.paid_in[-1 - newer])

    def add_payment(self, slot: int) -> int:
        """Count one more sample; return the new counter."""
        self.counter += 1
        self.paid_in.append(slot)
        return self.counter

    def undo_payment(self) -> None:
        """Take the last sample back: it was not paid for after all."""
        self.counter -= 1
        self.paid_in.pop()

    def set_counter(self, counter: int) -> None:
        """Take the ledger's own number of the last sample: a commit that had failed may be on the disk after all."""
        if counter != self.counter:
            self.counter = counter
            self.paid_in.clear()

    def confirm(self, counter: int, last_sent: int) -> None:
        """Go on from the counter of a booked loss; the ledger is complete up to `last_sent`, the last slot sent."""
        self.counter, self.complete_until = counter, last_sent
        self.shown_at = None
        self.vouched = self.listened = self.settled = True
        self.claims.clear()
        self.paid_in.clear()


def needs_operator(trust: Trust) -> bool:
    """Whether nobody but the operator can let the node sample again."""
    return not trust.may_sample and (trust.lost_at is not None or trust.nobody_remembers)


def distrust(trust: Trust) -> str:
    """Return why the ledger is not trusted; empty if it is."""
    if trust.may_sample:
        return ""
    if trust.lost_at is not None:
        return (
            f"'{trust.lost_by}' remembers {counted(trust.lost_at, 'sample')} of this server, and its ledger knows "
            f"{trust.counter}: confirm the loss first (confirm-loss)."
        )
    if trust.nobody_remembers:
        return (
            "no neighbour that was heard remembers this ledger from before: it may be an old copy. Wait for another "
            "neighbour, or confirm that samples may be lost (confirm-loss), which counts as a complete budget spent."
        )
    if not trust.vouched:
        return "no neighbour has vouched for the ledger since the start, or since the clock jumped or the node froze."
    return "a neighbour has vouched for the ledger; what others remember is waited for, two slots at most."


def rollback_text(trust: Trust, who: str, slot: int, counter: int) -> str:
    """Return that a neighbour has proven more samples than the ledger has: `counter` of them by a slot."""
    return (
        f"{who} remembers {counted(counter, 'sample')} of this node by slot {slot} and shows its signature; the ledger "
        f"of {trust.counter} does not know them: the folder is an old copy. No sample until the loss is confirmed."
    )


def unproven_text(who: str) -> str:
    """Return that a neighbour claims more samples than the ledger has, and does not prove it."""
    return (
        f"{who} says that it remembers more samples of this node than the ledger has, and does not prove it: not "
        "believed, and it cannot vouch until the next start."
    )
