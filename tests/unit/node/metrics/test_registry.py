"""Values of metrics, how they are shown, and to whom."""

from __future__ import annotations

import re

import pytest

from dpcrowd.node.api.prometheus import Buckets, Metric, render
from dpcrowd.node.metrics import families
from dpcrowd.node.metrics.process import read_process
from dpcrowd.node.metrics.registry import Registry, render_all


def shown(*registries: Registry, audience: str = "reader") -> dict[str, float]:
    """Every line of the text that is no comment: name and labels, value."""
    text = render_all(registries, audience)  # type: ignore[arg-type]
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_a_histogram_is_written_as_prometheus_reads_it() -> None:
    """Buckets that are not cumulative, or lack +Inf, sum or count, would be refused or give wrong quantiles."""
    text = render([Metric("d_seconds", "histogram", "A delay.", [({"who": "b"}, Buckets((0.5, 2.0), (3, 0, 1), 6.5))])])
    assert text == (
        "# HELP d_seconds A delay.\n# TYPE d_seconds histogram\n"
        'd_seconds_bucket{who="b",le="0.5"} 3\nd_seconds_bucket{who="b",le="2"} 3\n'
        'd_seconds_bucket{who="b",le="+Inf"} 4\nd_seconds_sum{who="b"} 6.5\nd_seconds_count{who="b"} 4\n'
    )


@pytest.mark.parametrize(
    ("seconds", "bound", "total"),
    [(0.0, "0.25", 0.25), (0.0371, "0.25", 0.25), (0.25, "0.25", 0.25), (0.2501, "0.5", 0.5), (61.0, "300", 300.0)],
)
def test_a_delay_is_rounded_up_in_the_sum_as_well(seconds: float, bound: str, total: float) -> None:
    """An exact sum would tell to the microsecond what the buckets hide: how long this node took to count."""
    registry = Registry()
    registry.observe(families.RELEASE_DELAY, seconds)
    values = shown(registry)
    assert values[f'dpcrowd_release_delay_seconds_bucket{{le="{bound}"}}'] == 1
    assert sum(value for name, value in values.items() if "_bucket" in name) == 10 - families.BOUNDS.index(float(bound))
    assert values["dpcrowd_release_delay_seconds_sum"] == total


def test_a_delay_beyond_all_buckets_is_rounded_up_too() -> None:
    """A node that was down for a while releases its slot late; the sum must not be the one exact number."""
    registry = Registry()
    registry.observe(families.RELEASE_DELAY, 4_000.123)
    values = shown(registry)
    assert values['dpcrowd_release_delay_seconds_bucket{le="300"}'] == 0
    assert values['dpcrowd_release_delay_seconds_bucket{le="+Inf"}'] == 1
    assert values["dpcrowd_release_delay_seconds_sum"] == 4_200


def test_a_counter_is_there_before_anything_happens() -> None:
    """A counter that appears with its first event at 1 has never increased, so an alert on the increase is silent."""
    registry = Registry((families.SAMPLES, families.EXCHANGES, families.RELEASE_DELAY, families.STORAGE_FAILURES))
    values = shown(registry)
    assert values["dpcrowd_samples_total"] == 0
    assert values['dpcrowd_exchanges_total{outcome="incomplete"}'] == 0
    assert values["dpcrowd_release_delay_seconds_count"] == 0
    assert values['dpcrowd_storage_failures_total{kind="full"}'] == 0
    registry.add(families.SAMPLES)
    registry.add(families.SAMPLES, 2)
    registry.add(families.STORAGE_FAILURES, kind="full")
    values = shown(registry)
    assert (values["dpcrowd_samples_total"], values['dpcrowd_storage_failures_total{kind="full"}']) == (3, 1)


def test_other_labels_than_the_described_ones_are_refused() -> None:
    """They would be a series that no documentation knows, beside the one that a monitor looks at."""
    for labels in ({}, {"who": "b"}, {"neighbour": "b", "slot": "3"}):
        with pytest.raises(TypeError, match="dpcrowd_neighbour_up has the labels"):
            Registry().set(families.NEIGHBOUR_UP, 1, **labels)


def test_what_depends_on_the_load_is_for_the_operator() -> None:
    """Processor time, memory, connections and free space grow with the number of check-ins, which no reader may see."""
    registry = Registry()
    read_process(registry, 1_800_000_000_500_000_000)
    registry.set(families.STORAGE_FREE, 12_345)
    everything = shown(registry, audience="operator")
    assert shown(registry).keys() == {"process_start_time_seconds", "process_max_fds"}
    assert everything["process_start_time_seconds"] == 1_800_000_000.5
    assert everything["dpcrowd_storage_free_bytes"] == 12_345
    assert everything["process_cpu_seconds_total"] > 0
    assert 1e7 < everything["process_resident_memory_bytes"] < everything["process_virtual_memory_bytes"]
    assert 0 < everything["process_open_fds"] <= everything["process_max_fds"]


def test_open_files_are_counted(tmp_path: object) -> None:
    """A number that stands still while connections leak would show a healthy node until it can open nothing more."""

    def count() -> float:
        registry = Registry()
        read_process(registry, 0)
        return shown(registry, audience="operator")["process_open_fds"]

    before = count()
    held = [open("/dev/null", "rb") for _ in range(7)]  # noqa: SIM115
    try:
        assert count() == before + 7
    finally:
        for one in held:
            one.close()


def test_help_texts_are_sentences_and_names_are_in_order() -> None:
    """A help text is all that a dashboard shows to whoever is woken by it; names follow Prometheus' conventions."""
    names = [family.name for family in families.FAMILIES]
    assert len(set(names)) == len(names)
    for family in families.FAMILIES:
        assert re.fullmatch(r"(dpcrowd|process)(_[a-z]+)+", family.name)
        assert re.fullmatch(r"[A-Z].{15,}\.", family.help), family.name
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert (family.kind == "histogram") == bool(family.bounds), family.name
        assert not family.known or family.labels, family.name
    declared = {id(value) for value in vars(families).values() if isinstance(value, families.Family)}
    assert declared == {id(family) for family in families.FAMILIES}


def test_metrics_of_the_first_version_are_still_there() -> None:
    """Dashboards and alerts that were written for 0.1.0 must not fall silent."""
    first = {
        "dpcrowd_ready": (),
        "dpcrowd_slot": (),
        "dpcrowd_released_slot": (),
        "dpcrowd_epsilon": (),
        "dpcrowd_epsilon_spent": (),
        "dpcrowd_epsilon_spent_total": (),
        "dpcrowd_messages_sent_total": (),
        "dpcrowd_messages_refused_total": ("reason",),
        "dpcrowd_checkins_taken_total": (),
        "dpcrowd_neighbour_up": ("neighbour",),
    }
    present = {family.name: family.labels for family in families.FAMILIES if family.audience == "reader"}
    assert first.items() <= present.items()
