"""Certificate: what the web server shows that it is who it says, with its key; read and checked before it is served."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from scopereg.errors import ScopeRegError

_MAKE = "make a pair: openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=HOST -keyout KEY -out CERT"
_SOON = timedelta(days=14)
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}  # UTCTime, GeneralizedTime
_VERSION = 0xA0


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key."""

    context: ssl.SSLContext
    ends: datetime

    @property
    def note(self) -> str:
        """A word where it ends soon; empty where it does not."""
        left = self.ends - datetime.now(timezone.utc)
        return f"the certificate ends on {self.ends:%Y-%m-%d}" if left < _SOON else ""


def read_certificate(certificate: Path, key: Path) -> Certificate:
    """The certificate and the key of two PEM files, if they belong together and hold today."""
    texts = [_text(certificate, "certificate"), _text(key, "key")]
    if "-----BEGIN CERTIFICATE-----" not in texts[0]:
        swapped = "-----BEGIN CERTIFICATE-----" in texts[1]
        fix = "write the certificate first, then its key" if swapped else _MAKE
        raise ScopeRegError("it holds no certificate (PEM)", where=f"tls= {certificate}", fix=fix)
    if "PRIVATE KEY-----" not in texts[1]:
        raise ScopeRegError("it holds no private key (PEM)", where=f"tls= {key}", fix=_MAKE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
        begins, ends = _valid(ssl.PEM_cert_to_DER_cert(_first(texts[0])))
    except ssl.SSLError as error:
        mismatch = "MISMATCH" in str(error)
        what = "the key is that of another certificate" if mismatch else f"they cannot be used: {error.reason or error}"
        raise ScopeRegError(what, where=f"tls= {certificate} {key}", fix=_MAKE) from None
    except (ValueError, IndexError, KeyError):
        raise ScopeRegError("the certificate is damaged", where=f"tls= {certificate}", fix=_MAKE) from None
    now = datetime.now(timezone.utc)
    if not begins <= now <= ends:
        word = f"ended on {ends:%Y-%m-%d}" if now > ends else f"begins on {begins:%Y-%m-%d}"
        raise ScopeRegError(
            f"the certificate {word}", where=f"tls= {certificate}", fix=f"check the clock, renew it, or {_MAKE}"
        )
    return Certificate(context, ends)


def _text(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(2**20).decode("latin-1")
    except OSError as error:
        raise ScopeRegError(
            f"the {what} cannot be read: {error.strerror or error}",
            where=f"tls= {path}",
            fix=f"check the name and who may read it; or {_MAKE}",
        ) from None


def _no_password() -> str:
    raise ScopeRegError(
        "the key has a password, and nobody is there to type it",
        where="tls=",
        fix="take it off: openssl pkey -in KEY -out PLAIN_KEY; and let nobody else read that file",
    )


def _first(text: str) -> str:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return text[text.index(begin) : text.index(end) + len(end)]


def _valid(der: bytes) -> tuple[datetime, datetime]:
    """From when to when; the standard library tells it of certificates that it trusts alone."""
    ((_, certificate),) = _parts(der)
    facts = [part for part in _parts(_parts(certificate)[0][1]) if part[0] != _VERSION]  # it may be left out
    _serial, _signature, _issuer, (_, validity), *_ = facts
    begins, ends = (
        datetime.strptime(text.decode("ascii"), _TIMES[kind]).replace(tzinfo=timezone.utc)
        for kind, text in _parts(validity)
    )
    return begins, ends


def _parts(der: bytes) -> list[tuple[int, bytes]]:
    """Kinds and contents of what stands one after the other in DER."""
    parts, start = [], 0
    while start < len(der):
        kind, length, start = der[start], der[start + 1], start + 2
        if length & 0x80:
            count = length & 0x7F
            length, start = int.from_bytes(der[start : start + count], "big"), start + count
        parts.append((kind, der[start : start + length]))
        start += length
    return parts
