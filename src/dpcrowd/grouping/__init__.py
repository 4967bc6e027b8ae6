"""Grouping: which regions share one noise draw, from released values only."""

from dpcrowd.grouping.dynamic import Grouper, compiled_grouper, group_regions

__all__ = ["Grouper", "compiled_grouper", "group_regions"]
