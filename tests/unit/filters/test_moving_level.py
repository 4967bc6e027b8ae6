"""A level that moves beside the model's deviations, where these differ by season."""

from __future__ import annotations

import numpy as np

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.learning import beliefs_of, predict_bank, start_bank, update_bank

CROWDED, QUIET = 10_000.0, 4.0  # variances by day and by night, six slots each
VARIANCE = np.repeat([[CROWDED], [QUIET]], 6, axis=0)


def test_the_doubt_about_a_crowded_day_does_not_stay_through_the_night() -> None:
    """The level deviates as far as deviations do: a night in which nobody comes was as uncertain as the day before."""
    course = Course(np.repeat([[500.0], [3.0]], 6, axis=0), VARIANCE, season=12, offset=0, step=1)
    model = ProcessModel.around(course, 0.0)
    beliefs, bank, none = beliefs_of(model), start_bank(model, 1, -1), np.zeros((1, 1))
    variances = []
    for slot in range(24):
        bank = update_bank(predict_bank(bank, model, beliefs, slot), none, none, beliefs)
        variances.append(bank.var[-1, 0, 0])
    settled = np.tile(VARIANCE[:, 0], 2)
    night = np.flatnonzero(settled == QUIET)
    later = night[settled[night - 1] == QUIET]
    np.testing.assert_allclose(np.array(variances)[later], 2.0 * QUIET)
