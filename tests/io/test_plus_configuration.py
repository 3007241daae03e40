"""PLUS configurations: a transform is put in and read back equal, and nothing else of a file changes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.io.plus import read_calibration
from scopereg.io.plus_configuration import write_calibration

MATRIX = Pose.from_euler_deg((80, -5, 30), (4, -9, 12)).matrix @ np.diag([0.2, 0.3, 0.25, 1])
LINK = ("Image", "Probe")
MADE = datetime(2026, 11, 19, 20, 30, 5)
GIVEN = b"""<?xml version="1.0" encoding="UTF-8"?>
<!-- of the laboratory -->
<PlusConfiguration version="2.1">
  <DataCollection><DeviceSet Name="A &gt; B" Description="x"/></DataCollection>
  <CoordinateDefinitions>
    <Transform To="Probe" From="Image" Note="a > b &amp; c"
      Matrix="1 0 0 0  0 1 0 0  0 0 1 0  0 0 0 1" Error='1.7'/>
    <Transform From="Phantom" To="Reference" Matrix="1 0 0 5 0 1 0 6 0 0 1 7 0 0 0 1"/>
  </CoordinateDefinitions>
  <VolumeReconstruction ClipRectangleOrigin="1 2" ClipRectangleSize="30 40"/>
</PlusConfiguration>
"""


def test_a_new_file_is_read_back_equal(tmp_path: Path) -> None:
    path = write_calibration(tmp_path / "plus.xml", LINK, MATRIX, error_mm=0.8123, made=MADE)
    assert np.array_equal(read_calibration(path).transforms[LINK], MATRIX)
    text = path.read_text()
    assert "<DeviceSet Name=" in text
    assert 'Error="0.8123" Date="111926_203005"' in text


def test_nothing_else_of_a_file_changes(tmp_path: Path) -> None:
    given = tmp_path / "given.xml"
    given.write_bytes(GIVEN)
    made = write_calibration(tmp_path / "made.xml", LINK, MATRIX, configuration=given)
    read = read_calibration(made)
    assert np.array_equal(read.transforms[LINK], MATRIX)
    assert read.transforms["Phantom", "Reference"][:3, 3].tolist() == [5, 6, 7]
    assert read.clip == (1, 2, 30, 40)
    before, after = GIVEN.split(b"<Transform", 1)
    rest = after.split(b"/>", 1)[1]
    text = made.read_bytes()
    assert text.startswith(before)
    assert text.endswith(rest)
    assert b'Note="a &gt; b &amp; c"' in text
    assert b"Error" in text
    assert given.read_bytes() == GIVEN


@pytest.mark.parametrize(
    "content",
    [
        b"<PlusConfiguration/>",
        b"<PlusConfiguration version='2'><CoordinateDefinitions/></PlusConfiguration>",
        b"<PlusConfiguration>\n<CoordinateDefinitions>\n</CoordinateDefinitions></PlusConfiguration>",
        GIVEN.replace(b'To="Probe" From="Image"', b'To="Probe" From="Other"'),
        '<PlusConfiguration name="Gerät"><x/></PlusConfiguration>'.encode(),
        '<?xml version="1.0" encoding="ISO-8859-1"?><PlusConfiguration name="Gerät"/>'.encode("latin-1"),
    ],
)
def test_it_is_added_where_there_is_none(content: bytes, tmp_path: Path) -> None:
    given = tmp_path / "given.xml"
    given.write_bytes(content)
    made = write_calibration(given, LINK, MATRIX, configuration=given)  # in place
    assert np.array_equal(read_calibration(made).transforms[LINK], MATRIX)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<PlusConfiguration>", "cannot be read"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares entities"),
        ("<PlusConfiguration/>".encode("utf-16"), "two bytes"),
        (
            GIVEN.replace(b"</CoordinateDefinitions>", b'<Transform From="Image" To="Probe"/></CoordinateDefinitions>'),
            "more",
        ),
        (GIVEN.replace(b'To="Probe" From="Image"', b'To="Image" From="Probe"'), "the other way round"),
    ],
)
def test_what_cannot_be_changed_is_told_and_nothing_is_written(content: bytes, said: str, tmp_path: Path) -> None:
    given = tmp_path / "given.xml"
    given.write_bytes(content)
    with pytest.raises(ScopeRegError, match=said):
        write_calibration(tmp_path / "made.xml", LINK, MATRIX, configuration=given)
    assert [path.name for path in tmp_path.iterdir()] == ["given.xml"]


def test_no_matrix_and_no_file(tmp_path: Path) -> None:
    for wrong, said in (
        (np.eye(3), "no 4 x 4"),
        (np.full((4, 4), np.nan), "a transform reads"),
        (np.eye(4) / 7, "0 0 0 1"),
    ):
        with pytest.raises(ScopeRegError, match=said):
            write_calibration(tmp_path / "a.xml", LINK, wrong)
    with pytest.raises(ScopeRegError, match="cannot be read"):
        write_calibration(tmp_path / "a.xml", LINK, MATRIX, configuration=tmp_path / "none.xml")
