"""The engine of the numerical loops: "numpy" (array operations and plain Python) or "numba" (compiled loops).

Both give the same bits, so the choice concerns speed alone. A driver makes it once: the simulator takes
`best_engine()`; a live node stays with "numpy", because it has little to compute and must start fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, TypeVar, get_args

from dpcrowd.errors import unknown_name

__all__ = ["ENGINES", "Engine", "best_engine", "check_engine", "compiled"]

Engine = Literal["numpy", "numba"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def best_engine() -> Engine:
    """Return "numba" where it is installed, and "numpy" elsewhere."""
    return "numba" if _numba_is_installed() else "numpy"


def check_engine(engine: str) -> None:
    """Refuse the name of an engine that does not exist."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)


def compiled(kernel: Kernel, engine: Engine) -> Kernel | None:
    """Return the compiled kernel, or None if the engine is "numpy" or Numba is not installed.

    Numba is imported by the first call. It compiles a kernel when the kernel first meets arguments of new types (a
    second or two) and keeps the machine code on disk for later processes.
    """
    return _compile(kernel) if engine == "numba" and _numba_is_installed() else None


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None


@cache
def _compile(kernel: Any) -> Any:
    from numba import njit

    # Division follows NumPy's rules: 1/0 is infinite. Without its check for zero, loops become vector instructions.
    return njit(cache=True, error_model="numpy")(kernel)
