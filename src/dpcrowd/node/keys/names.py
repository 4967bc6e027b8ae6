"""Names in certificates: the name of a server, the hosts at which it can be reached, and how both are encoded.

The common name is the server's name in `network.toml`; a neighbour's transport admits it by that name. The subject
alternative names are the hosts of its endpoint, which the connecting side checks.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from cryptography import x509
from cryptography.x509.oid import NameOID

from dpcrowd.errors import BadInput

__all__ = ["alternative_names", "check_hosts", "check_server_name", "common_name", "hosts_of", "subject"]

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SERVER = re.compile(_LABEL)
_HOST_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"  # underscores: names of containers
_HOST = re.compile(rf"{_HOST_LABEL}(\.{_HOST_LABEL})*")
_LONGEST_HOST = 253

Holder = x509.Certificate | x509.CertificateSigningRequest


def check_server_name(name: str) -> str:
    """Return the name, if it is allowed for a server."""
    if not _SERVER.fullmatch(name):
        raise BadInput(
            f"the server name {name[:80]!r} is not allowed; allowed: 1 to 63 of a-z, 0-9 and '-', "
            "with no '-' at either end."
        )
    if name == "ca":  # its files would have the names of the authority's files
        raise BadInput("a server cannot be called 'ca': ca.key and ca.crt are the authority's files.")
    return name


def check_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return host names in lower case and addresses in their shortest form, each once, in the given order."""
    return tuple(dict.fromkeys(_host(host) for host in hosts))


def _host(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    name = host.lower()
    if len(name) > _LONGEST_HOST or not _HOST.fullmatch(name) or re.fullmatch(r"[0-9.]+", name):
        raise BadInput(
            f"the host {host[:80]!r} is not allowed; allowed: a host name without wildcards or port, or an IP address."
        )
    return name


def subject(name: str) -> x509.Name:
    """Return the subject of a certificate: the common name alone."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def alternative_names(hosts: Iterable[str]) -> x509.SubjectAlternativeName:
    """Return the extension that lists the hosts of a certificate."""

    def encode(host: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            return x509.DNSName(host)

    return x509.SubjectAlternativeName([encode(host) for host in hosts])


def common_name(holder: Holder, where: str) -> str:
    """Return the only common name of a certificate or request; with two, readers could see different servers."""
    try:
        names = holder.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        names = []
    if len(names) != 1 or not isinstance(names[0].value, str):
        raise BadInput(f"{where} has {len(names)} common names; allowed: exactly one, the server's name.")
    return names[0].value


def hosts_of(holder: Holder, where: str) -> tuple[str, ...]:
    """Return the hosts of a certificate or request; refuse names of other kinds, such as mail addresses or URLs."""
    try:
        names = holder.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except (ValueError, x509.DuplicateExtension):
        raise BadInput(f"{where} has extensions that cannot be read.") from None
    hosts = []
    for name in names:
        if not isinstance(name, x509.DNSName | x509.IPAddress):
            raise BadInput(f"{where} has an alternative name that is neither a host name nor an IP address.")
        hosts.append(str(name.value))
    return check_hosts(hosts)
