"""What a text of a model may contain, and how it is shown: files come from other people, and what they say reaches
terminals, logs and promises.

A promise quotes the source of a model. A line break in it would forge a line of a log, an escape sequence would erase
what was printed before, an override of the direction of writing would show another text than there is, and a quotation
mark would end the quotation early, so that what follows reads like a part of the promise. So whoever writes a model, or
brings a new one to a network, is refused the first three (`check_printable`). Other characters that cannot be seen,
such as a soft hyphen in a text that was pasted, do no harm. Whatever is shown is escaped, and has no quotation marks
inside (`quoted`), since files of earlier versions, and models that are in use, are read whatever they contain.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from dpcrowd.errors import JOINERS, BadInput

__all__ = ["LONGEST_SOURCE", "check_printable", "escaped", "quote_sources", "quoted"]

LONGEST_SOURCE = 500
"""Upper bound on the length of a new source, in characters. Files that `fit` did not write may have longer ones, of
which only as many characters are quoted."""

_LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_QUOTATION_MARKS = dict.fromkeys(
    map(ord, '"\u201c\u201d\u201e\u201f\u2033\u2036\u275d\u275e\u301d\u301e\u301f\uff02'), "'"
)


def check_printable(text: str, what: str) -> None:
    """Refuse a text that could forge or control what is printed; `what` names it in the message."""
    if text.isprintable():  # nearly always, and fast
        return
    for place, character in enumerate(text):
        kind = _harmful_kind(character)
        if kind:
            raise BadInput(
                f"{what} has {character!a}, {kind}, as character {place + 1}; write it as one line of plain text."
            )


def _harmful_kind(character: str) -> str:
    """Return what a character is that could forge or control what is printed; empty: it could not."""
    if character in _LINE_BREAKS:
        return "a line break"
    if character in _DIRECTIONS:
        return "a control of the direction of writing"
    return {"Cc": "a control character", "Cs": "half of a character"}.get(unicodedata.category(character), "")


def escaped(text: str) -> str:
    """Return a text as it may be printed: what cannot be seen is escaped, and every kind of space is a plain one."""
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable() or character in JOINERS:
        return character
    return " " if unicodedata.category(character) == "Zs" else ascii(character)[1:-1]


def quoted(source: str) -> str:
    """Return a source in quotation marks, shortened to `LONGEST_SOURCE` characters; no mark inside ends it early."""
    short = source if len(source) <= LONGEST_SOURCE else f"{source[: LONGEST_SOURCE - 1]}…"
    return f'"{escaped(short).translate(_QUOTATION_MARKS)}"'


def quote_sources(sources: Sequence[str]) -> str:
    """Return how a promise quotes the sources of a model: its own, then those of models of which it keeps a part."""
    own, *earlier = map(quoted, sources)
    return own if not earlier else f"{own}; and of earlier models, of which it keeps a part: {', '.join(earlier)}"
