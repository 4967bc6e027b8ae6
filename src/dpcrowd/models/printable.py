"""Which texts of a model may be printed: files come from other people, and what they say reaches terminals and logs.

A promise quotes the source of a model word for word. A line break in it would forge a line of a log, an escape sequence
would erase what was printed before, and an override of the direction of writing would show another text than there is.
So a text is one line without control characters (Unicode's categories Cc, Cf, Cs, Zl and Zp): the source that `fit` is
given, and every text of a model, whoever wrote its file.
"""

from __future__ import annotations

import unicodedata

from dpcrowd.errors import BadInput

__all__ = ["check_printable"]

_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # without which some languages, and some pictures, cannot be written; they override nothing


def check_printable(text: str, what: str) -> None:
    """Refuse a text that is not one line of plain text; `what` names it in the message."""
    if text.isprintable():  # nearly always, and fast
        return
    for place, character in enumerate(text):
        if unicodedata.category(character) in _CONTROLS and character not in _JOINERS:
            raise BadInput(
                f"{what} has {character!a}, a line break or another control character, as character {place + 1}; "
                "write it as one line of plain text."
            )
