"""Errors tell what is wrong, where and how to fix it, also when another process raised them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from scopereg.data.workers import in_parallel
from scopereg.errors import ScopeRegError
from scopereg.io.read_image import read_image
from scopereg.live.link import LinkLostError
from scopereg.live.messages import MessageError
from scopereg.registration.result import RegistrationError
from scopereg.viewer.uploads import UploadError

ERRORS = [
    ScopeRegError("it is wrong", where="here", fix="do it right"),
    RegistrationError("too far", where="start", fix="start nearer"),
    MessageError("no body", where="message", fix="send it again"),
    LinkLostError("the other side has hung up"),
    UploadError(413, "too large", "crop it", hang_up=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_through_a_pickle_as_it_was(error: ScopeRegError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.args, vars(again)) == (error.args, vars(error))


def test_an_error_of_a_worker_is_told_in_its_own_words(tmp_path: Path) -> None:
    missing = [tmp_path / "a.nii.gz", tmp_path / "b.nii.gz"]
    with pytest.raises(ScopeRegError, match="there is no such file") as caught:
        list(in_parallel(read_image, missing, workers=2))
    assert caught.value.where in map(str, missing)
    assert caught.value.fix == "check the name and the folder"
