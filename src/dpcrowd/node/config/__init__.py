"""Configuration: network.toml, public and the same for all servers, and node.toml, private to one."""

from dpcrowd.node.config.changes import describe_changes
from dpcrowd.node.config.digest import DIGEST_BYTES, digest
from dpcrowd.node.config.network import NetworkConfig
from dpcrowd.node.config.node import NodeConfig
from dpcrowd.node.config.promise import FormerModel, earlier_models, promise_in
from dpcrowd.node.config.read import load_network, load_node, load_pair, network_text, parse_network, parse_node
from dpcrowd.node.config.revision import check_member, check_new, check_next, only_model_differs
from dpcrowd.node.config.tokens import Right, token_hash

__all__ = [
    "DIGEST_BYTES",
    "FormerModel",
    "NetworkConfig",
    "NodeConfig",
    "Right",
    "check_member",
    "check_new",
    "check_next",
    "describe_changes",
    "digest",
    "earlier_models",
    "load_network",
    "load_node",
    "load_pair",
    "network_text",
    "only_model_differs",
    "parse_network",
    "parse_node",
    "promise_in",
    "token_hash",
]
