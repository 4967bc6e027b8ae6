"""network.toml, the public configuration that is the same for all servers, as one frozen object.

It answers what a server has to know: when slots open, what is promised, which scheme runs with which numbers, who is a
neighbour in which slot. It reads no file and no clock (`dpcrowd.node.config.load` does), so that the state machine may
hold it. Whoever has an object of this class has a configuration that passed every check.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import numpy as np
from msgspec import field

from dpcrowd.errors import unknown_name
from dpcrowd.filters import ProcessModel
from dpcrowd.node.config import checks
from dpcrowd.node.config.kinds import Section, about
from dpcrowd.node.config.links import Links, TimedLink
from dpcrowd.node.config.members import LinkSection, ServerSection
from dpcrowd.node.config.sections import GeneralSection, GuaranteeSection, SchemeSection
from dpcrowd.node.slots import SlotClock
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import from_nano
from dpcrowd.schemes.base import Scheme, Setting
from dpcrowd.schemes.registry import make_scheme, staggered_interval

__all__ = ["NetworkConfig"]

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
        checks.check_servers(self.servers)
        checks.check_links(self)
        checks.check_scheme(self)

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
        return checks.network_warnings(self)
