"""A process image that is resumed twice, as a snapshot of a machine or a checkpoint of a process is.

Run as `python privacy_support_image.py MODULE CLASS`: it draws once with that noise, is then copied twice, and prints
what each copy draws next, one JSON list per line. The copies come from fork(), and a filter answers getpid() with 0
in all of them: generators look at the process id to find out that they were copied, and a resumed image keeps its own.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import platform
import struct
import sys
from typing import Any

import numpy as np

GETPID = {"x86_64": 39, "aarch64": 172}
"""The number of the system call, by machine (Linux)."""

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl(2)
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # of the filter's language
_ANSWER_ZERO, _ALLOW = 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def keep_one_process_id() -> None:
    """From now on getpid() is 0, here and in every copy of this process."""
    number = GETPID[platform.machine()]
    steps = ((_LOAD, 0, 0, 0), (_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ANSWER_ZERO), (_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    assert os.getpid() == 0


def draws(noise: Any) -> list[float]:
    """Twenty draws of scale 1e6: that two honest lists are equal has a probability below 1e-120."""
    counts, where = np.zeros((1, 20), dtype=np.int64), np.ones((1, 20), dtype=np.bool_)
    drawn: list[float] = noise.noisy(0, counts, np.array([[1000]]), 1, where)[0].tolist()
    return drawn


def resumed(noise: Any) -> str:
    """What a copy of this process draws, as it is now."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(draws(noise)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


if __name__ == "__main__":
    keep_one_process_id()
    chosen = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()
    draws(chosen)  # a generator that seeds itself has done so now
    for _ in range(2):
        print(resumed(chosen), flush=True)
