"""Claims on communication (figure 5), in Sections "Communication Latency and Cost" and "Estimation Efficiency"."""

from __future__ import annotations

from dpcrowd.experiments.claims.asking import capped, falling, far_lower, growing, lower, under
from dpcrowd.experiments.claims.cases import Asked, Case, curve_of, decide, on
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import number
from dpcrowd.experiments.claims.judge import Values, below
from dpcrowd.experiments.claims.sampling import adaptive_curve, fixed_curve
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.communication import density_points
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.run import Results
from dpcrowd.network.random_graph import LATENCY_MS

__all__ = ["CLAIMS", "COST", "STEEPER"]

STEEPER = 10.0  # "significantly" against "slowly": so many times more packets for each step of density


def _curve(plan: Plan, results: Results, label: str, metric: str) -> Curve:
    return curve_of(results, density_points(plan), label, metric, "ρ")


def messages_go_one_hop(plan: Plan, results: Results) -> Verdict:
    """DPCrowd takes one hop a slot, and no more packets than the network has directed links.

    Section "Communication Latency and Cost": "The communication latency is only O(1) hop and the communication
    complexity is equal to [the sum of the degrees]".

    In no run does the latency exceed the slowest possible link (150 ms), nor the packets a slot ρ·m·(m − 1), at any
    density.
    """
    slowest, links = LATENCY_MS[1], plan.servers * (plan.servers - 1)
    latency, packets = (_curve(plan, results, "dpcrowd", metric) for metric in ("latency_ms", "packets_per_slot"))
    most = [density * links for density in plan.densities]
    return decide(
        [
            capped("latency (ms)", latency, [slowest] * len(latency), "the slowest possible link takes"),
            capped("packets a slot", packets, most, "directed links:"),
        ]
    )


def dpcrowd_is_faster_than_dfast(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's latency is below DFAST's at every density.

    Section "Estimation Efficiency of DPCrowd", Communication Latency and Overhead: "DPCrowd keeps much less latency
    since each server only exchanges messages with its one-hop neighbors".

    Judged is that it is lower, without the paper's "much".
    """
    mine, other = (_curve(plan, results, label, "latency_ms") for label in ("dpcrowd", "dfast"))

    def reason(asked: Asked) -> str:
        told = [
            f"{at} ({number(b.mean)} ms against {number(a.mean)} ms)"
            for (at, a), (_, b) in zip(mine, other, strict=True)
            if b.mean <= LATENCY_MS[1] and below(a, b, asked.tests).outcome == "does not hold"
        ]
        if not told:
            return ""
        return (
            "Likely: in a dense network flooding goes round slow links by faster paths, while one hop must wait for "
            f"the slowest link of up to {LATENCY_MS[1]:g} ms: DFAST is not slower at {', '.join(told)}."
        )

    return decide([lower("latency (ms)", mine, other)], reason)


def dfast_is_slower_in_sparse_networks(plan: Plan, results: Results) -> Verdict:
    """DFAST's latency grows as the network gets sparser.

    Section "Estimation Efficiency of DPCrowd", Communication Latency and Overhead: "When the network is sparser
    (smaller ρ), there are fewer viable routines among servers and cost more communication time".
    """
    return decide([falling("DFAST, latency (ms) as ρ grows", _curve(plan, results, "dfast", "latency_ms"))])


def dpcrowd_sends_far_fewer_packets(plan: Plan, results: Results) -> Verdict:
    """DPCrowd sends far fewer packets than DFAST at every density.

    Section "Estimation Efficiency of DPCrowd", Communication Latency and Overhead: "DPCrowd incurs much less
    communication packets in each sampling timestamp".

    Far fewer: less than half.
    """
    return decide(
        [far_lower("packets a slot", *(_curve(plan, results, who, "packets_per_slot") for who in ("dpcrowd", "dfast")))]
    )


def dfast_packets_grow_steeply(plan: Plan, results: Results) -> Verdict:
    """DFAST's packets grow steeply with the density, DPCrowd's slowly.

    Section "Estimation Efficiency of DPCrowd", Communication Latency and Overhead: "[DPCrowd's packets] increases with
    ρ slowly. However, the communication overhead of DFAST increases significantly with the density ρ".

    Both grow, and DFAST's by at least 10 times as many packets from the sparsest to the densest network (as drawn on
    one axis). In proportion both grow alike, about with the number of links: the first case says by how much.
    """
    mine, other = (_curve(plan, results, label, "packets_per_slot") for label in ("dpcrowd", "dfast"))
    rise, steep = (
        Values(f"increase of {curve[0][1].name}", curve[-1][1].runs - curve[0][1].runs) for curve in (mine, other)
    )
    grown = [c[-1][1].mean / max(c[0][1].mean, 1e-12) for c in (mine, other)]
    links = plan.densities[-1] / plan.densities[0]
    named = (
        f"increase from {mine[0][0]} to {mine[-1][0]} (links grow {number(links)} times, DPCrowd's packets "
        f"{number(grown[0])} times, DFAST's {number(grown[1])} times)"
    )
    cases = [under(named, rise, steep, STEEPER), growing("DFAST", other), growing("DPCrowd", mine)]
    return decide(cases)


def fixed_frequency_falls_with_interval(plan: Plan, results: Results) -> Verdict:
    """With fixed sampling servers speak less often as the interval grows.

    Section "Estimation Efficiency of DPCrowd", Communication Frequency Reduction: "The average communication frequency
    decreases as the sampling interval increases in the fixed rate strategy".

    Fixed sampling speaks in one slot of I.
    """
    cases = [falling(on(data), fixed_curve(plan, results, data, "frequency")) for data in plan.single]
    return decide(cases)


def adaptive_frequency_stays_below_its_limit(plan: Plan, results: Results) -> Verdict:
    """With adaptive sampling servers speak in less than T_s/T of the slots.

    Section "Estimation Efficiency of DPCrowd", Communication Frequency Reduction: "keeps a lower level for the adaptive
    sampling strategy given the maximal sampling points (0.3T and 0.4T for Linear and Flu, respectively)".

    In no run more than T_s/T. A server stops sampling when it has no budget left.
    """

    def case(data: str) -> Case:
        limit = plan.data[data].tuning.sample_fraction
        return capped(on(data), adaptive_curve(plan, results, data, "frequency")[:1], [limit], "T_s/T is")

    return decide([*(case(data) for data in plan.single)])


COST = (claim(messages_go_one_hop, 5, instead=(2,), data=("linear",), by_construction=True),)
CLAIMS = (
    claim(dpcrowd_is_faster_than_dfast, 5, instead=(2,), data=("linear",)),
    claim(dfast_is_slower_in_sparse_networks, 5, instead=(2,), data=("linear",)),
    claim(dpcrowd_sends_far_fewer_packets, 5, instead=(2,), data=("linear",)),
    claim(dfast_packets_grow_steeply, 5, instead=(2,), data=("linear",)),
    claim(fixed_frequency_falls_with_interval, 5, instead=(3, 9), by_construction=True),
    claim(adaptive_frequency_stays_below_its_limit, 5, instead=(3,), by_construction=True),
)
