"""Connections to a real service that break where a test wants them to."""

from collections.abc import Callable, Iterator

import httpx


class Lossy(httpx.HTTPTransport):
    """Sends every request to the service at `url`, and loses what tests say.

    seen: the requests that were sent, before each of which `before` is called. lose_answers: so many answers are lost,
    behind each of which `when_lost` is called. cut_streams: so many streams break behind their first event.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = httpx.URL(url)
        self.seen: list[httpx.Request] = []
        self.lose_answers = 0
        self.when_lost: Callable[[], None] = lambda: None
        self.before: Callable[[], None] = lambda: None
        self.cut_streams = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it to where the service is by now."""
        self.seen.append(request)
        self.before()
        request.url = request.url.copy_with(host=self.url.host, port=self.url.port)
        answer = super().handle_request(request)
        if self.lose_answers:
            self.lose_answers -= 1
            answer.read()
            answer.close()
            self.when_lost()
            raise httpx.ReadError("the test has lost it")
        if self.cut_streams and answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            self.cut_streams -= 1
            assert isinstance(answer.stream, httpx.SyncByteStream)
            answer.stream = _Cut(answer.stream)
        return answer


class _Cut(httpx.SyncByteStream):
    """Breaks behind the first event."""

    def __init__(self, whole: httpx.SyncByteStream) -> None:
        self._whole = whole

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._whole:
            yield piece
            if b"data: " in piece:
                raise httpx.RemoteProtocolError("the test has cut it")

    def close(self) -> None:
        """Close the whole stream."""
        self._whole.close()
