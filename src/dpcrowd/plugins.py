"""Schemes, data sets and topologies of other packages, found by entry points or named as `package:object`.

A package registers them in its `pyproject.toml`, one line each, under the name that users give on the command line:

    [project.entry-points."dpcrowd.schemes"]
    median = "crowd_extras.median:Median"       # a subclass of dpcrowd.Scheme
    [project.entry-points."dpcrowd.data"]
    market = "crowd_extras.market:load"         # a function that returns a data set, or counts as an array
    [project.entry-points."dpcrowd.topologies"]
    star = "crowd_extras.star:star"             # a function of servers, density and a random generator

Nothing is imported before its name is used, and dpcrowd's own names are looked up first. A plug-in that cannot be used
raises `BrokenPlugin`, which names the package; everything else keeps working. Live servers run only dpcrowd's own
schemes.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from dpcrowd.errors import BrokenPlugin, unknown_name
from dpcrowd.schemes.base import Scheme
from dpcrowd.schemes.flooding import Flooding
from dpcrowd.schemes.registry import OWN, SCHEMES, make_from
from dpcrowd.schemes.relay import Relay

__all__ = [
    "Kind",
    "Plugin",
    "find_plugin",
    "installed",
    "make_scheme",
    "package_of",
    "plugin_digest",
    "scheme_class",
]

Kind = Literal["scheme", "data set", "topology"]

_GROUPS: dict[Kind, str] = {
    "scheme": "dpcrowd.schemes",
    "data set": "dpcrowd.data",
    "topology": "dpcrowd.topologies",
}
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_UNKNOWN = "an unknown package"
_REACHES = ("alone", "one-hop", "flooding", "central", "relay")


@dataclass(frozen=True)
class Plugin:
    """A scheme, data set or topology that another package registers; `load` imports it.

    name     its name for users: that of the entry point, or `package:object`
    package  the distribution that registered it, or the top-level package of a `package:object`
    target   `module:object`
    """

    kind: Kind
    name: str
    package: str
    target: str

    def load(self) -> Any:
        """Import the object; whatever goes wrong becomes a `BrokenPlugin`."""
        module, _, path = self.target.partition(":")
        try:
            value: Any = import_module(module)
            for attribute in path.split("."):
                value = getattr(value, attribute)
        except Exception as error:
            raise self.broken(f"{self.target} cannot be imported ({type(error).__name__}: {error})") from error
        if self.kind == "scheme":
            self._check_scheme(value)
        elif not callable(value):
            raise self.broken(f"{self.target} is {type(value).__name__}, not a function")
        return value

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Load a function and call it; an exception of the package becomes a `BrokenPlugin`."""
        function: Callable[..., Any] = self.load()
        try:
            return function(*arguments, **options)
        except Exception as error:
            raise self.broken(f"{self.target} failed ({type(error).__name__}: {error})") from error

    def accepts(self, option: str) -> bool:
        """Whether the function has a parameter of this name."""
        return option in inspect.signature(self.load()).parameters

    def broken(self, reason: str) -> BrokenPlugin:
        """Return the error that says what is wrong with this plug-in."""
        return BrokenPlugin(self.kind, self.name, self.package, reason)

    def _check_scheme(self, value: Any) -> None:
        if not (inspect.isclass(value) and issubclass(value, Scheme)):
            raise self.broken(f"{self.target} is not a subclass of dpcrowd.Scheme")
        if inspect.isabstract(value):
            missing = ", ".join(sorted(value.__abstractmethods__))
            raise self.broken(f"{self.target} does not implement {missing}")
        for attribute in ("name", "kinds", "summary"):
            if not hasattr(value, attribute):
                raise self.broken(f"{self.target} has no class attribute '{attribute}'")
        if ":" not in self.name and value.name != self.name:
            raise self.broken(f"{self.target} is named '{value.name}'; the entry point must have the same name")
        if not isinstance(value.name, str) or not re.fullmatch(r"[\w.+-]+", value.name):
            raise self.broken(f"{value.name!r} is not a name; allowed: letters, digits and . _ + -")
        if value.name in SCHEMES and SCHEMES[value.name] is not value:
            raise self.broken(f"'{value.name}' is the name of one of dpcrowd's own schemes")
        if not frozenset(value.kinds) <= {"finite", "window"}:
            raise self.broken(f"kinds is {value.kinds!r}; allowed: 'finite', 'window', both or neither")
        if len(value.summary) != 4 or not all(isinstance(cell, str) for cell in value.summary):
            raise self.broken(f"summary is {value.summary!r}; allowed: four texts")
        if value.reach not in _REACHES:
            raise self.broken(f"reach is {value.reach!r}; allowed: {', '.join(_REACHES)}")
        if value.reach == "relay" and not issubclass(value, Relay):
            raise self.broken("reach is 'relay', which is for subclasses of dpcrowd.Relay: only they pass records on")


@cache
def installed(kind: Kind) -> dict[str, Plugin]:
    """Return what the packages of this environment have registered, by name; nothing is imported."""
    plugins: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=_GROUPS[kind]), key=lambda entry: (entry.name, _distribution(entry))):
        # If two packages register the same name, the alphabetically first one gets it, on every machine.
        plugins.setdefault(entry.name, Plugin(kind, entry.name, _distribution(entry), entry.value))
    return plugins


def _distribution(entry: EntryPoint) -> str:
    return _UNKNOWN if entry.dist is None else _package_name(entry.dist.name)


def find_plugin(kind: Kind, name: str) -> Plugin | None:
    """Return the plug-in of this name: a registered one, or `package:object`; None if it is neither."""
    plugin = installed(kind).get(name)
    if plugin is None and _REFERENCE.fullmatch(name):
        plugin = Plugin(kind, name, name.partition(":")[0].partition(".")[0], name)
    return plugin


def scheme_class(name: str) -> type[Scheme]:
    """Return the class of a scheme by its name; dpcrowd's own schemes come first."""
    if name in SCHEMES:
        return SCHEMES[name]
    plugin = find_plugin("scheme", name)
    if plugin is None:
        raise unknown_name("scheme", name, [*SCHEMES, *installed("scheme")])
    kind: type[Scheme] = plugin.load()
    return kind


def make_scheme(name: str, **options: Any) -> Scheme:
    """Return a scheme by its name, that of a plug-in, or `package:Class`; options that are None are left out.

    >>> make_scheme("dpcrowd", interval=5).sampling
    'fixed'
    >>> make_scheme("dpcrwod")
    Traceback (most recent call last):
        ...
    dpcrowd.errors.BadInput: unknown scheme 'dpcrwod'. Did you mean 'dpcrowd'? Allowed: ...
    """
    return make_from(scheme_class(name), name, **options)


def package_of(scheme: Scheme | type[Scheme]) -> str | None:
    """Return the package that is responsible for a scheme; None for dpcrowd's own schemes.

    An instance of one of dpcrowd's schemes in which a method was replaced is not dpcrowd's own, and neither is a
    flooded version of a scheme of another package.
    """
    kind = scheme if isinstance(scheme, type) else type(scheme)
    if kind in OWN or kind is Flooding:
        if isinstance(scheme, type):
            return None
        replacements = [value for name, value in vars(scheme).items() if callable(getattr(kind, name, None))]
        if replacements:
            return _package_name(_top_package(replacements[0]))
        return package_of(scheme.inner) if isinstance(scheme, Flooding) else None
    target = f"{kind.__module__}:{kind.__qualname__}"
    registered = (plugin.package for plugin in installed("scheme").values() if plugin.target == target)
    return next(registered, _package_name(_top_package(kind)))


def _top_package(value: Any) -> str:
    """Return the top-level package of a class or function by its `__module__`; empty if it has none."""
    module = getattr(value, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


def _package_name(package: str) -> str:
    """Return the name of another package as it is printed: one that calls itself dpcrowd is an unknown one."""
    return _UNKNOWN if re.sub(r"[^a-z0-9]", "", package.lower()) in ("", "dpcrowd") else package


def plugin_digest(value: Any) -> str:
    """Return a digest of the source of an object's package, so that stored results become invalid when it changes."""
    digest = hashlib.sha256()
    module = inspect.getmodule(value)
    top = import_module(module.__name__.partition(".")[0]) if module is not None else None
    roots = [Path(folder) for folder in getattr(top, "__path__", [])]
    files = [path for root in roots for path in root.rglob("*.py")]
    if not files and getattr(top, "__file__", None):
        files = [Path(str(top.__file__))]  # type: ignore[union-attr]
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
