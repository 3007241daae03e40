"""Sequences: a tracked recording read from the nodes of a sequence browser, without playing it."""

from __future__ import annotations

import numpy as np
import slicer
import vtk

from ScopeRegLiveLib.recording import Recording

_FEWEST = 2  # frames with a place


class Chain:
    """The transforms above the recorded image, up to the last one that was recorded too.

    What lies above that stands still: the frame of reference of the recording, which the compounded volume shares.
    """

    def __init__(self, browser, image):
        nodes, node = [], image.GetParentTransformNode()
        while node is not None:
            nodes.append((node, browser.GetSequenceNode(node)))
            node = node.GetParentTransformNode()
        last = max((row for row, (_, sequence) in enumerate(nodes) if sequence is not None), default=None)
        if last is None:
            raise ValueError(
                f"{image.GetName()} lies under no transform that was recorded with it: put it under its transforms in"
                " the Transforms module, as it was when it was recorded."
            )
        self.links = nodes[: last + 1]
        self.top = nodes[last][0]
        self.reference = self.top.GetParentTransformNode()  # None: the world
        bent = [node.GetName() for node, _ in self.links if not node.IsLinear()]
        if bent:
            raise ValueError(f"{bent[0]} is no linear transform: frames are placed by rigid ones.")

    def matrix_at(self, index_value):
        """From the image node's own space to the frame of reference, at one time; None where a transform is missing."""
        total = np.eye(4)
        for node, sequence in self.links:
            if sequence is not None:
                number = sequence.GetItemNumberFromIndexValue(index_value, True)
                if number < 0:
                    return None
                node = sequence.GetNthDataNode(number)
            matrix = vtk.vtkMatrix4x4()
            node.GetMatrixTransformToParent(matrix)
            step = slicer.util.arrayFromVTKMatrix(matrix)
            if sequence is not None and np.array_equal(step, np.eye(4)):
                return None  # what a tracker that sees nothing leaves behind; 3D Slicer does not keep its status
            total = step @ total
        return total


def image_of(browser, chosen):
    """The recorded image: the one that was chosen, or the only one that there is."""
    if browser is None:
        raise ValueError("No recording is chosen: choose a sequence browser, or record one in the Sequences module.")
    if chosen is not None:
        if browser.GetSequenceNode(chosen) is None:
            raise ValueError(f"{chosen.GetName()} is no image of {browser.GetName()}.")
        return chosen
    proxies = vtk.vtkCollection()
    browser.GetAllProxyNodes(proxies)
    nodes = [proxies.GetItemAsObject(row) for row in range(proxies.GetNumberOfItems())]
    images = [node for node in nodes if node.IsA("vtkMRMLVolumeNode")]
    if len(images) != 1:
        names = ", ".join(node.GetName() for node in images)
        raise ValueError(
            f"{browser.GetName()} holds several images: choose one of {names}."
            if images
            else f"{browser.GetName()} holds no recorded image."
        )
    return images[0]


def recording_of(browser, image, chain):
    """All frames of the image with their places; a ValueError in words where it is no tracked recording."""
    sequence = browser.GetSequenceNode(image)
    images, matrices, placed, times_s = [], [], [], []
    for number in range(sequence.GetNumberOfDataNodes()):
        node, value = sequence.GetNthDataNode(number), sequence.GetNthIndexValue(number)
        pixels = voxels_of(node, image.GetName())
        if pixels.shape[0] != 1 or (images and pixels[0].shape != images[0].shape):
            raise ValueError(f"{image.GetName()} is no recording of 2D frames of one size.")
        to_reference, ijk_to_ras = chain.matrix_at(value), vtk.vtkMatrix4x4()
        node.GetIJKToRASMatrix(ijk_to_ras)
        placed.append(to_reference is not None)
        matrices.append(to_reference @ slicer.util.arrayFromVTKMatrix(ijk_to_ras) if placed[-1] else np.eye(4))
        images.append(pixels[0])
        times_s.append(_time_s(value, number))
    return Recording(np.array(images), np.array(matrices), placed, times_s, _note(image, chain, placed))


def voxels_of(node, name):
    """The voxels of a volume node; a ValueError in words where it holds none, or none that numpy reads."""
    if node.GetImageData() is None:
        raise ValueError(f"{name} holds no image.")
    try:
        return slicer.util.arrayFromVolume(node)
    except RuntimeError as error:  # such as compressed video
        raise ValueError(f"{name} cannot be read: {error}") from None


def _note(image, chain, placed):
    """What is left out; an error where nothing is left."""
    lost = len(placed) - sum(placed)
    if sum(placed) < _FEWEST:
        names = ", ".join(node.GetName() for node, sequence in chain.links if sequence is not None)
        raise ValueError(
            f"The sequences do not match: of {len(placed)} frames of {image.GetName()} {sum(placed)} have a transform"
            f" of the same time in {names} that is not the identity. Record them together."
        )
    return f"{lost} of {len(placed)} frames have no transform of their time, or the identity, and are left out" * (
        lost > 0
    )


def _time_s(index_value, number):
    """The time of a frame where the sequence counts in seconds, else its number."""
    try:
        return float(index_value)
    except ValueError:
        return float(number)
