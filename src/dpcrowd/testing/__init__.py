"""Checks for schemes, dpcrowd's own and those of other packages: `check_scheme` in a test is all that is needed.

    from dpcrowd.testing import check_scheme

    def test_my_scheme_keeps_its_contract() -> None:
        check_scheme(MyScheme())

The docstring of `check_scheme` states what its checks show and what they cannot show. `dpcrowd simulate` runs the same
checks on every scheme that is not dpcrowd's own before it prints what that scheme promises.
"""

from __future__ import annotations

from dpcrowd.testing.check import Failure, Report, check_scheme, examine_scheme
from dpcrowd.testing.trial import ContractBroken

__all__ = ["ContractBroken", "Failure", "Report", "check_scheme", "examine_scheme"]
