"""The doctor tells the truth: good numbers pass, broken ones fail, and missing parts are named."""

from __future__ import annotations

import json

import pytest

from scopereg import provenance, selftest
from scopereg.cli import main
from scopereg.ops.scan import dispatch


def test_all_is_well_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["core"]["torch"].startswith("2.")
    assert facts["backends"]["cpu"]["torch"] == "ready"
    assert all(check["ok"] for check in facts["self_test"])
    assert {"plane of a linear volume", "weighted Kabsch, degrees"} <= {c["name"] for c in facts["self_test"]}


def test_the_table_names_devices_backends_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("device", "threads", "torch", "extra", "scan backend", "self-test"))


@pytest.mark.parametrize("error", [1.0, float("nan")])
def test_a_wrong_number_fails(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    monkeypatch.setattr(selftest, "self_test", lambda: [selftest.Check("broken", "cpu", error, 0.1)])
    assert main(["doctor"]) == 1


def test_a_missing_library_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(provenance, "library_version", lambda name: None if name == "pydicom" else "1")
    assert main(["doctor"]) == 1
    assert "missing" in capsys.readouterr().out


def test_without_numba_all_is_well_but_slower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = provenance.library_version
    monkeypatch.setattr(provenance, "library_version", lambda name: None if name == "numba" else versions(name))
    monkeypatch.setattr(dispatch, "_installed", lambda name: name != "numba")
    assert main(["doctor"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "numba is not installed" in shown
    assert "several times slower" in shown
