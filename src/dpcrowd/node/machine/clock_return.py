"""A clock that was ahead comes back: slots that it has sealed are waited for, unless the operator accepts the clock.

Say that the clock of a server was ahead by J for a moment. By that clock it has sealed slots up to F, whose time is
still to come. No slot is opened twice, so it waits until the clock has passed F: that is always right, and takes J. By
accepting the clock as it is now (`dpcrowd node accept-clock`) slots begin again after `last`, the last one whose grace
is over. Why that is sound:

- *No slot is drawn twice.* The ledger is keyed by UTC and never pays twice for the same time. What the wrong clock has
  drawn under the numbers up to F is not drawn again when these slots come (`Account.taken` says so);
  of what it has sealed without a sample nobody was told anything.
- *No window holds more than was promised.* Every payment is known, since it is on disk before anything of it leaves.
  One by the wrong clock is dated J too late, and counts against every slot until its date has left the window
  (`promise`: "rows that are dated later than the slot count as well"). So it counts in all windows in which it was
  really made, and for J longer. Payments before the step are as old as their dates say (`clock_jumps`). This is the
  price, and all of it: what was paid stays paid, and comes back later.
- *Nobody is counted in a slot of another time.* Check-ins that were taken for slots to come are deleted. The slots that
  are open now count as missed, since nobody could check in. The first that can be sampled is the next one to open.
- *An old copy is still exposed.* The node has to be vouched for as after a start, by a message of a slot that is sealed
  after this moment (`Trust.begin_again`).

Whether the clock was ahead before, or is behind now, no program can know. If it is behind now and is accepted all the
same, it passes slots again that were drawn before, or were not; all of the above holds. When it is set ahead later,
that is a step as any other, and is kept.

Estimates go on. Releases of slots to come are deleted: they would be released a second time.
"""

from __future__ import annotations

from dpcrowd.errors import BadInput
from dpcrowd.node.machine.revision import NetworkView
from dpcrowd.node.slots import rfc3339

__all__ = ["check_acceptable", "sender_text", "wait_text"]

_SECOND = 1_000_000_000
_SHORT = 2  # slots: whoever waits for no longer has nothing to accept


def wait_text(view: NetworkView, sealed: int, now_ns: int, went_back: tuple[int, int] | None) -> str:
    """Return that slots up to `sealed` were sealed by another clock, and until when nothing happens; empty if not.

    went_back  when the clock was set back, and by how much, if this run has seen that
    """
    if not _is_behind(view, sealed, now_ns):
        return ""
    step = ""
    if went_back is not None:
        step = f" by {_duration(went_back[1])} at {rfc3339(went_back[0] // _SECOND * _SECOND)}"
    text = (
        f"the clock went back{step}: slot {sealed} was sealed already, and the next one is due at "
        f"{rfc3339(view.seals(sealed + 1))}."
    )
    if not _is_far(view, sealed, now_ns):
        return text
    return f"{text} If the clock is right now, 'dpcrowd node accept-clock' lets slots begin again."


def sender_text(view: NetworkView, sealed: int, now_ns: int) -> str:
    """Return when a sender of check-ins or counts may try again; empty if it need not wait."""
    if not _is_behind(view, sealed, now_ns):
        return ""
    text = f"the clock went back: the next slot opens at {rfc3339(view.clock.opens(sealed + 1))}"
    if not _is_far(view, sealed, now_ns):
        return f"{text}."
    return f"{text}, or once the node's operator accepts the clock ('dpcrowd node accept-clock')."


def check_acceptable(view: NetworkView, sealed: int, now_ns: int) -> None:
    """Refuse where there is nothing to accept, or where slots could not begin again."""
    if not _is_behind(view, sealed, now_ns):
        raise BadInput("the clock is not behind the last slot that was sealed: there is nothing to accept.")
    if not _is_far(view, sealed, now_ns):
        due = rfc3339(view.seals(sealed + 1))
        raise BadInput(f"the next slot is due at {due} in any case: there is nothing to accept, only to wait.")
    first = max(view.next_seal(now_ns), 0)
    if view.first_slot > first:
        raise BadInput(
            f"revision {view.revision} took over by the clock that was ahead, and is valid from slot "
            f"{view.first_slot} on, at {rfc3339(view.clock.opens(view.first_slot))}: the neighbours do not have it "
            "before. Wait until then."
        )


def _is_behind(view: NetworkView, sealed: int, now_ns: int) -> bool:
    return sealed >= 0 and view.clock.closes(sealed) > now_ns


def _is_far(view: NetworkView, sealed: int, now_ns: int) -> bool:
    return view.clock.closes(sealed) - now_ns > _SHORT * view.clock.length_ns


def _duration(nanoseconds: int) -> str:
    """Return a duration for people to read."""
    seconds = round(nanoseconds / _SECOND)
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "less than 1 s"
