"""The live page: its files are public, at /, /assets and /help; the data that it shows needs the right 'read'.

The files are built from `web/` (`make page`), committed, and shipped with the package: nobody who runs a node needs
Node.js. The browser may load and ask nothing but this server (Content-Security-Policy), and no script or style is
inline. A token is entered in a form of the page and sent in the header Authorization; it is never part of an address.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dpcrowd.node.api.answers import JSON, answer, refusal
from dpcrowd.node.api.help import help_pages, read_help
from dpcrowd.node.api.service import Tokens

__all__ = ["ASSETS", "PageDescription", "PageServer", "page_apps"]

ASSETS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/assets/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/assets/app.css": ("app.css", "text/css; charset=utf-8"),
    "/assets/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The files of the page by their paths: name and content type."""
_MARKDOWN = "text/markdown; charset=utf-8"
_SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class PageServer(Struct, frozen=True):
    """A server that the page shows: its name, if everybody may know it, and the path before /v1 at which it answers."""

    path: str
    name: str | None = None


class PageDescription(Struct, frozen=True, kw_only=True):
    """What the page has to know before anybody has entered a token; it reveals nothing about the network.

    demo  the path at which a demo tells its truth; None: this is not a demo
    """

    token_needed: bool
    servers: tuple[PageServer, ...] = (PageServer(""),)
    demo: str | None = None


@dataclass(frozen=True)
class _File:
    """A file of the page, plain and compressed; the tag changes with the content."""

    plain: bytes
    compressed: bytes
    tag: str


class _PageFile:
    """An ASGI application that serves one file; the browser keeps a copy and asks whether it is still the same."""

    def __init__(self, read: Callable[[], _File], content_type: str) -> None:
        self._read, self._content_type = read, content_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response(scope)(scope, receive, send)

    def _response(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return _only_get()
        request, file = Headers(scope=scope), self._read()
        compressed = "gzip" in request.get("accept-encoding", "")
        headers = {**_SECURITY, "cache-control": "no-cache", "etag": file.tag, "vary": "accept-encoding"}
        if file.tag in request.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if compressed:
            headers["content-encoding"] = "gzip"
        return Response(file.compressed if compressed else file.plain, 200, headers, self._content_type)


class _Description:
    """An ASGI application that describes what the page shows; whether a token is needed may change while it runs."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        description = PageDescription(token_needed="read" not in self._tokens.rights_of(None))
        response = answer(description) if scope["method"] in ("GET", "HEAD") else _only_get()
        await response(scope, receive, send)


def page_apps(tokens: Tokens | None = None) -> dict[str, ASGIApp]:
    """Return the applications of the page by their paths; with `tokens` also /page.json, for one node."""
    apps: dict[str, ASGIApp] = {path: _PageFile(partial(_read, name), kind) for path, (name, kind) in ASSETS.items()}
    apps |= _help_apps()
    if tokens is not None:
        apps["/page.json"] = _Description(tokens)
    return apps


def _help_apps() -> dict[str, ASGIApp]:
    """Return the applications of the documentation: the page's own HTML, which draws the Markdown beside it."""
    html = _PageFile(partial(_read, "index.html"), ASSETS["/"][1])
    apps: dict[str, ASGIApp] = {"/help": html, "/help/": html, "/help/contents.json": _PageFile(_contents, JSON)}
    for page in help_pages():
        apps[f"/help/{page.name}"] = html
        apps[f"/help/{page.name}.md"] = _PageFile(partial(_read_markdown, page.name), _MARKDOWN)
    return apps


def _only_get() -> Response:
    return refusal(405, "method", "this path takes GET.", {"allow": "GET, HEAD"})


@lru_cache(maxsize=len(ASSETS))
def _read(name: str) -> _File:
    return _file_of(files("dpcrowd.node.api").joinpath("assets", name).read_bytes())


@lru_cache(maxsize=8)
def _read_markdown(name: str) -> _File:
    return _file_of(read_help(name))


@lru_cache(maxsize=1)
def _contents() -> _File:
    return _file_of(msgspec.json.encode(help_pages()))


def _file_of(plain: bytes) -> _File:
    digest = hashlib.sha256(plain).hexdigest()[:20]
    return _File(plain, gzip.compress(plain, 9, mtime=0), f'"{digest}"')
