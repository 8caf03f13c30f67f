"""
A certificate for HTTPS where none was given, as upstream makes one: signed by itself, for as long as the process lives.

Whoever asks (the kubelet's probes, a scraper with insecure_skip_verify) does not verify it; what it gives is encryption.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = dt.timedelta(days=3650)
_SLOW_CLOCK = dt.timedelta(days=1)  # by which a client's may be behind


def load_into(context: ssl.SSLContext) -> None:
    """Make a key and a certificate for it, and let `context` serve with them; nothing of them stays on a disk."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, socket.gethostname()[:64] or "ccm-lb")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLOW_CLOCK)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    with _file(key.private_bytes(*form) + certificate.public_bytes(serialization.Encoding.PEM)) as path:
        context.load_cert_chain(path)


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, since the standard library takes a key from nowhere else; in memory where there are such."""
    if hasattr(os, "memfd_create"):  # Linux, where the root file system of a container may be read-only
        with os.fdopen(os.memfd_create("certificate"), "wb", buffering=0) as memory:
            memory.write(content)
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(buffering=0) as disk:
            disk.write(content)
            yield disk.name
