"""A web server on this machine that serves files as well, or as badly, as a test asks."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """A file, and how it is served.

    Attributes
    ----------
    content : bytes
    status : int
        Anything but 200 is served without content.
    stop_after : int, optional
        The connection ends after so many bytes, once.
    ranges : bool
        Whether a part may be asked for.
    tagged : bool
        Whether an ETag tells one content from another.
    sized : bool
        Whether the length is announced.
    """

    content: bytes = b""
    status: int = 200
    stop_after: int | None = None
    ranges: bool = True
    tagged: bool = True
    sized: bool = True


@dataclass
class Mirror:
    """A running server.

    Attributes
    ----------
    files : mapping from name to Served
        May be changed while it runs.
    asked : list of (name, Range header or None)
    """

    url: str
    files: dict[str, Served]
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def __call__(self, name: str) -> str:
        """The address of a file."""
        return f"{self.url}/{name}"


@contextmanager
def mirror(files: Mapping[str, Served | bytes]) -> Iterator[Mirror]:
    """Serve files on a free port of the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    served = {name: file if isinstance(file, Served) else Served(file) for name, file in files.items()}
    server.mirror = Mirror(f"http://127.0.0.1:{server.server_port}", served)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.mirror  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        here: Mirror = self.server.mirror  # type: ignore[attr-defined]
        here.asked.append((name, self.headers.get("Range")))
        served = here.files.get(name, Served(status=404))
        if served.status != 200:
            self.send_error(served.status)
            return
        start = self._start(served)
        if start > len(served.content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(served.content) - 1}/{len(served.content)}")
        if served.tagged:
            self.send_header("ETag", _tag(served))
        if served.sized:
            self.send_header("Content-Length", str(len(served.content) - start))
        self.end_headers()
        end, served.stop_after = served.stop_after, None
        self.wfile.write(served.content[start:end])

    def _start(self, served: Served) -> int:
        asked = self.headers.get("Range")
        if not asked or not served.ranges or self.headers.get("If-Range", _tag(served)) != _tag(served):
            return 0
        return int(asked.removeprefix("bytes=").rstrip("-"))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _tag(served: Served) -> str:
    return f'"{hashlib.sha256(served.content).hexdigest()[:16]}"'
