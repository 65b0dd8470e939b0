"""One connection of an HTTP/1.1 client: what it sends is read as requests, and hostler makes the calls.

A client of any library writes the same bytes. So requests, urllib3, httpx, aiohttp and urllib.request need no adapter of
their own.
"""

import re
from http import HTTPStatus

from . import _effects

#: What begins a request; and how the `ssl` of this package marks a connection that is encrypted.
BEGIN = re.compile(rb"[A-Z]{1,20} [^\r\n ]+ HTTP/1\.[01]\r?\n")
ENCRYPTED = b"\x16hostler\n"

_PHRASES = {status.value: status.phrase for status in HTTPStatus}

#: The host sets these, or the body that it gets has them no more.
_OF_THE_CONNECTION = {
    b"connection",
    b"content-length",
    b"expect",
    b"host",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}


class Exchange:
    """Requests that go in, and responses that come out."""

    def __init__(self, scheme: str, authority: str):
        self._scheme = scheme
        self._authority = authority
        self._written = bytearray()
        self._has_continued = False
        #: What the client has not read yet.
        self.unread = bytearray()
        #: Whether the connection ends behind that.
        self.is_over = False
        #: Why there is nothing to read.
        self.error: OSError | None = None
        #: Seconds that a call may take.
        self.timeout: float | None = None

    def write(self, data: bytes) -> None:
        """Take bytes of the client; the last one of a request makes the call."""
        self._written += data
        head, blank, rest = self._written.partition(b"\r\n\r\n")
        if not blank or self.is_over:
            return
        begin, *lines = bytes(head).split(b"\r\n")
        method, target, _ = begin.split(b" ", 2)
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        known = dict(headers)
        body = _body(known, bytes(rest))
        if body is None:
            if known.get(b"expect", b"").lower() == b"100-continue" and not self._has_continued:
                self._has_continued = True
                self.unread += b"HTTP/1.1 100 Continue\r\n\r\n"
            return
        self._written.clear()
        self.is_over = True
        authority = known.get(b"host", self._authority.encode()).decode()
        url = target.decode() if b"://" in target else f"{self._scheme}://{authority}{target.decode()}"
        kept = [(name.decode(), value) for name, value in headers if name not in _OF_THE_CONNECTION]
        try:
            self.unread += _fetch(method.decode(), url, kept, body, self.timeout)
        except OSError as error:
            # Clients go on if they cannot send: an answer may have come before.
            self.error = error


def _body(headers: dict[bytes, bytes], rest: bytes) -> bytes | None:
    """The body; None if it has not come yet."""
    if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
        body = b""
        while True:
            size, end, rest = rest.partition(b"\r\n")
            length = int(size.partition(b";")[0], 16) if end else 0
            if not end or len(rest) < length + 2:
                return None
            if length == 0:
                return body
            body, rest = body + rest[:length], rest[length + 2 :]
    length = int(headers.get(b"content-length", b"0"))
    return rest[:length] if len(rest) >= length else None


def _fetch(method: str, url: str, headers: list[tuple[str, bytes]], body: bytes, timeout: float | None) -> bytes:
    """Make the call. The response, as a server would write it."""
    import socket
    import ssl

    from componentize_py_types import Err

    http = _effects.interface("http")
    timeout_ms = None if timeout is None else max(1, round(timeout * 1000))
    try:
        response = http.fetch(http.Request(method, url, headers, body or None, timeout_ms))
    except Err as error:
        place = url.partition("?")[0]
        value = error.value
        text = f"{method} {place}: {getattr(value, 'value', 'no answer in time')}"
        match type(value).__name__.removeprefix("Error_"):
            case "Denied":
                raise PermissionError(13, f"hostler denied {text}") from None
            case "Dns":
                raise socket.gaierror(socket.EAI_NONAME, text) from None
            case "Connect":
                raise ConnectionRefusedError(text) from None
            case "Tls":
                raise ssl.SSLError(text) from None
            case "Timeout":
                raise TimeoutError(text) from None
            case "TooLarge":
                raise ConnectionAbortedError(f"{text} bytes are the most that the grant allows (response_max)") from None
            case _:
                raise ConnectionResetError(text) from None
    phrase = _PHRASES.get(response.status, "-")
    lines = [f"HTTP/1.1 {response.status} {phrase}".encode()]
    dropped = {"connection", "transfer-encoding", *(() if method == "HEAD" else ("content-length",))}
    lines += [name.encode() + b": " + value for name, value in response.headers if name not in dropped]
    if method != "HEAD" and response.status not in (204, 304):
        lines.append(b"content-length: %d" % len(response.body))
    lines.append(b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + response.body
