"""Messages of the library in the words of the command line: `turnover=1` becomes `--turnover 1`.

The library names settings as its callers in Python write them. Whoever reads a message of a command has options, so
settings that the command has as options are shown as such; what a text says of Python explicitly stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

__all__ = ["notes_with_options", "with_options"]

_OF_PYTHON = re.compile(r"(\([^()]*\bin Python\b[^()]*\))")
_SETTING = re.compile(r"(?<![\w.'\"/-])([a-z][a-z_]*)=(\"[^\"]*\"|'[^']*'|[\w.+-]*\w)")
_NAME = re.compile(r"(?<![\w.'\"/-])([a-z]+(?:_[a-z]+)+)(?![\w.=('\"])")  # no other words have underscores
_TWICE = re.compile(r"(--[a-z-]+(?: [\w.+-]*\w)?) \(\1\)")


def with_options(text: str, command: click.Command) -> str:
    """Return a message with the options of a command in place of the library's settings."""
    options = {parameter.name: parameter for parameter in command.params if isinstance(parameter, click.Option)}

    def option(match: re.Match[str]) -> str:
        found = options.get(match[1])
        return match[0] if found is None else _option(found, match[2])

    def name(match: re.Match[str]) -> str:
        found = options.get(match[1])
        return match[0] if found is None else max(found.opts, key=len)

    parts = _OF_PYTHON.split(text)
    shown = "".join(
        part if place % 2 else _NAME.sub(name, _SETTING.sub(option, part)) for place, part in enumerate(parts)
    )
    return _TWICE.sub(r"\1", shown)


def notes_with_options(notes: Iterable[str]) -> tuple[str, ...]:
    """Return notes with the options of the command that is running."""
    command = click.get_current_context().command
    return tuple(with_options(note, command) for note in notes)


def _option(option: click.Option, value: str) -> str:
    """Return an option with its value; a flag has none."""
    name = max(option.opts, key=len)
    if not option.is_bool_flag:
        return f"{name} {value.strip(chr(34))}"
    if value == "False" and option.secondary_opts:
        return option.secondary_opts[0]
    return name if value == "True" else f"{option.name}={value}"
