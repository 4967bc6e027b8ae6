"""The gate: samples of far more people than there are must not pull the estimates of a whole network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.node.machine import Revision
from dpcrowd.node.wire import plausible
from dpcrowd.schemes.messages import InfoMessages
from node_support_lone import Lone
from node_support_lone import sample as said

POPULATION = 1000


def sample(people: float, deviation: float, *, matrix: bool = False) -> InfoMessages:
    """Of two regions, the second not sampled."""
    information = np.array([[deviation**-2, 0.0]])
    info_mat = information[:, :, None] * np.eye(2) if matrix else information
    some = np.ones((1, 2), dtype=np.bool_)
    return InfoMessages(np.ones(1, dtype=np.bool_), information * people, info_mat, np.zeros((1, 2)), some)


@pytest.mark.parametrize(
    ("people", "deviation"),
    [(0, 5), (POPULATION, 5), (-150, 5), (2 * POPULATION, 1), (POPULATION + 30 * 1e4, 1e4), (-3e5, 1e4)],
)
def test_honest_samples_pass(people: float, deviation: float) -> None:
    """Noise below zero, wrong shares and very noisy samples are honest; refusing them would bias estimates."""
    assert plausible(sample(people, deviation), POPULATION, 25.0)


@pytest.mark.parametrize(("people", "deviation"), [(20 * POPULATION, 5), (-1000, 5), (1e20, 1e3), (-1e12, 1e6)])
def test_nonsense_does_not(people: float, deviation: float) -> None:
    """One broken neighbour would otherwise carry everybody away."""
    assert not plausible(sample(people, deviation), POPULATION, 25.0)


def test_the_matrix_form_is_judged_too() -> None:
    """Regions that are told together have no counts of their own, but their sum has."""
    assert plausible(sample(POPULATION, 5.0, matrix=True), POPULATION, 25.0)
    assert not plausible(sample(1e20, 1.0, matrix=True), POPULATION, 25.0)
    assert not plausible(sample(-1e6, 1.0, matrix=True), POPULATION, 25.0)
    one, variance = np.ones((1, 3)), 50.0
    for people, possible in ((2 * POPULATION, True), (-100, True), (40 * POPULATION, False), (-1000, False)):
        together = one * people / variance
        known = np.ones((1, 3), dtype=np.bool_)
        message = InfoMessages(known[:, 0], together, np.ones((1, 3, 3)) / variance, one, known)
        assert plausible(message, POPULATION, 25.0) is possible, people


def test_a_pilot_is_judged_too() -> None:
    """It would be the way around the gate: what it says steers when every neighbour samples."""
    honest = sample(POPULATION, 5.0)
    assert plausible(replace(honest, pilot=honest), POPULATION, 25.0)
    assert not plausible(replace(honest, pilot=sample(20 * POPULATION, 5.0)), POPULATION, 25.0)
    assert not plausible(replace(honest, pilot=replace(honest, prior=np.array([[0.0, 1e20]]))), POPULATION, 25.0)


@pytest.mark.parametrize("matrix", [False, True])
def test_a_prior_of_nobodys_crowd_is_refused(matrix: bool) -> None:
    """The consensus pulls towards it: one number would carry all estimates away, however honest the sample is."""
    honest = sample(POPULATION, 5.0, matrix=matrix)
    for prior, possible in ((-500.0, True), (3e3, True), (1.05e4, True), (2e4, False), (-1e20, False)):
        told = replace(honest, prior=np.array([[0.0, prior]]))
        assert plausible(told, POPULATION, 25.0) is possible, prior
        weightless = replace(told, info_vec=told.info_vec * 0, info_mat=told.info_mat * 1e-40)
        assert plausible(weightless, POPULATION, 25.0) is possible, "what it says of itself must not widen the gate"
        unknown = replace(told, prior_known=np.zeros((1, 2), dtype=np.bool_))
        assert plausible(unknown, POPULATION, 25.0)


def test_a_node_refuses_nonsense_by_name_and_takes_the_next_message() -> None:
    """The failure table's broken neighbour: named, refused, and the others' samples are fused."""
    node = Lone()
    node.machine.revision = Revision(replace(node.view, population=POPULATION), node.make)
    node.seal(3)
    node.hear(1, said(1, 3, 1e6))
    assert node.reasons == ["absurd"]
    assert "server-1" in node.refused[0].text
    node.hear(1, said(1, 3, 100.0))
    node.hear(2, said(2, 3, 100.0))
    assert node.reasons == ["absurd"]
    assert [release.slot for release in node.published] == [3]
