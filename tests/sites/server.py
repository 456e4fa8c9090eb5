"""A real web server on the loopback that misbehaves on purpose: what it does is in the path that is asked for."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"


class Server:
    """``paths`` are those that were asked for, in order. ``answers`` may be changed by a test, by path."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.site = f"127.0.0.1:{self.port}"
        self.paths: list[str] = []
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []
        self.answers: dict[str, bytes | Callable[[socket.socket], None]] = {
            "/": page(b"<a href='mailto:a@b.example'>write</a>"),
            "/empty": page(b"nothing here"),
            "/gone": status(404, "Not Found"),
            "/gone-for-good": status(410, "Gone"),
            "/busy": status(429, "Too Many Requests", "retry-after: 120"),
            "/busy-date": status(503, "Service Unavailable", "retry-after: Fri, 02 Jan 1970 03:53:20 GMT"),
            "/busy-nonsense": status(503, "Service Unavailable", "retry-after: soon"),
            "/error": status(500, "Internal Server Error"),
            "/bad-request": status(400, "Bad Request"),
            "/forbidden": status(403, "Forbidden"),
            "/challenge": status(403, "Forbidden", "cf-mitigated: challenge"),
            "/block-page": status(503, "Service Unavailable", body=b"<title>Just a moment...</title>"),
            "/article-about-captcha": page(b"how a captcha works"),
            "/here": status(302, "Found", "location: /"),
            "/loop": status(302, "Found", "location: /loop"),
            "/nowhere": status(302, "Found", "location: ftp://elsewhere/"),
            "/half": b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf an ans",
            "/garbage": b"this is not HTTP\r\n\r\n",
            "/reset": reset,
            "/silent": self._hold,
            "/slow": self._drip,
            "/endless": self._pour,
        }

    def url(self, path: str = "/") -> str:
        return f"http://{self.site}{path}"

    def __enter__(self) -> Server:
        self._start(self._accept)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._closing.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # a client may have let go without a word
        for thread in self._threads:
            thread.join()

    def _start(self, act: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._answer, connection)

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                data = connection.recv(65_536)
                if not data:
                    return
                request += data
            path = request.split(b" ", 2)[1].decode()
            self.paths.append(path)
            answer = self.answers.get(path, status(404, "Not Found"))
            try:
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)
            except OSError:
                pass  # the client has had enough

    def _hold(self, connection: socket.socket) -> None:
        connection.recv(1)  # until the client goes

    def _drip(self, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not self._closing.wait(0.01):
            connection.sendall(b".")

    def _pour(self, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not self._closing.is_set():
            connection.sendall(b"." * 65_536)


def page(body: bytes) -> bytes:
    return OK % (len(body), body)


def status(code: int, words: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {code} {words}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
