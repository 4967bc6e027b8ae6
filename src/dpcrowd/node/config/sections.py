"""The tables of network.toml: their settings, what each means, and what is allowed.

The descriptions go into the JSON schema for editors; `allowed` is what an error says. Limits that involve one table
only are checked here, those that involve several in `dpcrowd.node.config.network`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import force_setattr

from dpcrowd.errors import BadInput
from dpcrowd.node.config.address import check_endpoint
from dpcrowd.node.config.kinds import (
    SECOND,
    CertificateName,
    Duration,
    InvalidValue,
    Moment,
    Name,
    NanoEpsilon,
    Section,
    about,
)
from dpcrowd.node.keys.pins import read_key
from dpcrowd.schemes.base import LEAST_SHARE_WIDTH
from dpcrowd.schemes.tuning import Tuning

__all__ = [
    "PROCESS_VAR",
    "GeneralSection",
    "GuaranteeSection",
    "LinkSection",
    "MapSection",
    "SchemeSection",
    "ServerSection",
    "usual_send_offset",
]

_WHOLE = "a whole number >= 1"
_SLOT = "a slot: a whole number >= 0"
_TIME = 'a duration such as "500ms", "30s", "15m", "1h", "1d", or a number of seconds'
_MOST = 2**53
_LONGEST_NAME = 200
_MILLISECOND = SECOND // 1_000
_MANY_REGIONS = 500
_LONGEST_LAG = 1_000

PROCESS_VAR = "a number from 0 to 1e18, or a list of one number per region"

Regions = Annotated[
    tuple[str, ...],
    about(
        "Names of the regions, in the order of every vector of counts.",
        "a list of 1 to 100000 different names",
        min_length=1,
        max_length=100_000,
    ),
]
# Far beyond any crowd; what is larger would overflow in the filter instead of being refused here.
Variance = Annotated[float, Meta(ge=0, le=1e18)]
Factor = Annotated[float, Meta(ge=-10, le=10)]
Numbers = Variance | tuple[Variance, ...]
Matrix = Factor | tuple[Factor | tuple[Factor, ...], ...]


class GeneralSection(Section, frozen=True, kw_only=True):
    """[network]: name, population, regions, and how time is divided into slots."""

    id: Annotated[Name, about("The network's name; part of every message.", "a name of a-z, 0-9 and '-'")]
    revision: Annotated[int, about("The version of this file, counted upwards.", _WHOLE, ge=1, le=_MOST)]
    valid_from_slot: Annotated[int, about("The first slot of this revision.", _SLOT, ge=0, le=_MOST)] = 0
    epoch: Annotated[
        Moment, about("When slot 0 opens.", 'a time with an offset, "2026-01-01T00:00:00Z", from 1970 to 2200')
    ]
    slot: Annotated[Duration, about("The length of a slot.", f"1s to 1d: {_TIME}")]
    grace: Annotated[
        Duration,
        about("How long after the end of a slot late check-ins are accepted.", f"0s to below the slot: {_TIME}"),
    ] = field(default_factory=lambda: Duration(0))
    deadline: Annotated[
        Duration,
        about(
            "How long after the grace a server waits for its neighbours.",
            f"above 0s, with grace at most the slot: {_TIME}",
        ),
    ]
    send_offset: Annotated[
        Duration | None,
        about(
            "How long after the grace a server's message leaves, however many people it has counted; default: 25ms, "
            "with more than 500 regions 75ms, and at most half the deadline.",
            f"0s to below the deadline: {_TIME}",
        ),
    ] = None
    population: Annotated[int, about("The size of the population that shares refer to.", _WHOLE, ge=1, le=_MOST)]
    regions: Regions

    def __post_init__(self) -> None:
        if not SECOND <= self.slot <= 86_400 * SECOND:
            raise InvalidValue("slot", f"given {self.slot}; allowed: 1s to 1d.")
        if self.grace >= self.slot:
            raise InvalidValue("grace", f"given {self.grace}; allowed: 0s to below the slot of {self.slot}.")
        if not 0 < self.deadline <= self.slot - self.grace:
            longest = Duration(self.slot - self.grace)
            raise InvalidValue(
                "deadline", f"given {self.deadline}; allowed: above 0s and at most {longest}, the slot minus the grace."
            )
        if self.send_offset is None:  # a file that states the default means the same
            force_setattr(self, "send_offset", usual_send_offset(len(self.regions), self.deadline))
        elif self.send_offset >= self.deadline:
            raise InvalidValue(
                "send_offset",
                f"given {self.send_offset}; allowed: 0s to below the deadline of {self.deadline}, since neighbours "
                "need the message before the exchange of the slot is over.",
            )
        names: set[str] = set()
        for number, region in enumerate(self.regions):
            if not region or region != region.strip() or len(region) > _LONGEST_NAME or not region.isprintable():
                raise InvalidValue(
                    f"regions[{number}]",
                    f"given a text of {len(region)} characters that is not a name; allowed: 1 to {_LONGEST_NAME} "
                    "printable characters, with no space at either end.",
                )
            if region in names:
                raise InvalidValue(f"regions[{number}]", f"'{region}' is given twice; allowed: different names.")
            names.add(region)


def usual_send_offset(regions: int, deadline: int) -> Duration:
    """Return the default send offset: longer than drawing and storing a sample takes in 99 of 100 slots."""
    return Duration(min((25 if regions <= _MANY_REGIONS else 75) * _MILLISECOND, deadline // 2))


class GuaranteeSection(Section, frozen=True, kw_only=True):
    """[guarantee]: what is promised to a user; see `dpcrowd.Guarantee`."""

    kind: Annotated[
        Literal["finite", "window"],
        about(
            "A stream of `length` slots, or any `length` consecutive slots of an endless one.", '"finite" or "window"'
        ),
    ]
    length: Annotated[int, about("The horizon T, or the window w, in slots.", _WHOLE, ge=1, le=_MOST)]
    epsilon: Annotated[
        NanoEpsilon,
        about(
            "The budget of one user over the horizon, or in any window.",
            'a number from 0.000000001 to 1000000, or the same as a decimal text such as "0.1"',
        ),
    ]
    users: Annotated[
        Literal["pinned", "roaming"],
        about("Whether a user is always at the same server, or at any.", '"pinned" or "roaming"'),
    ] = "pinned"
    servers_per_slot: Annotated[
        int, about("At how many servers a user may check in during one slot.", "1 to 10000", ge=1, le=10_000)
    ] = 1
    regions_per_slot: Annotated[
        int, about("In how many regions of one slot a user may count.", "1 to 10000", ge=1, le=10_000)
    ] = 1
    correlation: Annotated[float, about("The factor by which epsilon is divided.", "1 to 1000000000", ge=1, le=1e9)] = (
        1.0
    )
    horizon_from_slot: Annotated[
        int, about("The slot with which all servers begin the present horizon.", _SLOT, ge=0, le=_MOST)
    ] = 0

    def __post_init__(self) -> None:
        if self.horizon_from_slot and self.kind != "finite":
            raise InvalidValue(
                "horizon_from_slot",
                f'given {self.horizon_from_slot} with kind = "{self.kind}"; allowed: only with kind = "finite". The '
                "budget of a window comes back by itself, so leave it out.",
            )


class SchemeSection(Section, frozen=True, kw_only=True):
    """[scheme]: what the servers compute; options that are omitted have the scheme's own defaults."""

    name: Annotated[str, about("The name of the scheme.", '"relay", "dpcrowd", "dpcrowd-w" or "dpcrowd-plus"')]
    process_var: Annotated[
        Numbers | None,
        about("Q: the variance of the change of a region's count in one slot; not with a model.", PROCESS_VAR),
    ] = None
    transition: Annotated[
        Matrix,
        about(
            "A: how counts change from slot to slot.",
            "a number from -10 to 10, a list of one number per region, or one list per region",
        ),
    ] = 1.0
    observation: Annotated[
        Literal["binomial", "paper"],
        about(
            "How a server's users represent the crowd: as a random sample, or as in the paper's model.",
            '"binomial" or "paper"',
        ),
    ] = "binomial"
    form: Annotated[
        Literal["diagonal", "matrix"],
        about("Whether regions are estimated separately, or with covariances.", '"diagonal" or "matrix"'),
    ] = "diagonal"
    accounting: Annotated[str, about("How the ledger counts; a live network allows only one way.", '"sound"')] = "sound"
    beta: Annotated[
        float | None, about("The consensus step; default: 1/(2 (1 + largest number of neighbours)).", "a number >= 0")
    ] = None
    sampling: Annotated[
        Literal["adaptive", "fixed", "staggered", "lockstep"] | None,
        about("When a server samples (`dpcrowd`, `dpcrowd-w`).", '"adaptive", "fixed", "staggered" or "lockstep"'),
    ] = None
    interval: Annotated[int | None, about("Slots from sample to sample, unless sampling is adaptive.", _WHOLE)] = None
    samples: Annotated[
        int | None,
        about(
            "Samples per window or horizon, at equal parts of epsilon (`relay`); default: the fewest with nearly the "
            "least predicted error.",
            _WHOLE,
        ),
    ] = None
    reach: Annotated[
        int | Literal["all"] | None,
        about(
            'How many links a record travels (`relay`); default: the fewest with nearly the predicted error of "all".',
            f'{_WHOLE}, or "all"',
        ),
    ] = None
    lag: Annotated[
        int | None,
        about("How many slots a record may be late, and is kept (`relay`); default: 16.", "1 to 1000"),
    ] = None
    guard: Annotated[
        bool | None,
        about("Whether records that are far off count less (`relay`); default: true.", "true or false"),
    ] = None
    blocks: Annotated[
        Literal["half", "full"] | None,
        about("What a block of w slots may spend of epsilon (`dpcrowd-w`).", '"half" or "full"'),
    ] = None
    grouping: Annotated[
        Literal["dynamic", "none"] | None,
        about("Whether small regions share one draw of noise (`dpcrowd-plus`).", '"dynamic" or "none"'),
    ] = None
    split: Annotated[
        Literal["even", "proportional"] | None,
        about("How a group's sum is divided among its regions (`dpcrowd-plus`).", '"even" or "proportional"'),
    ] = None
    model: Annotated[
        str | None,
        about(
            "Process model instead of process_var and transition: what the servers know beforehand. It is public.",
            "the name of a file beside this one that `dpcrowd fit` wrote",
        ),
    ] = None
    learn: Annotated[
        bool | None,
        about(
            "Whether servers learn from releases how well their model fits, or without one how large process_var "
            "is; default: with a model.",
            "true or false",
        ),
    ] = None
    turnover: Annotated[
        float | None,
        about(
            "Part of a server's users who are replaced per slot (pinned users); default: 1.",
            "a number above 0 and at most 1",
        ),
    ] = None
    groups: Annotated[
        Literal["auto", "off"] | None,
        about('Whether small regions share one draw of noise (`relay`); default: "off".', '"auto" or "off"'),
    ] = None
    share_width: Annotated[
        float | None,
        about(
            "Typical relative error of public shares; above 0, servers learn them (`relay`, users at one server).",
            "0 (shares are right), or a number from 1e-6 to 1",
        ),
    ] = None
    meetings: Annotated[
        bool | None,
        about(
            "Whether schedules let servers sample together with others in turn, so that learned shares can be compared "
            "(`relay`, pinned users); default: false.",
            "true or false",
        ),
    ] = None
    tuning: Annotated[Tuning, about("Parameters of sampling, budget and grouping.")] = field(default_factory=Tuning)

    def __post_init__(self) -> None:
        if self.lag is not None and not 1 <= self.lag <= _LONGEST_LAG:
            raise InvalidValue("lag", f"given {self.lag}; allowed: 1 to {_LONGEST_LAG} slots.")
        if self.turnover is not None and not 0.0 < self.turnover <= 1.0:
            raise InvalidValue("turnover", f"given {self.turnover:g}; allowed: above 0, at most 1.")
        width = self.share_width or 0.0
        if not (width == 0.0 or LEAST_SHARE_WIDTH <= width <= 1.0):
            raise InvalidValue(
                "share_width",
                f"given {width:g}; allowed: from 0 to 1, and not between 0 and {LEAST_SHARE_WIDTH:g}, where there "
                "would be nothing to learn.",
            )


Share = Annotated[
    float,
    about(
        "The part of the population that this server sees, as a public constant.", "above 0 and at most 1", gt=0, le=1
    ),
]
Keys = Annotated[
    tuple[str, ...],
    about(
        "The pinned public keys: one, or the old and the new one while a key is renewed.",
        'a list of one or two texts "ed25519:BASE64", as `dpcrowd keys show` prints them',
        min_length=1,
        max_length=2,
    ),
]


class MapSection(Section, frozen=True, kw_only=True):
    """[map]: where the regions are, for the live page. It is not part of the digest: nothing is computed from it."""

    coordinates: Annotated[
        dict[str, tuple[float, float]],
        about("Where regions are.", "a table of [latitude, longitude] in degrees, by the names of regions"),
    ] = field(default_factory=dict)
    geojson: Annotated[
        str,
        about(
            "A file with the shapes of the regions, each a feature whose property `region` or `name` is the region.",
            "the path of a GeoJSON file, relative to network.toml",
        ),
    ] = ""

    def __post_init__(self) -> None:
        for region, (latitude, longitude) in self.coordinates.items():
            if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
                raise InvalidValue(
                    f"coordinates.{region}",
                    f"given [{latitude:g}, {longitude:g}]; allowed: a latitude from -90 to 90 and a longitude from "
                    "-180 to 180.",
                )


class ServerSection(Section, frozen=True, kw_only=True):
    """[[server]]: one organisation's node. The server's number is its place in the file."""

    name: Annotated[Name, about("The server's name.", "1 to 63 of a-z, 0-9 and '-', with no '-' at either end")]
    share: Share
    shares: Annotated[
        dict[str, float],
        about(
            "Its shares by region, where they differ: they take the place of `share` in all estimates.",
            "a table of numbers above 0 and at most 1, by the names of all regions",
        ),
    ] = field(default_factory=dict)
    keep: Annotated[
        float,
        about(
            "To shed load: the part of its users that this server counts, chosen in each slot by their keyed hashes.",
            "above 0 and at most 1",
            gt=0,
            le=1,
        ),
    ] = 1.0
    endpoint: Annotated[str, about("The address at which its neighbours reach it.", '"tls/HOST:PORT"')]
    certificate_name: CertificateName = ""
    keys: Keys

    def __post_init__(self) -> None:
        check_endpoint("endpoint", self.endpoint)
        for number, key in enumerate(self.keys):
            try:
                read_key(key)
            except BadInput as error:
                raise InvalidValue(f"keys[{number}]", str(error)) from None
        if len(set(self.keys)) < len(self.keys):
            raise InvalidValue("keys", "the same key is given twice; allowed: one key, or an old and a new one.")
        for region, share in self.shares.items():
            if not 0.0 < share <= 1.0:
                raise InvalidValue(
                    f"shares.{region}",
                    f"given {share:g}; allowed: above 0 and at most 1. Where the server sees nobody, write a small "
                    "share such as 0.0001.",
                )
        if not self.certificate_name:
            force_setattr(self, "certificate_name", self.name)

    @property
    def counted_share(self) -> float:
        """The part of the population that is in its counts."""
        return self.share * self.keep

    def counted_shares(self, regions: Sequence[str]) -> list[float]:
        """Return the part of each region's people that is in its counts."""
        if not self.shares:
            return [self.counted_share] * len(regions)
        return [self.shares[region] * self.keep for region in regions]


class LinkSection(Section, frozen=True, kw_only=True):
    """[[link]]: two servers that exchange messages, always or in some slots."""

    between: Annotated[tuple[str, str], about("The two servers.", 'the names of two servers, ["a", "b"]')]
    from_slot: Annotated[int | None, about("The first slot of the link; default: from the start.", _SLOT)] = None
    until_slot: Annotated[
        int | None,
        about("The first slot after the link has ended; default: it does not end.", "a slot above from_slot"),
    ] = None

    def __post_init__(self) -> None:
        if self.from_slot is not None and self.from_slot < 0:
            raise InvalidValue("from_slot", f"given {self.from_slot}; allowed: {_SLOT}.")
        first = self.from_slot or 0
        if self.until_slot is not None and self.until_slot <= first:
            raise InvalidValue(
                "until_slot", f"given {self.until_slot}; allowed: a slot above {first}, where the link begins."
            )
