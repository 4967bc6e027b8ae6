"""Checks of network.toml that involve several of its tables, each with the path of the setting that is wrong.

What one table allows is in `sections`. An error says what was given and what is allowed; a warning is about what is
allowed, but probably not intended (`probable_mistakes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.filters import check_gain
from dpcrowd.filters.persistence import are_partitioned
from dpcrowd.node.config.kinds import InvalidValue
from dpcrowd.node.config.links import refuse_duplicates
from dpcrowd.node.config.sections import PROCESS_VAR, ServerSection, usual_send_offset
from dpcrowd.node.wire import most_counted
from dpcrowd.privacy.units import utc_text
from dpcrowd.sampling.schedule import all_meet
from dpcrowd.schemes.meetings import never_meet
from dpcrowd.schemes.registry import SCHEMES
from dpcrowd.schemes.relay import GROUPS_NEED_A_MODEL, Relay

if TYPE_CHECKING:
    from dpcrowd.models.model import Model
    from dpcrowd.node.config.network import NetworkConfig

__all__ = ["check_network", "probable_mistakes"]

T = TypeVar("T")
MATRIX_REGIONS = 1_000
"""The matrix form sends and stores d (d + 1)/2 numbers: 4 MB per message at 1,000 regions."""
LONGEST_WINDOW = 1_000_000
"""The state that is stored with every sample holds one number per slot of the window."""
LARGEST_MEMORY = 10_000_000
"""Regions times remembered values, of the controllers and of the grouping."""
WEAK_EPSILON = 10
_NAMED_REGIONS = 5
_ROUNDING = 1e-5  # of shares that were written with few decimals


def check_network(network: NetworkConfig) -> None:
    """Refuse a network whose tables contradict each other; `InvalidValue` names the setting."""
    _check_servers(network.servers)
    _check_links(network)
    _check_shares(network)
    _check_scheme(network)
    _check_map(network)


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
    for wrong, choice, needed in (
        (users == "roaming", "roaming users, who choose a server in every slot", 'users = "pinned" in [guarantee]'),
        (method.observation != "binomial", f'observation "{method.observation}"', 'observation = "binomial"'),
        (method.form != "diagonal", f'form "{method.form}"', 'form = "diagonal"'),
    ):
        if wrong:
            raise InvalidValue(
                "scheme.turnover",
                f"given {method.turnover:g} with {choice}; turnover needs {needed}. Otherwise leave it out.",
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
        raise InvalidValue(
            "scheme.groups",
            f'given "auto" with {why}; allowed here: "off". A group is read as one sum of its regions, which a single '
            "public share turns into people; where a server's share differs by region, nobody knows which region the "
            "people of the sum are from.",
        )


def _check_share_width(network: NetworkConfig) -> None:
    """Refuse to learn shares where records cannot say what they are."""
    method = network.method
    if not method.share_width:
        return
    total = network.shares.sum(axis=0)
    for wrong, choice, needed in (
        (method.name != Relay.name, f'scheme "{method.name}"', 'name = "relay"'),
        (method.reach not in (None, "all"), f"reach {method.reach}", 'reach = "all"'),
        (method.observation != "binomial", f'observation "{method.observation}"', 'observation = "binomial"'),
        (method.form != "diagonal", f'form "{method.form}"', 'form = "diagonal"'),
        (
            not are_partitioned(network.shares.reshape(len(network.servers), -1)).all(),
            f"shares that sum to {float(np.max(total)):g}",
            "every user at one server, so shares that sum to 1 in every region",
        ),
    ):
        if wrong:
            raise InvalidValue(
                "scheme.share_width",
                f"given {method.share_width:g} with {choice}; share_width needs {needed}. Otherwise leave it out.",
            )


def _check_meetings(network: NetworkConfig) -> None:
    """Refuse meetings where servers have no phases of their own."""
    if not network.method.meetings:
        return
    if network.method.name != Relay.name:
        raise InvalidValue("scheme.meetings", f'given true with scheme "{network.method.name}"; it is for relay only.')
    if not network.method.share_width:
        raise InvalidValue(
            "scheme.meetings",
            "given true without a share_width; meetings are for servers that learn shares. Otherwise leave it out.",
        )
    if network.guarantee_section.users != "pinned":
        raise InvalidValue(
            "scheme.meetings", 'given true with users = "roaming", where all servers sample in the same slots anyway.'
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
    _check_meetings(network)
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
    """Refuse a model that is wrong, or beside a process variance, and a network with neither."""
    method = network.method
    if method.model is None:
        if method.process_var is None:
            raise InvalidValue(
                "scheme.process_var",
                f'missing; needed: {PROCESS_VAR}, or a process model instead: model = "model.toml".',
            )
        return
    if method.process_var is not None or method.transition != 1.0:
        name = "transition" if method.process_var is None else "process_var"
        raise InvalidValue(f"scheme.{name}", "given beside a model, which has its own; leave one of them out.")
    _with_path("scheme.model", network.model)


def _check_map(network: NetworkConfig) -> None:
    """Refuse coordinates of regions that do not exist."""
    regions = set(network.regions)
    for region in network.region_map.coordinates:
        if region not in regions:
            raise InvalidValue("map.coordinates", str(unknown_name("region", region, network.regions)))


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


def probable_mistakes(network: NetworkConfig) -> Iterator[str]:
    """Yield what is allowed, but probably not intended, in one line each."""
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
    yield from _questionable_model(network)
    yield from _questionable_schedule(network)
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


def _questionable_schedule(network: NetworkConfig) -> Iterator[str]:
    """Yield that servers learn shares without ever being compared with others."""
    relay, length = network.relay, network.guarantee().length
    if not network.method.share_width or relay is None or len(network.servers) == 1:
        return
    samples = relay.samples_per(length)

    def meet(number: int) -> bool:
        return all_meet(number, length, network.offsets_with(number))

    if meet(samples):
        return
    more = "" if network.method.meetings else " With meetings = true each server has a phase of its own."
    yield f"share_width: {never_meet(samples, length, meet)}{more}"


def _questionable_levels(network: NetworkConfig, fitted: Model) -> Iterator[str]:
    """Yield that a model expects counts that are refused as absurd, or no deviations."""
    regions = [region for region in fitted.regions if region.name in network.regions]
    course = network.model().course
    assert course is not None
    # Relay's records are refused for what a server counts, and other samples for what they say of the population.
    counts_shares = network.method.name == Relay.name
    share = network.shares.max(axis=0) if counts_shares else 1.0
    limit = most_counted(network.population, network.guarantee().sensitivity if counts_shares else 1)
    largest = course.profile.max(axis=0) * share
    place = int(largest.argmax())
    if largest[place] > limit:
        who = "one server to count" if counts_shares else "estimates of"
        yield (
            f"the model expects {who} up to {largest[place]:,.0f} people in region '{network.regions[place]}', but the "
            f"population is {network.population:,}, and more than {limit:,.0f} are refused as absurd. One of the two "
            "is wrong, or the model is of another network."
        )
    fixed = [region.name for region in regions if region.variance == 0]
    if fixed:
        more = f" and {len(fixed) - _NAMED_REGIONS} more" if len(fixed) > _NAMED_REGIONS else ""
        yield (
            f"the model has variance = 0 in {', '.join(fixed[:_NAMED_REGIONS])}{more}: it expects that counts never "
            "differ from it there, so that measurements hardly count. Fit it on slots in which they do."
        )


def _questionable_model(network: NetworkConfig) -> Iterator[str]:
    """Yield that learning has no effect, what cannot be checked of a model without times, and what groups lack."""
    fitted, method = network.fitted, network.method
    if method.learn and method.form == "matrix":
        yield 'learn = true has no effect with form = "matrix", in which servers do not learn; leave it out.'
    elif method.learn and fitted is not None:
        yield (
            "learn = true means the same as leaving it out, since there is a model, but it changes the digest: either "
            "all servers have it in network.toml, or none."
        )
    if fitted is None:
        return
    yield from _questionable_levels(network, fitted)
    if fitted.season_lacks_times:
        yield (
            f"the model has a season of {fitted.season} slots and no times, so it is taken to begin at the epoch, "
            f"{utc_text(int(network.general.epoch))}: if slot 0 of '{fitted.data_name}' was at another place in the "
            "season, everything that is expected is shifted. Fit the model again on public counts, or on your own "
            "releases, whose slots are labelled with times."
        )
    if fitted.slot is None:
        yield (
            f"the model has no slot length, since '{fitted.data_name}' has no times: nothing checks that its slots are "
            f"as long as those of this network, {network.general.slot}. Fit it again on the same public counts "
            "with --slot-length."
        )
    if network.method.groups == "auto" and fitted.region_correlation is None:
        yield (
            'groups = "auto" joins no regions, since the model has no region_correlation: it does not say whether '
            "regions rise and fall together. Fit it on public counts with this version (a model of releases does not "
            'have it), or set groups = "off".'
        )
