"""An exact sampler of the discrete Laplace distribution: integers only, from uniform random bytes.

The algorithms are 1 and 2 of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020). For
a rational scale b = t/s the result X has P(X = x) = (1 - q)/(1 + q) q^|x| with q = exp(-1/b), and no number on the way
is rounded. Why each step is exact, from the bytes upwards:

1. `uniform`. A value v of whole 64-bit words is uniform on [0, S) with S = 2^(64 words). Let L be the largest multiple
   of n up to S. Given v < L, all residues v mod n are equally likely; other values are drawn again.

2. `bernoulli_exp`, true with probability exp(-g) for a rational g = a/c in [0, 1]. Round k = 1, 2, ... succeeds with
   probability g/k, as a uniform integer below kc is below a with probability a/(kc). Let K be the first round that
   fails. Then P(K > k) = g/1 g/2 ... g/k = g^k/k!, and
       P(K odd) = sum over even k of P(K > k) - P(K > k + 1) = sum over all k of (-g)^k/k! = exp(-g).

3. `discrete_laplace`, the magnitude. U is uniform on {0, ..., t - 1} and is kept with probability exp(-U/t); V counts
   the successes of Bernoulli(exp(-1)) before the first failure. With x = u + t v, which is one pair (u, v) for each
   x >= 0, P(U = u, V = v) is proportional to exp(-u/t) exp(-v) = exp(-x/t). So P(U + tV >= x) = exp(-x/t), and for
   Y = floor((U + tV)/s), P(Y >= y) = P(U + tV >= s y) = exp(-s y/t) = q^y: P(Y = y) = (1 - q) q^y.

4. `discrete_laplace`, the sign. A fair coin makes Y positive or negative; -0 is drawn again from the beginning, or 0
   would come up twice as often as it should. What is left has P(0) proportional to (1 - q)/2 and P(+-y) to
   (1 - q) q^y/2, so P(x) is proportional to q^|x|, and the sum of q^|x| over all integers is (1 + q)/(1 - q).

Every loop ends with probability 1: a value of step 1 is drawn again with a probability below 1/2, U with one of at most
1/e, and -0 with one of at most 1/2. About ten uniform integers make one sample, whatever the scale is (twenty, where
nearly every sample is 0). How many, and so the time that it takes, depends on the sample: on average e more of them for
each further scale t/s of its magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["Uniform", "bernoulli_exp", "discrete_laplace", "uniform"]

Uniform = Callable[[int], int]
"""uniform(n) is an integer that is uniform on {0, ..., n - 1} and independent of all others, for n >= 1."""

_WORD = 64
_BLOCK = 256  # bytes per request; the operating system delivers this many in one piece


def uniform(entropy: Callable[[int], bytes]) -> Uniform:
    """Return a generator of uniform integers from a source of bytes: entropy(n) is n fresh uniform bytes.

    Bytes are fetched in blocks when they are needed. The rest of a block belongs to the function that is returned, so a
    caller who needs fresh entropy makes a new one.
    """
    word = _words(entropy).__next__

    def below(bound: int) -> int:
        words = -(-bound.bit_length() // _WORD)
        values = 1 << words * _WORD
        while True:
            value = word()
            for _ in range(words - 1):
                value = value << _WORD | word()
            if value < values - values % bound:
                return value % bound

    return below


def _words(entropy: Callable[[int], bytes]) -> Iterator[int]:
    while True:
        yield from memoryview(entropy(_BLOCK)).cast("Q")


def bernoulli_exp(below: Uniform, numerator: int, denominator: int) -> bool:
    """Return True with probability exp(-numerator/denominator), for 0 <= numerator <= denominator."""
    k = 1
    while below(k * denominator) < numerator:
        k += 1
    return k % 2 == 1


def discrete_laplace(below: Uniform, t: int, s: int) -> int:
    """Return one sample with the scale t/s, for t and s >= 1."""
    while True:
        u = below(t)
        if not bernoulli_exp(below, u, t):
            continue
        v = 0
        while bernoulli_exp(below, 1, 1):
            v += 1
        magnitude = (u + t * v) // s
        negative = below(2) == 1
        if negative and magnitude == 0:
            continue
        return -magnitude if negative else magnitude
