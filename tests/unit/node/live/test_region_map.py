"""The GeoJSON file of the regions."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.node.live.region_map import read_shapes, shapes_problem


def test_the_file_is_served_as_it_is(tmp_path: Path) -> None:
    """Shapes are drawn by the browser; the node does not change them."""
    path = tmp_path / "regions.geojson"
    path.write_bytes(b'{"type": "FeatureCollection", "features": []}')
    assert read_shapes(path) == path.read_bytes()
    assert shapes_problem(path) == ""


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"features": 3}', b"\xff"])
def test_a_file_that_is_no_map_is_left_out(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A map is for the eye: without it the page shows tiles, the node works, and the log says why."""
    path = tmp_path / "regions.geojson"
    if content is not None:
        path.write_bytes(content)
    assert read_shapes(path) is None
    assert "is not shown" in caplog.text
    assert shapes_problem(path).startswith("it ")
