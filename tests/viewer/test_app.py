"""What the server of the viewer answers, over real sockets: pages, state, voxels, uploads; nothing stops the loop."""

from __future__ import annotations

import gzip
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import Served, next_message, next_update, serve, small_volume, wait_until

from scopereg import io
from scopereg.io import volumes


def error_of(body: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(body)["error"]
    assert set(found) == {"what", "where", "fix"}
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Another volume."""
    return io.write_volume(small_volume(7), tmp_path / "other.nii.gz")


def test_the_page_and_its_parts(served: Served) -> None:
    for path, kind in (("/", "text/html"), ("/static/main.js", "text/javascript"), ("/static/style.css", "text/css")):
        status, headers, body = served.ask(path)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert body


def test_every_answer_has_the_safety_headers(served: Served) -> None:
    for path in ("/", "/static/main.js", "/api/state", "/nothing", "/api/volume?generation=9"):
        _, headers, _ = served.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "://" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert not any(name.startswith("access-control") for name in headers)
        assert "server" not in headers


def test_the_state_has_all_parts(served: Served) -> None:
    state = served.state()
    volume = state["volume"]
    assert (state["type"], state["mode"], state["source"], state["method"]) == ("state", "live", "sweep", "identity")
    assert volume["shape"] == [20, 16, 12]
    assert np.reshape(volume["index_to_world"], (4, 4)).tolist() == [
        [0.5, 0, 0, 3],
        [0, 0.6, 0, -2],
        [0, 0, 0.7, 10],
        [0, 0, 0, 1],
    ]
    assert state["can"] == ["pause", "step", "record", "pixel_size", "upload"]
    assert state["asks"] is None
    assert (state["paused"], state["finished"], state["recording"], state["results"]) == (False, False, None, None)


def test_the_voxels_of_the_present_generation(served: Served) -> None:
    status, headers, body = served.ask("/api/volume?generation=1")
    voxels = np.frombuffer(gzip.decompress(body), np.uint8).reshape(12, 16, 20)
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert np.abs(voxels / 255 - small_volume().numpy()).max() <= 0.5 / 255 + 1e-6
    status, _, body = served.ask("/api/volume?generation=2")
    assert status == 404
    assert "volume" in error_of(body)["what"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e%2f%2e%2e%2fcli.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/main.js%00.png",
        "/static/..\\app.py",
        "/static/",
        "/static",
        "/app.py",
        "/api/",
        "/%00",
        "/api/volume/../state",
    ],
)
def test_paths_lead_nowhere_else(served: Served, path: str) -> None:
    status, _, body = served.ask(path)
    assert status == 404
    error_of(body)
    assert served.state()["counters"]["viewer_bad_requests"] == 1


def test_wrong_methods_and_malformed_requests_are_told(served: Served) -> None:
    assert served.ask("/api/state", method="POST")[0] == 405
    assert served.ask("/", method="DELETE")[0] == 405
    for rubbish in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9\r\n\r\n",
        b"\x00" * 200,
        b"A" * 2**18,
    ):
        with socket.create_connection(("127.0.0.1", served.web.port), 5) as client:
            try:
                client.sendall(rubbish)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
            except OSError:  # it hung up while we were still talking
                pass
    assert served.is_alive()


def test_an_upload_is_shown_while_the_loop_goes_on(served: Served, file: Path) -> None:
    before = served.loop.counters()["taken"]
    status, _, body = served.ask("/api/volume?name=other.nii.gz", method="POST", body=file.read_bytes())
    assert (status, json.loads(body)) == (200, {"ok": True})
    volume = served.state()["volume"]
    assert (volume["generation"], volume["name"]) == (2, "other.nii.gz")
    _, _, packed = served.ask("/api/volume?generation=2")
    voxels = np.frombuffer(gzip.decompress(packed), np.uint8).reshape(12, 16, 20)
    assert np.abs(voxels / 255 - small_volume(7).numpy()).max() < 0.01
    with served.page() as page:
        while next_update(page)["generation"] != 2:
            pass
    assert served.loop.counters()["taken"] > before
    assert "failed" not in served.loop.counters()


def chunks(count: int, sent: list[int]) -> Iterator[bytes]:
    for _ in range(count):
        sent.append(1)
        yield b"x" * 2**16


def test_too_large_uploads_are_refused_before_and_while_they_come(served: Served) -> None:
    length = {"Content-Length": str(2**40)}
    status, _, body = served.ask("/api/volume?name=a.nii", method="POST", headers=length)
    assert status == 413
    assert "--max-upload-mb" in error_of(body)["fix"]
    sent: list[int] = []
    try:
        status, _, _ = served.ask(
            "/api/volume?name=a.nii",
            method="POST",
            body=chunks(4096, sent),
            headers={"Transfer-Encoding": "chunked"},
            chunked=True,
        )
        assert status == 413
    except OSError:  # it hung up in the middle, as it may
        pass
    assert len(sent) < 4096
    assert wait_until(lambda: served.state()["counters"]["viewer_bad_requests"] == 2)
    assert served.state()["volume"]["generation"] == 1


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("a.png", b"x", 415),
        ("a.mhd", b"x", 415),
        ("a.nii.gz.exe", b"x", 415),
        (".nii", b"x", 415),
        ("", b"x", 415),
        ("a.nii", b"", 400),
        ("a.nii", b"no volume at all", 422),
        ("a.nii.gz", b"\x1f\x8b\x08\x00" + bytes(300), 422),
        (
            "a.mha",
            b"ObjectType = Image\nNDims = 3\nDimSize = 4 4 4\nElementType = MET_UCHAR\nElementDataFile = LOCAL\n",
            422,
        ),
        ("a.nrrd", b"NRRD0004\ntype: float\n", 422),
    ],
)
def test_bad_uploads_are_told_and_the_old_volume_stays(served: Served, name: str, content: bytes, status: int) -> None:
    answer, _, body = served.ask(f"/api/volume?name={name}", method="POST", body=content)
    assert answer == status
    assert error_of(body)["fix"]
    assert served.state()["volume"] == {**served.show.voxels().state()}
    assert served.state()["volume"]["generation"] == 1
    assert served.is_alive()


MHA = (
    "ObjectType = Image\nNDims = 3\nBinaryData = True\nDimSize = {size}\n"
    "ElementType = MET_UCHAR\nElementSpacing = 1 1 1\n"
)
NRRD = "NRRD0004\ntype: uchar\ndimension: 3\nsizes: 4 4 4\nspacings: 1 1 1\nencoding: raw\n"


@pytest.mark.parametrize("kind", ["mha", "nrrd", "nrrd-list"])
def test_an_upload_cannot_name_other_files(served: Served, tmp_path: Path, kind: str) -> None:
    """Else anybody could look at what lies on this machine, as voxels."""
    secret = tmp_path / "secret.raw"
    secret.write_bytes(bytes(range(64)))
    texts = {
        "mha": MHA.format(size="4 4 4") + f"ElementDataFile = {secret}\n",
        "nrrd": NRRD + f"data file: {secret}\n\n",
        "nrrd-list": NRRD + f"datafile: LIST\n{secret}\n\n",
    }
    name = f"a.{kind.partition('-')[0]}"
    (tmp_path / name).write_text(texts[kind])
    status, _, body = served.ask(f"/api/volume?name={name}", method="POST", body=texts[kind].encode())
    assert status == 422
    assert error_of(body)["what"] == "its voxels are in another file"
    assert served.state()["volume"]["generation"] == 1


def test_an_upload_cannot_unpack_to_more_than_memory(served: Served) -> None:
    text = MHA.format(size="100000 100000 1000") + "CompressedData = True\nElementDataFile = LOCAL\n"
    status, _, body = served.ask("/api/volume?name=a.mha", method="POST", body=text.encode() + bytes(100))
    assert status == 422
    assert "100000" in error_of(body)["what"]


def test_an_upload_that_two_readers_read_otherwise_gives_no_other_file_away(served: Served, tmp_path: Path) -> None:
    """Found in 0.1.0: what looked for such names read lines otherwise than what read the voxels."""
    secret = tmp_path / "secret.raw"
    secret.write_bytes(bytes(range(64)))
    mha = MHA.format(size="4 4 4")
    uploads = {
        "return.nrrd": NRRD.replace("raw\n", f"raw\rdata file: {secret}\n") + "\n" + "\0" * 64,
        "next.mha": mha + f"Comment\nElementDataFile = {secret}\nElementDataFile = LOCAL\n" + "\0" * 64,
        "far.mha": mha + "Comment = " + "x" * 2**16 + f"\nElementDataFile = {secret}\n" + "\0" * 64,
        "case.mha": mha + f"elementdatafile = {secret}\nElementDataFile = LOCAL\n" + "\0" * 64,
        "many.nrrd": NRRD.replace("dimension: 3", "dimension: 16") + "\n" + "\0" * 64,  # ended the process
        "both.nii": "\0" * 128 + "DICM" + "\0" * 400,
    }
    for name, text in uploads.items():
        status, _, body = served.ask(f"/api/volume?name={name}", method="POST", body=text.encode("latin-1"))
        assert (name, status) == (name, 422)
        assert error_of(body)["fix"]
        assert str(tmp_path) not in error_of(body)["what"]
    assert served.state()["volume"]["generation"] == 1
    assert served.is_alive()


def test_an_upload_that_kills_its_reader_harms_nothing_else(
    served: Served, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "io" / "apart"))
    for reader in ("crash", "leave", "stumble"):
        monkeypatch.setattr(volumes, "_CHILD", f"hostile:{reader}")
        status, _, body = served.ask("/api/volume?name=a.nii.gz", method="POST", body=file.read_bytes())
        assert status == 422
        assert error_of(body)["where"].endswith("a.nii.gz")
    monkeypatch.undo()
    status, _, _ = served.ask("/api/volume?name=a.nii.gz", method="POST", body=file.read_bytes())
    assert status == 200
    assert served.is_alive()


def test_names_of_uploads_are_only_shown(served: Served, file: Path) -> None:
    status, _, _ = served.ask("/api/volume?name=..%2F..%2Fevil.nii.gz", method="POST", body=file.read_bytes())
    assert status == 200
    assert served.state()["volume"]["name"] == "evil.nii.gz"


def test_an_upload_that_breaks_off_is_forgotten(served: Served) -> None:
    lines = ["POST /api/volume?name=a.nii HTTP/1.1", f"Host: {served.host}", f"Origin: {served.origin}"]
    head = "\r\n".join([*lines, "Content-Length: 1000", "", ""])
    with socket.create_connection(("127.0.0.1", served.web.port), 5) as client:
        client.sendall(head.encode() + b"only this")
    assert wait_until(lambda: served.state()["counters"].get("viewer_bad_requests") == 1)
    assert "whole" in served.state()["last_fault"]
    assert served.is_alive()


def test_two_uploads_at_once_do_not_mix(served: Served, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    make = served.show._make_scene

    def slow(*parts: Any) -> Any:
        go_on.wait(20)
        return make(*parts)

    monkeypatch.setattr(served.show, "_make_scene", slow)
    answers: list[int] = []

    def upload() -> None:
        answers.append(served.ask("/api/volume?name=a.nii.gz", method="POST", body=file.read_bytes())[0])

    first = threading.Thread(target=upload)
    first.start()
    assert wait_until(served.show._preparing.locked)
    upload()
    assert answers == [422]
    assert served.is_alive()  # the loop works in the old volume meanwhile
    go_on.set()
    first.join()
    assert answers == [422, 200]
    assert served.state()["volume"]["generation"] == 2


def test_uploads_can_be_off(tmp_path: Path, file: Path) -> None:
    with serve(tmp_path, largest_upload=0) as served:
        assert "upload" not in served.state()["can"]
        status, _, _ = served.ask("/api/volume?name=a.nii.gz", method="POST", body=file.read_bytes())
        assert status == 403


def test_faults_of_the_server_are_json_and_counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.show, "voxels", lambda: 1 / 0)
    status, headers, body = served.ask("/api/volume?generation=1")
    assert status == 500
    assert "Traceback" not in body.decode()
    assert error_of(body)["what"].startswith("ZeroDivisionError")
    assert "content-security-policy" in headers
    assert served.state()["counters"]["viewer_request_errors"] == 1
    with served.page() as page:
        assert next_message(page, "state")["last_fault"] == "division by zero"


def test_logging_of_the_program_is_left_alone(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log")
    with serve(tmp_path) as served:
        served.state()
        assert handler.stream is not None
        assert not handler.stream.closed
    handler.close()


@pytest.mark.skipif(not Path("/proc").exists(), reason="the system does not tell which processes there are")
def test_while_an_upload_is_judged_all_else_goes_on_and_a_killed_child_is_an_error(
    served: Served, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "io" / "apart"))
    monkeypatch.setattr(volumes, "_CHILD", "hostile:sleep")
    answers: list[tuple[int, bytes]] = []

    def upload() -> None:
        status, _, body = served.ask("/api/volume?name=a.nii.gz", method="POST", body=file.read_bytes())
        answers.append((status, body))

    def children() -> list[int]:
        found = [Path(path).parent for path in Path("/proc").glob("[0-9]*/status")]
        own = []
        for process in found:
            with suppress(OSError):
                if f"\nPPid:\t{os.getpid()}\n" in (process / "status").read_text():
                    own += [int(process.name)] if b"io.apart" in (process / "cmdline").read_bytes() else []
        return own

    before = set(children())
    thread = threading.Thread(target=upload)
    thread.start()
    assert wait_until(lambda: bool(set(children()) - before))
    assert wait_until(served.show._preparing.locked)
    with served.page() as page:
        for _ in range(3):
            begin_s = time.monotonic()
            assert next_message(page, "update")["number"] > 0
            assert served.ask("/api/state")[0] == 200
            assert time.monotonic() < begin_s + 3
    assert not answers
    for child in set(children()) - before:
        os.kill(child, signal.SIGKILL)
    thread.join(20)
    (status, body) = answers[0]
    assert status == 422
    assert "ended by signal 9" in error_of(body)["what"]
    assert served.is_alive()
    assert not served.show._preparing.locked()
