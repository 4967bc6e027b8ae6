"""Networks from a file's text: both formats, and an error with its line for everything else."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network.adjacency import parse_adjacency


@pytest.mark.parametrize(
    "text",
    [
        "0,1\n1,2\n0,3\n",
        "a,b\n0,1\n\n# far away\n2,1\n3,0",
        "\ufefffrom,to\r\n0, 1\r\n1, 2\r\n3, 0\r\n",
        "0 1\n1 2\n0 3",
        "0,1,0,1\n1,0,1,0\n0,1,0,0\n1,0,0,0\n",
        "0 1 0 1\n1 0 1 0\n\n0 1 0 0\n1 0 0 0\n",
    ],
)
def test_all_formats_give_the_same_network(text: str) -> None:
    """Links or matrix, commas or blanks, header, comments, byte-order mark, Windows line ends."""
    for servers in (None, 4):
        graph = parse_adjacency(text, servers)
        assert graph.latency_ms is None
        assert [graph.neighbours(i).tolist() for i in range(4)] == [[1, 3], [0, 2], [1], [0]]


def test_latencies_are_read() -> None:
    """The third column is the link's delay in both directions."""
    graph = parse_adjacency("a,b,latency_ms\n1,0,20.5\n1,2,1e2\n")
    assert graph.latency_ms is not None
    assert graph.latency_ms.tolist() == [20.5, 20.5, 100.0, 100.0]


def test_the_smallest_matrix_is_not_taken_for_links() -> None:
    """'0,1 / 1,0' as links would be one link given twice."""
    assert parse_adjacency("0,1\n1,0\n").edges == 1
    assert parse_adjacency("0,1\n").edges == 1


@pytest.mark.parametrize(
    ("text", "servers", "message"),
    [
        ("", None, "empty"),
        ("a,b\n# nothing\n", None, "empty"),
        ("0,1\n2,2\n", None, "line 2: server 2 is linked to itself"),
        ("a,b\n0,1\n1,2\n1,0\n", None, "line 4: the link 1,0 is already on line 2"),
        ("0,1\n1,7\n", 3, "line 2: unknown server 7; allowed: 0 to 2"),
        ("0,1\n1,-2\n", None, "line 2: '-2' is not a server"),
        ("0,1\n1,x\n", None, "line 2: 'x' is not a server"),
        ("0,1\n1,1.5\n", None, "line 2: '1.5' is not a server"),
        ("0,1\n1," + "9" * 5000, None, "line 2: '9+' is not a server"),
        ("1,2\n2,3\n", None, "no link at server 0 of 4"),
        ("0,1\n1,2\n", 5, "no link at server 3 and 1 more of 5"),
        ("0,1\n1,999999999\n", None, "no link at server 2 and 999999996 more"),
        ("0,1,5\n1,2\n", None, "line 2: 2 fields; allowed: 3 as in the first line"),
        ("a,b,c,d\n0,1,2,3\n", None, "line 2: 4 fields; allowed: 2 or 3"),
        ("0,1,fast\n", None, "line 1: a latency of 'fast'"),
        ("0,1,-3\n", None, "line 1: a latency of '-3'"),
        ("0,1,nan\n", None, "line 1: a latency of 'nan'"),
        ("0 1 0 0\n1 0 0 0\n", None, "line 1: 4 columns in a matrix of 2 rows"),
        ("0 1 1\n\n1 0 0\n0 0 0\n", None, "line 1: server 0 hears 2, but line 4 says that 2 does not hear 0"),
        ("0 1 0\n1 0 0\n0 0 0\n", None, "line 3: server 2 has no link"),
        ("0 1 0\n1 1 0\n0 0 0\n", None, "line 2: server 1 hears itself"),
        ("0 1 0 0\n1 0 0 2\n0 0 0 1\n0 0 1 0\n", None, "line 2, column 4: '2' in the matrix; allowed: 0 or 1"),
        ("0 1\n1 0\n", 3, "the matrix has 2 servers, but 3 were asked for"),
        ("0\n", None, "network of 1 server was"),
        ("0,1\n", 1, "at least 2"),
    ],
)
def test_every_mistake_is_named_with_its_line(text: str, servers: int | None, message: str) -> None:
    """A file with thousands of links cannot be searched by hand."""
    with pytest.raises(BadInput, match=message) as caught:
        parse_adjacency(text, servers)
    assert "\n" not in str(caught.value)


def test_a_large_list_of_links() -> None:
    """Servers are numbers, not text: 10 comes after 9."""
    text = "\n".join(f"{i},{(i + 1) % 1200}" for i in range(1200))
    graph = parse_adjacency(text)
    assert np.array_equal(graph.degree, np.full(1200, 2))
    assert graph.neighbours(10).tolist() == [9, 11]
