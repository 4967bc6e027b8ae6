"""The consensus step size beta, and the bound beyond which the filter can diverge.

With n speaking neighbours the iteration of Eq. (posterior) is stable if C n < 1 - M Y/2. Since M Y < 1 and C < beta,
beta * max_degree <= 1/2 suffices; on a ring, beta = 1/3 already diverges. Where the process itself grows (|A| > 1),
what the consensus overshoots grows with it, and beta * max_degree <= 1/(2 |A|) is needed. The matrix form takes M for
P in its gain, and is then stable under the same bound for any A (`dpcrowd.filters.matrix`).
"""

from __future__ import annotations

from numbers import Real
from typing import Any

from dpcrowd.errors import BadInput

__all__ = ["check_gain", "default_gain"]


def default_gain(max_degree: Any, growth: float = 1.0) -> Any:
    """beta = 1/(2 (1 + max_degree)), divided by the growth max(1, |A|); a number, or an array of them."""
    return 1.0 / (2.0 * (1.0 + max_degree)) / growth


def check_gain(beta: float, max_degree: int, growth: float = 1.0) -> float:
    """Return beta, or refuse it with the bound."""
    if not issubclass(type(beta), Real) or not 0.0 <= beta < float("inf"):
        raise BadInput(f"beta must be a finite number >= 0; given {beta}.")
    if beta * max_degree * growth > 0.5:
        grows = "" if growth == 1.0 else f"*{growth:g}"
        raise BadInput(
            f"beta = {beta:g} can diverge: a server here has up to {max_degree} neighbours, so beta must be at most "
            f"1/(2*{max_degree}{grows}) = {_rounded_down(0.5 / max_degree / growth)}; leave it out for the default "
            f"{default_gain(max_degree, growth):.6g}."
        )
    return beta


def _rounded_down(bound: float) -> str:
    """Six digits that are not above the bound: who types what the message says must not be refused again."""
    from decimal import ROUND_DOWN, Context

    return str(Context(prec=6, rounding=ROUND_DOWN).create_decimal_from_float(bound))
