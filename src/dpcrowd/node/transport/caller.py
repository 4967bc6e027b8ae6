"""One connection to the port of the transport, from its first byte to its end.

    waiting   it has some seconds for a TLS handshake with a certificate of the authority
    linked    it belongs to a neighbour; its bytes go to the Zenoh session of that neighbour, and back

The bytes of a caller are decrypted here, by OpenSSL without a socket of its own (`ssl.SSLObject`), and passed on in
plain text over a Unix socket that only this user can open. The owner decides which callers are linked.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import suppress
from typing import Literal, Protocol, cast

__all__ = ["Caller", "Owner", "Reason"]

Reason = Literal["unfinished", "not-tls", "no-certificate", "certificate", "expired", "tls", "stranger", "crowded"]
"""Why a connection was ended; docs/failures.md explains each."""

_CHUNK = 1 << 16
_MOST_HANDSHAKE = 1 << 17  # bytes of a handshake; OpenSSL accepts 100 KB of certificates
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_HELLO = (b"\x16", b"\x03", None, None, None, b"\x01")  # a record of kind "handshake" with a ClientHello in it


class Owner(Protocol):
    """Decides about callers, which report to it."""

    def greeted(self, caller: Caller) -> None:
        """The caller has begun a handshake."""
        ...

    def authenticated(self, caller: Caller, certificate: bytes) -> None:
        """The caller has authenticated with a certificate of the authority (DER)."""
        ...

    def failed(self, caller: Caller, reason: Reason) -> None:
        """The caller will not be linked."""
        ...

    def lost(self, caller: Caller) -> None:
        """The connection has ended."""
        ...


class Caller(asyncio.Protocol):
    """A connection from another server to this one.

    rate  bytes per second that a linked caller may send; at the start, and after a pause, four times as many
    """

    def __init__(self, owner: Owner, context: ssl.SSLContext, address: str, rate: float) -> None:
        self.address = address
        self.name: str | None = None
        """The common name of its certificate, once the owner has accepted it."""
        self.expires = float("inf")
        """When its certificate expires, in seconds since 1970."""
        self.closing_since: float | None = None
        """When closing began, by the monotonic clock; None before."""
        self.has_sent = False
        self._owner, self._context = owner, context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None  # created with the first TLS record: it needs most of the memory
        self._transport: asyncio.Transport | None = None
        self._session: _Session | None = None
        self._first_bytes = b""
        self._handshake_size = 0
        self._handshake_complete = False
        self._holds: set[str] = set()
        self._rate, self._tokens, self._counted = rate, 4 * rate, time.monotonic()

    # ------------------------------------------------------------------------------------------ the caller's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from it
        if self.closing_since is not None:  # it was displaced before it had begun
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.closing_since is not None:
            return
        self.has_sent = True
        self._incoming.write(data)
        if not self._handshake_complete:
            self._continue_handshake(data)
        else:
            self._limit_rate(len(data))
        if self._session is not None:
            self._pass_on()

    def connection_lost(self, _: Exception | None) -> None:
        self.closing_since = self.closing_since or time.monotonic()
        self._transport = None  # a closed transport of asyncio cannot be aborted
        if self._session is not None:
            self._session.close()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.pause()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.resume()

    def _continue_handshake(self, data: bytes) -> None:
        self._handshake_size += len(data)
        if len(self._first_bytes) < len(_HELLO):
            self._first_bytes = (self._first_bytes + data)[: len(_HELLO)]
            if not _begins_tls(self._first_bytes):
                self._owner.failed(self, "not-tls")
                return
            if len(self._first_bytes) < len(_HELLO):
                return
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._owner.greeted(self)
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._handshake_size > _MOST_HANDSHAKE:
                self._owner.failed(self, "tls")
            return
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            self._owner.failed(self, _reason(error))
            return
        self._handshake_complete = True
        self._flush()
        self._owner.authenticated(self, self._tls.getpeercert(binary_form=True) or b"")

    def _pass_on(self) -> None:
        assert self._session is not None
        assert self._tls is not None
        try:
            while plain := self._tls.read(_CHUNK):
                self._session.write(plain)
            self._session.close()  # the other side has closed TLS
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.end()
            return
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _limit_rate(self, size: int) -> None:
        """Stop reading while the caller sends more bytes per second than its rate."""
        now = time.monotonic()
        self._tokens = min(self._tokens + (now - self._counted) * self._rate, 4 * self._rate) - size
        self._counted = now
        if self._tokens < 0:
            self.hold("rate")
            asyncio.get_running_loop().call_later(-self._tokens / self._rate, self.release, "rate")

    # ------------------------------------------------------------------------------------------ the owner's side

    def hold(self, reason: str) -> None:
        """Stop reading from the caller until `release`."""
        if not self._holds and self._transport is not None:
            self._transport.pause_reading()
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Read from the caller again, unless it is held for another reason."""
        self._holds.discard(reason)
        if not self._holds and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def link(self, path: str, timeout: float) -> None:
        """Connect the caller with the session that listens at a path; raise `OSError` if that is not possible."""
        loop = asyncio.get_running_loop()
        self.hold("link")
        async with asyncio.timeout(timeout):
            _, session = await loop.create_unix_connection(lambda: _Session(self), path)
        if self.closing_since is not None:
            session.close()
            return
        self._session = session
        self._pass_on()  # bytes that came with the end of the handshake
        self.release("link")

    def send(self, plain: bytes) -> None:
        """Encrypt bytes and send them to the caller."""
        if self.closing_since is None and self._tls is not None:
            rest = memoryview(plain)
            while rest:
                rest = rest[self._tls.write(rest) :]
            self._flush()

    def finish(self) -> None:
        """Close TLS, and end when everything has been sent."""
        if self.closing_since is not None:
            return
        self.closing_since = time.monotonic()
        if self._handshake_complete and self._tls is not None:
            with suppress(ssl.SSLError):  # the other side has not answered, and is not waited for
                self._tls.unwrap()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """End the connection at once."""
        self.closing_since = self.closing_since or time.monotonic()
        if self._transport is not None:
            self._transport.abort()


class _Session(asyncio.Protocol):
    """The connection to the Zenoh session of a neighbour."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._caller.send(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._caller.finish()

    def pause_writing(self) -> None:
        self._caller.hold("session")

    def resume_writing(self) -> None:
        self._caller.release("session")

    def write(self, plain: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(plain)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def _begins_tls(first: bytes) -> bool:
    return all(expected is None or expected[0] == byte for expected, byte in zip(_HELLO, first, strict=False))


def _reason(error: ssl.SSLError) -> Reason:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "expired" if error.verify_code == _EXPIRED else "certificate"
    return "no-certificate" if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE" else "tls"
