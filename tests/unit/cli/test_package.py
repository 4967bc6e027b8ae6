"""The package's front door: every name that it offers is there, loaded when it is used."""

from __future__ import annotations

from importlib import import_module

import pytest

import dpcrowd


@pytest.mark.parametrize("name", dpcrowd.__all__)
def test_every_public_name_leads_to_an_object(name: str) -> None:
    """Names are looked up in a table of strings: a typo there shows only when somebody uses it."""
    assert getattr(dpcrowd, name) is not None
    assert name in dir(dpcrowd)


def test_names_are_the_objects_of_their_modules() -> None:
    """A name that leads to another object of the same module would be a wrong scheme under a right name."""
    for name, (module, attribute) in dpcrowd._PLACES.items():
        assert getattr(dpcrowd, name) is getattr(import_module(f"dpcrowd.{module}"), attribute or name)
    assert {*dpcrowd._PLACES, "__version__"} == set(dpcrowd.__all__)
    assert dpcrowd.load_data.__name__ == "load"
    assert dpcrowd.build_graph.__name__ == "build"


def test_an_old_name_works_and_says_what_it_is_called_now() -> None:
    """A program written for 0.1.0 would stop at its first import."""
    with pytest.warns(DeprecationWarning, match=r"dpcrowd\.ServerRelease is called dpcrowd\.Release .* 0\.3") as warned:
        assert dpcrowd.ServerRelease is dpcrowd.Release
    assert [warning.filename for warning in warned] == [__file__], "the place that has to be changed"
    assert "ServerRelease" not in dpcrowd.__all__, "a star import would warn those who do not use it"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """`hasattr` and star imports rely on it."""
    with pytest.raises(AttributeError, match="module 'dpcrowd' has no attribute 'smulate'"):
        _ = dpcrowd.smulate  # type: ignore[attr-defined]
    assert not hasattr(dpcrowd, "numpy")


def test_what_static_checkers_see_is_what_is_there() -> None:
    """Type checkers read the imports under TYPE_CHECKING, users the table: both have to name the same things."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(dpcrowd.__file__).read_text(encoding="utf-8"))
    guard = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: (statement.module, alias.name)
        for statement in guard.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    places = {name: (f"dpcrowd.{module}", attribute or name) for name, (module, attribute) in dpcrowd._PLACES.items()}
    assert seen == places
