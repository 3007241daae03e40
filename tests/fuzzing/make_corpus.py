"""The corpus's own seeds, small files of every kind, and the hostile ones that were found by hand.

    python tests/fuzzing/make_corpus.py

`good-*` must be read and `bad-*` refused; `found-*`, which fuzzing has found, is left as it is. What the files of
this script hold is the same every time, but for names and times that their formats ask for.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import SimpleITK as sitk
import torch
from PIL import Image
from safetensors.torch import save

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io import write_pose, write_volume
from scopereg.live import messages

sys.path.append(str(Path(__file__).parents[1] / "io" / "dicom"))
from conftest import dataset, region
from harnesses import CORPUS

POSE = Pose.from_matrix(
    [[0.8, -0.6, 0, 1], [0.6, 0.8, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]], source="Image", target="Volume"
)
VOXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 5)).astype(np.uint8)


def put(name: str, content: bytes | str) -> None:
    path = CORPUS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("latin-1") if isinstance(content, str) else content)


def volumes(folder: Path) -> None:
    volume = Volume(torch.from_numpy(VOXELS).float(), (1.0, 1.5, 2.0), (1, 2, 3))
    for harness, ending in (("nifti-gz", ".nii.gz"), ("nifti", ".nii"), ("nrrd", ".nrrd"), ("metaimage", ".mha")):
        put(f"{harness}/good-own", write_volume(volume, folder / f"a{ending}").read_bytes())
        image = sitk.GetImageFromArray(VOXELS)
        image.SetSpacing((1.0, 1.5, 2.0))
        for packed in (False, True):
            sitk.WriteImage(image, str(folder / f"b{ending}"), useCompression=packed)
            put(f"{harness}/good-itk-{'packed' if packed else 'plain'}", (folder / f"b{ending}").read_bytes())
    nifti = (CORPUS / "nifti" / "good-own").read_bytes()
    put("nifti-packed/good-own", nifti)
    put("nifti/bad-cut", nifti[:400])
    put("nifti/bad-vast", nifti[:40] + struct.pack("<8h", 3, 32767, 32767, 32767, 1, 1, 1, 1) + nifti[56:])
    put("nifti/bad-offset", nifti[:108] + struct.pack("<f", float("nan")) + nifti[112:])
    packed = bytearray((CORPUS / "nifti-gz" / "good-itk-packed").read_bytes())
    packed[-6] ^= 1
    put("nifti-gz/bad-checksum", bytes(packed))
    bomb = zlib.compressobj(9, wbits=31)
    put("nifti-gz/bad-bomb", bomb.compress(nifti[:352] + bytes(2**24)) + bomb.flush())
    detached_headers()


def detached_headers() -> None:
    """Headers that name another file, in the ways that were believed once; and too many axes."""
    grid = "dimension: 3\nsizes: 2 2 2\nspace: left-posterior-superior\nspace directions: (1,0,0) (0,1,0) (0,0,1)\n"
    nrrd = f"NRRD0004\ntype: uint8\n{grid}"
    put("nrrd/bad-data-file", f"{nrrd}encoding: raw\rdata file: /etc/passwd\n\n" + "x" * 8)
    put("nrrd/bad-data-file-plain", f"{nrrd}encoding: raw\ndata file: /etc/passwd\n")
    put("nrrd/bad-data-file-list", f"{nrrd}encoding: raw\ndata file: LIST\n/etc/passwd\n/dev/zero\n")
    put(
        "nrrd/bad-sixteen-axes",
        "NRRD0004\ntype: uint8\ndimension: 16\nsizes:" + " 2" * 16 + "\nencoding: raw\n\n" + "x" * 9,
    )
    put(
        "nrrd/bad-spacing",
        "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 2 2 2\nspacings: nan nan nan\nencoding: raw\n\n" + "x" * 8,
    )
    meta = "ObjectType = Image\nNDims = 3\nBinaryData = True\nDimSize = 2 2 2\nElementSpacing = 1 1 1\n"
    meta += "ElementType = MET_UCHAR\n"
    put("metaimage/bad-data-file", f"{meta}ElementDataFile = /etc/passwd\n")
    put(
        "metaimage/bad-data-file-twice",
        f"{meta}ElementDataFile\nLOCAL\nComment = {'x' * 200}\nElementDataFile = /etc/passwd\n",
    )
    put("metaimage/bad-list", f"{meta}ElementDataFile = LIST\n/etc/passwd\n/etc/passwd\n")
    packed = bytearray((CORPUS / "metaimage" / "good-itk-packed").read_bytes())
    packed[-3] ^= 8
    put("metaimage/bad-checksum", bytes(packed))


def frames(folder: Path) -> None:
    lines = ["ObjectType = Image", "NDims = 3", "BinaryData = True", "BinaryDataByteOrderMSB = False"]
    lines += ["CompressedData = False", "DimSize = 5 4 2", "ElementSpacing = 0.2 0.2 0.2", "ElementType = MET_UCHAR"]
    lines += ["UltrasoundImageOrientation = MFA", "UltrasoundImageType = BRIGHTNESS"]
    for row in range(2):
        matrix = f"0.2 0 0 {row} 0 0.2 0 2 0 0 0.2 3 0 0 0 1"
        lines += [f"Seq_Frame{row:04d}_ImageToReferenceTransform = {matrix}"]
        lines += [
            f"Seq_Frame{row:04d}_ImageToReferenceTransformStatus = OK",
            f"Seq_Frame{row:04d}_Timestamp = {row / 10}",
        ]
    head = "\n".join([*lines, "ElementDataFile = LOCAL"]) + "\n"
    put("plus/good-two", head.encode() + VOXELS[:2].tobytes())
    put("plus/bad-cut", head.encode() + VOXELS[:1].tobytes())
    configurations()
    arrays = {"frames": np.tile(VOXELS[:2], (1, 4, 4)), "spacing_xy_mm": np.array([0.2, 0.2])}
    arrays["image_mm_to_world"] = np.stack([POSE.matrix] * 2)
    np.savez(folder / "a.npz", **arrays)
    put("npz/good-two", (folder / "a.npz").read_bytes())
    arrays["probe_to_world"] = arrays.pop("image_mm_to_world")
    np.savez(folder / "probe.npz", **arrays)
    put("npz/good-probe", (folder / "probe.npz").read_bytes())
    with zipfile.ZipFile(folder / "b.npz", "w") as archive:
        archive.writestr(
            "frames.npy",
            b"\x93NUMPY\x01\x00\x46\x00"
            + b"{'descr': '|O', 'fortran_order': False, 'shape': (9999999999,)}".ljust(69)
            + b"\n",
        )
    put("npz/bad-objects", (folder / "b.npz").read_bytes())
    pictures = (("png", "PNG"), ("jpeg", "JPEG"), ("bmp", "BMP"), ("tiff", "TIFF"))
    for harness, kind in pictures:
        Image.fromarray(np.tile(VOXELS[0], (4, 4))).save(folder / "a", kind)
        content = (folder / "a").read_bytes()
        put(f"{harness}/good-grey", content)
        put(f"{harness}/bad-cut", content[: len(content) * 2 // 3])
    head = struct.pack(">IIBBBBB", 30000, 30000, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b""))
    put("png/bad-vast", b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts))


def configurations() -> None:
    """Of PLUS: with the transform that is replaced, without, and what is refused."""
    matrix = "0.2 0 0 1 0 0.2 0 2 0 0 0.2 3 0 0 0 1"
    own = f"<Transform From='Image' To=\"Probe\"\n Matrix='{matrix}' Note='a > b &amp; c'/>"
    other = own.replace("Image", "Phantom").replace("Probe", "Reference")
    clip = "<VolumeReconstruction ClipRectangleOrigin='1 2' ClipRectangleSize='3 4'/>"
    whole = (
        "<?xml version='1.0' encoding='UTF-8'?><!-- a > b --><PlusConfiguration version='2.9'>{}{}</PlusConfiguration>"
    )
    section = "<CoordinateDefinitions>{}</CoordinateDefinitions>"
    put("plus-xml/good-replaced", whole.format(section.format(own + other), clip))
    put("plus-xml/good-added", whole.format(section.format(other), clip))
    put("plus-xml/good-elsewhere", whole.format(f"<x>{other}</x>", ""))
    put("plus-xml/bad-twice", whole.format(section.format(own + own), ""))
    put(
        "plus-xml/bad-back",
        whole.format(section.format(own.replace("Image", "a").replace("Probe", "Image").replace("'a'", "'Probe'")), ""),
    )
    put("plus-xml/bad-cut", whole.format(section.format(own), "")[:200])
    put("plus-xml/bad-entity", "<!DOCTYPE a [<!ENTITY b 'c'>]>" + whole.format(section.format(own), ""))
    put("plus-xml/bad-wide", whole.format(section.format(own), "").replace("UTF-8", "UTF-16").encode("utf-16"))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def dicom(folder: Path) -> None:
    path = folder / "a.dcm"
    cases = {
        "good-regions": dataset(np.tile(VOXELS[0], (4, 4)), regions=[region((0, 0, 19, 15))]),
        "good-cine": dataset(VOXELS, regions=[region((0, 0, 4, 3))]),
        "bad-frames": dataset(VOXELS, regions=[region((0, 0, 4, 3))]),
        "bad-no-size": dataset(VOXELS[0]),
    }
    cases["bad-frames"].NumberOfFrames = 300_000_000
    for name, made in cases.items():
        made.save_as(path, enforce_file_format=True)
        put(f"dicom/{name}", path.read_bytes())


def transforms(folder: Path) -> None:
    for harness, ending in (("tfm", ".tfm"), ("h5", ".h5"), ("matrix", ".txt"), ("pose-json", ".json")):
        if harness == "h5":
            affine = sitk.Euler3DTransform((1, 2, 3), 0.1, 0.2, 0.3, (4, 5, 6))
            sitk.WriteTransform(affine, str(folder / "a.h5"))
            put("h5/good-euler", (folder / "a.h5").read_bytes())
            put("h5/bad-cut", (folder / "a.h5").read_bytes()[:900])
            continue
        put(f"{harness}/good-own", write_pose(POSE, folder / f"p{ending}").read_bytes())
    mark = "#Insight Transform File V1.0\n#Transform 0\n"
    put(
        "tfm/good-versor",
        f"{mark}Transform: VersorRigid3DTransform_double_3_3\nParameters: 0 0 0.1 1 2 3\nFixedParameters: 4 5 6\n",
    )
    put(
        "tfm/bad-spline",
        f"{mark}Transform: BSplineTransform_double_3_3\nParameters: 0 0 0\nFixedParameters: 1 1 1 0 0 0 1 1 1\n",
    )
    put("tfm/bad-no-parameters", f"{mark}Transform: AffineTransform_double_3_3\nFixedParameters: 0 0 0\n")
    put(
        "tfm/bad-singular",
        f"{mark}Transform: AffineTransform_double_3_3\nParameters: 0 0 0 0 0 0 0 0 0 1 2 3\nFixedParameters: 0 0 0\n",
    )
    put("matrix/bad-nan", "nan 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n")


def landmarks() -> None:
    """As 3D Slicer 4 and 5 write them, and in the ways that are refused."""
    columns = "# columns = id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID\n"
    point = "1,1.5,-2,3e1,0,0,0,1,1,1,0,F-1,,"
    head = f"# Markups fiducial file version = 5.0\n# CoordinateSystem = LPS\n{columns}"
    put(
        "fcsv/good-slicer4",
        f"{head.replace('5.0', '4.10').replace('LPS', '0')}vtkMRMLMarkupsFiducialNode_0{point[1:]}\n",
    )
    put("fcsv/good-slicer5", f'{head}{point},2,0\n2,4,5,6,0,0,0,1,1,1,0,"tip, left",,,0,0\n')
    put("fcsv/bad-no-system", head.replace("# CoordinateSystem = LPS\n", "") + point)
    put("fcsv/bad-voxels", head.replace("LPS", "2") + point)
    put("fcsv/bad-nan", head + point.replace("1.5", "nan"))
    put("fcsv/bad-far", head + point.replace("1.5", "1e300"))
    put("fcsv/bad-twice", f"{head}{point}\n{point}\n")
    put("fcsv/bad-quote", f'{head}{point}"\n')
    put("fcsv/bad-none", head)
    place = {"id": "1", "label": "F-1", "position": [1, 2, 3], "positionStatus": "defined"}
    markup = {"type": "Fiducial", "coordinateSystem": "LPS", "coordinateUnits": "mm", "controlPoints": [place]}
    undefined = {"id": "2", "label": "F-2", "position": None, "positionStatus": "undefined"}
    put("markups/good-one", json.dumps({"markups": [markup]}))
    put("markups/good-undefined", json.dumps({"markups": [{**markup, "controlPoints": [place, undefined]}]}))
    put("markups/bad-undefined", json.dumps({"markups": [{**markup, "controlPoints": [undefined]}]}))
    put("markups/bad-units", json.dumps({"markups": [{**markup, "coordinateUnits": "cm"}]}))
    put("markups/bad-system", json.dumps({"markups": [{**markup, "coordinateSystem": "IJK"}]}))
    put("markups/bad-position", json.dumps({"markups": [{**markup, "controlPoints": [{**place, "position": [1, 2]}]}]}))
    put("markups/bad-list", json.dumps([markup]))


def notes() -> None:
    """Beside results, and in the fields of a recording."""
    note = {"file": "sweep.igs.mha", "index": 3, "text": "<b>apex</b> \u00e4", "written": "2026-01-02T03:04:05+00:00"}
    held = {"format": "scopereg-notes-1", "notes": [note]}
    put("notes/good-one", json.dumps(held))
    put("notes/good-none", json.dumps({**held, "notes": []}))
    put("notes/bad-format", json.dumps({**held, "format": "another"}))
    put("notes/bad-many", json.dumps({**held, "notes": [note] * 301}))
    for name, changed in (("index", -1), ("index", 1.5), ("text", ""), ("text", "two\nlines"), ("text", "x" * 501)):
        put(f"notes/bad-{name}-{len(str(changed))}", json.dumps({**held, "notes": [{**note, name: changed}]}))
    put("notes/bad-file", json.dumps({**held, "notes": [{**note, "file": "a\nb"}]}))
    put("notes/bad-other", json.dumps({**held, "notes": [{**note, "more": 1}]}))
    lines = [{"ok": "yes", "expected_mm": "0.7", "method": "universal"}, ["apex", "\u4e2d"], {"pixels_sha256": "00"}]
    told = [json.dumps(line) for line in lines]
    put("recorded/good-all", "\n".join(told))
    put("recorded/bad-cell", "\n".join(['{"ok": 1}', *told[1:]]))
    put("recorded/bad-name", "\n".join(['{"__class__": "x"}', *told[1:]]))
    put("recorded/bad-notes", "\n".join([told[0], '{"a": 1}', told[2]]))
    put("recorded/bad-note", "\n".join([told[0], '["a\\u0007b"]', told[2]]))
    put("recorded/bad-deep", "\n".join([told[0], "[" * 9 + "]" * 9, told[2]]))
    put("recorded/bad-volume", "\n".join([*told[:2], '{"pixels_sha256": 5}']))


def records() -> None:
    put("json/good-mixed", json.dumps({"a": [1, 2.5, None, True], "b": {"c": "d\u00e9"}}))
    put("json/bad-deep", "[" * 100_000)
    put("json/bad-digits", "9" * 5000)
    put("json/bad-twice", '{"a": 1, "a": 2}')
    put("plan/good-small", "dataset: folder\nepochs: 1\nmagnitudes: [3]\nmethods:\n  identity:\n")
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for one, other in zip("bcdefghi", "abcdefgh", strict=True):
        laughs += f"{one}: &{one} [*{other}, *{other}, *{other}, *{other}, *{other}, *{other}, *{other}, *{other}]\n"
    put("plan/bad-laughs", laughs)
    put("plan/bad-object", "dataset: !!python/object/apply:os.system ['true']\n")
    put("plan/bad-within-itself", "dataset: &a [*a]\n")
    header = {"format": "scopereg-1", "network": "scope-reg", "options": '{"looks": 1000000000}', "facts": "{}"}
    put("weights/bad-looks", save({"a": torch.zeros(1)}, header))
    put("weights/bad-header", struct.pack("<Q", 2**62) + b"{}")
    put("weights/bad-empty", b"")


def igtl() -> None:
    frame = Frame(torch.from_numpy(VOXELS[0]).float() / 255, spacing_mm=0.2)
    for version in (1, 2):
        put(f"message/good-image-{version}", messages.image_message(frame, POSE, time_s=1.0, version=version))
        put(f"message/good-transform-{version}", messages.transform_message(POSE, time_s=1.0, version=version))
    put("message/good-status", messages.status_message(messages.Status(1, 0, "OK", "all is well"), time_s=1.0))
    put("message/good-string", messages.string_message("hello", time_s=1.0))
    put("message/bad-kind", b"\x00\x01image" + bytes(51))


def main() -> None:
    for old in [*CORPUS.glob("*/good-*"), *CORPUS.glob("*/bad-*")]:
        old.unlink()
    folder = Path(tempfile.mkdtemp())
    try:
        for make in (volumes, frames, dicom, transforms):
            make(folder)
        landmarks()
        notes()
        records()
        igtl()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
