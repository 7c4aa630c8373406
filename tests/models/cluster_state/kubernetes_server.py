"""A Kubernetes API on loopback that answers from what was recorded: lists in pages, discovery, refusals."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "secret-of-the-test"  # noqa: S105 - of no other server


def status(code: int, message: str) -> tuple[int, str]:
    """A failure as the API tells it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return code, json.dumps(body)


@dataclass(slots=True, kw_only=True)
class RecordedApi:
    """lists: path -> objects. answers: path -> what is answered one request after another, before its list is (status
    and body; None: nothing, for as long as the server runs). asked: path and query of all requests.
    """

    lists: Mapping[str, Sequence[Mapping[str, Any]]]
    answers: dict[str, list[tuple[int, str] | None]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def answer(self, path: str, query: dict[str, str], token: str | None) -> tuple[int, str] | None:
        """Status and body."""
        self.asked.append((path, query))
        if self.answers.get(path):
            return self.answers[path].pop(0)
        if token != f"Bearer {TOKEN}":
            return status(401, "Unauthorized")
        if path in self.lists:
            return 200, self._page(path, query)
        plurals = [known.rpartition("/")[2] for known in self.lists if known.rpartition("/")[0] == path]
        if not plurals:
            return status(404, "the server could not find the requested resource")
        return 200, json.dumps({"kind": "APIResourceList", "resources": [{"name": name} for name in plurals]})

    def _page(self, path: str, query: Mapping[str, str]) -> str:
        first, limit = int(query.get("continue", "0")), int(query["limit"])
        items = self.lists[path]
        behind = {"continue": str(first + limit)} if first + limit < len(items) else {}
        # As the API has it: objects of a list say neither their kind nor its version.
        bare = [
            {key: value for key, value in one.items() if key not in ("kind", "apiVersion")}
            for one in items[first : first + limit]
        ]
        kind, version = (items[0]["kind"], items[0]["apiVersion"]) if items else ("", "v1")
        return json.dumps({"kind": f"{kind}List", "apiVersion": version, "metadata": behind, "items": bare})


@contextmanager
def serving(api: RecordedApi, folder: Path) -> Iterator[Path]:
    """Serve it, and give a kubeconfig that leads there by the context `test`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            found = api.answer(parts.path, query, self.headers.get("Authorization"))
            if found is None:
                api.ended.wait(60)
                return
            code, body = found
            self.send_response(code)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield kubeconfig(folder, server.server_port)
    finally:
        api.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(60)


def kubeconfig(folder: Path, port: int, token: str = TOKEN) -> Path:
    """A file with the way to a port of this machine."""
    path = folder / f"kubeconfig-{port}"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "local", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "user", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "local", "user": "user"}}],
                "current-context": "test",
            }
        )
    )
    return path
