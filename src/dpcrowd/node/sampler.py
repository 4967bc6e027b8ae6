"""The sampler of a live node: the one that [noise] of node.toml names, which is exact in any case."""

from __future__ import annotations

from dpcrowd.errors import MissingExtra
from dpcrowd.node.config import NodeConfig
from dpcrowd.privacy import Noise, OpenDPNoise, SecureNoise

__all__ = ["make_noise"]


def make_noise(node: NodeConfig) -> Noise:
    """Return noise that is private; refused if the library that draws it is not installed."""
    if node.noise.sampler == "exact":
        return SecureNoise()
    try:
        return OpenDPNoise()
    except MissingExtra:
        raise MissingExtra("opendp", "opendp", 'sampler = "opendp" in [noise] of node.toml') from None
