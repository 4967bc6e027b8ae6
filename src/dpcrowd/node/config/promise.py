"""The promise of a network that has had other models before.

What operators assert of a model concerns everything that was made with it. A revision that replaces the model, or does
without one, takes nothing back: estimates go on from those that were made with it, and where records say little they
are what the model said, however long ago that was. So the promise names every earlier model since the last revision
with which estimates began from nothing. Those before that are named as long as releases that were made with them are in
the present window, or horizon.

A server that has joined later, or has lost its folder, begins with what its neighbours estimate. Which models there
were before that it does not know, so its promise names these neighbours.

Which models these are follows from the revisions, and is stored beside the estimates: copies of revisions are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from dpcrowd.models.file import model_digest
from dpcrowd.models.model import Model
from dpcrowd.models.printable import quote_sources, quoted
from dpcrowd.node.config.network import NetworkConfig, assertion
from dpcrowd.schemes.server import Joined

__all__ = ["FormerModel", "earlier_models", "promise_in"]


class FormerModel(NamedTuple):
    """A model that a network had before.

    source   why it costs no privacy budget; with the sources of earlier models of which it kept a part, one per line
    until    the first slot after those with it
    goes_on  whether estimates go on from those that were made with it
    """

    digest: str
    source: str
    until: int
    goes_on: bool


def earlier_models(
    known: Iterable[FormerModel], revisions: Sequence[NetworkConfig], first: int = 0
) -> tuple[FormerModel, ...]:
    """Return the models that are known, with those of revisions that have followed one another, oldest first.

    first  the first slot in which the last revision is in use, if that is after the one from which on it is valid
    """
    models = {one.digest: one for one in known}
    for place, (one, following) in enumerate(pairwise(revisions), start=2):
        until = max(following.valid_from_slot, first if place == len(revisions) else 0)
        if one.fitted is not None:
            name = model_digest(one.fitted)
            if name not in models or models[name].until < until:
                models[name] = FormerModel(name, _stored(one.fitted), until, goes_on=True)
        if not _estimates_go_on(one, following):
            models |= {name: model._replace(goes_on=False) for name, model in models.items() if model.until <= until}
    return tuple(sorted(models.values(), key=lambda one: (one.until, one.digest)))


def _estimates_go_on(before: NetworkConfig, following: NetworkConfig) -> bool:
    """Whether estimates of some region go on from one revision to the next (`Server.take_over`), at all servers.

    What else keeps a state from going on, such as another guarantee, no revision may change.
    """
    if before.method.name != following.method.name:
        return False
    if following.relay is not None and before.revision == following.revision:  # its model was corrected
        return False
    if following.relay is not None and following.method.form == "matrix":
        return before.regions == following.regions
    return not set(before.regions).isdisjoint(following.regions)


def promise_in(network: NetworkConfig, earlier: Iterable[FormerModel], slot: int, joined: Joined | None = None) -> str:
    """Return what is promised in a slot, in words.

    network  the revision in use
    earlier  the models of the revisions before it, as far as they are known
    joined   whose word the server's estimates began with; None: nobody's, and it knows all models behind them
    """
    text, guarantee = network.promise(), network.guarantee()
    is_window = guarantee.kind == "window"
    first = slot - guarantee.length + 1 if is_window else network.guarantee_section.horizon_from_slot
    present = None if network.fitted is None else model_digest(network.fitted)
    named = set[str]()
    for one in sorted(earlier, key=lambda one: -one.until):
        released = one.until > first
        if one.digest == present or one.source in named or not (released or one.goes_on):
            continue
        span = f"The present {'window' if is_window else 'horizon'} has" if released else "Estimates go on from"
        text += f" {span} releases of slots before {one.until} that were made with an earlier model"
        sources = quote_sources(one.source.split("\n"))
        if present is None and not named:  # nothing has been asserted before
            text += f". {assertion('that model', sources)}"
        else:
            text += f", of which the operators asserted the same: {sources}."
        named.add(one.source)
    if joined is not None and network.revision > 1:
        text += (
            f" Estimates of this server began with those of {' and '.join(joined.sources)} in slot {joined.slot}: they "
            "may go on from models of revisions that this server has never had, which the promises of those servers "
            "name."
        )
    return text


def _stored(model: Model) -> str:
    """Return the sources of a model as they are stored: one per line, so no line breaks in them, and not endless."""
    return "\n".join(quoted(source)[1:-1] for source in model.sources)
