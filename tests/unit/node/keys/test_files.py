"""Key files: who may read them, that none is lost, that half a pair never stays behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.keys import files
from dpcrowd.node.keys.files import NewFile, is_there, read_passphrase, read_pem, write_all

posix = pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.parametrize("force", [False, True])
def test_private_files_are_for_their_owner_alone(tmp_path: Path, force: bool) -> None:
    """Without this, everybody on the machine could read the key, even under a careless umask."""
    before = os.umask(0)
    try:
        write_all(
            [NewFile(tmp_path / "new" / "a.key", b"k", private=True), NewFile(tmp_path / "a.crt", b"c")], force=force
        )
    finally:
        os.umask(before)
    assert mode(tmp_path / "new" / "a.key") == 0o600
    assert mode(tmp_path / "new") == 0o700
    assert mode(tmp_path / "a.crt") == 0o644


@posix
def test_replacing_an_open_file_closes_it(tmp_path: Path) -> None:
    """A key written into an old, readable file would inherit its mode."""
    (tmp_path / "a.key").write_bytes(b"old")
    (tmp_path / "a.key").chmod(0o644)
    write_all([NewFile(tmp_path / "a.key", b"new", private=True)], force=True)
    assert mode(tmp_path / "a.key") == 0o600
    assert (tmp_path / "a.key").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.key"]


def test_the_refusal_comes_before_the_first_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key written and taken back leaves its traces on the disk, and half a pair if the power fails."""
    (tmp_path / "b").write_bytes(b"precious")
    monkeypatch.setattr(files, "_create", lambda *_: pytest.fail("something was written"))
    with pytest.raises(BadInput, match="exists and is not replaced"):
        write_all([NewFile(tmp_path / "a", b"1"), NewFile(tmp_path / "b", b"2")], force=False)


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    """A key that was overwritten cannot be made again; everybody has pinned it."""
    (tmp_path / "b").write_bytes(b"precious")
    with pytest.raises(BadInput, match=r"b' exists and is not replaced; give another folder, or --force"):
        write_all([NewFile(tmp_path / "a", b"1"), NewFile(tmp_path / "b", b"2")], force=False)
    assert (tmp_path / "b").read_bytes() == b"precious"
    assert not (tmp_path / "a").exists()


@posix
def test_a_link_that_leads_nowhere_is_not_followed(tmp_path: Path) -> None:
    """A planted link would put the private key where somebody else wants it."""
    (tmp_path / "a.key").symlink_to(tmp_path / "elsewhere")
    assert is_there(tmp_path / "a.key")
    with pytest.raises(BadInput, match="exists and is not replaced"):
        write_all([NewFile(tmp_path / "a.key", b"k", private=True)], force=False)
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_appears_in_between_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands at once: the second must not destroy the first one's key."""
    real = files._make_folder

    def somebody_was_faster(folder: Path) -> None:
        real(folder)
        if (tmp_path / "a").exists():
            (tmp_path / "b").write_bytes(b"theirs")

    monkeypatch.setattr(files, "_make_folder", somebody_was_faster)
    with pytest.raises(BadInput, match="b' exists"):
        write_all([NewFile(tmp_path / "a", b"1"), NewFile(tmp_path / "b", b"2")], force=False)
    assert (tmp_path / "b").read_bytes() == b"theirs"
    assert not (tmp_path / "a").exists(), "half a pair stayed behind"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    """A path through a file, or a full disk, must not end in a traceback."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput, match=r"cannot write '.*key': ") as caught:
        write_all([NewFile(tmp_path / "file" / "a.key", b"k")], force=False)
    assert "Errno" not in str(caught.value)


def test_reading_says_why_not(tmp_path: Path) -> None:
    """Each wrong path has its own reason; a huge file is not loaded."""
    with pytest.raises(BadInput, match="there is no request at"):
        read_pem(tmp_path / "no", "request")
    with pytest.raises(BadInput, match="cannot read the request"):
        read_pem(tmp_path, "request")
    with (tmp_path / "big").open("wb") as big:
        big.truncate((1 << 20) + 1)
    with pytest.raises(BadInput, match="larger than 1 MiB"):
        read_pem(tmp_path / "big", "request")


def test_a_passphrase_is_the_first_line(tmp_path: Path) -> None:
    """An editor's newline at the end would otherwise be part of the passphrase; an empty one protects nothing."""
    path = tmp_path / "words"
    assert read_passphrase(None) is None
    path.write_bytes(b"two words \r\nnot this\n")
    assert read_passphrase(path) == b"two words "
    for empty in (b"", b"\nlater\n"):
        path.write_bytes(empty)
        with pytest.raises(BadInput, match="is empty"):
            read_passphrase(path)
