"""Servers that send wrong values, for tests of relay's guard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpcrowd.network.hearing import Hearing
from dpcrowd.schemes.base import Plan, Reading
from dpcrowd.schemes.messages import Messages
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.relay_state import RelayState

FAULTS = ("large", "flipped", "stuck")


class Broken(Relay):
    """Relay in which a tenth of the servers of each run, drawn anew for every run, is broken from a slot on.

    fault  large: values 100 times too large; flipped: with the wrong sign; stuck: the first value for ever
    """

    def __init__(self, fault: str, since: int, **options: Any) -> None:
        super().__init__(**options)
        self.fault, self.since = fault, since
        self.state: RelayState | None = None
        self.broken = np.zeros(0, dtype=np.bool_)
        self._first: dict[int, Any] = {}

    def start(self, setting: Any) -> RelayState:
        self.state = super().start(setting)
        servers, rng = setting.servers // setting.runs, np.random.default_rng(7)
        self.broken = np.zeros((setting.runs, servers), dtype=np.bool_)
        for run in range(setting.runs):
            self.broken[run, rng.choice(servers, servers // 10, replace=False)] = True
        self._first = {}
        return self.state

    def fuse(self, state: RelayState, plan: Plan, reading: Reading, messages: Messages, hearing: Hearing) -> None:
        values = reading.noisy.copy()
        for server in np.flatnonzero(self.broken.ravel() & (reading.charge[:, 0] > 0)):
            if plan.slot >= self.since:
                first = self._first.setdefault(int(server), values[server].copy())
                values[server] = {"large": 100 * values[server], "flipped": -values[server], "stuck": first}[self.fault]
        super().fuse(state, plan, replace(reading, noisy=values), messages, hearing)
