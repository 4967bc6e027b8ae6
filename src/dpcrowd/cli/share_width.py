"""The option `--share-width`, whose number may be left out, and the kind of command that has it."""

from __future__ import annotations

from collections.abc import Iterator

import click

__all__ = ["CommandWithWidth", "share_width"]

_OPTIONAL = "--share-width"

share_width = click.option(
    _OPTIONAL,
    type=float,
    is_flag=False,
    flag_value=0.1,
    metavar="[PART]",
    help="relay: typical relative error of public shares, 0.1 without a number; it then learns the shares of every "
    "region from records, which excludes joining small regions (groups auto). 0: public shares are right.  "
    "[default: that of a network.toml, else 0]",
)


class CommandWithWidth(click.Command):
    """A command with an option whose number may be left out, where click takes a negative number for another option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_with_negative_numbers(args)))


def _with_negative_numbers(args: list[str]) -> Iterator[str]:
    """Yield the words; a negative number of `--share-width` is a word of its own that begins with a space."""
    before = ""
    for word in args:
        name, equals, value = word.partition("=")
        if before == _OPTIONAL and _is_negative(word):
            yield f" {word}"
        elif name == _OPTIONAL and equals and _is_negative(value):
            yield from (name, f" {value}")
        else:
            yield word
        before = word


def _is_negative(word: str) -> bool:
    if not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return False
    return True
