"""What a planned network sends: the packets and records of its schedule, counted as in a simulation, and their bytes.

Records travel over the real graph, on the real schedule (`network.spread`), but they are empty: no data are needed. The
size of their integers is that of the expected counts plus noise, averaged over quantiles of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.network.bit_spread import BitSpread
from dpcrowd.network.costs import relayed_bytes, varint_bytes
from dpcrowd.network.sparse_spread import SparseSpread
from dpcrowd.network.spread import Spread, Traffic, record_totals
from dpcrowd.privacy import noise_var
from dpcrowd.privacy.allocation import per_sample
from dpcrowd.sampling.schedule import samples_due
from dpcrowd.schemes.relay_state import MOST_IN_BITS
from dpcrowd.sim.planner.predict import Prediction, config_of, facts_of, guarantee_of
from dpcrowd.sim.planner.request import PlanRequest
from dpcrowd.sim.planning import relay_phases
from dpcrowd.sim.topology import Networks

__all__ = ["PlannedTraffic", "planned_traffic"]

_SLOTS, _SERVER_SLOTS = 300, 60_000
_QUANTILES = 21
_DAY = 86_400.0


@dataclass(frozen=True)
class PlannedTraffic:
    """What all servers together send per slot: packets with records, their bytes, and heartbeats in addition.

    A live server sends every neighbour one message per slot; it is a heartbeat if the server has not sampled.
    """

    packets_per_slot: float
    records_per_slot: float
    bytes_per_slot: float
    heartbeats_per_slot: float

    def per_day(self, slot: float) -> tuple[float, float]:
        """Return packets and bytes per day, for slots of this many seconds."""
        return self.packets_per_slot * _DAY / slot, self.bytes_per_slot * _DAY / slot

    def heartbeats_per_day(self, slot: float) -> float:
        """Return the number of heartbeats per day, for slots of this many seconds."""
        return self.heartbeats_per_slot * _DAY / slot


def planned_traffic(request: PlanRequest, prediction: Prediction) -> PlannedTraffic:
    """Return the traffic of a prediction, averaged over the sampling intervals in some 300 slots, at least one."""
    config, guarantee, samples = config_of(request), guarantee_of(request), prediction.samples
    scheme, servers = request.scheme(prediction.reach), config.servers
    networks = Networks(config.network, config.seed, [0], None, "numpy", config.model.growth)
    phases = relay_phases(networks, guarantee, samples, meetings=config.meetings)
    offsets = np.zeros(servers, dtype=np.int64) if phases is None else phases
    spread: Spread | None = None
    if scheme.max_hops != 1:
        spread = (BitSpread if servers <= MOST_IN_BITS else SparseSpread)(1, servers, scheme.lag)
    slots = min(_SLOTS, max(1, _SERVER_SLOTS // servers))
    intervals = max(1, min(samples, slots * samples // guarantee.length))
    period = -(-intervals * guarantee.length // samples)
    warm_up = scheme.lag if spread is not None else 0
    packets = records = heartbeats = 0
    for slot in range(warm_up + period):
        graph = networks.at(slot).graph
        speaks = samples_due(slot, samples, guarantee.length, offsets)
        if spread is None:
            traffic = Traffic.one_hop(record_totals(np.zeros((servers, 1)), speaks, graph.degree, 1), speaks)
        else:
            spread.open(slot, speaks)
            static = networks.static is not None
            _, traffic = spread.exchange(slot, graph, scheme.rounds, scheme.max_hops, same_links=static)
        if slot >= warm_up:
            packets += int(traffic.packets[0])
            records += int(traffic.records[0])
            heartbeats += int(graph.degree[~speaks].sum())
    each = _value_bytes(request, prediction)
    per_slot = np.array([packets, records]) / period
    size = relayed_bytes(per_slot[:1], per_slot[1:], per_slot[1:] * each)
    return PlannedTraffic(float(per_slot[0]), float(per_slot[1]), float(size[0]), heartbeats / period)


def _value_bytes(request: PlanRequest, prediction: Prediction) -> float:
    """Return the expected bytes of the integers of one record."""
    guarantee = guarantee_of(request)
    amount = np.array(per_sample(guarantee.total, prediction.samples))
    scale = float(np.sqrt(noise_var(amount, guarantee.sensitivity) / 2.0))  # of Laplace noise with this variance
    at = (np.arange(_QUANTILES) + 0.5) / _QUANTILES - 0.5
    noise = -scale * np.sign(at) * np.log1p(-2.0 * np.abs(at))
    shares = facts_of(request, prediction.reach).shares
    by_region = shares[:, None, None] if shares.ndim == 1 else shares[:, :, None]
    expected = by_region * np.array(prediction.levels.level)[:, None] + noise
    return float(varint_bytes(np.rint(expected)).sum(axis=1).mean())
