"""Limits of memory: stated, raised on purpose, judged before anything is taken."""

import pytest

from scopereg.errors import ScopeRegError
from scopereg.io.limits import MAX_GB, USUAL_GB, check_size, largest_bytes, limit_of


def test_an_image_up_to_the_limit_passes_and_tells_its_bytes(monkeypatch):
    monkeypatch.delenv(MAX_GB, raising=False)
    assert largest_bytes() == int(USUAL_GB * 2**30)
    assert check_size((1024, 1024, 1024), 1, "a.nii") == 2**30
    assert check_size((10, 10, 10), 0.125, "a.nii") == 125  # bits


def test_voxels_count_as_float32_at_least(monkeypatch):
    monkeypatch.delenv(MAX_GB, raising=False)
    with pytest.raises(ScopeRegError, match=r"a\.nii.*1024 x 1024 x 1025 values would take 4 GB") as caught:
        check_size((1024, 1024, 1025), 1, "a.nii")
    assert f"{MAX_GB}=5" in caught.value.fix
    assert check_size((1024, 1024, 1025), 1, "cine", in_use=False) == 1024 * 1024 * 1025


def test_absurd_sizes_are_told_without_overflow():
    with pytest.raises(ScopeRegError, match="more than a billion GB"):
        check_size((2**63 - 1, 2**63 - 1, 2**63 - 1), 8, "a.nii")


def test_the_limit_is_raised_by_the_environment_and_for_a_block(monkeypatch):
    monkeypatch.setenv(MAX_GB, "0.5")
    assert largest_bytes() == 2**29
    with limit_of(8):
        assert largest_bytes() == 2**33
    assert largest_bytes() == 2**29


@pytest.mark.parametrize("text", ["many", "-1", "0", "nan", "inf"])
def test_a_limit_that_is_no_positive_number_is_told(monkeypatch, text):
    monkeypatch.setenv(MAX_GB, text)
    with pytest.raises(ScopeRegError, match=MAX_GB):
        largest_bytes()
    with pytest.raises(ScopeRegError, match="limit_of"), limit_of(-2.0):
        pass
