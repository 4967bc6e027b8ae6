"""Configuration files from disk. A path that cannot be read is one line that says why, like every other mistake."""

from __future__ import annotations

import os
from pathlib import Path

from dpcrowd.errors import BadInput
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.node import NodeConfig
from dpcrowd.node.config.read import parse
from dpcrowd.node.config.revision import check_member
from dpcrowd.node.config.values import decoder

__all__ = ["load_network", "load_node", "load_pair", "parse_network", "parse_node"]

_LARGEST = 64 << 20


def parse_network(text: str, where: str = "network.toml") -> NetworkConfig:
    """A network from the text of its file; `where` is what errors call it."""
    return parse(text, NetworkConfig, where, decoder(Path()))


def load_network(path: str | os.PathLike[str]) -> NetworkConfig:
    """A network from its file."""
    return parse_network(_text(path), os.fspath(path))


def parse_node(text: str, where: str = "node.toml", folder: str | os.PathLike[str] = ".") -> NodeConfig:
    """A node from the text of its file; paths in it are relative to `folder`."""
    return parse(text, NodeConfig, where, decoder(Path(folder).absolute()))


def load_node(path: str | os.PathLike[str]) -> NodeConfig:
    """A node from its file, with absolute paths."""
    return parse_node(_text(path), os.fspath(path), Path(path).absolute().parent)


def load_pair(path: str | os.PathLike[str]) -> tuple[NodeConfig, NetworkConfig]:
    """A node and the network that it names; the server has to be one of the network's."""
    node = load_node(path)
    network = load_network(node.network)
    check_member(network, node.server, f"{os.fspath(path)}: server")
    if network.server(node.server).keep < 1 and node.ingest.accepts == "counts":
        raise BadInput(
            f'{os.fspath(path)}: ingest.accepts: given "counts", but network.toml has keep below 1 for '
            f"'{node.server}', which chooses users one by one; allowed: \"checkins\", or keep = 1."
        )
    return node, network


def _text(path: str | os.PathLike[str]) -> str:
    where = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"{where}: cannot be read: {error.strerror or error}.") from None
    except ValueError:  # a NUL in the path
        raise BadInput(f"{where!r}: not a path.") from None
    if len(content) > _LARGEST:
        raise BadInput(f"{where}: larger than {_LARGEST >> 20} MiB; this is no configuration file.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{where}: not UTF-8 text; TOML files are.") from None
