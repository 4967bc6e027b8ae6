"""Learned shares of large crowds: the first records say a billion times more than what was known before them."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from relay_support import Network, message_of


@pytest.mark.parametrize("crowd", [1e4, 1e6, 1e7, 1e8, 1e9])
@pytest.mark.parametrize("width", [0.1, 0.8])
@pytest.mark.parametrize("shares", [(0.6, 0.4), (0.5, 0.3, 0.2)])
def test_rounding_leaves_a_variance(shares: tuple[float, ...], width: float, crowd: float) -> None:
    """A variance is a difference of two large numbers there: it was -1e-12, the root of which is not a number.

    All servers together count everybody, so what is right is the Kalman filter of the crowd that measures the sum of
    the records. Rounding may make the variance larger than that, but hardly smaller.
    """
    process_var, slots = 1.0, 12
    network = Network(
        np.array(shares), ProcessModel.of(1.0, [process_var]), Guarantee.window(1, epsilon=1.0), samples=1,
        phases=np.zeros(len(shares), dtype=np.int64), lag=2, observation="binomial", share_width=width, turnover=0.02,
    )  # fmt: skip
    server = network.server(0)
    right, noise = np.inf, len(shares) * network.noise_var
    for slot in range(slots):
        server.observe(slot, [round(shares[0] * crowd)])
        records = {(origin, slot): np.array([np.rint(shares[origin] * crowd)]) for origin in range(1, len(shares))}
        release = server.hear({9: message_of(records, list(records), network.price)})
        right = 1.0 / (1.0 / (right + process_var) + 1.0 / noise)
        assert release.variance[0] > 0.4 * right
        assert np.isfinite(release.estimate[0])
    assert release.variance[0] < max(2.0 * right, np.square(1e-5 * crowd))
