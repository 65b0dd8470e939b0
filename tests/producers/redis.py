"""The part of the package `redis` that the Python programs of docs/producers.md and docs/replies.md use.

Tests use this module if the package is not installed. It connects to a real server with the protocol of
Redis. `make producers` uses the real package instead.
"""

import socket
from urllib.parse import urlparse


class Redis:
    def __init__(self, host, port):
        self._socket = socket.create_connection((host, port), timeout=60)
        self._replies = self._socket.makefile("rb")

    @classmethod
    def from_url(cls, url):
        at = urlparse(url)
        return cls(at.hostname, at.port or 6379)

    def xadd(self, name, fields):
        return self._ask("XADD", name, "*", *(part for pair in fields.items() for part in pair))

    def xread(self, streams, block):
        (name, begin), = streams.items()
        found = self._ask("XREAD", "BLOCK", block, "STREAMS", name, begin)
        pairs = lambda fields: dict(zip(fields[::2], fields[1::2]))
        return [[key, [(id, pairs(fields)) for id, fields in entries]] for key, entries in found]

    def lpush(self, name, *values):
        return self._ask("LPUSH", name, *values)

    def publish(self, channel, message):
        return self._ask("PUBLISH", channel, message)

    def zadd(self, name, mapping):
        return self._ask("ZADD", name, *(part for m, score in mapping.items() for part in (score, m)))

    def time(self):
        seconds, microseconds = self._ask("TIME")
        return int(seconds), int(microseconds)

    def _ask(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        bulks = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self._socket.sendall(b"*%d\r\n%s" % (len(words), bulks))
        return self._reply()

    def _reply(self):
        line = self._replies.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return rest
