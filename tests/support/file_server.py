"""An HTTP server on this machine that sends one content, under names that each break it in one way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

CONTENT = bytes(range(256)) * 4000
"""The content that is sent; tests replace it."""


class Files(BaseHTTPRequestHandler):
    """Handler that sends the content under any name; some names break the answer."""

    def do_GET(self) -> None:
        if self.path == "/absent":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unstated":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2] if self.path == "/cut" else CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_files() -> Iterator[str]:
    """Serve the content while the block runs; return the address of the server."""
    with HTTPServer(("127.0.0.1", 0), Files) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()
