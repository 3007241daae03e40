"""HTTPS: a page and its web socket over it, and what is wrong with certificates, with certificates made here."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from rich.console import Console
from serving import next_message, serve
from websockets.sync.client import connect

from scopereg.commands.page import open_page
from scopereg.commands.shared import PageOptions
from scopereg.errors import ScopeRegError
from scopereg.viewer.certificate import Certificate, read_certificate
from scopereg.viewer.connections import Limits

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
TOKEN = "a-good.token_1"


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def make(folder: Path, name: str = "own", days: int = 30) -> tuple[Path, Path]:
    """A certificate that signed itself, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", str(days), *names, "-keyout", key, "-out", certificate
    )
    return certificate, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def certificate(pair: tuple[Path, Path]) -> Certificate:
    return read_certificate(*pair)


def test_page_and_socket_come_over_https_alone(
    tmp_path: Path, pair: tuple[Path, Path], certificate: Certificate
) -> None:
    trusted = ssl.create_default_context(cafile=str(pair[0]))
    with serve(tmp_path, token=TOKEN, certificate=certificate, limits=Limits(handshake_s=1.0)) as served:
        assert served.web.url == f"https://127.0.0.1:{served.web.port}/?token={TOKEN}"
        with urlopen(served.web.url, context=trusted, timeout=20) as answer:
            cookie = answer.headers["set-cookie"]
            assert b"<!doctype html>" in answer.read().lower()
        assert cookie.endswith("; Secure")
        headers = {"Cookie": cookie.partition(";")[0]}
        with connect(
            f"wss://{served.host}/ws", ssl=trusted, origin=f"https://{served.host}", additional_headers=headers
        ) as page:
            assert next_message(page, "state")["mode"] == "live"
        with socket.create_connection(("127.0.0.1", served.web.port), 5.0) as silent:  # no handshake begins
            begin_s = time.monotonic()
            silent.settimeout(20.0)
            assert silent.recv(1) == b""
            assert time.monotonic() < begin_s + 15
        with pytest.raises((ConnectionError, OSError)):
            served.ask("/api/state")  # plain HTTP
        with urlopen(served.web.url, context=trusted, timeout=20) as answer:
            assert answer.status == 200


def test_the_end_is_known_and_said_when_it_is_near(tmp_path: Path, certificate: Certificate) -> None:
    assert certificate.note == ""
    assert "the certificate ends on 2" in read_certificate(*make(tmp_path, "short", days=3)).note


def test_what_is_wrong_with_a_pair_is_told(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    other = make(tmp_path, "other")
    damaged, locked, text = tmp_path / "damaged.crt", tmp_path / "locked.key", tmp_path / "text"
    lines = pair[0].read_text().splitlines(keepends=True)
    damaged.write_text("".join([*lines[:5], *lines[7:]]))
    openssl("pkey", "-in", pair[1], "-aes256", "-passout", "pass:secret", "-out", locked)
    text.write_text("hello")
    for certificate, key, what in (
        (tmp_path / "none.crt", pair[1], "the certificate cannot be read: No such file"),
        (pair[0], tmp_path, "the key cannot be read: Is a directory"),
        (text, pair[1], "it holds no certificate"),
        (pair[0], text, "it holds no private key"),
        (pair[0], other[1], "the key is that of another certificate"),
        (damaged, pair[1], "they cannot be used|damaged"),
        (pair[0], locked, "the key has a password"),
    ):
        with pytest.raises(ScopeRegError, match=what):
            read_certificate(certificate, key)
    with pytest.raises(ScopeRegError, match="it holds no certificate") as swapped:
        read_certificate(pair[1], pair[0])
    assert swapped.value.fix == "write the certificate first, then its key"


@pytest.mark.parametrize(
    ("begin", "end", "word"), [("2001", "2002", "ended on 2002"), ("2090", "2091", "begins on 2090")]
)
def test_a_certificate_of_another_time_is_refused(tmp_path: Path, begin: str, end: str, word: str) -> None:
    """Times up to 2049 have two digits for the year, later ones four."""
    (tmp_path / "index").write_text("")
    (tmp_path / "serial").write_text("01")
    (tmp_path / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=d\n[d]\ndatabase={tmp_path}/index\nserial={tmp_path}/serial\nnew_certs_dir={tmp_path}\n"
        "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
    )
    key, request, certificate = tmp_path / "k", tmp_path / "r", tmp_path / "c"
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=old", "-keyout", key, "-out", request)
    times = ("-startdate", f"{begin}0101000000Z", "-enddate", f"{end}0101000000Z")
    config = ("-config", tmp_path / "ca.cnf", "-selfsign", "-batch", "-notext")
    openssl("ca", *config, *times, "-keyfile", key, "-in", request, "-out", certificate)
    with pytest.raises(ScopeRegError, match=f"the certificate {word}"):
        read_certificate(certificate, key)


def test_the_verbs_take_a_pair_and_say_https(
    tmp_path: Path, pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with serve(tmp_path) as served:
        options = PageOptions(host="0.0.0.0", port=0, open=False, tls=pair)
        with open_page(options, served.show, console) as web:
            said = capsys.readouterr().out
            assert said.startswith(f"viewer  https://{web.url.split('//')[1]}")
            assert "nothing is encrypted" not in said
    with pytest.raises(ScopeRegError, match="the certificate cannot be read"):
        open_page(PageOptions(tls=(tmp_path / "a", tmp_path / "b")), served.show, console)
