"""Proofs of equivocation as they are shown, and as anybody with network.toml checks them: what proves something."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpcrowd.errors import BadInput
from dpcrowd.node.api.proofs import ProofsView, ProofView, check_proof, show_proof
from dpcrowd.node.keys.signing import public_text, read_signed, sign, signer
from dpcrowd.node.wire_records import Equivocation, SignedRecord, sign_record
from node_support_cli import run
from node_support_config import changed, tables, toml

DIGEST = bytes(range(16))
KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))
PINNED = [public_text(KEY)]


def record(value: int = 70, slot: int = 8, *, network: str = "trial", key: Ed25519PrivateKey = KEY) -> SignedRecord:
    noisy = np.full(3, float(value))
    return sign_record(noisy, digest=DIGEST, origin=1, slot=slot, nano=10**8, sign=signer(network, key))


def shown(first: SignedRecord, second: SignedRecord) -> ProofView:
    """As a server of the network would show it, true or not."""
    return show_proof(Equivocation(first, second), "trial", "b", DIGEST)


def test_two_different_records_prove_that_both_were_signed() -> None:
    """The bytes are complete: whoever knows Ed25519 and the pinned key needs nothing of this program."""
    proof = shown(record(70), record(71))
    check_proof(proof, "trial", PINNED)
    for one in (proof.first, proof.second):
        KEY.public_key().verify(one.signature, one.signed)
    network, parts = read_signed(proof.first.signed)
    assert (network, parts[1], int.from_bytes(parts[3], "little")) == ("trial", DIGEST, 8)
    text = msgspec.json.encode(ProofsView(proofs=[proof]))
    assert base64.b64decode(json.loads(text)["proofs"][0]["first"]["signed"]) == proof.first.signed
    assert msgspec.json.decode(text, type=ProofsView).proofs == [proof]


@pytest.mark.parametrize(
    ("proof", "network", "text"),
    [
        (shown(record(70), record(71, key=OTHER)), "trial", "was not signed by a key"),
        (shown(record(70), record(70)), "trial", "the same"),
        (shown(record(70), record(70, 9)), "trial", "was not signed by a key|not both of slot 8"),
        (shown(record(70), record(71, network="else")), "trial", "was not signed by a key"),
        (shown(record(70), record(71)), "else", "something else than a record of network 'else'"),
        (msgspec.structs.replace(shown(record(70), record(71)), slot=7), "trial", "not both of slot 7"),
    ],
)
def test_what_proves_nothing(proof: ProofView, network: str, text: str) -> None:
    """Otherwise anybody could accuse a server of something that it has not signed."""
    with pytest.raises(BadInput, match=text):
        check_proof(proof, network, PINNED)


@pytest.mark.parametrize("text", [b"", b"x" * 60, sign(KEY, b"a")])
def test_bytes_that_are_not_signed_parts(text: bytes) -> None:
    """A proof is read before anything is known of it."""
    with pytest.raises(BadInput, match="not signed for a network"):
        read_signed(text)


def test_the_command_says_what_is_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator who is accused, or who is to phone somebody, checks it without trusting whoever shows it."""
    config, file = tmp_path / "network.toml", tmp_path / "proofs.json"
    config.write_text(toml(changed(tables(), "server.1.keys", PINNED)), encoding="utf-8")
    good, bad = shown(record(70), record(71)), shown(record(70), record(70))
    for proofs, code, lines in (
        ([good], 0, ["b, slot 8: PROVEN: signed two different records."]),
        ([], 0, ["There are no proofs."]),
        (
            [good, bad],
            1,
            ["b, slot 8: PROVEN: signed two different records.", "b, slot 8: NOT PROVEN: the two records"],
        ),
    ):
        file.write_bytes(msgspec.json.encode(ProofsView(proofs=proofs)))
        ended, out, err = run(capsys, "verify-proof", str(file), "--network", str(config))
        assert (ended, err) == (code, "")
        assert all(line.startswith(start) for line, start in zip(out.splitlines(), lines, strict=True))
        ended, out, _ = run(capsys, "verify-proof", str(file), "--network", str(config), "--json")
        assert ended == code
        assert [one["valid"] for one in json.loads(out)["proofs"]] == [one is good for one in proofs]
    stranger = msgspec.structs.replace(good, server="stranger")
    file.write_bytes(msgspec.json.encode(ProofsView(proofs=[stranger])))
    ended, out, _ = run(capsys, "verify-proof", str(file), "--network", str(config))
    assert ended == 1
    assert "NOT PROVEN: network.toml has no server 'stranger'." in out


@pytest.mark.parametrize("text", ["[]", "{}", '{"error": {"reason": "no-token", "text": "send a token"}}'])
def test_an_answer_without_proofs_is_not_an_empty_list_of_them(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refusal for want of a token, saved as a file, would clear a server of what it has signed."""
    config, file = tmp_path / "network.toml", tmp_path / "proofs.json"
    config.write_text(toml(changed(tables(), "server.1.keys", PINNED)), encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    ended, out, err = run(capsys, "verify-proof", str(file), "--network", str(config))
    assert (ended, out) == (2, "")
    assert "not an answer of /v1/proofs" in err
    assert "a token that has the right 'admin'" in err
