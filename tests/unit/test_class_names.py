"""Names of classes: one name means one thing in all of src."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import dpcrowd

SHARED = {
    # Views of one thing: what the API sends, and what the client makes of it.
    "LearnedShare": {"client.views", "node.api.views"},
    "RefusedRow": {"client.delivery", "node.api.views"},
    "RegionQuality": {"client.views", "node.api.views"},
    "SignedBytes": {"client.views", "node.api.proofs"},
    # Names that cannot change: recordings on disk have that of the instruction, and authors of schemes use the other.
    "Report": {"node.machine.instructions", "testing.check"},
}


def test_no_two_modules_define_a_public_class_of_the_same_name() -> None:
    """A reader who looks for `Series` would find three of them, and a search for one would show the others too."""
    source = Path(dpcrowd.__file__).parent
    modules: dict[str, set[str]] = defaultdict(set)
    for path in source.rglob("*.py"):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            modules[name].add(".".join(path.relative_to(source).with_suffix("").parts))
    assert {name: where for name, where in modules.items() if len(where) > 1} == SHARED
