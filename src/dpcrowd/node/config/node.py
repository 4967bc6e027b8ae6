"""node.toml, the private configuration of one server: its name, its files, its addresses, who may use its API.

Paths are relative to the file; rights over HTTP are in `dpcrowd.node.config.tokens`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import field

from dpcrowd.node.config.address import check_endpoint, host_and_port, is_loopback
from dpcrowd.node.config.kinds import Duration, InvalidValue, Name, Section, Size, about
from dpcrowd.node.config.tokens import TokensSection

__all__ = [
    "DebugSection",
    "IngestSection",
    "KeysSection",
    "LedgerSection",
    "ListenSection",
    "LogSection",
    "NodeConfig",
    "NoiseSection",
    "RetentionSection",
]

_FILE = "the path of a file, relative to this one"


class KeysSection(Section, frozen=True, kw_only=True):
    """[keys]: PEM files that `dpcrowd keys` has made."""

    key: Annotated[Path, about("This server's private key.", _FILE)]
    certificate: Annotated[Path, about("This server's certificate.", _FILE)]
    ca: Annotated[Path, about("The certificate of the network's authority.", _FILE)]


class ListenSection(Section, frozen=True, kw_only=True):
    """[listen]: addresses of this machine."""

    transport: Annotated[
        tuple[str, ...],
        about(
            "The addresses at which neighbours connect.",
            'a list of at least one "tls/HOST:PORT"',
            min_length=1,
            max_length=16,
        ),
    ] = ("tls/0.0.0.0:7447",)
    http: Annotated[str, about("The address of the HTTP API.", '"HOST:PORT"')] = "127.0.0.1:8080"
    http_certificate: Annotated[Path | None, about("The certificate for HTTPS.", _FILE)] = None
    http_key: Annotated[Path | None, about("The private key of the HTTPS certificate.", _FILE)] = None

    def __post_init__(self) -> None:
        for number, endpoint in enumerate(self.transport):
            check_endpoint(f"transport[{number}]", endpoint)
        host_and_port("http", self.http)
        if (self.http_certificate is None) != (self.http_key is None):
            missing = "http_certificate" if self.http_certificate is None else "http_key"
            raise InvalidValue(missing, "missing; HTTPS needs both http_certificate and http_key, HTTP needs neither.")

    @property
    def http_address(self) -> tuple[str, int]:
        """Host and port of the HTTP API."""
        return host_and_port("http", self.http)


class IngestSection(Section, frozen=True, kw_only=True):
    """[ingest]: which data the node accepts."""

    accepts: Annotated[
        Literal["checkins", "counts"],
        about(
            "What the node accepts: check-ins, or counts of distinct users that were made elsewhere.",
            '"checkins" or "counts"',
        ),
    ] = "checkins"
    capacity: Annotated[
        int,
        about(
            "Distinct users of an open slot that are counted in memory, about 150 bytes each. A slot with more is "
            "counted from the journal when it is sealed: nobody is refused, but its message is late.",
            "1 to 1000000000",
            ge=1,
            le=10**9,
        ),
    ] = 1_000_000
    journal_limit: Annotated[
        Size,
        about(
            "Disk space for the check-ins of one slot, 20 bytes each; a slot that needs more is not sampled.",
            'a size from 1MiB to 1024GiB such as "1GiB", or bytes',
        ),
    ] = field(default_factory=lambda: Size(1 << 30))
    max_downtime: Annotated[
        Duration | None,
        about(
            "How much of a slot the node may have missed and still sample it; default: a tenth of a slot.",
            "a duration from 0s to 1d",
        ),
    ] = None
    requests_per_second: Annotated[
        float,
        about(
            "How many requests with check-ins or counts one token may make per second; 0: no limit.",
            "a number from 0 to 1000000",
            ge=0,
            le=1e6,
        ),
    ] = 0.0
    max_body: Annotated[
        Size, about("The largest allowed body of a request.", 'a size from 1KiB to 1GiB such as "8MiB", or bytes')
    ] = field(default_factory=lambda: Size(8 << 20))
    future: Annotated[
        Duration, about("How far ahead of this server's clock a check-in's time may be.", "a duration from 0s to 1d")
    ] = field(default_factory=lambda: Duration(2_000_000_000))
    exact_counters: Annotated[
        bool,
        about(
            "Whether to export exact numbers of check-ins as metrics: raw counts, for a monitor in your walls only.",
            "true or false",
        ),
    ] = False
    counts: Annotated[
        bool | None, about("A setting of version 0.1, without effect: see `accepts`.", "true or false")
    ] = None
    needs_feed: Annotated[
        bool,
        about(
            "Whether to sample only slots for which a request came. Use it only with a feed that sends one in every "
            "slot, also when nobody is there (an empty list is enough): otherwise silence reveals that nobody was.",
            "true or false",
        ),
    ] = False

    def __post_init__(self) -> None:
        if not 1 << 10 <= self.max_body <= 1 << 30:
            raise InvalidValue("max_body", f"given {self.max_body}; allowed: 1KiB to 1GiB.")
        if not 1 << 20 <= self.journal_limit <= 1 << 40:
            raise InvalidValue("journal_limit", f"given {self.journal_limit}; allowed: 1MiB to 1024GiB.")
        for name, value in (("future", self.future), ("max_downtime", self.max_downtime)):
            if value is not None and value > 86_400_000_000_000:
                raise InvalidValue(name, f"given {value}; allowed: 0s to 1d.")


class NoiseSection(Section, frozen=True, kw_only=True):
    """[noise]: how noise is drawn. There is no setting for noise that is not exact."""

    sampler: Annotated[
        Literal["exact", "opendp"],
        about(
            "What draws the noise: dpcrowd itself, from fresh entropy for every sample, or the library OpenDP, which "
            "repeats its noise if an image of the process or the machine is resumed twice.",
            '"exact" or "opendp"',
        ),
    ] = "exact"


class LogSection(Section, frozen=True, kw_only=True):
    """[log]: what the node logs."""

    format: Annotated[
        Literal["json", "pretty"], about("One JSON object per line, or text for people.", '"json" or "pretty"')
    ] = "json"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        about(
            "The lowest level that is logged; it can be changed while the node runs.",
            '"debug", "info", "warning" or "error"',
        ),
    ] = "info"


class RetentionSection(Section, frozen=True, kw_only=True):
    """[retention]: how long data is stored. The ledger is never deleted."""

    releases: Annotated[
        Duration, about("How long releases are stored.", 'a duration from 1h to 36500d such as "90d"')
    ] = field(default_factory=lambda: Duration(90 * 86_400_000_000_000))

    def __post_init__(self) -> None:
        if self.releases < 3_600_000_000_000:
            raise InvalidValue("releases", f"given {self.releases}; allowed: 1h to 36500d.")


class LedgerSection(Section, frozen=True, kw_only=True):
    """[ledger]: the account of what was spent."""

    shared: Annotated[
        Path | None,
        about(
            "The data folder of another network's node over the same users, whose ledger this one pays into.",
            "the path of a folder",
        ),
    ] = None


class DebugSection(Section, frozen=True, kw_only=True):
    """[debug]: settings for finding faults."""

    record: Annotated[
        Path | None,
        about(
            "A file that records what happens to the state machine, for `dpcrowd node replay`. Others must not be "
            "able to read it.",
            _FILE,
        ),
    ] = None
    record_limit: Annotated[
        Size, about("The largest size of that file.", 'a size from 1MiB to 1024GiB such as "64MiB", or bytes')
    ] = field(default_factory=lambda: Size(64 << 20))

    def __post_init__(self) -> None:
        if not 1 << 20 <= self.record_limit <= 1 << 40:
            raise InvalidValue("record_limit", f"given {self.record_limit}; allowed: 1MiB to 1024GiB.")


class NodeConfig(Section, frozen=True, kw_only=True):
    """All of node.toml."""

    server: Annotated[
        Name, about("The name of this server in the network.", "the name of a [[server]] of network.toml")
    ]
    network: Annotated[
        Path, about("The network's public configuration.", "the path of network.toml, relative to this file")
    ]
    data: Annotated[
        Path, about("The folder for ledger, releases and journal.", "the path of a folder, relative to this file")
    ]
    keys: Annotated[KeysSection, about("Key and certificates.", "a table [keys]")]
    listen: Annotated[ListenSection, about("Addresses of this machine.", "a table [listen]")] = field(
        default_factory=ListenSection
    )
    tokens: Annotated[TokensSection, about("Who may do what over HTTP.", "a table [tokens]")] = field(
        default_factory=TokensSection
    )
    ingest: Annotated[IngestSection, about("Which data the node accepts.", "a table [ingest]")] = field(
        default_factory=IngestSection
    )
    noise: Annotated[NoiseSection, about("How noise is drawn.", "a table [noise]")] = field(
        default_factory=NoiseSection
    )
    log: Annotated[LogSection, about("What the node logs.", "a table [log]")] = field(default_factory=LogSection)
    retention: Annotated[RetentionSection, about("How long data is stored.", "a table [retention]")] = field(
        default_factory=RetentionSection
    )
    ledger: Annotated[LedgerSection, about("The account of what was spent.", "a table [ledger]")] = field(
        default_factory=LedgerSection
    )
    debug: Annotated[DebugSection, about("Settings for finding faults.", "a table [debug]")] = field(
        default_factory=DebugSection
    )

    def __post_init__(self) -> None:
        if self.ledger.shared is not None and self.ledger.shared == self.data:
            raise InvalidValue(
                "ledger.shared",
                "given this node's own data folder; give another node's data folder, or omit the setting.",
            )

    @property
    def served_certificate(self) -> Path:
        """The copy of the certificate that HTTPS uses while the node runs: the configured file may be newer."""
        return self.data / "https.served.crt"

    def warnings(self) -> tuple[str, ...]:
        """Return what is allowed, but probably not intended, in one line each."""
        return tuple(self._warnings())

    def _warnings(self) -> Iterator[str]:
        outside = not is_loopback(self.listen.http_address[0])
        if outside and self.listen.http_certificate is None:
            yield f"listen.http is {self.listen.http} without TLS: tokens and check-ins are not encrypted."
        if outside and self.tokens.read == "open":
            yield f"tokens.read is open and listen.http is {self.listen.http}: whoever reaches it can read estimates."
        if not self.tokens.checkin:
            yield "tokens.checkin is empty: nobody can send check-ins over HTTP."
        if self.ingest.counts is not None:
            yield (
                'ingest.counts has no effect any more; delete it, and write accepts = "counts" if this node receives '
                f"counts. It accepts {self.ingest.accepts} now."
            )
        if self.ingest.exact_counters:
            yield "ingest.exact_counters is on: /metrics shows raw counts, which no epsilon covers; keep them inside."
        if self.debug.record is not None:
            yield f"debug.record is on: {self.debug.record} contains noisy values and messages; keep it private."
        if self.noise.sampler == "opendp":
            yield (
                "noise.sampler is opendp: a process or a machine that is resumed twice from one image repeats its "
                "noise, and the difference of two releases is then exact; never resume this server from a snapshot."
            )
