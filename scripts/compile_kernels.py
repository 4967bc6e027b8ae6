"""Compile the kernels once, before several processes of the tests need them at the same time.

Numba keeps the machine code beside the source. In a fresh clone every process that meets a kernel before it is kept
would compile it: together the tests' processes would spend a minute on what one can do in fifteen seconds. A few slots
of small networks use the kernels as the tests do; what is missing here is compiled by the test that needs it.
"""

from __future__ import annotations

from typing import Any

from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.planner.plan import plan
from dpcrowd.sim.simulate import simulate

SETTING: dict[str, Any] = {"servers": 6, "density": 0.5, "window": 5, "slots": 24, "runs": 2, "burn_in": 5, "jobs": 1}
"""More slots than relay's lag: kernels that judge origins begin with the first slot that is final."""


def main() -> None:
    simulate("dpcrowd-w,dpcrowd-plus,drescuedp,dpegasus", "multi-linear", **SETTING)
    relays = {"one hop": Relay(reach=1), "all hops": Relay()}
    for dynamic in (True, False):
        simulate(relays, "multi-linear", dynamic=dynamic, **SETTING)
    plan([100], process_var=4, servers=6, density=0.5, window=5, turnover=0.5, advice=False)


if __name__ == "__main__":
    main()
