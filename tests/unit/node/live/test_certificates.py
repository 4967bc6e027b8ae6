"""How long certificates are valid: when a node tells of them, what it calls a warning and what a problem."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import NodeConfig, parse_node
from dpcrowd.node.config.samples import sample_node
from dpcrowd.node.keys.checks import Expiry, Holder, read_expiry
from dpcrowd.node.live.certificates import Certificates
from node_support_keys import NOW, authority_in, server_in
from node_support_tls import Authority as Minter

DAY = timedelta(days=1)


def ns(when: datetime) -> int:
    return round(when.timestamp()) * 1_000_000_000


@pytest.fixture
def node(tmp_path: Path) -> NodeConfig:
    """The server's certificate ends after 365 days, the authority's after 3650, that of HTTPS 30 days from today."""
    files = server_in(tmp_path / "keys", authority_in(tmp_path / "ca", "flu network"))
    web = Minter(tmp_path / "web").mint("localhost")
    text = sample_node("clinic-a", key=str(files.key), certificate=str(files.certificate), ca=str(files.authority))
    https = f'http_certificate = "{web.certificate}"\nhttp_key = "{web.key}"'
    return parse_node(text.replace("[listen]", f"[listen]\n{https}"))


@pytest.fixture
def plain(tmp_path: Path) -> NodeConfig:
    """Without HTTPS."""
    files = server_in(tmp_path / "keys", authority_in(tmp_path / "ca", "flu network"))
    return parse_node(
        sample_node("clinic-a", key=str(files.key), certificate=str(files.certificate), ca=str(files.authority))
    )


@pytest.mark.parametrize(
    ("holder", "soon", "over"),
    [
        ("server", "the certificate of 'x' expires in 3 days", "this server has no links until it is renewed"),
        ("https", "the certificate of HTTPS (x, listen.http_certificate) expires in 3 days", "clients refuse it"),
        ("authority", "the certificate of the authority 'x' expires in 3 days", "no link can be opened"),
        ("neighbour", "the certificate of the neighbour 'x' expires in 3 days", "its link is closed and refused"),
    ],
)
def test_each_holder_is_told_what_it_means(holder: Holder, soon: str, over: str) -> None:
    """'certificate expired' alone sends an operator to the wrong file, or to the wrong organisation."""
    one = Expiry(holder, "x", NOW)
    assert one.problem(NOW - 30 * DAY) is None
    warning, problem = one.problem(NOW - 3 * DAY), one.problem(NOW + timedelta(seconds=1))
    assert warning is not None
    assert problem is not None
    assert warning.what.startswith(soon)
    assert f"expired on 2026-05-01 12:00 UTC: {over}" in problem.what
    assert warning.fix == problem.fix
    assert warning.fix.endswith(".")
    assert [one.is_over(NOW + timedelta(seconds=n)) for n in (-1, 0, 1)] == [False, False, True]
    assert one.days_left(NOW + 12 * timedelta(hours=1)) == -0.5
    seconds = [one.days_left(NOW + timedelta(seconds=n)) for n in (-900, -1, 0, 1)]
    assert seconds == [0.01, 0.0, 0.0, -0.01], "a monitor asks whether it is below zero"


def test_own_certificates_are_read_from_the_files_of_node_toml(node: NodeConfig) -> None:
    """A metric without that of HTTPS, or of the authority, would let them expire unseen."""
    known = Certificates(node).all_expiries({})
    assert [(one.holder, one.name) for one in known] == [
        ("server", "clinic-a"),
        ("authority", "flu network"),
        ("https", "localhost"),
    ]
    begin = NOW.replace(microsecond=0)
    assert [one.at for one in known[:2]] == [begin + 365 * DAY, begin + 3650 * DAY]
    assert 29 < known[2].days_left(datetime.now(UTC)) <= 30


def test_a_short_life_of_https_is_not_all_warnings(tmp_path: Path) -> None:
    """Web certificates may live for weeks: a warning from the first day to the last would be read by nobody."""
    minter = Minter(tmp_path)
    short = read_expiry(minter.mint("localhost", valid=(0, 6)).certificate, "https")
    assert short.problem(short.at - 3 * DAY) is None
    assert short.problem(short.at - 1 * DAY) is not None
    year = read_expiry(minter.mint("localhost", valid=(0, 365)).certificate, "https")
    assert year.problem(year.at - 31 * DAY) is None
    assert year.problem(year.at - 29 * DAY) is not None
    server = read_expiry(minter.mint("clinic-a", valid=(0, 6)).certificate, "server")
    assert server.problem(server.at - 5 * DAY) is not None, "a person has to renew it, with others"


def test_neighbours_are_known_by_their_own_words(plain: NodeConfig) -> None:
    """A neighbour may say anything: a number that is no date must not break the metrics of others."""
    at = ns(NOW) // 1_000_000_000
    said = {"b": at, "c": 0, "d": -5, "e": 1 << 62, "f": 253_402_300_800}
    others = [one for one in Certificates(plain).all_expiries(said) if one.holder == "neighbour"]
    assert others == [Expiry("neighbour", "b", NOW.replace(microsecond=0))]


def test_each_is_told_once_per_day_and_when_it_changes(plain: NodeConfig) -> None:
    """Once at the start is forgotten after 335 days; every half second would hide everything else."""
    certificates = Certificates(plain)
    end = NOW.replace(microsecond=0) + 365 * DAY
    said = {"b": ns(end - 5 * DAY) // 1_000_000_000}

    def told(at: datetime) -> list[str]:
        return [one.holder for one, _ in certificates.news(said, ns(at))]

    assert told(NOW) == []
    assert told(end - 36 * DAY) == []
    assert told(end - 31 * DAY) == ["neighbour"]
    assert told(end - 29 * DAY) == ["server", "neighbour"]
    assert told(end - 29 * DAY + timedelta(seconds=1)) == []
    assert told(end - 28 * DAY) == ["server", "neighbour"]
    said["b"] += 86_400  # another certificate, which will not last either
    assert told(end - 28 * DAY + timedelta(seconds=1)) == ["neighbour"]
    said["b"] += 300 * 86_400  # renewed: nothing to tell
    assert told(end - 28 * DAY + timedelta(seconds=2)) == []
    before = end.replace(hour=23, minute=59, second=59)
    assert told(end) == ["server"]
    assert told(end + timedelta(seconds=1)) == ["server"], "it has expired since, on the same day"
    assert told(before) == []
    certificates.read(plain)
    assert told(before) == ["server"], "after a reload everything is told again"


def test_what_expires_soon_is_a_warning_and_what_has_expired_a_problem(node: NodeConfig) -> None:
    """A load balancer that drains a node 30 days early would end what still works."""
    certificates = Certificates(node)
    end = NOW.replace(microsecond=0) + 365 * DAY  # by then that of HTTPS has expired
    assert certificates.warnings(ns(end - 3 * DAY)) == [
        f"the certificate of 'clinic-a' expires in 3 days ({end.date()}). Quickest, with the same key: the authority "
        "signs the same request again ('dpcrowd keys sign clinic-a.csr --ca ca --name clinic-a --force'), the result "
        "replaces clinic-a.crt, and 'dpcrowd node reload' loads it. With another key: 'dpcrowd keys renew --node DIR', "
        "then give the authority the request (clinic-a.next.csr) and nothing else."
    ]
    (https,) = certificates.problems(ns(end - 3 * DAY))
    assert "HTTPS" in https
    assert "/" not in https, "whoever asks /readyz need not know the paths of this machine"
    assert not certificates.links_over(ns(end - 3 * DAY)), "HTTPS has nothing to do with the links"
    assert len(certificates.problems(ns(end + DAY))) == 2
    assert certificates.warnings(ns(end + DAY)) == []
    assert certificates.links_over(ns(end + DAY))


def test_a_neighbours_certificate_is_a_warning_by_name_and_never_a_problem(plain: NodeConfig) -> None:
    """It was in the log alone: whoever asks /readyz, or the doctor, saw a neighbour that cannot be reached."""
    certificates = Certificates(plain)
    said = {"clinic-b": round((NOW + 3 * DAY).timestamp()), "clinic-c": round((NOW + 90 * DAY).timestamp())}
    assert certificates.warnings(ns(NOW)) == []
    (soon,) = certificates.warnings(ns(NOW), said)
    assert "the neighbour 'clinic-b' expires in 3 days" in soon
    (over,) = certificates.warnings(ns(NOW + 4 * DAY), said)
    assert "the neighbour 'clinic-b' expired on" in over
    assert over.endswith("Tell that organisation.")
    assert certificates.problems(ns(NOW + 4 * DAY)) == [], "this node is ready all the same"


def test_an_expired_authority_ends_all_links(plain: NodeConfig, tmp_path: Path) -> None:
    """TLS does not look at the dates of the authority itself: whoever has its old key could still let anybody in."""
    web = Minter(tmp_path / "web")
    plain.keys.ca.write_bytes(web.path.read_bytes())  # 30 days
    certificates = Certificates(plain)
    now = datetime.now(UTC)
    assert not certificates.links_over(ns(now))
    assert certificates.links_over(ns(now + 31 * DAY))
    assert certificates.expires > ns(now + 31 * DAY) // 1_000_000_000


def test_a_file_that_cannot_be_read_leaves_the_others(
    plain: NodeConfig, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A node that runs must not end because somebody is just copying files."""
    plain.keys.certificate.write_bytes(b"nonsense")
    certificates = Certificates(plain)
    assert [one.holder for one in certificates.all_expiries({})] == ["authority"]
    assert certificates.expires == 0
    assert not certificates.links_over(ns(NOW))
    assert "is not a PEM certificate" in caplog.text
    with pytest.raises(BadInput, match="there is no certificate at"):
        read_expiry(tmp_path / "nowhere.crt", "server")
