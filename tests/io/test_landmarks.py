"""Landmarks of 3D Slicer: LPS millimetres whatever the file counts in, and nothing that is doubtful."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import survive

from scopereg.errors import ScopeRegError
from scopereg.io import read_landmarks, write_landmarks
from scopereg.io.landmarks import is_landmarks

SLICER4 = """# Markups fiducial file version = 4.10
# CoordinateSystem = 0
# columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID
vtkMRMLMarkupsFiducialNode_0,-45.4,12.5,7.25,0.000,0.000,0.000,1.000,1,1,0,apex,,vtkMRMLScalarVolumeNode1
vtkMRMLMarkupsFiducialNode_1,1,-2,3,0,0,0,1,1,1,0,"base, left",a note,
"""
SLICER5 = """# Markups fiducial file version = 5.6
# CoordinateSystem = LPS
# columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID
1,45.4,-12.5,7.25,0,0,0,1,1,1,0,apex,,,2,0
2,-1,2,3,0,0,0,1,1,1,0,"base, left",,,2,0
3,0,0,0,0,0,0,1,1,1,0,valve,,,0,0
"""
POINTS = {"apex": (45.4, -12.5, 7.25), "base, left": (-1.0, 2.0, 3.0)}


def written(folder: Path, text: str, name: str = "a.fcsv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def markups(**changes: Any) -> dict[str, Any]:
    points = [
        {"id": "1", "label": "apex", "position": [-45.4, 12.5, 7.25], "positionStatus": "defined"},
        {"id": "2", "label": "base, left", "position": [1, -2, 3]},
        {"id": "3", "label": "valve", "positionStatus": "undefined"},
    ]
    markup = {"type": "Fiducial", "coordinateSystem": "RAS", "coordinateUnits": "mm", "controlPoints": points}
    return {"@schema": "a#", "markups": [{**markup, **changes}]}


@pytest.mark.parametrize("text", [SLICER4, SLICER5, SLICER5.replace("\n", "\r\n"), SLICER4.replace("= 0", "= RAS")])
def test_sheets_of_both_slicers_are_in_lps(tmp_path: Path, text: str) -> None:
    read = read_landmarks(written(tmp_path, text))
    assert dict(read.points_mm) == POINTS
    assert read.left_out == (("valve",) if "valve" in text else ())
    assert np.array_equal(read.array_mm(), list(POINTS.values()))


def test_markups_are_in_lps_and_points_that_were_never_placed_are_told(tmp_path: Path) -> None:
    read = read_landmarks(written(tmp_path, json.dumps(markups()), "a.mrk.json"))
    assert dict(read.points_mm) == POINTS
    assert read.left_out == ("valve",)


def test_a_point_without_a_label_goes_by_its_number(tmp_path: Path) -> None:
    text = "# Markups fiducial file version = 4.4\n# CoordinateSystem = 1\n# columns = id,x,y,z,vis,sel\np1,1,2,3,1,1\n"
    assert dict(read_landmarks(written(tmp_path, text)).points_mm) == {"p1": (1, 2, 3)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_landmarks(POINTS, tmp_path / "ruler.mrk.json", kind="Line", name="ruler")
    assert dict(read_landmarks(path).points_mm) == POINTS
    (markup,) = json.loads(path.read_text())["markups"]
    assert (markup["type"], markup["coordinateSystem"], markup["name"]) == ("Line", "LPS", "ruler")


def test_a_line_has_two_ends(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="a line of 1 points"):
        write_landmarks({"a": (0, 0, 0)}, tmp_path / "a.mrk.json", kind="Line")
    with pytest.raises(ScopeRegError, match=r"written as \.mrk\.json"):
        write_landmarks({"a": (0, 0, 0)}, tmp_path / "a.json")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("# CoordinateSystem = LPS\n", "", "does not say whether"),
        ("= LPS", "= 2", "its coordinate system is '2'"),
        ("= LPS", "= LPS\n# CoordinateSystem = RAS", "its coordinate system is 'LPS, RAS'"),
        ("id,x,y,z", "id,x,y", "does not name the columns"),
        ("5.6", "3.6", "does not begin with"),
        ("45.4", "nan", "no decimal number: 'nan'"),
        ("45.4", "1e7", "a place beyond"),
        ("45.4", "", "no decimal number: ''"),
        ("0,apex", "0,a,b,c,d,e,f,g,h,i,j,k", "it has 26 cells for 14 columns"),
        ('"base, left"', "apex", "'apex' stands twice"),
        ('"base, left"', '"base', "its lines are no table"),
    ],
)
def test_a_sheet_that_is_doubtful_is_refused(tmp_path: Path, old: str, new: str, what: str) -> None:
    with pytest.raises(ScopeRegError, match=what):
        read_landmarks(written(tmp_path, SLICER5.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"coordinateSystem": None}, "does not say whether"),
        ({"coordinateSystem": "IJK"}, "coordinateSystem is 'IJK'"),
        ({"coordinateUnits": "cm"}, "coordinateUnits is 'cm'"),
        ({"controlPoints": []}, "no landmark that was placed"),
        ({"controlPoints": [{"label": "a", "position": [1, 2]}]}, "position is"),
        ({"controlPoints": [{"label": " ", "position": [1, 2, 3]}]}, "a landmark is called ''"),
    ],
)
def test_markups_that_are_doubtful_are_refused(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ScopeRegError, match=what):
        read_landmarks(written(tmp_path, json.dumps(markups(**changes)), "a.mrk.json"))


def test_files_of_other_kinds_are_told_apart(tmp_path: Path) -> None:
    assert is_landmarks("A.FCSV")
    assert not is_landmarks("pose.json")
    with pytest.raises(ScopeRegError, match="unknown ending"):
        read_landmarks(written(tmp_path, SLICER5, "a.csv"))
    with pytest.raises(ScopeRegError, match="no such file"):
        read_landmarks(tmp_path / "none.fcsv")


@pytest.mark.parametrize("name", ["a.fcsv", "a.mrk.json"])
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    content = SLICER5 if name.endswith(".fcsv") else json.dumps(markups())
    ends = survive(
        read_landmarks,
        content.encode(),
        tmp_path / name,
        400,
        check=lambda read: np.testing.assert_array_less(np.abs(read.array_mm()), 1e6 + 1),
    )
    assert set(ends) == {"read", "refused"}
