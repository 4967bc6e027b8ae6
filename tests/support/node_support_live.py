"""Live nodes over Zenoh in one process: files in a folder, free ports, and a world's counts as their input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpcrowd.node.config import load_pair, token_hash
from dpcrowd.node.config.samples import sample_node
from dpcrowd.node.keys.signing import key_of_certificate
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.live.node import LiveNode
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import Storage
from dpcrowd.node.transport.zenoh import ZenohTransport
from dpcrowd.node.transport.zenoh_settings import TlsFiles
from dpcrowd.privacy import Noise
from node_support_config import toml
from ports_support import free_ports

TOKENS = {"checkin": "token for check-ins", "admin": "token for operators"}


def write_network(
    folder: Path,
    shares: Mapping[str, float],
    links: list[tuple[str, str]],
    *,
    epoch_ns: int,
    regions: list[str],
    guarantee: dict[str, Any],
    scheme: dict[str, Any],
    slot: str = "2s",
    grace: str = "200ms",
    deadline: str = "1500ms",
) -> dict[str, Path]:
    """network.toml, keys and a node.toml for each server, on loopback; servers take counts."""
    names = list(shares)
    keys = make_trial(folder / "keys", names, datetime.now(UTC))
    ports = free_ports(2 * len(names))
    endpoints = {name: f"tls/127.0.0.1:{ports[place]}" for place, name in enumerate(names)}
    network = {
        "network": {
            "id": "trial",
            "revision": 1,
            "epoch": rfc3339(epoch_ns),
            "slot": slot,
            "grace": grace,
            "deadline": deadline,
            "population": 1000,
            "regions": regions,
        },
        "guarantee": guarantee,
        "scheme": scheme,
        "server": [
            {
                "name": name,
                "share": shares[name],
                "endpoint": endpoints[name],
                "keys": [key_of_certificate(keys[name].certificate.read_bytes())],
            }
            for name in names
        ],
        "link": [{"between": list(pair)} for pair in links],
    }
    (folder / "network.toml").write_text(toml(network), encoding="utf-8")
    files = {}
    for place, name in enumerate(names):
        files[name] = folder / f"{name}.toml"
        text = sample_node(
            name,
            data=f"data-{name}",
            key=str(keys[name].key),
            certificate=str(keys[name].certificate),
            ca=str(keys[name].authority),
            transport=endpoints[name],
            http=f"127.0.0.1:{ports[len(names) + place]}",
            checkin=[token_hash(TOKENS["checkin"])],
            read="open",
            admin=[token_hash(TOKENS["admin"])],
        )
        files[name].write_text(text + '\n[ingest]\naccepts = "counts"\n', encoding="utf-8")
    return files


@contextmanager
def live(path: Path, noise: Noise) -> Iterator[LiveNode]:
    """As the command opens a node, but with noise of the test's own: the command line has no way to."""
    node, network = load_pair(path)
    with Storage.open(node.data, network_id=network.id) as storage:
        tls = TlsFiles(key=node.keys.key, certificate=node.keys.certificate, ca=node.keys.ca)
        transport = ZenohTransport(network.id, tls, node.listen.transport)
        yield LiveNode(node, network, storage, transport, noise, allow_simulated_noise=True)
