"""network.toml, the public configuration that is the same for all servers, as one frozen object.

It provides what a server has to know: when slots open, what is promised, which scheme runs with which numbers, who is a
neighbour in which slot. It reads no file and no clock (`dpcrowd.node.config.read` does), so that the state machine may
hold it. Every object of this class has passed every check: those of one table are in `sections`, those that involve
several tables in `network_checks`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import numpy as np
from msgspec import field

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.filters import ProcessModel
from dpcrowd.models.file import parse_model
from dpcrowd.models.model import Model
from dpcrowd.models.season import SlotTimes
from dpcrowd.network.arrivals import NEVER
from dpcrowd.network.mixing import Mixing, mixing_of
from dpcrowd.node.config.kinds import Section, about
from dpcrowd.node.config.links import Links, TimedLink
from dpcrowd.node.config.network_checks import check_network, probable_mistakes
from dpcrowd.node.config.sections import (
    GeneralSection,
    GuaranteeSection,
    LinkSection,
    MapSection,
    SchemeSection,
    ServerSection,
)
from dpcrowd.node.slots import SlotClock
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.base import Peers, Scheme, Setting
from dpcrowd.schemes.prediction import PublicFacts, best_reach, best_samples, reach_choices
from dpcrowd.schemes.registry import make_scheme, staggered_interval
from dpcrowd.schemes.relay import AUDIENCE_OF_RECORDS, Hops, Relay, schedule_offsets

__all__ = ["NetworkConfig", "assertion"]

PREDICTED = 36
"""Servers whose accuracy is predicted, if the file does not give the number of samples, or the reach."""

Servers = Annotated[
    tuple[ServerSection, ...],
    about("The servers; a server's number is its place here.", "at least one [[server]] table", min_length=1),
]


def assertion(model: str, sources: str) -> str:
    """Return what operators assert of a model, and when that is true.

    model    which one it is, in words
    sources  why it costs no budget, in quotation marks
    """
    return (
        f"Asserted by the operators, not checkable by any server: {model} costs no budget, for this reason, in their "
        f"own words: {sources}. This is true only if it was fitted on published data, on people whom this promise does "
        "not cover, or on earlier releases; otherwise the model is a release that nobody has paid for."
    )


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
        check_network(self)

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
        return f"{text} {assertion('the process model that all servers know', self.fitted.quoted_sources)}"

    @property
    def asks_to_learn(self) -> bool:
        """Whether filters should learn how well their model fits, as stated or by default: with a model."""
        return self.fitted is not None if self.method.learn is None else self.method.learn

    @property
    def learns(self) -> bool:
        """Whether they do: those of the matrix form do not."""
        return self.asks_to_learn and self.method.form == "diagonal"

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
            phases=self.offsets_with,
            alpha=self.method.tuning.alpha,
            observation=self.method.observation,
            form=self.method.form,
            level=level if model.course is None else model.course.profile.mean(axis=0),
            turnover=1.0 if self.method.turnover is None else self.method.turnover,
            cancellation=False,  # earlier versions did not know it, and would compute another number of samples
            meetings=bool(self.method.meetings),
        )

    @property
    def shares(self) -> Floats:
        """The part of the population that each server counts, by number: (m,), or (m, d) where it differs by region."""
        if any(server.shares for server in self.servers):
            return np.array([server.counted_shares(self.regions) for server in self.servers])
        return np.array([server.counted_share for server in self.servers])

    def offsets_with(self, samples: int) -> Ints:
        """Return the offsets of all servers' schedules, with this number of samples per window or horizon."""
        meeting = len(self.servers) if self.method.meetings else 0
        offsets = schedule_offsets(self.timed.phases, self.guarantee(), samples, meeting)
        return np.zeros(len(self.servers), dtype=np.int64) if offsets is None else offsets

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all servers' schedules, by number, where they pass records on."""
        assert self.relay is not None
        return tuple(self.offsets_with(self.relay.samples_per(self.guarantee().length)).tolist())

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
            learn=self.asks_to_learn,
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

    def mixing(self, name: str) -> Mixing | None:
        """Return what the links of the revision's first slot do to a server's errors; None: there is no consensus."""
        if self.scheme().reach != "one-hop":
            return None
        number = self.number_of(name)
        return Mixing(*(part[number : number + 1] for part in self._mixing))

    @cached_property
    def _mixing(self) -> Mixing:
        links = [link for link in self.timed_links() if link.holds(max(self.valid_from_slot, 0))]
        ends = np.array([(link.low, link.high) for link in links], dtype=np.int64).reshape(-1, 2)
        return mixing_of(len(self.servers), ends[:, 0], ends[:, 1])

    def max_degree(self, first: int | None = None, until: int | None = None) -> int:
        """Return the largest number of neighbours of any server in slots first <= t < until; default: all slots."""
        return self.timed.max_degree(first, until)

    def warnings(self) -> tuple[str, ...]:
        """Return what is allowed, but probably not intended, in one line each."""
        return tuple(probable_mistakes(self))
