"""Files that are no configuration, or cannot be read: one line that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_network, parse_network, read
from node_support_config import tables, toml


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"id ", "not valid TOML: "),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"x = " + b"[" * 100_000, "not valid TOML: "),
        (b"x = " + b"9" * 10_000, "not valid TOML: "),
        (b"", "network: missing; needed: a table [network]."),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, expected: str) -> None:
    """Each of these raised something else than one line in one library or another."""
    path = tmp_path / "network.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load_network(path)
    assert str(caught.value).startswith(f"{path}: {expected}")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """A traceback of OSError tells an operator nothing about which file was meant."""
    with pytest.raises(BadInput, match=r"none.toml: cannot be read: No such file"):
        load_network(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="cannot be read"):
        load_network(tmp_path)


def test_a_file_that_is_far_too_large_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path to a database instead of a configuration would fill the memory."""
    monkeypatch.setattr(read, "_LARGEST", 1 << 20)
    (tmp_path / "big.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(BadInput, match="larger than 1 MiB"):
        load_network(tmp_path / "big.toml")


def test_a_byte_order_mark_is_no_error() -> None:
    """Some editors write one, and tomllib takes it for a letter."""
    assert parse_network("\ufeff" + toml(tables())).id == "trial"
