"""Checks of what belongs to this server: its certificate, its files, its schedule, its sampler and its limits."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from datetime import datetime

from dpcrowd.errors import DpcrowdError, counted
from dpcrowd.node.config import NetworkConfig, NodeConfig
from dpcrowd.node.config.address import host_and_port
from dpcrowd.node.config.kinds import Size
from dpcrowd.node.doctor.findings import Finding, note, passed, problem, skipped
from dpcrowd.node.forecast import schedule_warning
from dpcrowd.node.keys.checks import certificate_problems, expiry_of, https_problem, key_file_problem, read_expiry
from dpcrowd.node.keys.files import read_pem, read_private_key
from dpcrowd.node.keys.signing import public_text
from dpcrowd.node.live.region_map import shapes_problem
from dpcrowd.node.sampler import make_noise

__all__ = [
    "check_certificate",
    "check_files",
    "check_https",
    "check_ingest",
    "check_map",
    "check_sampler",
    "check_schedule",
]

_ROW_BYTES, _CHECKINS = 20, 4  # per check-in in the journal; check-ins of a person in one slot, to be on the safe side


def check_certificate(node: NodeConfig, network: NetworkConfig, now: datetime) -> Iterator[Finding]:
    """Report every reason for which a neighbour would refuse the certificate, including dates that come near."""
    me = network.server(node.server)
    try:
        key = public_text(read_private_key(node.keys.key))
        certificate = read_pem(node.keys.certificate, "certificate")
        authority = read_pem(node.keys.ca, "authority's certificate")
    except DpcrowdError as error:
        yield problem(
            "certificate", str(error), "Check [keys] in node.toml; 'dpcrowd keys --help' says who makes which file."
        )
        return
    host = host_and_port("endpoint", me.endpoint.partition("/")[2])[0]
    problems = certificate_problems(
        certificate, authority, name=me.certificate_name, now=now, key=key, pins=me.keys, host=host
    )
    for one in problems:
        yield problem("certificate", one.what, one.fix)
    if problems:
        return
    own = expiry_of(certificate, "the certificate", "server", me.certificate_name).problem(now)
    root = read_expiry(node.keys.ca, "authority").problem(now)
    expiring = [one for one in (own, root) if one is not None]
    for one in expiring:
        yield problem("certificate", one.what, one.fix)
    if not expiring:
        text = f"it is for '{me.certificate_name}' at {host}, signed by the authority, and its key is pinned."
        yield passed("certificate", text)


def check_https(node: NodeConfig, now: datetime) -> Iterator[Finding]:
    """Check certificate and key of the HTTP API, if it uses HTTPS."""
    certificate, key = node.listen.http_certificate, node.listen.http_key
    if certificate is None or key is None:
        return
    failure = https_problem(certificate, key, now) or read_expiry(certificate, "https").problem(now)
    if failure is not None:
        yield problem("https", failure.what, failure.fix)
    else:
        yield passed("https", f"the API uses HTTPS with '{certificate}'.")


def check_sampler(node: NodeConfig) -> Iterator[Finding]:
    """Check that the library that draws the noise is installed; the exact sampler needs none."""
    if node.noise.sampler == "exact":
        return
    try:
        make_noise(node)
    except DpcrowdError as error:
        yield problem("noise", str(error), 'Install it, or set sampler = "exact" under [noise] in node.toml.')
    else:
        yield passed("noise", f"the noise is drawn by {node.noise.sampler}, which is installed.")


def check_schedule(node: NodeConfig, network: NetworkConfig) -> Finding:
    """Check that the budget lasts as long as it has to, from public numbers alone."""
    warning, interval = schedule_warning(network, node.server), network.method.interval
    if warning is not None:
        return note("schedule", warning)
    if network.relay is not None:
        guarantee = network.guarantee()
        samples, which = network.relay.samples_per(guarantee.length), "any" if guarantee.kind == "window" else "the"
        hops, method = network.relay.max_hops, network.method
        distance = "to every server" if hops is None else counted(hops, "link")
        open_settings = [
            *(["samples"] if method.samples is None and method.interval is None else []),
            *(["reach"] if method.reach is None else []),
        ]
        computed = (
            f" (network.toml leaves {' and '.join(open_settings)} open: computed from it)" if open_settings else ""
        )
        are = "is" if samples == 1 else "are"
        return passed(
            "schedule",
            f"{samples} of {which} {counted(guarantee.length, 'slot')} {are} sampled, each time with an equal part of "
            f"ε; records travel {distance}{computed}.",
        )
    if interval is None:
        return passed(
            "schedule", f"'{network.method.name}' samples as the crowd changes; with a synthetic crowd ε lasts."
        )
    every = "every slot is" if interval == 1 else f"one slot in {interval} is"
    return passed("schedule", f"{every} sampled, each time with an equal part of ε.")


def check_files(node: NodeConfig) -> Iterator[Finding]:
    """Check that private files are readable only by their owner; files that do not exist yet are skipped."""
    private, missing, problems = [], [], 0
    for name, path in (("the private key", node.keys.key), ("the key of HTTPS", node.listen.http_key)):
        if path is None:
            continue
        if not os.path.exists(path):
            missing.append(name)
            continue
        private.append(name)
        failure = key_file_problem(path)
        if failure is not None:
            problems += 1
            yield problem("files", failure.what, failure.fix)
    (private if os.path.isdir(node.data) else missing).append(
        "the data folder"
    )  # also missing if the folder above cannot be read
    if os.name == "posix" and os.path.isdir(node.data):
        mode = stat.S_IMODE(node.data.stat().st_mode)
        if mode & 0o077:
            problems += 1
            text = f"others can read the data folder '{node.data}' (mode {mode:o})."
            yield problem("files", text, f"chmod 700 {node.data}")
    if private and not problems:
        yield passed("files", f"only the owner can read {' and '.join(private)}.")
    if missing:
        yield skipped("files", f"{' and '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist yet.")


def check_map(node: NodeConfig, network: NetworkConfig) -> Iterator[Finding]:
    """Check that the file with the shapes of the regions can be shown, if network.toml names one."""
    if not network.region_map.geojson:
        return
    path = node.network.parent / network.region_map.geojson
    failure = shapes_problem(path)
    if failure:
        yield note("map", f"the map '{path}' is not shown, since {failure}; the page shows tiles instead.")
    else:
        yield passed("map", f"'{path}' has the shapes of the regions.")


def _most_people(network: NetworkConfig) -> float:
    """Return the population, or what a process model expects in the busiest part of its season if that is more."""
    course = network.model().course
    if course is None:
        return network.population
    return max(network.population, float(course.profile.sum(axis=1).max()) / network.guarantee().regions_per_slot)


def check_ingest(node: NodeConfig, network: NetworkConfig) -> Iterator[Finding]:
    """Check that the people who can be at this server in one slot fit into its limits, from public numbers alone."""
    if node.ingest.accepts != "checkins":
        return
    people = math.ceil(_most_people(network) * network.server(node.server).counted_share)
    room = node.ingest.journal_limit // (_ROW_BYTES * _CHECKINS)
    if people > room:
        text = (
            f"{people} people with {_CHECKINS} check-ins each per slot take more than ingest.journal_limit = "
            f"{node.ingest.journal_limit}: a slot that takes more is not sampled, which reveals that many were there."
        )
        needed = Size(-(-people * _ROW_BYTES * _CHECKINS // (1 << 20)) << 20)
        yield problem("ingest", text, f'Write journal_limit = "{needed}" or more under [ingest], or keep below 1.')
    if people > node.ingest.capacity:
        text = (
            f"up to {people} people per slot, of whom ingest.capacity = {node.ingest.capacity} are counted in memory; "
            "a slot with more is counted from the disk, and its message is late, which reveals that many were there."
        )
        fix = f"Write capacity = {people} under [ingest] (about {people * 150 >> 20} MiB of memory), or keep below 1."
        yield problem("ingest", text, fix)
    if people <= min(room, node.ingest.capacity):
        yield passed("ingest", f"up to {people} people per slot fit into memory and journal.")
