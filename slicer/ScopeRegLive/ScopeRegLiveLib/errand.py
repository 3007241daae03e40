"""Errand: something that scopereg does with a recording, in a process of its own, and what of it enters the scene."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import slicer
import vtk

from ScopeRegLiveLib.light import light_of
from ScopeRegLiveLib.process import Process, program_of
from ScopeRegLiveLib.recording import turned, write_pose, write_volume
from ScopeRegLiveLib.report import report_of_facts
from ScopeRegLiveLib.sequences import Chain, image_of, recording_of, voxels_of

FACTS = "ScopeReg.facts"  # attribute of the nodes that come back: what scopereg told of them
_SWEEP, _VOLUME, _WORLD, _FOUND = "sweep.igs.mha", "volume.mha", "world.txt", "found"
_COMPOUND, _RECORD = "compound.nii.gz", "compound.json"  # the second says what the first was made of


class Errand:
    """A folder of its own with the recording, the process that works in it, and what came of it.

    A ValueError in words where it cannot begin. `look` tells in words how it stands, `ended`, `failed`, `light` (of a
    pose) and `made` (a node) what came of it.
    """

    def __init__(self, browser, image, program):
        self.name = browser.GetName() if browser is not None else ""
        image = image_of(browser, image)
        self.chain = Chain(browser, image)
        recording = recording_of(browser, image, self.chain)
        environment = slicer.util.startupEnvironment()
        program = program_of(program, environment)
        self.folder = Path(tempfile.mkdtemp(prefix="scopereg-"))
        self.ended, self.failed, self.light, self.made = False, False, None, None
        self.note, self.told = recording.note, ""
        try:
            recording.write(self.folder / _SWEEP)
            self.process = Process(program, self._words(), self.folder, environment)
        except Exception:
            self._forget()
            raise

    def look(self):
        """How it stands, in words; once it has ended, what it gave is in the scene."""
        if not self.ended:
            outcome = self.process.look()
            if outcome is None:
                return f"{self.doing}: {self.process.said()}"
            self.ended, self.failed, self.told = True, bool(outcome.failure), outcome.failure
            try:
                if not self.failed:
                    self.told = self._take(outcome.facts)
            except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
                self.failed, self.told = True, f"What scopereg gave cannot be taken over: {error}"
            finally:
                self._forget()
        return "\n".join(filter(None, (self.told, self.note)))

    def cancel(self):
        self.process.cancel()

    def close(self):
        """End it now, such as when the scene or the module is closed."""
        if not self.ended:
            self.ended = True
            self.process.close()
            self._forget()

    def _remember(self, node, facts):
        """Let the scene know what the node was made by."""
        node.SetAttribute(FACTS, json.dumps({"program": self.process.version, "words": self.process.words, **facts}))

    def _forget(self):
        shutil.rmtree(str(self.folder), ignore_errors=True)


class Compounding(Errand):
    """A volume of the frames, where they lie."""

    doing = "compounding"

    def __init__(self, browser, image, program, voxel_mm=0.0):
        self._voxel_mm = voxel_mm
        super().__init__(browser, image, program)

    def _words(self):
        voxel = ["--voxel-mm", f"{self._voxel_mm:g}"] if self._voxel_mm > 0 else []
        return ["compound", _SWEEP, "-o", _COMPOUND, "--no-report", *voxel]

    def _take(self, facts):
        """The volume goes under what the recording lies under, as it is in the recording's frame of reference."""
        record = json.loads((self.folder / _RECORD).read_text(encoding="utf-8"))
        node = slicer.util.loadVolume(str(self.folder / _COMPOUND), {"name": f"{self.name} compounded"})
        storage = node.GetStorageNode()
        if storage is not None:  # its file goes with the folder; 3D Slicer then asks where to save it
            slicer.mrmlScene.RemoveNode(storage)
        _put_under(node, self.chain.reference)
        self._remember(node, record)
        self.made = node
        told = (
            f"voxels of {facts['voxel_mm']:g} mm, {facts['voxel_mm_why']}",
            (facts["left_out"] or {}).get("verdict"),
        )
        return "\n".join(filter(None, (*told, f"{node.GetName()} is in the scene.")))


class Together(Errand):
    """One pose for all frames in a volume, as a transform for the recording."""

    doing = "registering together"

    def __init__(self, browser, image, program, volume, most=9, method="", starts_here=False):
        if volume is None:
            raise ValueError("No volume is chosen: choose the one that the frames are to be found in.")
        self._volume, self._most, self._method, self._starts_here = volume, most, method.strip(), starts_here
        super().__init__(browser, image, program)

    def _words(self):
        matrix = vtk.vtkMatrix4x4()
        self._volume.GetIJKToRASMatrix(matrix)
        try:
            voxels = voxels_of(self._volume, self._volume.GetName())
            write_volume(self.folder / _VOLUME, voxels, slicer.util.arrayFromVTKMatrix(matrix))
        except ValueError as error:
            raise ValueError(f"The volume cannot be handed over: {error}") from None
        words = ["register", "--together", _SWEEP, _VOLUME, "-o", _FOUND, "--no-report", "--most", str(self._most)]
        words += ["--method", self._method] if self._method else []
        return [*words, *(self._start() if self._starts_here else [])]

    def _start(self):
        """Where the recording lies now in the volume's own space."""
        matrix = vtk.vtkMatrix4x4()
        parent = self._volume.GetParentTransformNode()
        if not slicer.vtkMRMLTransformNode.GetMatrixTransformBetweenNodes(self.chain.reference, parent, matrix):
            raise ValueError("The recording or the volume lies under a transform that is not linear: harden it.")
        write_pose(self.folder / _WORLD, slicer.util.arrayFromVTKMatrix(matrix))
        return ["--start", "tracker", "--world", _WORLD]

    def _take(self, facts):
        """The pose leads to the volume's own space, so that it goes under what the volume lies under."""
        report = report_of_facts(dict(facts))
        matrix = slicer.util.vtkMatrixFromArray(turned(facts["body_to_volume"]))
        if report is None:
            raise ValueError("it does not say whether the pose is reliable")
        self.light = light_of(report, 0.0, connected=True)
        node = slicer.mrmlScene.AddNewNodeByClass(
            "vtkMRMLLinearTransformNode", f"{self.name} to {self._volume.GetName()}"
        )
        node.SetMatrixTransformToParent(matrix)
        _put_under(node, self._volume.GetParentTransformNode())
        self._remember(node, facts)
        self.made = node
        told = (self.light.reason, report.details, f"{node.GetName()} is in the scene.")
        return "\n".join(filter(None, told))

    def apply(self):
        """Put the recording where it was found."""
        _put_under(self.chain.top, self.made)


def _put_under(node, transform):
    node.SetAndObserveTransformNodeID(transform.GetID() if transform is not None else None)
