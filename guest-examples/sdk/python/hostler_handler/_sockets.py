"""Sockets: a connection whose client speaks HTTP goes over `[[grant.http]]`, and any other one over `[[grant.tcp]]`.

A connection is made when its client sends or reads first: the first bytes tell what it is. While the component is
built, there are no connections: an open one would be in the memory that every instance begins with.
"""

import io
import itertools
import select
import socket
import weakref

from . import _http

_real_socket = socket.socket
_real_getaddrinfo = socket.getaddrinfo

#: More bytes than a first line has.
_FIRST_LINE_MAX = 64 << 10
#: Other numbers than those of files.
_numbers = itertools.count(1 << 20)
_open: "weakref.WeakValueDictionary[int, Socket]" = weakref.WeakValueDictionary()

#: Whether the component is being built.
is_build = True


class Socket(_real_socket):
    """A socket of a client. What libraries ask of a socket that is not connected, they ask of the real one."""

    # The real socket is made where it is needed: it is a handle of the host.
    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None):
        if is_build:
            raise OSError("a component has no sockets while it is built: connect while a message is handled")
        self._kind = (family, type, proto)
        self._address: tuple[str, int] | None = None
        self._timeout: float | None = socket.getdefaulttimeout()
        self._first = bytearray()
        self._exchange: _http.Exchange | None = None
        self._real: socket.socket | None = None
        self._number = next(_numbers)
        self._is_closed = False
        self._makefiles = 0
        _open[self._number] = self

    family = property(lambda self: socket.AF_INET)
    type = property(lambda self: socket.SOCK_STREAM)
    proto = property(lambda self: 0)
    timeout = property(lambda self: self._timeout)

    def __repr__(self) -> str:
        return f"<hostler socket to {self._address}>"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def fileno(self) -> int:
        return -1 if self._is_closed else self._number

    def settimeout(self, value):
        self._timeout = value
        if self._real:
            self._real.settimeout(value)

    def gettimeout(self):
        return self._timeout

    def setblocking(self, flag):
        self.settimeout(None if flag else 0.0)

    def getblocking(self):
        return self._timeout != 0

    def setsockopt(self, *_):
        pass

    def getsockopt(self, *_):
        return 0

    def connect(self, address):
        self._address = (address[0], address[1])

    def connect_ex(self, address):
        self.connect(address)
        return 0

    def getpeername(self):
        if self._address is None:
            raise OSError(107, "not connected")
        return self._address

    def getsockname(self):
        return ("127.0.0.1", 0)

    def send(self, data, flags=0):
        data = bytes(data)
        if self._real:
            return self._real.send(data)
        if self._exchange is None:
            self._first += data
            self._decide()
        else:
            self._exchange.timeout = self._timeout or None
            self._exchange.write(data)
        return len(data)

    def sendall(self, data, flags=0):
        data = memoryview(bytes(data))
        while data:
            data = data[self.send(data) :]

    def sendmsg(self, buffers, *_):
        return self.send(b"".join(buffers))

    def _decide(self) -> None:
        """Look at the first bytes."""
        first = bytes(self._first)
        is_encrypted = first.startswith(_http.ENCRYPTED)
        plain = first.removeprefix(_http.ENCRYPTED)
        if _http.BEGIN.match(plain):
            host, port = self._address or ("", 0)
            host = f"[{host}]" if ":" in host else host
            is_usual = port == (443 if is_encrypted else 80)
            authority = host if is_usual else f"{host}:{port}"
            self._exchange = _http.Exchange("https" if is_encrypted else "http", authority)
            self._first.clear()
            self.send(plain)
        elif is_encrypted:
            if len(plain) > _FIRST_LINE_MAX or (plain and b"\n" in plain):
                raise OSError("an encrypted connection can only be one of HTTP/1.1: hostler encrypts it")
        elif first and (len(first) > _FIRST_LINE_MAX or b"\n" in first or not _may_begin(first)):
            self._connect()

    def _connect(self) -> None:
        """Make a real connection, and send what waits."""
        if self._address is None:
            raise OSError(107, "not connected")
        error: OSError | None = None
        for family, kind, proto, _, address in _real_getaddrinfo(*self._address, 0, socket.SOCK_STREAM):
            real = _real_socket(family, kind, proto)
            real.settimeout(self._timeout or None)
            try:
                real.connect(address)
                real.sendall(self._first)
            except OSError as why:
                real.close()
                error = why
                continue
            self._real = real
            self._first.clear()
            return
        raise error or OSError(f"{self._address[0]} has no address")

    def recv(self, size, flags=0):
        if self._real is None and self._exchange is None:
            if self._first.startswith(_http.ENCRYPTED) or self._timeout == 0:
                raise BlockingIOError(11, "nothing was asked yet")
            # A server that speaks first.
            self._connect()
        if self._real:
            return self._real.recv(size, flags)
        exchange = self._exchange
        if exchange.error:
            raise exchange.error
        if not exchange.unread and not exchange.is_over:
            raise BlockingIOError(11, "the request is not complete")
        data = bytes(exchange.unread[:size])
        if not flags & socket.MSG_PEEK:
            del exchange.unread[:size]
        return data

    def recv_into(self, buffer, nbytes=0, flags=0):
        data = self.recv(nbytes or len(buffer), flags)
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def makefile(self, mode="r", buffering=None, *, encoding=None, errors=None, newline=None):
        self._makefiles += 1
        raw = _Raw(self, "".join(c for c in mode if c in "rw") or "r")
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering in (None, -1, 1) else buffering
        buffered = io.BufferedRWPair(raw, raw, size) if "r" in mode and "w" in mode else (
            io.BufferedWriter(raw, size) if "w" in mode else io.BufferedReader(raw, size)
        )
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def shutdown(self, how):
        if self._real:
            self._real.shutdown(how)

    def close(self):
        self._is_closed = True
        # A file of this socket reads on, as with any socket.
        if self._real and not self._makefiles:
            self._real.close()

    def detach(self):
        number, self._is_closed = self._number, True
        return number

    def ready(self) -> int:
        """Whether it can be read (1) and written (2)."""
        readable = self._real is not None or (self._exchange is not None and bool(self._exchange.unread or self._exchange.is_over))
        return int(readable) | 2


class _Raw(io.RawIOBase):
    def __init__(self, sock: Socket, mode: str):
        self._sock = sock
        self._mode = mode

    def readable(self):
        return "r" in self._mode

    def writable(self):
        return "w" in self._mode

    def readinto(self, buffer):
        return self._sock.recv_into(buffer)

    def write(self, data):
        return self._sock.send(data)

    def fileno(self):
        return self._sock.fileno()

    def close(self):
        if not self.closed:
            self._sock._makefiles -= 1
            if self._sock._is_closed:
                self._sock.close()
        super().close()


def _may_begin(first: bytes) -> bool:
    """Whether these bytes, without a line end, may begin a request."""
    method = first.partition(b" ")[0]
    return len(method) <= 20 and method.isalpha() and method.isupper()


def ready(number: int) -> int:
    """Whether a socket with this number can be read (1) and written (2)."""
    sock = _open.get(number)
    return sock.ready() if sock else 0


def _getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
    # hostler looks names up, after it has checked the grant.
    host = host.decode() if isinstance(host, bytes) else host
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host or "localhost", int(port or 0)))]


def _select(read, write, other, timeout=None):
    def number(file):
        return file if isinstance(file, int) else file.fileno()

    return [f for f in read if ready(number(f)) & 1], [f for f in write if ready(number(f)) & 2], []


def _create_connection(address, timeout=socket._GLOBAL_DEFAULT_TIMEOUT, source_address=None, *, all_errors=False):
    sock = Socket()
    if timeout is not socket._GLOBAL_DEFAULT_TIMEOUT:
        sock.settimeout(timeout)
    sock.connect(address)
    return sock


def install() -> None:
    """Put these sockets in the place of those of the standard library."""
    socket.socket = socket.SocketType = Socket
    socket.getaddrinfo = _getaddrinfo
    socket.create_connection = _create_connection
    socket.has_ipv6 = False
    select.select = _select
    # Libraries that find no `poll` use `select`.
    if hasattr(select, "poll"):
        del select.poll
