"""The preflight check of a server: PASSED, or the problem and the fix."""

from dpcrowd.node.doctor.examine import examine
from dpcrowd.node.doctor.findings import Finding, has_problem

__all__ = ["Finding", "examine", "has_problem"]
