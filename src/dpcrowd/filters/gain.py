"""The consensus step size beta, and the bound beyond which the filter can diverge.

With n speaking neighbours the iteration of Eq. (posterior) is stable if C n < 1 - M Y/2. Since M Y < 1 and C < beta,
beta * max_degree <= 1/2 suffices; on a ring, beta = 1/3 already diverges. That is a proof for a number or a diagonal A
with |A| <= 1. A growing process (|A| > 1), or a full A in the matrix form, can enlarge what the consensus overshoots.
"""

from __future__ import annotations

from dpcrowd.errors import BadInput

__all__ = ["check_gain", "default_gain"]


def default_gain(max_degree: int) -> float:
    """beta = 1/(2 (1 + max_degree))."""
    return 1.0 / (2.0 * (1.0 + max_degree))


def check_gain(beta: float, max_degree: int) -> float:
    """Return beta, or refuse it with the bound."""
    if not 0.0 <= beta < float("inf"):
        raise BadInput(f"beta must be a finite number >= 0; given {beta}.")
    if beta * max_degree > 0.5:
        raise BadInput(
            f"beta = {beta:g} can diverge: a server here has up to {max_degree} neighbours, so beta must be at most "
            f"1/(2*{max_degree}) = {_rounded_down(0.5 / max_degree)}; leave it out for the default "
            f"{default_gain(max_degree):.6g}."
        )
    return beta


def _rounded_down(bound: float) -> str:
    """Six digits that are not above the bound: who types what the message says must not be refused again."""
    from decimal import ROUND_DOWN, Context

    return str(Context(prec=6, rounding=ROUND_DOWN).create_decimal_from_float(bound))
