"""The promise of a network that has had other models before.

What operators assert of a model concerns the releases that were made with it. A revision that replaces the model, or
does without one, takes nothing back: as long as such releases are in the present window, or horizon, the promise about
these slots rests on the earlier assertion, too, and names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from dpcrowd.models.file import model_digest
from dpcrowd.node.config.network import NetworkConfig

__all__ = ["promise_in"]


def promise_in(network: NetworkConfig, earlier: Iterable[NetworkConfig], slot: int) -> str:
    """Return what is promised in a slot, in words.

    network  the revision in use
    earlier  revisions that were valid before it, as far as they are known; later ones are ignored
    """
    text, guarantee = network.promise(), network.guarantee()
    is_window = guarantee.kind == "window"
    first = slot - guarantee.length + 1 if is_window else network.guarantee_section.horizon_from_slot
    before = [one for one in earlier if one.revision < network.revision]
    if not any(one.fitted is not None for one in before):
        return text
    named = {None if network.fitted is None else model_digest(network.fitted)}
    chain = [*sorted(before, key=lambda one: one.revision), network]
    for one, following in reversed(list(pairwise(chain))):
        if one.fitted is None or following.valid_from_slot <= first or model_digest(one.fitted) in named:
            continue
        named.add(model_digest(one.fitted))
        text += (
            f" The present {'window' if is_window else 'horizon'} has releases of slots before "
            f"{following.valid_from_slot} that were made with an earlier model, of which the operators asserted the "
            f'same: "{one.fitted.quoted_source}".'
        )
    return text
