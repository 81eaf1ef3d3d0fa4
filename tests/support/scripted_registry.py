"""A server that answers requests to a schema registry as a script says, for failures that a real one does not have."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ScriptedRegistry:
    """What was asked, in order; ``answers`` are used up, and the last one is used again and again."""

    answers: list[tuple[int, Any]]
    requests: list[tuple[str, str, dict[str, str], Any]] = field(
        default_factory=list[tuple[str, str, dict[str, str], Any]]
    )
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.requests]


@contextmanager
def scripted_registry(answers: Iterable[tuple[int, Any]]) -> Generator[ScriptedRegistry]:
    """Serve ``answers``, each a status and a body that is bytes or becomes JSON."""
    registry = ScriptedRegistry(list(answers))
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                registry.requests.append(
                    (
                        self.command,
                        self.path,
                        {name.lower(): value for name, value in self.headers.items()},
                        json.loads(body) if body else None,
                    )
                )
                status, document = registry.answers[0]
                if len(registry.answers) > 1:
                    registry.answers.pop(0)
            content = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 (names of http.server)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
