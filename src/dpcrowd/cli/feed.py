"""`dpcrowd feed`: send check-ins from a file or a pipe to a node.

`_Sender` is the client, `LeftOutLines` the report of lines that were not sent or not taken, and `Stop` ends the feed
after the lines that it has read.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import click

from dpcrowd.errors import counted

if TYPE_CHECKING:
    from dpcrowd.client.client import Client
    from dpcrowd.client.delivery import Delivery
    from dpcrowd.client.errors import NodeError
    from dpcrowd.client.rows import CheckinRow

__all__ = ["LeftOutLines", "Stop", "feed"]

# All in seconds.
_WAKE = 0.2
_WAIT_OF_A_FILE = 0.5
_RETRY, _LONGEST_PAUSE = 1.0, 2.0  # a node that is back misses its feed in every slot that this pause covers
_REMIND = 60.0
_PATIENCE, _PATIENCE_OF_A_FOLLOWER = 30.0, 5.0
_LEFT_OUT, _NO_ANSWER = 1, 4
_LINES_PER_REPORT, _REPORT_SECONDS = 20, 60.0
_UNNAMED = "not named by the node"
_NAP = 0.1
_EXAMPLE = '{"user": "u1", "region": "north", "time": "2026-01-05T08:00:00Z"}'


_Lines = Generator[tuple[int, str], None, None]


@click.command()
@click.argument("url")
@click.argument("source", metavar="FILE|-", default="-")
@click.option(
    "--follow", is_flag=True, help="Wait for more lines at the end of the file, even if a new file replaces it."
)
@click.option("--new", is_flag=True, help="With --follow: send only lines that are added from now on.")
@click.option("--token", envvar="DPCROWD_TOKEN", help="Token with the right to send check-ins.  [env: DPCROWD_TOKEN]")
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For HTTPS: PEM file with the certificate of the authority, or of the node.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Send at most this many rows per request. A node names at most 1000 refused rows per request.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 60),
    help="Send a batch when its oldest line has waited this many seconds.  [default: what slot and grace of the "
    "network allow, at most 0.5]",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Print at the end how many check-ins were taken: a raw number, not for logs."
)
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

    The lines come from a file, or from standard input with "-". Every batch is on the node's disk before the next one
    is sent. Lines that are not check-ins, and those that the node refuses, are left out; all others are taken. The
    first lines that are left out are reported by number and reason, and the totals by reason at the end; with --follow,
    once per minute. These are raw numbers: keep them inside your organisation. If no line is left out, nothing is
    printed.

    While it waits for lines (--follow, or standard input), it sends an empty list in every slot, so that the node can
    distinguish an empty slot from a feed that has stopped. With --follow it waits for a node that does not answer,
    reports that, and tries again at least every 2 seconds.
    A wrong address or authority (http:// although the node has HTTPS, a certificate that --ca did not sign) ends it at
    the first connection; once the node has answered, it waits in that case, too.
    A line without a time counts when it is sent: restart with --new, or old lines are counted as present now.

    A line waits for others of its batch for a quarter of the network's grace, if the token may read that, and for 0.05
    seconds otherwise. SIGTERM and Control-C end it once the lines that it has read are sent; a second one ends it at
    once.

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
    accepted = code = 0
    patience = _PATIENCE_OF_A_FOLLOWER if follow else _PATIENCE
    with closing(_Sender(lambda: Client(url, token, ca=ca, patience=patience))) as sender, Stop() as stop:
        if seconds is None:
            seconds = sender.longest_wait(lambda: Client(url, token, ca=ca, retries=0)) if waits else _WAIT_OF_A_FILE
        lines = _refuse_csv(source, open_source(stop.requested, seconds))
        batches = LineBatches(lines, left_out.line, size=batch, seconds=seconds, wake=_WAKE, stop=stop.requested)
        idle_at = time.monotonic()

        try:
            for checkins in batches:
                if waits and time.monotonic() >= idle_at:
                    idle_at = time.monotonic() + sender.send_idle()
                if checkins:
                    waiting = _WaitForNode(stop, sender, patient=follow)
                    accepted += deliver_lines(sender.send, checkins, left_out, waiting.retry)
                    waiting.end()
                if waits:
                    left_out.report()
            if stop.requested():
                click.echo(f"dpcrowd: stopped after line {batches.last}; lines after it were not read.", err=True)
        except (Undelivered, NodeBusy, NodeFailed, NodeUnreachable) as error:
            accepted += error.taken
            since = f" Lines from {error.number} on were not taken." if isinstance(error, Undelivered) else ""
            click.echo(f"dpcrowd: error: {_message(error)}{since}", err=True)
            code = _NO_ANSWER
        finally:
            left_out.sum_up()
    if verbose:
        click.echo(f"dpcrowd: {counted(accepted, 'check-in')} taken", err=True)
    stop.finish()
    return code or (_LEFT_OUT if left_out.total else 0)


def _source(source: str, *, follow: bool, new: bool) -> Callable[[Callable[[], bool], float], _Lines]:
    """Open the source before anything is sent; return a function of `stop` and a pause that yields its lines."""
    from dpcrowd.client.tail import follow_file, open_lines, read_lines
    from dpcrowd.errors import BadInput

    if new and not follow:
        raise BadInput("--new works with --follow only; add --follow, or leave --new out.")
    if source == "-":
        if follow:
            raise BadInput("--follow works with files only; leave it out: standard input is read until it ends.")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        return lambda stop, pause: read_lines(sys.stdin)
    if follow:
        if Path(source).is_dir():
            raise BadInput(f"cannot read '{source}': it is a folder; give a file of check-ins.")
        return lambda stop, pause: _file_errors(source, follow_file(Path(source), stop, new=new, pause=pause))
    try:
        stream = open_lines(Path(source))
    except OSError as error:
        raise BadInput(
            f"cannot read '{source}': {error.strerror or error}; give a file of check-ins, or - for standard input."
        ) from None
    return lambda stop, pause: _file_errors(source, read_lines(stream))


def _refuse_csv(source: str, lines: _Lines) -> _Lines:
    """Yield the lines, unless the first one is the header of a CSV file, of which each line would be left out."""
    from dpcrowd.client.tail import is_csv_header
    from dpcrowd.errors import BadInput

    with closing(lines):
        is_first = True
        for number, line in lines:
            if is_first and number == 1 and is_csv_header(line):
                where = "standard input" if source == "-" else f"'{source}'"
                raise BadInput(
                    f"{where} is a CSV file: its first line has names of columns. feed takes JSON, one object per "
                    f"line, such as {_EXAMPLE}; write each row in this form. dpcrowd.Client.checkin takes tables as "
                    "they are."
                )
            is_first = False
            yield number, line


def _file_errors(source: str, lines: Iterator[tuple[int, str]]) -> _Lines:
    """Yield the lines; turn a file that cannot be read any more into wrong input."""
    from dpcrowd.errors import BadInput

    try:
        yield from lines
    except OSError as error:
        raise BadInput(f"cannot read '{source}': {error.strerror or error}.") from None


class _Sender:
    """A client that is created again when the node's certificate has changed: the file of `--ca` may have changed, too.

    Until the node has answered for the first time, a failure that will last (a wrong address or authority) ends the
    feed as wrong input; later the feed waits, since a certificate may be renewed.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make, self.client = make, make()
        self._answered = False

    def send(self, rows: list[CheckinRow]) -> Delivery:
        with self._tracking_answers():
            return self.client.checkin(rows, batch=len(rows))

    def send_idle(self) -> float:
        """Send an empty list; return the seconds until the next one is due, soon if the node does not answer."""
        from dpcrowd.client.errors import NodeBusy, NodeFailed, NodeUnreachable

        try:
            with self._tracking_answers():
                return self.client.idle()
        except (NodeBusy, NodeFailed, NodeUnreachable) as error:
            if error.reason == "untrusted":
                self.renew()
            return _RETRY

    def longest_wait(self, make: Callable[[], Client]) -> float:
        """Return how long a line may wait; the node is asked once, since the token of a feed often may not read."""
        from dpcrowd.client.errors import NodeError
        from dpcrowd.client.tail import longest_wait

        with make() as client:
            try:
                with self._tracking_answers():
                    return longest_wait(client.network())
            except NodeError:
                return longest_wait(None)

    @contextmanager
    def _tracking_answers(self) -> Iterator[None]:
        """Note whether the node has answered; turn lasting failures before that into `BadInput`."""
        from dpcrowd.client.errors import NodeError
        from dpcrowd.client.steps import LASTING
        from dpcrowd.errors import BadInput

        try:
            yield
        except NodeError as error:
            self._answered = self._answered or error.status is not None
            if self._answered or error.reason not in LASTING:
                raise
            text = _message(error)
        else:
            self._answered = True
            return
        raise BadInput(text)

    def renew(self) -> None:
        """Create the client again, with the certificate that `--ca` has now."""
        from dpcrowd.errors import BadInput

        with suppress(BadInput):  # the file is being replaced at this moment
            client = self._make()
            self.client.close()
            self.client = client

    def close(self) -> None:
        self.client.close()


class _WaitForNode:
    """What happens if the node does not answer: a patient feed reports it and waits, any other one ends."""

    def __init__(self, stop: Stop, sender: _Sender, *, patient: bool) -> None:
        self._stop, self._sender, self._patient = stop, sender, patient
        self._message, self._printed_at = "", 0.0

    def retry(self, error: NodeError) -> bool:
        """Wait; return whether to send the lines again."""
        if not self._patient or self._stop.requested():
            return False
        text = _message(error)
        if text != self._message or time.monotonic() >= self._printed_at + _REMIND:
            click.echo(f"dpcrowd: waiting: {text}", err=True)
            self._message, self._printed_at = text, time.monotonic()
        self._stop.sleep(min(max(error.retry_after or 0.0, _RETRY), _LONGEST_PAUSE))
        if error.reason == "untrusted":
            self._sender.renew()
        return True

    def end(self) -> None:
        """Report that the node has answered, if the feed was waiting."""
        if self._message:
            click.echo("dpcrowd: the node takes check-ins again", err=True)
        self._message = ""


def _message(error: NodeError) -> str:
    """Return the message of an error with the name of the option instead of the parameter."""
    return error.message.replace("(ca)", "(--ca)") if error.reason == "untrusted" else error.message


class LeftOutLines:
    """The report of lines that were left out: the first of each minute by number, the totals per minute and at the end.

    total  number of lines that were left out
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._now = now
        self._counts: Counter[str] = Counter()
        self._lines_reported = self._reported = 0
        self._report_at = now() + _REPORT_SECONDS

    def line(self, number: int, reason: str) -> None:
        """Report one line."""
        self._add(reason, 1)
        self._lines_reported += 1
        if self._lines_reported <= _LINES_PER_REPORT:
            from dpcrowd.client.delivery import explanation

            click.echo(f"dpcrowd: left out: line {number}: {explanation(reason)}.", err=True)

    def unnamed(self, count: int) -> None:
        """Count lines of a request beyond those that a node names."""
        self._add(_UNNAMED, count)

    def report(self) -> None:
        """Print the totals if a minute has passed and they have changed; to be called often."""
        if self._now() < self._report_at:
            return
        self._report_at = self._now() + _REPORT_SECONDS
        self._lines_reported = 0
        if self.total > self._reported:
            self._print_totals("so far")

    def sum_up(self) -> None:
        """Print the totals at the end."""
        if self.total:
            self._print_totals("in all")

    def _add(self, reason: str, count: int) -> None:
        self.total += count
        self._counts[reason] += count

    def _print_totals(self, when: str) -> None:
        self._reported = self.total
        reasons = ", ".join(f"{count} {reason}" for reason, count in self._counts.most_common())
        lines = "line" if self.total == 1 else "lines"
        click.echo(f"dpcrowd: left out: {self.total} {lines} {when}: {reasons}.", err=True)


class Stop:
    """Ends a program in order: inside the with block a signal only sets `requested`, which the program has to check.

    After the first SIGTERM or Control-C the earlier handlers are in place again, so that the second one ends the
    program as usual. Outside the main thread, where Python handles no signals, nothing is ever requested.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._number is not None

    def sleep(self, seconds: float) -> None:
        """Sleep this many seconds, or until a signal arrives."""
        end = time.monotonic() + seconds
        while not self.requested() and (remaining := end - time.monotonic()) > 0:
            time.sleep(min(remaining, _NAP))

    def finish(self) -> None:
        """After the with block: end the program as the signal would have ended it."""
        if self._number is not None:
            signal.raise_signal(self._number)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._handlers = {}
