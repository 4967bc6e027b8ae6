"""Where the published sets are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.data import load
from dpcrowd.sim.data.places import cache_dir, search_path


def save(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flu.csv").write_text(f"week,count\n2002-10-05,{count}\n2002-10-12,{count}\n")


def first_count() -> int:
    import numpy as np

    return int(load("flu").truth(np.random.default_rng(0))[0, 0])


def test_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, an old file in the cache could hide the one that the user points to."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DPCROWD_DATA", raising=False)
    with pytest.raises(BadInput, match=r"needs flu\.csv.*dpcrowd data flu.*DPCROWD_DATA") as caught:
        load("flu")
    assert "\n" not in str(caught.value)
    assert "--data-dir (data_dir= in Python)" in str(caught.value)
    assert "shared" not in str(caught.value), "a folder that only developers have"
    save(tmp_path / "cache" / "dpcrowd", 1)
    assert first_count() == 1
    save(tmp_path / "shared" / "data", 2)
    assert first_count() == 2
    save(project / "data", 3)
    assert first_count() == 3
    save(tmp_path / "env", 4)
    monkeypatch.setenv("DPCROWD_DATA", str(tmp_path / "env"))
    assert first_count() == 4
    save(tmp_path / "given", 5)
    assert load("flu", data_dir=tmp_path / "given").truth(None).tolist() == [[5], [5]]  # type: ignore[arg-type]
    assert load("flu", data_dir=tmp_path / "given" / "flu.csv").slots == 2


def test_a_given_folder_is_the_only_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a wrong --data-dir would silently use other data."""
    save(tmp_path / "env", 4)
    monkeypatch.setenv("DPCROWD_DATA", str(tmp_path / "env"))
    with pytest.raises(BadInput, match="empty"):
        load("flu", data_dir=tmp_path / "empty")
    assert search_path("here") == [Path("here")]


@pytest.mark.parametrize(("platform", "part"), [("linux", ".cache"), ("darwin", "Library"), ("win32", "AppData")])
def test_cache_folder_by_platform(platform: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, downloads on macOS or Windows would land where no tool there cleans up."""
    monkeypatch.setattr("sys.platform", platform)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert part in cache_dir().parts
    assert "dpcrowd" in cache_dir().parts
