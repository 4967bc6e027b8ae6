"""Drawings of panels: SVG and PNG files, and SVG elements for a page."""

from __future__ import annotations

from dpcrowd.experiments.draw.canvas import Drawn, draw

__all__ = ["Drawn", "draw"]
