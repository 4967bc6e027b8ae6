"""network.toml, the public configuration that is the same for all servers, as one frozen object.

It provides what a server has to know: when slots open, what is promised, which scheme runs with which numbers, who is a
neighbour in which slot. It reads no file and no clock (`dpcrowd.node.config.read` does), so that the state machine may
hold it. Every object of this class has passed every check: those that involve several tables are below the class, each
with the path of the setting that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np
from msgspec import field

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.filters import ProcessModel, check_gain
from dpcrowd.models.file import parse_model
from dpcrowd.models.model import Model
from dpcrowd.models.season import SlotTimes
from dpcrowd.network.arrivals import NEVER
from dpcrowd.node.config.kinds import InvalidValue, Section, about
from dpcrowd.node.config.links import Links, TimedLink, refuse_duplicates
from dpcrowd.node.config.sections import (
    PROCESS_VAR,
    GeneralSection,
    GuaranteeSection,
    LinkSection,
    MapSection,
    SchemeSection,
    ServerSection,
    usual_send_offset,
)
from dpcrowd.node.slots import SlotClock
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.base import Peers, Scheme, Setting
from dpcrowd.schemes.prediction import PublicFacts, best_reach, best_samples, reach_choices
from dpcrowd.schemes.registry import SCHEMES, make_scheme, staggered_interval
from dpcrowd.schemes.relay import AUDIENCE_OF_RECORDS, GROUPS_NEED_A_MODEL, Hops, Relay, schedule_offsets

__all__ = ["NetworkConfig"]

T = TypeVar("T")
MATRIX_REGIONS = 1_000
"""The matrix form sends and stores d (d + 1)/2 numbers: 4 MB per message at 1,000 regions."""
LONGEST_WINDOW = 1_000_000
"""The state that is stored with every sample holds one number per slot of the window."""
LARGEST_MEMORY = 10_000_000
"""Regions times remembered values, of the controllers and of the grouping."""
WEAK_EPSILON = 10
PREDICTED = 36
"""Servers whose accuracy is predicted, if the file does not give the number of samples, or the reach."""

Servers = Annotated[
    tuple[ServerSection, ...],
    about("The servers; a server's number is its place here.", "at least one [[server]] table", min_length=1),
]


class NetworkConfig(Section, frozen=True, kw_only=True, dict=True):
    """One revision of a network. Numbers of servers are their places in the file, from 0."""

    general: Annotated[GeneralSection, about("Name, population, regions and slots.", "a table [network]")] = field(
        name="network"
    )
    guarantee_section: Annotated[GuaranteeSection, about("What is promised to a user.", "a table [guarantee]")] = field(
        name="guarantee"
    )
    method: Annotated[SchemeSection, about("What the servers compute.", "a table [scheme]")] = field(name="scheme")
    servers: Servers = field(name="server")
    links: Annotated[tuple[LinkSection, ...], about("The links between servers.", "[[link]] tables")] = field(
        name="link", default=()
    )
    region_map: Annotated[MapSection, about("Where the regions are, for the live page.", "a table [map]")] = field(
        name="map", default_factory=MapSection
    )

    def __post_init__(self) -> None:
        _check_servers(self.servers)
        _check_links(self)
        _check_shares(self)
        _check_scheme(self)
        _check_map(self)

    # The settings of [network], by short names.

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
        """Return the clock that says when slots open and close."""
        return SlotClock(int(self.general.epoch), int(self.general.slot))

    def guarantee(self) -> Guarantee:
        """Return what is promised. The ledger's budget is exact: nine decimals survive the conversion to float."""
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
        """Return the process model of the filters: A and Q, or what a fitted model expects of every slot."""
        if self.fitted is not None:
            clock = self.clock()
            return self.fitted.process_model(self.regions, SlotTimes(clock.epoch_ns // 1000, clock.length_ns // 1000))
        process_var: Any = self.method.process_var
        if isinstance(process_var, float):
            process_var = np.full(len(self.regions), process_var)
        return ProcessModel.of(self.method.transition, process_var)

    @cached_property
    def fitted(self) -> Model | None:
        """The fitted model, if the file names one; its text stands in the place of its name (`read.network_text`)."""
        text = self.method.model
        if text is None:
            return None
        if "\n" not in text:
            raise BadInput(f"the model '{text}' was not read: it is a file beside network.toml.")
        return parse_model(text, "the model")

    def promise(self) -> str:
        """Return what is promised, in words, who gets the records, and what the operators assert of a model."""
        text = str(self.guarantee()) if self.relay is None else f"{self.guarantee()} {AUDIENCE_OF_RECORDS}"
        if self.fitted is None:
            return text
        return (
            f"{text} Asserted by the operators, not checkable by any server: the process model that all servers know "
            "was fitted on published data, on people whom this promise does not cover, or on earlier releases "
            f'("{self.fitted.source}").'
        )

    def scheme(self) -> Scheme:
        """Return a new scheme with the options of the file."""
        return make_scheme(self.method.name, **self._options()) if self.relay is None else self.relay

    def _options(self) -> dict[str, Any]:
        names = ("sampling", "interval", "blocks", "grouping", "split", "samples", "reach", "lag", "guard", "groups")
        return {name: getattr(self.method, name) for name in names}

    @cached_property
    def relay(self) -> Relay | None:
        """The scheme with a number of samples and a reach, if servers pass records on; None: it is another one.

        What the file does not say is computed from what it says, as `dpcrowd plan` recommends it: every server finds
        the same.
        """
        if self.method.name != Relay.name:
            return None
        scheme, reach = make_scheme(Relay.name, **self._options()), self.method.reach
        assert isinstance(scheme, Relay)
        is_open = scheme.samples is None and scheme.interval is None
        if not is_open and reach is not None:
            return scheme
        samples = None if is_open else scheme.samples_per(self.guarantee().length)
        if reach is None:
            choice = best_reach(reach_choices(self._public_facts, samples))
            reach, samples = choice.reach, choice.samples
        elif samples is None:
            samples = best_samples(self._public_facts(reach))
        return Relay(samples, None, reach, 1, scheme.lag, scheme.guard, scheme.groups)

    def _public_facts(self, reach: Hops) -> PublicFacts:
        """Return the facts from which the accuracy follows; records arrive in their own slot, if they arrive at all."""
        # Servers that get the same records have the same accuracy: one of them stands for all.
        hops = self.timed.hops(None if reach == "all" else reach)
        delays = np.unique(np.where(hops < 0, NEVER, 0), axis=0)
        if len(delays) > PREDICTED:
            delays = delays[np.linspace(0, len(delays) - 1, PREDICTED).astype(np.int64)]
        model = self.model()
        level = np.full(len(self.regions), self.population / len(self.regions))
        return PublicFacts(
            guarantee=self.guarantee(),
            model=model,
            shares=self.shares,
            delays=delays,
            phases=self._offsets,
            alpha=self.method.tuning.alpha,
            observation=self.method.observation,
            form=self.method.form,
            level=level if model.course is None else model.course.profile.mean(axis=0),
            turnover=1.0 if self.method.turnover is None else self.method.turnover,
        )

    @property
    def shares(self) -> Floats:
        """The part of the population that each server counts, by number: (m,), or (m, d) where it differs by region."""
        if any(server.shares for server in self.servers):
            return np.array([server.counted_shares(self.regions) for server in self.servers])
        return np.array([server.counted_share for server in self.servers])

    def _offsets(self, samples: int) -> Ints:
        """Return the offsets of all servers' schedules, with this number of samples per window or horizon."""
        offsets = schedule_offsets(self.timed.phases, self.guarantee(), samples)
        return np.zeros(len(self.servers), dtype=np.int64) if offsets is None else offsets

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all servers' schedules, by number, where they pass records on."""
        assert self.relay is not None
        return tuple(self._offsets(self.relay.samples_per(self.guarantee().length)).tolist())

    def setting(self, server: str) -> Setting:
        """Return what `dpcrowd.schemes.server.Server` needs to run as this server."""
        number = self.number_of(server)
        interval = staggered_interval(self.scheme())
        phases = None if interval is None else self.timed.phases(interval)[number : number + 1]
        peers = None
        if self.relay is not None:
            peers = Peers(number, self.shares)
            if self.guarantee_section.users == "pinned":
                phases = np.array(self.offsets[number : number + 1], dtype=np.int64)
        return Setting(
            servers=1,
            model=self.model(),
            guarantee=self.guarantee(),
            tuning=self.method.tuning,
            observation=self.method.observation,
            form=self.method.form,
            learn=self.fitted is not None if self.method.learn is None else self.method.learn,
            turnover=1.0 if self.method.turnover is None else self.method.turnover,
            share_width=self.method.share_width or 0.0,
            phases=phases,
            peers=peers,
        )

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {server.name: number for number, server in enumerate(self.servers)}

    def number_of(self, name: str) -> int:
        """Return a server's place in the file, from 0; sums over servers run in this order."""
        if name not in self._numbers:
            raise unknown_name("server", name, self._numbers)
        return self._numbers[name]

    def server(self, name: str) -> ServerSection:
        """Return the [[server]] table of a server."""
        return self.servers[self.number_of(name)]

    @cached_property
    def timed(self) -> Links:
        """The links by numbers of servers."""
        return Links(len(self.servers), self.timed_links(), self.valid_from_slot)

    def timed_links(self) -> list[TimedLink]:
        """Return the links of the file, by numbers of servers."""
        links = []
        for link in self.links:
            low, high = sorted(self.number_of(name) for name in link.between)
            links.append(TimedLink(low, high, link.from_slot or 0, link.until_slot))
        return links

    def neighbours(self, name: str, slot: int) -> tuple[str, ...]:
        """Return the one-hop neighbours of a server in a slot, in the order of their numbers."""
        return tuple(self.servers[number].name for number in self.timed.neighbours(self.number_of(name), slot))

    def max_degree(self, first: int | None = None, until: int | None = None) -> int:
        """Return the largest number of neighbours of any server in slots first <= t < until; default: all slots."""
        return self.timed.max_degree(first, until)

    def warnings(self) -> tuple[str, ...]:
        """Return what is allowed, but probably not intended, in one line each."""
        return tuple(_warnings(self))


def _check_servers(servers: Sequence[ServerSection]) -> None:
    """Refuse names, certificate names, endpoints and keys that two servers have."""
    owners: dict[tuple[str, str], int] = {}
    for number, server in enumerate(servers):
        values = [(name, str(getattr(server, name))) for name in ("name", "certificate_name", "endpoint")]
        for name, value in [*values, *(("keys", key) for key in server.keys)]:
            other = owners.setdefault((name, value), number)
            if other != number:
                what = "the key of" if name == "keys" else f"'{value}', as"
                raise InvalidValue(
                    f"server[{number}].{name}", f"given {what} server[{other}]; each server needs its own."
                )


def _check_links(network: NetworkConfig) -> None:
    """Refuse links that do not join two existing servers, duplicates, and servers without a link."""
    names = [server.name for server in network.servers]
    for number, link in enumerate(network.links):
        for end, name in enumerate(link.between):
            if name not in names:
                raise InvalidValue(f"link[{number}].between[{end}]", str(unknown_name("server", name, names)))
        if link.between[0] == link.between[1]:
            raise InvalidValue(
                f"link[{number}].between", f"'{link.between[0]}' is linked to itself; give two different servers."
            )
    refuse_duplicates(network.timed_links())
    isolated = network.timed.isolated()
    if isolated and len(names) > 1:
        since = f" from slot {network.valid_from_slot} on" if network.valid_from_slot else ""
        name = names[isolated[0]]
        text = f"'{name}' has no neighbours{since}; add a [[link]] for it, or remove the server."
        raise InvalidValue(f"server[{isolated[0]}]", text)


def _check_turnover(network: NetworkConfig) -> None:
    """Refuse a turnover that no filter would look at."""
    method, users = network.method, network.guarantee_section.users
    if method.turnover is None or method.turnover == 1.0:
        return
    for wrong, given, needed in (
        (method.name != Relay.name, f'scheme "{method.name}"', 'name = "relay"'),
        (users == "roaming", "roaming users, who choose a server in every slot", 'users = "pinned" in [guarantee]'),
        (method.observation != "binomial", f'observation "{method.observation}"', 'observation = "binomial"'),
        (method.form != "diagonal", f'form "{method.form}"', 'form = "diagonal"'),
    ):
        if wrong:
            raise InvalidValue(
                "scheme.turnover", f"given {method.turnover:g} with {given}; it needs {needed}, or leave it out."
            )


def _check_groups(network: NetworkConfig) -> None:
    """Refuse groups of regions that no filter could tell apart."""
    method = network.method
    if method.groups != "auto":
        return
    if method.form == "matrix" and network.fitted is None:
        raise InvalidValue("scheme.groups", GROUPS_NEED_A_MODEL)
    if method.share_width or network.shares.ndim > 1:
        why = "learned shares" if method.share_width else "shares that differ by region"
        raise InvalidValue("scheme.groups", f'given "auto" with {why}; groups need one public share per server.')


def _check_share_width(network: NetworkConfig) -> None:
    """Refuse to learn shares where records cannot say what they are."""
    method = network.method
    if not method.share_width:
        return
    total = network.shares.sum(axis=0)
    for wrong, given, needed in (
        (method.name != Relay.name, f'scheme "{method.name}"', 'name = "relay"'),
        (method.reach not in (None, "all"), f"reach {method.reach}", 'reach = "all"'),
        (method.observation != "binomial", f'observation "{method.observation}"', 'observation = "binomial"'),
        (method.form != "diagonal", f'form "{method.form}"', 'form = "diagonal"'),
        (
            bool((np.abs(total - 1.0) > 1e-6 * len(network.servers)).any()),
            f"shares that sum to {float(np.max(total)):g}",
            "every user at one server, so shares that sum to 1 in every region",
        ),
    ):
        if wrong:
            raise InvalidValue(
                "scheme.share_width", f"given {method.share_width:g} with {given}; it needs {needed}, or leave it out."
            )


def _check_scheme(network: NetworkConfig) -> None:
    """Refuse a scheme that cannot run live, and options, numbers or a guarantee that do not fit it."""
    method, regions = network.method, len(network.regions)
    live = sorted(name for name, scheme in SCHEMES.items() if scheme.live)
    if method.name in SCHEMES and method.name not in live:
        raise InvalidValue(
            "scheme.name", f"'{method.name}' is for the simulator only; a live node runs {', '.join(live)}."
        )
    if method.name not in live:
        raise InvalidValue("scheme.name", str(unknown_name("scheme", method.name, live)))
    if method.accounting != "sound":
        why = ", since a user who moves between regions would pay more than epsilon" * (
            method.accounting == "per-region"
        )
        raise InvalidValue("scheme.accounting", f"given '{method.accounting}'; a live node allows only \"sound\"{why}.")
    _check_turnover(network)
    _check_groups(network)
    _check_share_width(network)
    _check_model(network)
    if isinstance(method.process_var, tuple) and len(method.process_var) != regions:
        raise InvalidValue(
            "scheme.process_var",
            f"given {len(method.process_var)} numbers; allowed: one number, or {regions}, one per region.",
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
            limit = f"at most {LARGEST_MEMORY // regions} with {regions} regions"
            raise InvalidValue(f"scheme.tuning.{name}", f"given {getattr(method.tuning, name)}; allowed: {limit}.")
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
    _with_path("guarantee", network.guarantee)
    model = _with_path("scheme", network.model)
    _with_path("scheme", network.scheme)
    first = network.servers[0].name  # all servers start alike, except for the phase
    _with_path("scheme", lambda: network.scheme().start(network.setting(first)))
    _check_lag(network)
    if method.beta is not None:
        beta = method.beta
        _with_path("scheme.beta", lambda: check_gain(beta, network.max_degree(), model.growth))


def _check_lag(network: NetworkConfig) -> None:
    """Refuse to keep more records than a state may hold."""
    records = len(network.servers) * len(network.regions)
    if network.relay is not None and network.relay.lag * records > LARGEST_MEMORY:
        size = f"{len(network.servers)} servers and {len(network.regions)} regions"
        raise InvalidValue(
            "scheme.lag", f"given {network.relay.lag}; allowed: at most {LARGEST_MEMORY // records} with {size}."
        )


def _check_model(network: NetworkConfig) -> None:
    """Refuse a model without a source, or beside a process variance, and a network with neither."""
    method = network.method
    if method.model is None:
        if method.process_var is None:
            raise InvalidValue("scheme.process_var", f"missing; needed: {PROCESS_VAR}.")
        return
    if method.process_var is not None or method.transition != 1.0:
        name = "transition" if method.process_var is None else "process_var"
        raise InvalidValue(f"scheme.{name}", "given beside a model, which has its own; leave one of them out.")
    fitted = _with_path("scheme.model", lambda: network.fitted)
    if fitted is None or not fitted.source:
        raise InvalidValue(
            "scheme.model",
            "the model has no source; a live node takes only a model that says why it costs no privacy budget. Fit "
            "it with "
            "'dpcrowd fit --source TEXT' on published data, on people outside the promise, or on earlier releases.",
        )
    _with_path("scheme.model", network.model)


def _check_map(network: NetworkConfig) -> None:
    """Refuse coordinates of regions that do not exist."""
    regions = set(network.regions)
    for region in network.region_map.coordinates:
        if region not in regions:
            raise InvalidValue("map.coordinates", str(unknown_name("region", region, network.regions)))


_ROUNDING = 1e-5  # of shares that were written with few decimals


def _check_shares(network: NetworkConfig) -> None:
    """Refuse shares by region that lack a region, name one that does not exist, or contradict the server's share."""
    regions = set(network.regions)
    for number, server in enumerate(network.servers):
        if not server.shares:
            continue
        for region in server.shares:
            if region not in regions:
                raise InvalidValue(f"server[{number}].shares", str(unknown_name("region", region, network.regions)))
        for region in network.regions:
            if region not in server.shares:
                raise InvalidValue(
                    f"server[{number}].shares", f"no share of region '{region}'; needed: one of every region."
                )
        lowest, highest = min(server.shares.values()), max(server.shares.values())
        if not lowest - _ROUNDING <= server.share <= highest + _ROUNDING:
            raise InvalidValue(
                f"server[{number}].share",
                f"given {server.share:g}; allowed: a number between its smallest and its largest share of a region, "
                "since it is the part of the complete population.",
            )


def _with_path(path: str, make: Callable[[], T]) -> T:
    """Return what `make` returns; give its error the path of the table."""
    try:
        return make()
    except InvalidValue:
        raise
    except BadInput as error:
        raise InvalidValue(path, str(error)) from None


def _largest_sum(network: NetworkConfig) -> float:
    """Return the sum of the shares, in the region where it is largest."""
    if not any(server.shares for server in network.servers):
        return math.fsum(server.share for server in network.servers)
    return max(
        math.fsum(server.shares.get(region, server.share) for server in network.servers) for region in network.regions
    )


def _warnings(network: NetworkConfig) -> Iterator[str]:
    section = network.guarantee_section
    total = _largest_sum(network)
    if total > section.servers_per_slot + 1e-9:
        yield (
            f"the shares add up to {total:g}, so a user is at {total:g} servers per slot on average, but "
            f"servers_per_slot is {section.servers_per_slot}: the promise then holds for each server by "
            f"itself, not for the network. Set servers_per_slot to {math.ceil(total - 1e-9)} or more, "
            "or make the shares smaller."
        )
    if section.epsilon > WEAK_EPSILON * 10**9:
        yield f"an epsilon of {network.guarantee().epsilon:g} promises little privacy; 1 or less is usual."
    end = section.horizon_from_slot + section.length
    if section.kind == "finite" and network.valid_from_slot >= end:
        yield f"the horizon ended at slot {end}, before this revision begins: no server will sample."
    usual = usual_send_offset(len(network.regions), network.deadline_ns)
    if network.send_offset_ns < usual:
        yield (
            f"a send_offset of {network.general.send_offset} may be shorter than storing a sample takes: then the time "
            f"at which a message leaves reveals how many people were counted. Omit it for the default, {usual}."
        )
    if len(network.servers) == 1:
        yield f"'{network.servers[0].name}' is the only server, so it has no neighbours and estimates alone."
    for number, link in enumerate(network.links):
        if link.until_slot is not None and link.until_slot <= network.valid_from_slot:
            yield f"link[{number}] ended at slot {link.until_slot}, before this revision begins; remove it."
