"""The module `ssl` of a component, which has none: hostler encrypts, and checks certificates.

A connection that a client encrypts begins with a mark, and goes on in plain text: `_sockets` sends it by https.
"""

import socket as _socket
import sys as _sys

from . import _http, _sockets

OPENSSL_VERSION = "OpenSSL 3.0.0 (hostler)"
OPENSSL_VERSION_INFO = (3, 0, 0, 0, 0)
OPENSSL_VERSION_NUMBER = 0x30000000
# With the last one, libraries leave the check of names to the context.
HAS_SNI = HAS_ALPN = HAS_TLSv1_2 = HAS_TLSv1_3 = HAS_NEVER_CHECK_COMMON_NAME = True
HAS_ECDH = HAS_NPN = HAS_SSLv2 = HAS_SSLv3 = HAS_TLSv1 = HAS_TLSv1_1 = HAS_PSK = False
CHANNEL_BINDING_TYPES: list[str] = []


class SSLError(OSError):
    """An error of an encrypted connection."""

    library = reason = None


class SSLZeroReturnError(SSLError):
    pass


class SSLWantReadError(SSLError):
    pass


class SSLWantWriteError(SSLError):
    pass


class SSLSyscallError(SSLError):
    pass


class SSLEOFError(SSLError):
    pass


class SSLCertVerificationError(SSLError, ValueError):
    pass


CertificateError = SSLCertVerificationError
socket_error = OSError


class _Named(int):
    """A number of an enumeration whose values mean nothing here."""

    @property
    def value(self):
        return int(self)

    @property
    def name(self):
        return str(int(self))


class _Names(type):
    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return _Named(_VALUES.get(name, 0))

    def __call__(cls, value=0):
        return _Named(value)

    def __iter__(cls):
        return iter(())


_VALUES = {"CERT_NONE": 0, "CERT_OPTIONAL": 1, "CERT_REQUIRED": 2, "TLSv1_2": 771, "TLSv1_3": 772, "PROTOCOL_TLS_CLIENT": 16, "PROTOCOL_TLS_SERVER": 17, "PROTOCOL_TLS": 2}


class VerifyMode(metaclass=_Names):
    pass


class TLSVersion(metaclass=_Names):
    pass


class Options(metaclass=_Names):
    pass


class VerifyFlags(metaclass=_Names):
    pass


class AlertDescription(metaclass=_Names):
    pass


class SSLErrorNumber(metaclass=_Names):
    pass


class Purpose:
    SERVER_AUTH = "server"
    CLIENT_AUTH = "client"


def __getattr__(name):
    if name.startswith(("OP_", "PROTOCOL_", "CERT_", "VERIFY_", "ALERT_", "SSL_ERROR_")):
        return _Named(_VALUES.get(name, 0))
    raise AttributeError(f"module 'ssl' has no {name} in a component: hostler encrypts")


class MemoryBIO:
    """Bytes between a client and its transport."""

    def __init__(self):
        self._data = bytearray()
        self.eof = False

    @property
    def pending(self):
        return len(self._data)

    def read(self, size=-1):
        size = len(self._data) if size < 0 else size
        data = bytes(self._data[:size])
        del self._data[:size]
        return data

    def write(self, data):
        self._data += data
        return len(data)

    def write_eof(self):
        self.eof = True


class _Connection:
    """What a client asks of an encrypted connection."""

    server_hostname = None

    def getpeercert(self, binary_form=False):
        # hostler has checked the name. Some libraries do it again.
        names = (("DNS", self.server_hostname), ("IP Address", self.server_hostname))
        return b"" if binary_form else {"subject": (), "subjectAltName": names}

    def selected_alpn_protocol(self):
        return None

    selected_npn_protocol = compression = shared_ciphers = selected_alpn_protocol

    def cipher(self):
        return ("hostler", "TLSv1.3", 256)

    def version(self):
        return "TLSv1.3"

    def get_channel_binding(self, *_):
        return None

    def pending(self):
        return 0


class SSLObject(_Connection):
    """An encrypted connection over buffers, as asyncio uses it."""

    def __init__(self, incoming, outgoing, context, server_hostname):
        self._in, self._out = incoming, outgoing
        self.context, self.server_hostname, self.server_side = context, server_hostname, False

    def do_handshake(self):
        self._out.write(_http.ENCRYPTED)

    def read(self, size=1024, buffer=None):
        data = self._in.read(size)
        if not data:
            if self._in.eof:
                return 0 if buffer is not None else b""
            raise SSLWantReadError(2, "nothing to read")
        if buffer is None:
            return data
        buffer[: len(data)] = data
        return len(data)

    def write(self, data):
        return self._out.write(bytes(data))

    def pending(self):
        return self._in.pending

    def unwrap(self):
        pass


class SSLSocket(_Connection, _sockets.Socket):
    """An encrypted connection: the socket that it was, and marked."""

    # httpcore looks for the inner object.
    _sslobj = property(lambda self: self)

    def do_handshake(self, block=False):
        pass

    def read(self, size=1024, buffer=None):
        return self.recv(size) if buffer is None else self.recv_into(buffer, size)

    def write(self, data):
        return self.send(data)

    def unwrap(self):
        return self


class SSLContext:
    """Settings that hostler does not need: it has its own."""

    def __init__(self, protocol=None):
        self.protocol = protocol
        self.check_hostname = True
        self.verify_mode = VerifyMode.CERT_REQUIRED
        self.minimum_version = self.maximum_version = TLSVersion.TLSv1_2
        self.options = self.verify_flags = _Named(0)
        self.post_handshake_auth = None
        self.keylog_filename = self.sni_callback = None
        self.hostname_checks_common_name = False

    def wrap_socket(self, sock, server_side=False, do_handshake_on_connect=True, suppress_ragged_eofs=True, server_hostname=None, session=None):
        if server_side:
            raise SSLError("a component has no servers")
        sock.__class__ = SSLSocket
        sock.context, sock.server_hostname = self, server_hostname
        sock.sendall(_http.ENCRYPTED)
        return sock

    def wrap_bio(self, incoming, outgoing, server_side=False, server_hostname=None, session=None):
        return SSLObject(incoming, outgoing, self, server_hostname)

    def cert_store_stats(self):
        return {"x509": 1, "crl": 0, "x509_ca": 1}

    def get_ca_certs(self, binary_form=False):
        return []

    def _nothing(self, *_, **__):
        return None

    set_alpn_protocols = set_npn_protocols = set_ciphers = load_default_certs = set_default_verify_paths = _nothing
    load_verify_locations = load_cert_chain = set_ecdh_curve = load_dh_params = set_servername_callback = _nothing

    def get_ciphers(self):
        return []


def create_default_context(purpose=Purpose.SERVER_AUTH, *, cafile=None, capath=None, cadata=None):
    return SSLContext()


def _create_unverified_context(*_, **__):
    return SSLContext()


_create_default_https_context = create_default_context
_create_stdlib_context = _create_unverified_context
DEFAULT_CIPHERS = _DEFAULT_CIPHERS = ""
_RESTRICTED_SERVER_CIPHERS = ""


def get_default_verify_paths():
    return type("DefaultVerifyPaths", (), dict.fromkeys(("cafile", "capath", "openssl_cafile", "openssl_capath")))()


def match_hostname(cert, hostname):
    pass


def RAND_bytes(size):
    import os

    return os.urandom(size)


def PEM_cert_to_DER_cert(text):
    import base64

    return base64.b64decode("".join(line for line in text.split() if not line.startswith("-")))


def DER_cert_to_PEM_cert(content):
    import base64

    return "-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(content).decode() + "-----END CERTIFICATE-----\n"


def cert_time_to_seconds(text):
    import calendar
    import time

    return calendar.timegm(time.strptime(text, "%b %d %H:%M:%S %Y GMT"))


def install() -> None:
    """Make this the module `ssl`."""
    _sys.modules["ssl"] = _sys.modules[__name__]
    _socket.SSLError = SSLError
