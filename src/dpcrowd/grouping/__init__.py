"""Grouping: which regions share one noise draw, from released values only."""

from dpcrowd.grouping.dynamic import group_regions

__all__ = ["group_regions"]
