"""Fusing whatever was sent: a message that no filter can take costs its sender the slot, and nobody else anything."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from dpcrowd.node.machine.neighbours import Exchange
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Release
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from node_support import FreshNoise
from schemes_support import bits, make_setting

REGIONS = 3


def server(slot: int = 0) -> Server:
    setting = make_setting(1, REGIONS, Guarantee.window(8, 3.0), form="matrix")
    made = Server(
        make_scheme("dpcrowd-plus"),
        setting,
        FreshNoise(3),
        number=0,
        share=0.5,
        max_degree=3,
        allow_simulated_noise=True,
    )
    for passed in range(slot):
        made.observe(passed, [40, 10, 20])
        made.hear()
    made.observe(slot, [40, 10, 20])
    return made


def fuse(server: Server, messages: Mapping[int, InfoMessages]) -> tuple[Release, list[int]]:
    return Exchange(0, b"", frozenset(messages), heard=dict(messages)).fuse(server)


def said(info_mat: np.ndarray, info_vec: float = 0.0) -> InfoMessages:
    everything = np.ones((1, REGIONS), dtype=np.bool_)
    zero = np.zeros((1, REGIONS))
    return InfoMessages(everything[:, 0], zero + info_vec, info_mat[None], zero, ~everything)


def singular(scale: float) -> InfoMessages:
    direction = np.array([1.0, 2.0, 3.0])
    return said(np.outer(direction, direction) * scale)


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("scale", [1e12, 1e20, 1e60, 1e100])
def test_a_matrix_that_cannot_be_inverted_costs_its_sender_alone(scale: float, slot: int) -> None:
    """It is positive semi-definite, finite and signed; the node would break, and again after every restart."""
    honest = said(np.eye(REGIONS) * 0.02, 2.0)
    release, unfit = fuse(server(slot), {1: honest, 2: singular(scale)})
    expected, nobody = fuse(server(slot), {1: honest})
    assert nobody == []
    if unfit:
        assert unfit == [2]
        assert bits(release.estimate) == bits(expected.estimate)
    assert np.isfinite(release.estimate).all()
    assert (release.variance >= 0).all()


def test_the_hardest_one_is_really_refused() -> None:
    """Otherwise the test above would say nothing."""
    for slot in (0, 1):
        assert fuse(server(slot), {2: singular(1e60)})[1] == [2]


def test_nothing_heard_is_the_servers_own_release() -> None:
    """The way of every slot must not change a bit."""
    assert bits(fuse(server(), {})[0].estimate) == bits(server().hear().estimate)
    honest = {1: said(np.eye(REGIONS) * 0.02, 2.0)}
    assert bits(fuse(server(), honest)[0].estimate) == bits(server().hear(honest).estimate)
