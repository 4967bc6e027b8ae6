"""Messages: what a scheme's servers send, one row per server, and how rows become sums.

`InfoMessages` are those of the Kalman-consensus filters: info_vec, info_mat and the prior (Section "Message
Exchange"). `EstimateMessages` are those of flooding schemes: each server's own estimate. A single live server sends
and receives the same classes with one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats
from dpcrowd.errors import BadInput

__all__ = ["EstimateMessages", "InfoMessages", "Messages"]


@dataclass(frozen=True)
class Messages:
    """Rows of messages; `speaks` (M,) says which servers send anything."""

    speaks: Bools

    def row(self, server: int) -> Self:
        """Return the message of one server, as a batch of one."""
        return type(self)(**{name: getattr(self, name)[server : server + 1] for name in self.__dataclass_fields__})

    @classmethod
    def stack(cls, messages: Sequence[Self]) -> Self:
        """Join several batches into one, in the order given."""
        return cls(**{name: np.concatenate([getattr(m, name) for m in messages]) for name in cls.__dataclass_fields__})

    def check_shapes(self, own: Messages, sender: int) -> None:
        """Refuse a message of another shape than the receiver's own, which is of the same class."""
        check_arrays(self.arrays(), own.arrays(), sender)

    def check_values(self, sender: str) -> None:
        """Refuse numbers that a correct server never sends."""

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return all fields by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def check_arrays(sent: dict[str, NDArray[np.generic]], own: dict[str, NDArray[np.generic]], sender: int) -> None:
    """Refuse arrays of another shape or kind than the receiver's own."""
    for name, array in sent.items():
        expected = own[name]
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise BadInput(
                f"server {sender} sent {name} of {array.dtype}{array.shape}; allowed: {expected.dtype}{expected.shape}."
            )


@dataclass(frozen=True)
class InfoMessages(Messages):
    """info_vec (M, d), info_mat (M, d) or (M, d, d), prior (M, d), and whether the prior means anything, (M, d).

    pilot  the same of the filter that decides when to sample, where another one learns; None: there is one filter
    """

    info_vec: Floats
    info_mat: Floats
    prior: Floats
    prior_known: Bools
    pilot: InfoMessages | None = None

    def row(self, server: int) -> InfoMessages:
        pilot = None if self.pilot is None else self.pilot.row(server)
        return InfoMessages(**{name: array[server : server + 1] for name, array in self._own().items()}, pilot=pilot)

    @classmethod
    def stack(cls, messages: Sequence[InfoMessages]) -> InfoMessages:
        """Join several batches into one; where only some have a pilot's part, the others' own numbers stand for it."""
        own = [message._own() for message in messages]
        pilot = None
        if any(message.pilot is not None for message in messages):
            pilot = cls.stack([message.pilot or message.of_filter() for message in messages])
        return cls(**{name: np.concatenate([arrays[name] for arrays in own]) for name in own[0]}, pilot=pilot)

    def of_filter(self) -> InfoMessages:
        """Return the messages without the pilot's part."""
        return self if self.pilot is None else replace(self, pilot=None)

    def _own(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "pilot"}

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        pilot = {} if self.pilot is None else self.pilot.arrays()
        return self._own() | {f"pilot.{name}": array for name, array in pilot.items()}

    def check_shapes(self, own: Messages, sender: int) -> None:
        assert isinstance(own, InfoMessages)
        for part in (self.of_filter(), self.pilot):
            if part is not None:
                check_arrays(part._own(), own._own(), sender)

    def check_values(self, sender: str) -> None:
        if self.pilot is not None:
            self.pilot.check_values(sender)
        for name in ("info_vec", "info_mat", "prior"):
            if not np.isfinite(getattr(self, name)).all():
                raise BadInput(f"{sender} sent {name} with NaN or infinity; allowed: finite numbers.")
        least = self.info_mat.min(initial=0.0) if self.info_mat.ndim == 2 else _smallest_eigenvalue(self.info_mat)
        if least < 0.0:
            raise BadInput(f"{sender} sent an info_mat that is not positive semi-definite, as every measurement is.")
        if self.info_mat.ndim == 3 and (self.prior_known != self.prior_known[:, :1]).any():
            # With full matrices the consensus pulls at all regions together, and counts each participant once.
            raise BadInput(f"{sender} sent a prior of some regions; allowed with full matrices: of all, or of none.")

    def table(self) -> Floats:
        """Return the columns to be summed: info_vec, info_mat, the priors in the consensus, and their number."""
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
        """Split summed columns into info_vec, info_mat, priors and speakers."""
        rows, regions = len(sums), self.info_vec.shape[1]
        width = sums.shape[1] - 3 * regions
        info_mat = sums[:, regions : regions + width].reshape(rows, *self.info_mat.shape[1:])
        return (
            sums[:, :regions],
            info_mat,
            sums[:, regions + width : 2 * regions + width],
            sums[:, 2 * regions + width :],
        )


def _smallest_eigenvalue(matrices: Floats) -> float:
    """Return the smallest eigenvalue of all, relative to the largest; 0 if it is negative by rounding only."""
    if not np.allclose(matrices, matrices.swapaxes(-1, -2)):
        return -1.0
    values = np.linalg.eigvalsh(matrices)
    largest = float(np.abs(values).max(initial=0.0))
    least = float(values.min(initial=0.0)) / largest if largest else 0.0
    return least if least < -1e-9 else 0.0


@dataclass(frozen=True)
class EstimateMessages(Messages):
    """Each server's own estimate and its variance, (M, d); rows without an estimate do not speak."""

    estimate: Floats
    variance: Floats

    def check_values(self, sender: str) -> None:
        # A scheme without intervals sends NaN variances.
        if self.speaks.any() and not (np.isfinite(self.estimate).all() and not (self.variance < 0).any()):
            raise BadInput(f"{sender} sent an estimate that is not finite, or a negative variance.")

    def table(self) -> Floats:
        """Return the columns to be summed: estimates, variances, standard deviations, and how many there are."""
        speaks = self.speaks[:, None]
        variance = np.where(speaks, self.variance, 0.0)
        estimate = np.where(speaks, self.estimate, 0.0)
        return np.concatenate([estimate, variance, np.sqrt(variance), speaks.astype(np.float64)], axis=1)
