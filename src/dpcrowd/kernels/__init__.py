"""Kernels: the inner loops of the simulator, each a plain Python function that Numba compiles where it is installed.

There is one file per loop. What a loop computes is defined by the layer above it: mostly by array operations, which
are the loop's oracle in the tests and run wherever it is not compiled; otherwise by the loop itself, uncompiled.
`engine` says who compiles, and when. Kernels know nothing of the rest of dpcrowd but its array types.
"""
