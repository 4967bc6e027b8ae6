"""From panels to drawings: SVG and PNG files, and pieces of SVG for a page."""

from __future__ import annotations

from dpcrowd.experiments.draw.canvas import Drawn, draw

__all__ = ["Drawn", "draw"]
