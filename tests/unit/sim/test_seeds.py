"""Random streams belong to (seed, run, purpose) and to nothing else."""

from __future__ import annotations

import numpy as np

from dpcrowd.sim.data.seeds import Purpose, generator, sequence

PINNED = {
    "TRUTH": 17438012079374151748,
    "SHARES": 10868409920998321208,
    "OBSERVATION": 986608713058027703,
    "GRAPH": 12315895916963303453,
    "NOISE": 12238674258407124526,
    "COMPOSITION": 3564442024772558909,
}


def test_every_seed_run_and_purpose_has_its_own_stream() -> None:
    """Two purposes on one stream would tie, say, the noise to the truth; two runs on one would not be independent."""
    first = {
        (seed, run, purpose): generator(seed, run, purpose).bit_generator.random_raw()
        for seed in range(4)
        for run in range(20)
        for purpose in Purpose
    }
    assert len(set(first.values())) == len(first)


def test_a_stream_depends_on_nothing_else() -> None:
    """If a stream depended on what was drawn before, results would change with the batching of runs."""
    alone = generator(3, 7, Purpose.NOISE).random(5)
    generator(3, 6, Purpose.NOISE).random(100)
    np.random.default_rng(0).random(3)
    np.testing.assert_array_equal(generator(3, 7, Purpose.NOISE).random(5), alone)
    again = np.random.Generator(np.random.PCG64(sequence(3, 7, Purpose.NOISE))).random(5)
    np.testing.assert_array_equal(again, alone)


def test_streams_are_the_same_on_every_machine_and_in_every_version() -> None:
    """A published seed has to give the published numbers: a purpose that moved would change them all."""
    assert {p.name: generator(0, 1, p).bit_generator.random_raw() for p in Purpose} == PINNED
