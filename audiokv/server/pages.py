"""The web page and its parts, read once and served from memory."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

INDEX = "/index.html"

_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}

# Only what the page itself brings may run; 'self' covers its WebSocket to this server.
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; media-src 'self' blob:; connect-src 'self'; manifest-src 'self'; "
        "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Permissions-Policy": "microphone=(self), display-capture=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One file.

    Attributes:
        content_type: Value of ``Content-Type``.
        body: The bytes of the file.
    """

    content_type: str
    body: bytes


def load_pages(folder: Traversable | None = None) -> Mapping[str, Page]:
    """Return the files of a folder by URL path; what is not among them does not exist.

    Args:
        folder: Where the page lies; by default the client's page inside the package.
    """
    root = files("audiokv.client") / "web" if folder is None else folder
    pages = dict(_walk(root, PurePosixPath("/")))
    if INDEX in pages:
        pages["/"] = pages[INDEX]
    return pages


def _walk(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[str, Page]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, path / entry.name)
        elif (content_type := _CONTENT_TYPES.get(PurePosixPath(entry.name).suffix)) is not None:
            yield str(path / entry.name), Page(content_type, entry.read_bytes())
