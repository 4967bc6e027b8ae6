"""network.toml, the public configuration that is the same for all servers, as one frozen object.

It answers what a server has to know: when slots open, what is promised, which scheme runs with which numbers, who is a
neighbour in which slot. It reads no file and no clock (`dpcrowd.node.config.read` does), so that the state machine may
hold it. Whoever has an object of this class has a configuration that passed every check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import field

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.filters import ProcessModel, check_gain
from dpcrowd.node.config.kinds import InvalidValue, Section, about
from dpcrowd.node.config.links import Links, TimedLink, refuse_twice
from dpcrowd.node.config.sections import (
    GeneralSection,
    GuaranteeSection,
    LinkSection,
    SchemeSection,
    ServerSection,
    usual_send_offset,
)
from dpcrowd.node.slots import SlotClock
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.base import Scheme, Setting
from dpcrowd.schemes.registry import SCHEMES, make_scheme, staggered_interval

__all__ = ["NetworkConfig"]

T = TypeVar("T")
MATRIX_REGIONS = 1_000
"""The matrix form sends and stores d (d + 1)/2 numbers: 4 MB a message at 1,000 regions."""
LONGEST_WINDOW = 1_000_000
"""The state that every sample stores holds one number a slot of the window."""
LARGEST_MEMORY = 10_000_000
"""Regions times remembered values, of the controllers and of the grouping."""
WEAK_EPSILON = 10

Servers = Annotated[
    tuple[ServerSection, ...],
    about("The servers; a server's number is its place here.", "at least one [[server]] table", min_length=1),
]


class NetworkConfig(Section, frozen=True, kw_only=True, dict=True):
    """One revision of a network. Numbers of servers are their places in the file, from 0."""

    general: Annotated[GeneralSection, about("Who and where, and how time is cut.", "a table [network]")] = field(
        name="network"
    )
    guarantee_section: Annotated[GuaranteeSection, about("What is promised to a user.", "a table [guarantee]")] = field(
        name="guarantee"
    )
    method: Annotated[SchemeSection, about("What the servers compute.", "a table [scheme]")] = field(name="scheme")
    servers: Servers = field(name="server")
    links: Annotated[tuple[LinkSection, ...], about("Who hears whom.", "[[link]] tables")] = field(
        name="link", default=()
    )

    def __post_init__(self) -> None:
        _check_servers(self.servers)
        _check_links(self)
        _check_scheme(self)

    # What [network] says, by short names.

    @property
    def id(self) -> str:
        return self.general.id

    @property
    def revision(self) -> int:
        return self.general.revision

    @property
    def valid_from_slot(self) -> int:
        return self.general.valid_from_slot

    @property
    def grace_ns(self) -> int:
        return int(self.general.grace)

    @property
    def deadline_ns(self) -> int:
        """How long after the seal (the end of the grace) neighbours are waited for."""
        return int(self.general.deadline)

    @property
    def send_offset_ns(self) -> int:
        """How long after the seal a server's own message leaves."""
        assert self.general.send_offset is not None
        return int(self.general.send_offset)

    @property
    def population(self) -> int:
        return self.general.population

    @property
    def regions(self) -> tuple[str, ...]:
        return self.general.regions

    @property
    def beta(self) -> float | None:
        """The consensus step, if it is not the default."""
        return self.method.beta

    def clock(self) -> SlotClock:
        """When slots open and close."""
        return SlotClock(int(self.general.epoch), int(self.general.slot))

    def guarantee(self) -> Guarantee:
        """What is promised. The ledger's budget is exact: nine decimals survive the float in between."""
        guarantee_section = self.guarantee_section
        return Guarantee(
            kind=guarantee_section.kind,
            length=guarantee_section.length,
            epsilon=from_nano(guarantee_section.epsilon),
            users=guarantee_section.users,
            regions_per_slot=guarantee_section.regions_per_slot,
            servers_per_slot=guarantee_section.servers_per_slot,
            correlation=guarantee_section.correlation,
        )

    def model(self) -> ProcessModel:
        """A and Q of the filters."""
        process_var: Any = self.method.process_var
        if isinstance(process_var, float):
            process_var = np.full(len(self.regions), process_var)
        return ProcessModel.of(self.method.transition, process_var)

    def scheme(self) -> Scheme:
        """A fresh scheme with the options of the file."""
        method = self.method
        options = {name: getattr(method, name) for name in ("sampling", "interval", "blocks", "grouping", "split")}
        return make_scheme(method.name, **options)

    def setting(self, server: str) -> Setting:
        """What `dpcrowd.schemes.server.Server` needs to run as this server."""
        number = self.number_of(server)
        interval = staggered_interval(self.scheme())
        phases = None if interval is None else self.timed.phases(interval)[number : number + 1]
        return Setting(
            servers=1,
            model=self.model(),
            guarantee=self.guarantee(),
            tuning=self.method.tuning,
            observation=self.method.observation,
            form=self.method.form,
            phases=phases,
        )

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {server.name: number for number, server in enumerate(self.servers)}

    def number_of(self, name: str) -> int:
        """A server's place in the file, from 0; sums over servers run in this order."""
        if name not in self._numbers:
            raise unknown_name("server", name, self._numbers)
        return self._numbers[name]

    def server(self, name: str) -> ServerSection:
        """What the file says about a server."""
        return self.servers[self.number_of(name)]

    @cached_property
    def timed(self) -> Links:
        """The links by numbers of servers."""
        return Links(len(self.servers), self.timed_links(), self.valid_from_slot)

    def timed_links(self) -> list[TimedLink]:
        """The links as the file has them, by numbers of servers."""
        found = []
        for link in self.links:
            low, high = sorted(self.number_of(name) for name in link.between)
            found.append(TimedLink(low, high, link.from_slot or 0, link.until_slot))
        return found

    def neighbours(self, name: str, slot: int) -> tuple[str, ...]:
        """The one-hop neighbours of a server in a slot, in the order of their numbers."""
        return tuple(self.servers[number].name for number in self.timed.neighbours(self.number_of(name), slot))

    def max_degree(self, first: int | None = None, until: int | None = None) -> int:
        """The most neighbours that any server has in slots first <= t < until; without them, in the whole revision."""
        return self.timed.max_degree(first, until)

    def warnings(self) -> tuple[str, ...]:
        """What is allowed, but probably not meant; one line each."""
        return _network_warnings(self)


def _check_servers(servers: Sequence[ServerSection]) -> None:
    """Names, certificate names, endpoints and keys belong to one server each."""
    seen: dict[tuple[str, str], int] = {}
    for number, server in enumerate(servers):
        marks = [(mark, str(getattr(server, mark))) for mark in ("name", "certificate_name", "endpoint")]
        for mark, value in [*marks, *(("keys", key) for key in server.keys)]:
            other = seen.setdefault((mark, value), number)
            if other != number:
                what = "the key of" if mark == "keys" else f"'{value}', as"
                raise InvalidValue(
                    f"server[{number}].{mark}", f"given {what} server[{other}]; allowed: one of its own."
                )


def _check_links(network: NetworkConfig) -> None:
    """Links join two different servers that exist, once, and leave nobody alone."""
    names = [server.name for server in network.servers]
    for number, link in enumerate(network.links):
        for end, name in enumerate(link.between):
            if name not in names:
                raise InvalidValue(f"link[{number}].between[{end}]", str(unknown_name("server", name, names)))
        if link.between[0] == link.between[1]:
            raise InvalidValue(f"link[{number}].between", f"'{link.between[0]}' is linked to itself; give two servers.")
    refuse_twice(network.timed_links())
    alone = network.timed.isolated()
    if alone and len(names) > 1:
        since = f" from slot {network.valid_from_slot} on" if network.valid_from_slot else ""
        raise InvalidValue(
            f"server[{alone[0]}]", f"'{names[alone[0]]}' has no link{since}; give it one, or leave it out."
        )


def _check_scheme(network: NetworkConfig) -> None:
    """A scheme that may run live, with options, numbers and a guarantee that fit it."""
    method, regions = network.method, len(network.regions)
    live = sorted(name for name, scheme in SCHEMES.items() if scheme.live)
    if method.name in SCHEMES and method.name not in live:
        raise InvalidValue(
            "scheme.name", f"'{method.name}' is for the simulator only; a live node runs {', '.join(live)}."
        )
    if method.name not in live:
        raise InvalidValue("scheme.name", str(unknown_name("scheme", method.name, live)))
    if method.accounting != "sound":
        why = " since a user who moves between regions would pay more than epsilon" * (
            method.accounting == "per-region"
        )
        raise InvalidValue("scheme.accounting", f"given '{method.accounting}'; a live node allows \"sound\" only{why}.")
    if isinstance(method.process_var, tuple) and len(method.process_var) != regions:
        raise InvalidValue(
            "scheme.process_var",
            f"given {len(method.process_var)} numbers; allowed: one number, or {regions}, one a region.",
        )
    if method.form == "matrix" and regions > MATRIX_REGIONS:
        raise InvalidValue(
            "scheme.form", f'"matrix" with {regions} regions; allowed: at most {MATRIX_REGIONS} regions.'
        )
    if isinstance(method.transition, tuple):
        rows = [len(row) if isinstance(row, tuple) else 0 for row in method.transition]
        if len(rows) != regions or set(rows) not in ({0}, {regions}):
            raise InvalidValue(
                "scheme.transition", f"allowed: a number, {regions} numbers, or {regions} rows of {regions}."
            )
    for name in ("integral_window", "history"):
        if getattr(method.tuning, name) * regions > LARGEST_MEMORY:
            most = f"at most {LARGEST_MEMORY // regions} with {regions} regions"
            raise InvalidValue(f"scheme.tuning.{name}", f"given {getattr(method.tuning, name)}; allowed: {most}.")
    if network.guarantee_section.kind == "window" and network.guarantee_section.length > LONGEST_WINDOW:
        raise InvalidValue(
            "guarantee.length",
            f"a window of {network.guarantee_section.length} slots; allowed: at most {LONGEST_WINDOW}.",
        )
    if network.guarantee_section.horizon_from_slot > network.valid_from_slot:
        raise InvalidValue(
            "guarantee.horizon_from_slot",
            f"given {network.guarantee_section.horizon_from_slot}; allowed: at most {network.valid_from_slot} "
            "(valid_from_slot). A revision begins a horizon with its own first slot, or continues the present one.",
        )
    _try("guarantee", network.guarantee)
    model = _try("scheme", network.model)
    _try("scheme", network.scheme)
    first = network.servers[0].name  # all servers start alike, but for the phase
    _try("scheme", lambda: network.scheme().start(network.setting(first)))
    if method.beta is not None:
        beta = method.beta
        _try("scheme.beta", lambda: check_gain(beta, network.max_degree(), model.growth))


def _try(path: str, make: Callable[[], T]) -> T:
    """What `make` gives; a refusal of its own gets the path of the table."""
    try:
        return make()
    except InvalidValue:
        raise
    except BadInput as error:
        raise InvalidValue(path, str(error)) from None


def _network_warnings(network: NetworkConfig) -> tuple[str, ...]:
    """What is allowed, but probably not meant."""
    return tuple(_warnings(network))


def _warnings(network: NetworkConfig) -> Iterator[str]:
    guarantee_section = network.guarantee_section
    total = math.fsum(server.share for server in network.servers)
    if total > guarantee_section.servers_per_slot + 1e-9:
        yield (
            f"the shares add up to {total:g}, so a user is at {total:g} servers of a slot on average, but "
            f"servers_per_slot is {guarantee_section.servers_per_slot}: the promise then holds for each server by "
            f"itself, not for the network. Set servers_per_slot to {math.ceil(total - 1e-9)} or more, "
            "or make the shares smaller."
        )
    if guarantee_section.epsilon > WEAK_EPSILON * 10**9:
        yield f"an epsilon of {network.guarantee().epsilon:g} promises little; 1 or less is usual."
    end = guarantee_section.horizon_from_slot + guarantee_section.length
    if guarantee_section.kind == "finite" and network.valid_from_slot >= end:
        yield f"the horizon ended at slot {end}, before this revision begins: no server will sample."
    usual = usual_send_offset(len(network.regions), network.deadline_ns)
    if network.send_offset_ns < usual:
        yield (
            f"a send_offset of {network.general.send_offset} may be over before a sample is stored: then the moment at "
            f"which a message leaves tells how many people were counted. Leave it out for {usual}."
        )
    if len(network.servers) == 1:
        yield "there is one server only: it has nobody to hear."
    for number, link in enumerate(network.links):
        if link.until_slot is not None and link.until_slot <= network.valid_from_slot:
            yield f"link[{number}] ended at slot {link.until_slot}, before this revision begins; it can be left out."
