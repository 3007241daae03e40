"""ErrandPanel: the part of the panel where a recording is compounded, or registered together in a volume."""

from __future__ import annotations

import ctk
import qt
import slicer

from ScopeRegLiveLib.errand import Compounding, Together

SETTING = "ScopeReg/program"  # in the settings of the application: where scopereg is, on this machine
_MOST_FRAMES, _FRAMES = 100, 9


class ErrandPanel:
    """One errand at a time. `form` is the layout of the section that it fills, `logic` knows the chosen volume."""

    def __init__(self, form, logic):
        self._logic = logic
        self.errand = None
        self.browser_selector = selector(["vtkMRMLSequenceBrowserNode"])
        self.image_selector = selector(["vtkMRMLVolumeNode"])
        self.program_edit = ctk.ctkPathLineEdit()
        self.program_edit.filters = ctk.ctkPathLineEdit.Files
        self.program_edit.currentPath = qt.QSettings().value(SETTING, "")
        self.voxel_box = qt.QDoubleSpinBox()
        self.voxel_box.setRange(0, 10)
        self.most_box = qt.QSpinBox()
        self.most_box.setRange(2, _MOST_FRAMES)
        self.most_box.value = _FRAMES
        self.method_edit = qt.QLineEdit()
        self.start_box = qt.QCheckBox("It lies near its place in the volume already")
        self.compound_button = button("Compound", self.on_compound)
        self.together_button = button("Register together in the volume", self.on_together)
        self.cancel_button = button("Cancel", self.on_cancel)
        self.apply_button = button("Put the recording where it was found", self.on_apply)
        self.light_label, self.state_label = qt.QLabel(), qt.QLabel()
        self.light_label.setAlignment(qt.Qt.AlignCenter)
        self.state_label.wordWrap = True
        self._lay_out(form)
        self.tick()

    def _lay_out(self, form):
        form.addRow("Program scopereg", self.program_edit)
        form.addRow("Recording", self.browser_selector)
        form.addRow("Its image, if it has several", self.image_selector)
        form.addRow("Voxel in mm (0: by the frames)", self.voxel_box)
        form.addRow(self.compound_button)
        form.addRow("Frames at most", self.most_box)
        form.addRow("Method (empty: as scopereg has it)", self.method_edit)
        for row in (self.start_box, self.together_button, self.cancel_button, self.light_label, self.state_label):
            form.addRow(row)
        form.addRow(self.apply_button)

    def tick(self):
        """Show how it stands now."""
        busy = self.errand is not None and not self.errand.ended
        if self.errand is not None:
            self.state_label.text = self.errand.look()
            busy = not self.errand.ended
        light = self.errand.light if self.errand is not None else None
        self.light_label.text, self.light_label.styleSheet = (
            (light.word, light.style) if light is not None else ("", "")
        )
        self.compound_button.enabled = self.together_button.enabled = not busy
        self.cancel_button.enabled = busy
        self.apply_button.enabled = light is not None

    def on_compound(self):
        self._begin(lambda given: Compounding(*given, voxel_mm=self.voxel_box.value))

    def on_together(self):
        options = self.most_box.value, self.method_edit.text, self.start_box.checked
        self._begin(lambda given: Together(*given, self._logic.volume, *options))

    def on_cancel(self):
        if self.errand is not None:
            self.errand.cancel()
        self.tick()

    def on_apply(self):
        self.errand.apply()

    def close(self):
        """End what runs, and forget what came of the last errand: its nodes may go."""
        if self.errand is not None:
            self.errand.close()
        self.errand = None
        self.state_label.text = ""
        self.tick()

    def _begin(self, make):
        program = self.program_edit.currentPath
        qt.QSettings().setValue(SETTING, program)
        self.errand = None
        try:
            self.errand = make((self.browser_selector.currentNode(), self.image_selector.currentNode(), program))
        except (OSError, ValueError) as error:
            self.state_label.text = str(error)
        self.tick()


def selector(kinds):
    """A chooser of nodes of some classes, or of none."""
    made = slicer.qMRMLNodeComboBox()
    made.nodeTypes = kinds
    made.addEnabled = made.removeEnabled = False
    made.selectNodeUponCreation = False  # frames that arrive are nodes too
    made.noneEnabled = True
    made.setMRMLScene(slicer.mrmlScene)
    return made


def button(text, slot):
    made = qt.QPushButton(text)
    made.connect("clicked()", slot)
    return made
