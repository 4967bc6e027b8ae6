"""Sample: the complete epsilon once per window, the last value in between."""

from __future__ import annotations

from dpcrowd.schemes.base import Setting
from dpcrowd.schemes.uniform import Uniform

__all__ = ["Sample"]


class Sample(Uniform):
    """The complete budget is spent at slots 0, w, 2w, ..."""

    name = "sample"
    summary = ("alone", "once per window, all of ε", "last value", "window")
    independent_errors = False  # an old value misses the same drift everywhere

    def _price(self, setting: Setting, slot: int) -> int:
        return setting.need_guarantee().total

    def _due(self, setting: Setting, slot: int) -> bool:
        return slot % setting.need_guarantee().length == 0
