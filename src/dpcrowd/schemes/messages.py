"""Messages: what a scheme's servers say, a row a server, and how rows become sums.

`InfoMessages` are those of the Kalman-consensus filters: info_vec, info_mat and the prior (Section "Message
Exchange"). `EstimateMessages` are those of flooding schemes: each server's own estimate. A single live server sends
and receives the same classes with one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["EstimateMessages", "InfoMessages", "Messages"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Messages:
    """Rows of messages; `speaks` (M,) says which servers say anything."""

    speaks: Bools

    def row(self, server: int) -> Self:
        """The message of one server, as a batch of one."""
        return type(self)(**{f.name: getattr(self, f.name)[server : server + 1] for f in fields(self)})

    @classmethod
    def stack(cls, messages: Sequence[Self]) -> Self:
        """One batch from several, in the order given."""
        return cls(**{f.name: np.concatenate([getattr(m, f.name) for m in messages]) for f in fields(cls)})

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All fields by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class InfoMessages(Messages):
    """info_vec (M, d), info_mat (M, d) or (M, d, d), prior (M, d), and whether the prior means anything, (M, d)."""

    info_vec: Floats
    info_mat: Floats
    prior: Floats
    prior_known: Bools

    def table(self) -> Floats:
        """Columns to be summed: info_vec, info_mat, the priors that take part in the consensus, and their number."""
        rows, regions = self.info_vec.shape
        width = self.info_mat.size // rows
        counted = self.prior_known & self.speaks[:, None]
        table = np.empty((rows, 3 * regions + width))
        table[:, :regions] = self.info_vec
        table[:, regions : regions + width] = self.info_mat.reshape(rows, width)
        np.multiply(self.prior, counted, out=table[:, regions + width : 2 * regions + width])
        table[:, 2 * regions + width :] = counted
        return table

    def split(self, sums: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Summed columns back into info_vec, info_mat, priors and speakers."""
        rows, regions = len(sums), self.info_vec.shape[1]
        width = sums.shape[1] - 3 * regions
        info_mat = sums[:, regions : regions + width].reshape(rows, *self.info_mat.shape[1:])
        return (
            sums[:, :regions],
            info_mat,
            sums[:, regions + width : 2 * regions + width],
            sums[:, 2 * regions + width :],
        )


@dataclass(frozen=True)
class EstimateMessages(Messages):
    """Each server's own estimate and its variance, (M, d); rows without an estimate do not speak."""

    estimate: Floats
    variance: Floats

    def table(self) -> Floats:
        """Columns to be summed: estimates, variances, standard deviations, and how many there are."""
        heard = self.speaks[:, None]
        variance = np.where(heard, self.variance, 0.0)
        estimate = np.where(heard, self.estimate, 0.0)
        return np.concatenate([estimate, variance, np.sqrt(variance), heard.astype(np.float64)], axis=1)
