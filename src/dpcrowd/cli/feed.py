"""`dpcrowd feed`: check-ins from a file or a pipe to a node."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dpcrowd.client.client import Client
    from dpcrowd.client.delivery import Delivery
    from dpcrowd.client.errors import NodeError
    from dpcrowd.client.rows import CheckIn

__all__ = ["LeftOutLines", "Stop", "feed"]

_WAKE = 0.2
_WAIT_FOR_THE_DISK = 0.5
_AGAIN, _LONGEST_PAUSE = 1.0, 2.0  # a node that goes on misses its feed in every slot that this pause covers
_TELL_AGAIN = 60.0
_PATIENCE, _PATIENCE_OF_A_FOLLOWER = 30.0, 5.0
_LEFT_OUT, _NO_ANSWER = 1, 4
_LINES_PER_REPORT, _REPORT_SECONDS = 20, 60.0
_UNNAMED = "not named by the node"
_NAP = 0.1


@click.command()
@click.argument("url")
@click.argument("source", metavar="FILE|-", default="-")
@click.option("--follow", is_flag=True, help="Go on when the file ends: it grows, or a new one takes its name.")
@click.option("--new", is_flag=True, help="With --follow: only lines that come from now on, not those already there.")
@click.option("--token", envvar="DPCROWD_TOKEN", help="A token that may send check-ins.  [env: DPCROWD_TOKEN]")
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For HTTPS: the authority's certificate, or the node's own.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Rows in a request. A node names at most 1000 refused ones of each.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 60),
    help="No check-in waits longer for others.  [default: as long as slot and grace of the network allow, at most 0.5]",
)
@click.option("-v", "--verbose", is_flag=True, help="Say at the end how many were taken: a raw number, not for logs.")
def feed(
    url: str,
    source: str,
    follow: bool,
    new: bool,
    token: str | None,
    ca: Path | None,
    batch: int,
    seconds: float | None,
    verbose: bool,
) -> int:
    """Send check-ins to the node at URL, one JSON object per line: {"user": …, "region": …, "time": …}.

    Reads a file, or standard input with "-". Every batch is on the node's disk before the next one leaves. Lines that
    are no check-ins, and those that the node refuses, are left out; all others are taken. The first lines that are left
    out are told by number and reason, and their totals by reason at the end; with --follow, this is done once per
    minute. These are raw numbers: keep them inside your walls. If nothing is left out, nothing is said.

    While it waits for lines (--follow, or standard input), it sends an empty list in every slot, so that the node can
    tell a crowd that is silent from a feed that has died. With --follow it waits for a node that is away, says so, and
    asks it again after 2 seconds at most.
    An address or an authority that is wrong (http:// where the node has HTTPS, a certificate that --ca does not vouch
    for) ends it at the first connection; once the node has answered, this is waited for, too.
    A line without a time counts when it is sent: start again with --new, or old lines count as people of now.

    A line waits for others of its batch for a quarter of the network's grace, if the token may read that, and for 0.05
    seconds otherwise. SIGTERM and control-C end it after the lines that it has read are sent; a second one, at once.

    Exit codes: 0 all lines were taken; 1 some were left out; 2 wrong input, or a token that may not send; 4 the node
    does not answer or cannot take check-ins now, and the message says from which line on nothing was taken; 130 and
    143 after a signal.
    """
    from dpcrowd.client.client import Client
    from dpcrowd.client.errors import NodeBusy, NodeFailed, NodeUnreachable
    from dpcrowd.client.lines import Undelivered, deliver_lines
    from dpcrowd.client.tail import LineBatches

    open_source = _source(source, follow=follow, new=new)
    waits = follow or not Path(source).is_file()  # standard input, or a named pipe
    left_out = LeftOutLines()
    taken = code = 0
    patience = _PATIENCE_OF_A_FOLLOWER if follow else _PATIENCE
    with closing(_Sender(lambda: Client(url, token, ca=ca, patience=patience))) as sender, Stop() as stop:
        if seconds is None:
            seconds = sender.longest_wait(lambda: Client(url, token, ca=ca, retries=0)) if waits else _WAIT_FOR_THE_DISK
        lines = open_source(stop.requested, seconds)
        batches = LineBatches(lines, left_out.line, size=batch, seconds=seconds, wake=_WAKE, stop=stop.requested)
        idle_at = time.monotonic()

        try:
            for checkins in batches:
                if waits and time.monotonic() >= idle_at:
                    idle_at = time.monotonic() + sender.say_idle()
                if checkins:
                    wait = _Waiting(stop, sender, patient=follow)
                    taken += deliver_lines(sender.send, checkins, left_out, wait.again)
                    wait.over()
                if waits:
                    left_out.report()
            if stop.requested():
                click.echo(f"dpcrowd: stopped after line {batches.last}; lines after it were not read.", err=True)
        except (Undelivered, NodeBusy, NodeFailed, NodeUnreachable) as error:
            taken += error.taken
            since = f" Lines from {error.number} on were not taken." if isinstance(error, Undelivered) else ""
            click.echo(f"dpcrowd: error: {_said(error)}{since}", err=True)
            code = _NO_ANSWER
        finally:
            left_out.sum_up()
    if verbose:
        click.echo(f"dpcrowd: {taken} check-ins taken", err=True)
    stop.finish()
    return code or (_LEFT_OUT if left_out.total else 0)


def _source(
    source: str, *, follow: bool, new: bool
) -> Callable[[Callable[[], bool], float], Iterator[tuple[int, str]]]:
    """Opens the source before anything is sent; then gives its lines, until `stop` and with naps of some seconds."""
    from dpcrowd.client.tail import follow_file, open_lines, read_lines
    from dpcrowd.errors import BadInput

    if new and not follow:
        raise BadInput("--new is for files that grow; give --follow as well.")
    if source == "-":
        if follow:
            raise BadInput("--follow is for files; standard input is read until it ends.")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        return lambda stop, nap: read_lines(sys.stdin)
    if follow:
        return lambda stop, nap: follow_file(Path(source), stop, new=new, nap=nap)
    try:
        stream = open_lines(Path(source))
    except OSError as error:
        raise BadInput(f"cannot read '{source}': {error.strerror or error}.") from None
    return lambda stop, nap: read_lines(stream)


class _Sender:
    """A client, which is made anew when the node's certificate has changed: the file of `--ca` may have, too.

    Until the node has answered for the first time, what cannot pass (an address or an authority that is wrong) ends the
    feed as wrong input; later it is waited for, since a certificate may be renewed.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make, self.client = make, make()
        self._answered = False

    def send(self, rows: list[CheckIn]) -> Delivery:
        with self._watched():
            return self.client.checkin(rows, batch=len(rows))

    def say_idle(self) -> float:
        """Seconds until it is time again. A node that is away or busy is asked again soon: there is nothing to lose."""
        from dpcrowd.client.errors import NodeBusy, NodeFailed, NodeUnreachable

        try:
            with self._watched():
                return self.client.idle()
        except (NodeBusy, NodeFailed, NodeUnreachable) as error:
            if error.reason == "untrusted":
                self.renew()
            return _AGAIN

    def longest_wait(self, make: Callable[[], Client]) -> float:
        """From what the node says of its network; asked once, since a feed's token is often not one that may read."""
        from dpcrowd.client.errors import NodeError
        from dpcrowd.client.tail import longest_wait

        with make() as client:
            try:
                with self._watched():
                    return longest_wait(client.network())
            except NodeError:
                return longest_wait(None)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        from dpcrowd.client.errors import NodeError
        from dpcrowd.client.steps import LASTING
        from dpcrowd.errors import BadInput

        try:
            yield
        except NodeError as error:
            self._answered = self._answered or error.status is not None
            if self._answered or error.reason not in LASTING:
                raise
            text = _said(error)
        else:
            self._answered = True
            return
        raise BadInput(text)

    def renew(self) -> None:
        from dpcrowd.errors import BadInput

        with suppress(BadInput):  # the file is just being replaced
            fresh = self._make()
            self.client.close()
            self.client = fresh

    def close(self) -> None:
        self.client.close()


class _Waiting:
    """A node that is away ends the feed; one that follows a file waits for the node as it waits for lines."""

    def __init__(self, stop: Stop, sender: _Sender, *, patient: bool) -> None:
        self._stop, self._sender, self._patient = stop, sender, patient
        self._told, self._told_at = "", 0.0

    def again(self, error: NodeError) -> bool:
        if not self._patient or self._stop.requested():
            return False
        text = _said(error)
        if text != self._told or time.monotonic() >= self._told_at + _TELL_AGAIN:
            click.echo(f"dpcrowd: waiting: {text}", err=True)
            self._told, self._told_at = text, time.monotonic()
        self._stop.sleep(min(max(error.retry_after or 0.0, _AGAIN), _LONGEST_PAUSE))
        if error.reason == "untrusted":
            self._sender.renew()
        return True

    def over(self) -> None:
        if self._told:
            click.echo("dpcrowd: the node takes check-ins again", err=True)
        self._told = ""


def _said(error: NodeError) -> str:
    """In the words of the command line."""
    return error.message.replace("(ca)", "(--ca)") if error.reason == "untrusted" else error.message


class LeftOutLines:
    """The first lines of each minute are told by number and reason; the totals once per minute, and at the end.

    total  of all lines that were left out
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._now = now
        self._counts: Counter[str] = Counter()
        self._named = self._reported = 0
        self._report_at = now() + _REPORT_SECONDS

    def line(self, number: int, reason: str) -> None:
        """One line."""
        self._add(reason, 1)
        self._named += 1
        if self._named <= _LINES_PER_REPORT:
            from dpcrowd.client.delivery import explanation

            click.echo(f"dpcrowd: left out: line {number}: {explanation(reason)}.", err=True)

    def unnamed(self, count: int) -> None:
        """More of a request than a node names."""
        self._add(_UNNAMED, count)

    def report(self) -> None:
        """To be called often: says the totals if a minute has passed and they have changed."""
        if self._now() < self._report_at:
            return
        self._report_at = self._now() + _REPORT_SECONDS
        self._named = 0
        if self.total > self._reported:
            self._say("so far")

    def sum_up(self) -> None:
        """At the end."""
        if self.total:
            self._say("in all")

    def _add(self, reason: str, count: int) -> None:
        self.total += count
        self._counts[reason] += count

    def _say(self, when: str) -> None:
        self._reported = self.total
        reasons = ", ".join(f"{count} {reason}" for reason, count in self._counts.most_common())
        lines = "line" if self.total == 1 else "lines"
        click.echo(f"dpcrowd: left out: {self.total} {lines} {when}: {reasons}.", err=True)


class Stop:
    """Inside a with block, a signal does not interrupt what runs: it is to look at `requested`, and come to an end.

    After the first signal the handlers from before are in place again, so the second one ends the program as it always
    does. Outside the main thread, where Python takes no signals, nothing is ever requested.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def requested(self) -> bool:
        """Whether a signal came."""
        return self._number is not None

    def sleep(self, seconds: float) -> None:
        """Until then, or until a signal comes."""
        end = time.monotonic() + seconds
        while not self.requested() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NAP))

    def finish(self) -> None:
        """After the with block: end as the signal would have ended the program at once."""
        if self._number is not None:
            signal.raise_signal(self._number)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}
