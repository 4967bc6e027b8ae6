"""Follow the variances of filters that remember deviations of servers, from one slot to the next.

The oracle is `ArrivingRecords.followed` in `dpcrowd.schemes.prediction_staying`, which has the equations of
`dpcrowd.filters.persistence`; the arithmetic is the same, term by term and in the same order. One loop takes a
tenth of the time of fifty array operations, and records that have not arrived cost nothing.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats, Ints

__all__ = ["follow_staying"]


def follow_staying(  # noqa: PLR0912  (one loop: a call in it would have to be compiled as well)
    var: Floats, cross: Floats, growth: Floats, process_var: Floats, carried: Floats, shares: Floats, spread: Floats,
    crowd: Floats, origins: Ints, noise_var: Floats, delays: Ints, age: int, least_part: float, new_var: Floats,
    new_cross: Floats,
) -> None:  # fmt: skip
    """Set variances (columns,) and x (m, columns) after a slot from those before it.

    A column is a receiver and a region: all regions of a receiver are side by side, and so are all receivers of a
    number of samples.

    growth, carried  (columns,) by what variances and x are multiplied from one slot to the next
    shares, spread   (m, columns) of all servers, and the variances of their deviations
    crowd            (columns,) people where users are partitioned, else 0
    origins          (k,) the servers that sample in the slot
    noise_var        (k, numbers of samples) infinite where a server does not sample with that number
    delays           (receivers of a number of samples, m) slots until the records arrive; below 0: never
    age              slots since then: later records have not arrived
    least_part       no posterior variance is below this part of the prior one
    """
    servers, columns = cross.shape
    records, numbers = noise_var.shape
    places = delays.shape[0]
    receivers = numbers * places
    regions = columns // receivers
    informed, nobody = np.zeros(receivers, dtype=np.bool_), True
    for e in range(records):
        for p in range(places):
            if 0 <= delays[p, origins[e]] <= age:
                for number in range(numbers):
                    informed[number * places + p] |= noise_var[e, number] < np.inf
                nobody = False
    for c in range(columns):
        new_var[c] = growth[c] * var[c] + process_var[c]
    if nobody:
        for o in range(servers):
            for c in range(columns):
                new_cross[o, c] = carried[c] * cross[o, c]
        return
    explained = np.zeros(columns)
    for o in range(servers):
        for c in range(columns):
            x = carried[c] * cross[o, c]
            new_cross[o, c] = x
            explained[c] += x * x / spread[o, c]
    factor = np.ones(columns)
    for i in range(receivers):
        for c in range(i * regions, (i + 1) * regions):
            if not new_var[c] < np.inf:
                factor[c] = 0.0
            elif informed[i] and explained[c] > new_var[c]:
                factor[c] = np.sqrt(new_var[c] / explained[c])
    share_squares, products, cross_squares = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    by_share, by_cross = np.zeros((records, columns)), np.zeros((records, columns))
    for e in range(records):
        o = origins[e]
        for i in range(receivers):
            noise = noise_var[e, i // places]
            if noise < np.inf and 0 <= delays[i % places, o] <= age:
                for c in range(i * regions, (i + 1) * regions):
                    weight, own, common = 1.0 / (noise + spread[o, c]), shares[o, c], new_cross[o, c] * factor[c]
                    weighted_share, weighted_common = weight * own, weight * common
                    share_squares[c] += weighted_share * own
                    products[c] += weighted_share * common
                    cross_squares[c] += weighted_common * common
                    by_share[e, c], by_cross[e, c] = weighted_share, weighted_common
    phi, beta, removed = np.ones(columns), np.zeros(columns), np.zeros(columns)
    for i in range(receivers):
        if informed[i]:
            for c in range(i * regions, (i + 1) * regions):
                prior, people, a, b = new_var[c], crowd[c], share_squares[c], products[c]
                if prior < np.inf:
                    rest, unexplained = 1.0 - b, prior - people - cross_squares[c]
                    delta = a * unexplained + rest * rest
                    phi[c] = (rest - a * people) / delta
                    beta[c] = (unexplained + people * rest) / delta
                    after = ((prior - cross_squares[c]) * (1.0 - a * people) - people * b * b) / delta
                    after = max(after, least_part * prior)
                else:
                    phi[c], beta[c], after = 0.0, 1.0 / a, 1.0 / a - people
                new_var[c] = max(after, 0.0)
                removed[c] = people * (1.0 - phi[c])
    for o in range(servers):
        for c in range(columns):
            new_cross[o, c] = phi[c] * (new_cross[o, c] * factor[c]) - shares[o, c] * removed[c]
    for e in range(records):
        o = origins[e]
        for c in range(columns):
            new_cross[o, c] += spread[o, c] * (beta[c] * by_share[e, c] - phi[c] * by_cross[e, c])
