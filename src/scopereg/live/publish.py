"""Publisher: a listener of the loop that lets 3D Slicer and others see every result over OpenIGTLink.

| message | name | what |
|---|---|---|
| TRANSFORM | ImageToVolume | the pose, between RAS spaces: for an image in its own mm |
| IMAGE | Image_Volume | the frame in its place: needs no transform |
| IMAGE | Cut_Volume | if wanted, the volume cut at that place |
| STATUS | Registration | code 1 if the result is reliable, else 2; subcode the confidence in %; verdict |
| STRING | RegistrationInfo | the same as JSON, with size and pixels of the frame, number, latency and rate |

The subcode is 0 only where the frame is not of the volume or was not found, and -1 where nobody judged, so that a
STATUS alone tells the light. What has changed in the stream (`notice`) is told in both for some seconds,
what a person is asked (`asks`) until it is answered.
Of a frame that was not found only STATUS and STRING are sent: what is on the screen stays, and is marked as not ok.
"""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace

import numpy as np

from scopereg.live.exchange import Counters, Mailbox
from scopereg.live.loop import Update
from scopereg.live.messages import (
    FAILED,
    OK,
    Status,
    image_message,
    status_message,
    string_message,
    transform_message,
)
from scopereg.live.server import Server
from scopereg.registration.result import Assessment, Result

STATUS_NAME, TEXT_NAME, CUT_NAME = "Registration", "RegistrationInfo", "Cut_Volume"
NOTICE_S = 5.0  # for which a notice is told: clients see the latest message alone


class Publisher:
    """Packs and sends in a thread of its own: a loop that is faster than it does not wait, results are dropped."""

    def __init__(self, server: Server, *, cut: bool = False) -> None:
        """`cut` sends the volume at the found place too, which takes some more time."""
        self.counters = Counters()
        self._server, self._cut = server, cut
        self._mailbox: Mailbox[Update] = Mailbox()
        self._notice, self._notice_until_s = "", -math.inf
        self._thread = threading.Thread(target=self._run, name="scopereg-live-publisher", daemon=True)
        self._thread.start()

    def __call__(self, update: Update) -> None:
        if update.notice:
            self._notice, self._notice_until_s = update.notice, update.done_s + NOTICE_S
        told = self._notice if update.done_s < self._notice_until_s else ""
        self._mailbox.put(replace(update, notice=told))

    def close(self) -> None:
        """Send what is left and end the thread; the server stays."""
        self._mailbox.close()
        self._thread.join()

    def _run(self) -> None:
        while (update := self._mailbox.take()) is not None:
            try:
                self._server.send(messages_of(update, cut=self._cut))
                self.counters.add("published")
            except Exception as error:  # one result must not end it
                self.counters.add("publish_errors", error)


def messages_of(update: Update, *, cut: bool = False) -> list[bytes]:
    """The messages of an update, all with the time of the frame."""
    assessment = update.assessment
    packed = []
    if update.result is not None:
        pose = update.result.pose
        packed.append(transform_message(pose, time_s=update.time_s))
        packed.append(image_message(update.frame, pose, time_s=update.time_s))
        if cut and update.result.volume is not None:
            values = _cut(update.result, update)
            packed.append(image_message(update.frame, pose, name=CUT_NAME, values=values, time_s=update.time_s))
    status = status_of(assessment)
    if told := "; ".join(filter(None, (update.notice, update.asks))):
        status = status._replace(text=f"{status.text}; {told}")
    packed.append(status_message(status, name=STATUS_NAME, time_s=update.time_s))
    packed.append(string_message(_as_json(update, assessment), name=TEXT_NAME, time_s=update.time_s))
    return packed


def status_of(assessment: Assessment) -> Status:
    """An assessment as a STATUS: what nobody judged is not reliable either, and its title says so.

    A confidence of 0 % stands for a red light, so any other light is sent with 1 % at least; without one, with -1.
    """
    percent = 0
    if assessment.light != "red":
        percent = -1 if assessment.confidence is None else max(1, round(100 * assessment.confidence))
    code = OK if assessment.light == "green" else FAILED
    return Status(code, percent, assessment.state.upper(), assessment.text)


def _cut(result: Result, update: Update) -> np.ndarray:
    """The volume on the pixels of the frame at the found pose."""
    from scopereg.io.placement import resliced_image  # needs SimpleITK

    assert result.volume is not None
    return np.asarray(resliced_image(result.volume, update.frame, result.pose).array[0])


def _as_json(update: Update, assessment: Assessment) -> str:
    width_height, pixel_mm = update.format
    facts = {
        "number": update.number,
        **assessment.facts,
        "size": list(width_height),
        "pixel_mm": None if pixel_mm is None else [float(f"{step:.6g}") for step in pixel_mm],
        "notice": update.notice,
        "asks": update.asks,
        "latency_ms": round(update.latency_ms, 1),
        "frames_per_s": None if math.isnan(update.rates.frames_per_s) else round(update.rates.frames_per_s, 1),
    }
    return json.dumps(facts)
