"""One connection to the transport's port, from its first byte to its end.

    waiting   it has some seconds to speak TLS and to show a certificate of the authority
    linked    it is a neighbour's; its bytes go to the Zenoh session of that neighbour, and back

What a caller says is decrypted here, by OpenSSL without a socket of its own (`ssl.SSLObject`), and handed on in the
clear over a Unix socket that only this user can open. Who may be linked is the owner's decision.
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
_MOST_BEFORE = 1 << 17  # bytes of a handshake; OpenSSL takes 100 KB of certificates
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_HELLO = (b"\x16", b"\x03", None, None, None, b"\x01")  # a record of kind "handshake" with a ClientHello in it


class Owner(Protocol):
    """Who decides about callers. A caller tells it what happens, and does not ask."""

    def greeted(self, caller: Caller) -> None:
        """It has begun a handshake."""
        ...

    def authenticated(self, caller: Caller, certificate: bytes) -> None:
        """It has shown a certificate of the authority (DER)."""
        ...

    def failed(self, caller: Caller, reason: Reason) -> None:
        """It will not be linked."""
        ...

    def lost(self, caller: Caller) -> None:
        """The connection has ended."""
        ...


class Caller(asyncio.Protocol):
    """Somebody who has connected to this server.

    rate  bytes per second that are taken of a caller that is linked; at the start, and after a rest, four times that
    """

    def __init__(self, owner: Owner, context: ssl.SSLContext, address: str, rate: float) -> None:
        self.address = address
        self.name: str | None = None
        """The name of its certificate, once the owner has accepted it."""
        self.expires = float("inf")
        """When its certificate expires, in seconds since 1970."""
        self.closing_since: float | None = None
        """When its end began, by the monotonic clock."""
        self.spoke = False
        self._owner = owner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport: asyncio.Transport | None = None
        self._session: _Session | None = None
        self._first = b""
        self._before = 0
        self._shaken = False
        self._holds: set[str] = set()
        self._rate, self._tokens, self._counted = rate, 4 * rate, time.monotonic()

    # ------------------------------------------------------------------------------------------ the caller's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own does not inherit from it
        if self.closing_since is not None:  # it lost its place before it had begun
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.closing_since is not None:
            return
        self.spoke = True
        self._incoming.write(data)
        if not self._shaken:
            self._shake_hands(data)
        else:
            self._spend(len(data))
        if self._session is not None:
            self._pass_on()

    def connection_lost(self, _: Exception | None) -> None:
        self.closing_since = self.closing_since or time.monotonic()
        self._transport = None  # an asyncio transport that is closed cannot even be aborted
        if self._session is not None:
            self._session.close()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.pause()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.resume()

    def _shake_hands(self, data: bytes) -> None:
        self._before += len(data)
        if len(self._first) < len(_HELLO):
            self._first = (self._first + data)[: len(_HELLO)]
            if not _begins_tls(self._first):
                self._owner.failed(self, "not-tls")
                return
            if len(self._first) == len(_HELLO):
                self._owner.greeted(self)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            if self._before > _MOST_BEFORE:
                self._owner.failed(self, "tls")
            return
        except ssl.SSLError as error:
            self._flush()  # the alert that tells the other side why
            self._owner.failed(self, _reason(error))
            return
        self._shaken = True
        self._flush()
        self._owner.authenticated(self, self._tls.getpeercert(binary_form=True) or b"")

    def _pass_on(self) -> None:
        assert self._session is not None
        try:
            while plain := self._tls.read(_CHUNK):
                self._session.write(plain)
            self._session.close()  # the other side has said that it is done
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.end()
            return
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _spend(self, size: int) -> None:
        """Take no more bytes per second than were agreed: the rest waits with whoever sends it."""
        now = time.monotonic()
        self._tokens = min(self._tokens + (now - self._counted) * self._rate, 4 * self._rate) - size
        self._counted = now
        if self._tokens < 0:
            self.hold("rate")
            asyncio.get_running_loop().call_later(-self._tokens / self._rate, self.release, "rate")

    # ------------------------------------------------------------------------------------------ the owner's side

    def hold(self, why: str) -> None:
        """Read nothing from the caller until `release`."""
        if not self._holds and self._transport is not None:
            self._transport.pause_reading()
        self._holds.add(why)

    def release(self, why: str) -> None:
        self._holds.discard(why)
        if not self._holds and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def link(self, path: str, timeout: float) -> None:
        """Connect the caller with the session that listens at a path; raises `OSError` if that is not possible."""
        loop = asyncio.get_running_loop()
        self.hold("link")
        async with asyncio.timeout(timeout):
            _, session = await loop.create_unix_connection(lambda: _Session(self), path)
        if self.closing_since is not None:
            session.close()
            return
        self._session = session
        self._pass_on()  # what came with the end of the handshake
        self.release("link")

    def send(self, plain: bytes) -> None:
        """Encrypt for the caller."""
        if self.closing_since is None:
            rest = memoryview(plain)
            while rest:
                rest = rest[self._tls.write(rest) :]
            self._flush()

    def finish(self) -> None:
        """Say goodbye, and end when everything has been sent."""
        if self.closing_since is not None:
            return
        self.closing_since = time.monotonic()
        if self._shaken:
            with suppress(ssl.SSLError):  # the other side has not answered; nobody waits for it
                self._tls.unwrap()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """End at once."""
        self.closing_since = self.closing_since or time.monotonic()
        if self._transport is not None:
            self._transport.abort()


class _Session(asyncio.Protocol):
    """The way to and from the Zenoh session of a neighbour."""

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
    return all(wanted is None or wanted[0] == byte for wanted, byte in zip(_HELLO, first, strict=False))


def _reason(error: ssl.SSLError) -> Reason:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "expired" if error.verify_code == _EXPIRED else "certificate"
    return "no-certificate" if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE" else "tls"
