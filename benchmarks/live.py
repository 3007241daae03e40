"""Time of frames on their way through OpenIGTLink: `python benchmarks/live.py --out benchmarks/live.csv`.

The scanner is a process of its own, as PLUS would be; both ends read the clock of the machine. The first rows time the
transport of a frame of 640 x 480, checksums, packing and the making of the `Frame` included; pyigtl stands beside
it. The last rows run the whole loop: a frame of 128 x 128 is sent, received, located, its pose sent back and its
picture sent to a page of the viewer, a process of its own that answers at once and draws nothing. Frames are located
one at a time with all threads, and two at once with half of them each, as `scopereg live` does on a CPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pyigtl
import torch
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from scopereg import Frame, Pose
from scopereg.io.files import write_sheet
from scopereg.live.connection import Connection
from scopereg.live.loop import Loop, Register, Update
from scopereg.live.messages import Message, frame_of, image_message, transform_message
from scopereg.live.publish import Publisher
from scopereg.live.scene import Plan, Scene
from scopereg.live.server import Server
from scopereg.live.sources import IgtlSource
from scopereg.provenance import library_versions
from scopereg.registration.result import Result
from scopereg.registration.settings import DEFAULT
from scopereg.viewer.live_show import LiveShow, Rooms
from scopereg.viewer.web import WebServer

WARM_UP = 10
POSE = Pose.from_euler_deg((10, 20, 30), (1, 2, 3))


@dataclass(frozen=True)
class Stream:
    """What a scanner sends."""

    pixels: np.ndarray  # (F, H, W), from 0 to 1; over and over
    spacing_mm: float
    count: int
    rate_hz: float

    def frames(self) -> Iterator[tuple[Frame, float]]:
        """Frames when they are due, with the time of now."""
        due_s = time.monotonic()
        for number in range(self.count):
            time.sleep(max(due_s - time.monotonic(), 0))
            due_s += 1 / self.rate_hz
            yield Frame(self.pixels[number % len(self.pixels)], self.spacing_mm, (0, 0)), time.time()


# --- the process of the scanner ---


def scanner(pipe: Pipe, stream: Stream) -> None:
    """Serve the stream; tell how long each transform took to come back for the frame of the same time."""
    back_ms: list[float] = []

    def listener(message: Message) -> None:
        if message.kind == "TRANSFORM":
            back_ms.append((time.time() - message.header.time_s) * 1e3)

    with Server(port=0, listener=listener) as server:
        pipe.send(server.port)
        port = pipe.recv()  # where results are published, if they are
        results = Connection("127.0.0.1", port, listener).start() if port else None
        while not server.client_count or (results and not results.connected):
            time.sleep(0.01)
        for frame, time_s in stream.frames():
            server.send([image_message(frame, Pose.identity("Image", "Reference"), time_s=time_s)])
        time.sleep(1.0)
        if results:
            results.close()
    pipe.send(back_ms)


def client_scanner(pipe: Pipe, stream: Stream) -> None:
    """Send the stream as a client."""
    connection = Connection("127.0.0.1", pipe.recv(), lambda message: None).start()
    while not connection.connected:
        time.sleep(0.01)
    for frame, time_s in stream.frames():
        connection.send(image_message(frame, Pose.identity("Image", "Reference"), time_s=time_s))
    time.sleep(1.0)
    connection.close()
    pipe.send([])


def pyigtl_scanner(pipe: Pipe, stream: Stream) -> None:
    """The same with pyigtl's server, one frame after the other."""
    server = pyigtl.OpenIGTLinkServer(port=0)
    pipe.send(server.server_address[1])
    while not server.is_connected():
        time.sleep(0.01)
    back_ms = []
    for frame, time_s in stream.frames():
        pixels = (frame.numpy() * 255).round().astype(np.uint8)[None]
        server.send_message(
            pyigtl.ImageMessage(pixels, np.diag([0.2, 0.2, 0.2, 1]), "ras", time_s, "Image"), wait=False
        )
        if server.wait_for_message("ImageToVolume", 5.0) is not None:
            back_ms.append((time.time() - time_s) * 1e3)
    server.stop()
    pipe.send(back_ms)


def page(pipe: Pipe, port: int) -> None:
    """A page of the viewer: how old its pictures are when they come."""
    ages_ms: list[float] = []
    host = f"127.0.0.1:{port}"
    with connect(f"ws://{host}/ws", origin=f"http://{host}", compression=None) as socket:  # type: ignore[arg-type]
        pipe.send(True)
        with suppress(ConnectionClosed):
            while True:
                message = socket.recv()
                if isinstance(message, bytes):
                    (length,) = struct.unpack_from("<I", message)
                    header = json.loads(message[4 : 4 + length])
                    ages_ms.append((time.time() - header["time_s"]) * 1e3)
                    socket.send(json.dumps({"do": "shown", "number": header["number"]}))
    pipe.send(ages_ms)


@contextmanager
def process(target: Callable[..., None], argument: Any) -> Iterator[Pipe]:
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    running = context.Process(target=target, args=(far, argument), daemon=True)
    running.start()
    yield near
    running.join(10)


# --- what is measured ---


def to_source(stream: Stream) -> dict[str, list[float]]:
    """Our client takes frames from a server, as from PLUS."""
    taken_ms = []
    with process(scanner, stream) as pipe:
        source = IgtlSource("127.0.0.1", pipe.recv())
        source.start()
        pipe.send(0)
        while len(taken_ms) < stream.count and (arrival := source.latest(10.0)) is not None:
            taken_ms.append((time.time() - arrival.time_s) * 1e3)
        source.close()
        pipe.recv()
    return {"frame sent to Frame taken, our client": taken_ms}


def to_server(stream: Stream) -> dict[str, list[float]]:
    """A client sends frames to our server."""
    taken_ms = []

    def listener(message: Message) -> None:
        frame_of(message)
        taken_ms.append((time.time() - message.header.time_s) * 1e3)

    with Server(port=0, listener=listener) as server, process(client_scanner, stream) as pipe:
        pipe.send(server.port)
        pipe.recv()
    return {"frame sent to Frame made, our server": taken_ms}


def there_and_back(stream: Stream) -> dict[str, list[float]]:
    """An image in, a transform back, over our connection."""
    with process(scanner, stream) as pipe:

        def answer(message: Message) -> None:
            if message.kind == "IMAGE":
                frame_of(message)
                connection.send(transform_message(POSE, time_s=message.header.time_s))

        connection = Connection("127.0.0.1", pipe.recv(), answer).start()
        pipe.send(0)
        back_ms = pipe.recv()
        connection.close()
    return {"image in, transform back, ours": back_ms}


def there_and_back_pyigtl(stream: Stream) -> dict[str, list[float]]:
    """The same over pyigtl's own client and server."""
    with process(pyigtl_scanner, stream) as pipe:
        client = pyigtl.OpenIGTLinkClient("127.0.0.1", pipe.recv())
        while not pipe.poll():
            image = client.wait_for_message("Image", 0.5)
            if image is not None:
                client.send_message(pyigtl.TransformMessage(np.eye(4), device_name="ImageToVolume"), wait=False)
        back_ms = pipe.recv()
        client.stop()
    return {"image in, transform back, pyigtl": back_ms}


def end_to_end(stream: Stream, scene: Scene, register: Register, workers: int) -> dict[str, list[float]]:
    """The whole loop: frames from a scanner, poses back to it, pictures to a page."""
    updates: list[Update] = []
    with Server(port=0) as server, process(scanner, stream) as pipe, ExitStack() as stack:
        publisher = Publisher(server)
        loop = Loop(IgtlSource("127.0.0.1", pipe.recv()), register, [publisher, updates.append], workers=workers)
        show = LiveShow(loop, scene, lambda volume, name: scene, Rooms(Path()))
        web = WebServer(show, port=0).start()
        show.wake = web.wake
        loop.listen(show)
        shown = stack.enter_context(process(page, web.port))
        shown.recv()
        loop.start()
        pipe.send(server.port)
        back_ms = pipe.recv()
        loop.stop()
        publisher.close()
        web.close()
        ages_ms = shown.recv()
    failed = [update.error for update in updates if update.error is not None]
    print(
        f"  {len(updates)} of {stream.count} frames located, {len(failed)} failed, {loop.counters()['dropped']} dropped"
    )
    return {
        "frame arrived to result": [update.latency_ms for update in updates],
        "frame sent to transform back": back_ms,
        "frame sent to page": ages_ms,
    }


def row(name: str, size: str, method: str, times_ms: list[float], stream: Stream, workers: int = 1) -> dict[str, Any]:
    kept = times_ms[WARM_UP:]
    return {
        "what": name,
        "pixels": size,
        "method": method,
        "frames": len(kept),
        "frames_per_s": round(len(times_ms) / stream.count * stream.rate_hz, 1),
        "median_ms": round(statistics.median(kept), 2),
        "p95_ms": round(float(np.percentile(kept, 95)), 2),
        "workers": workers,
        "threads": torch.get_num_threads(),
        "versions": " ".join(f"{k} {v}" for k, v in library_versions().items() if k in ("torch", "numpy"))
        + f" pyigtl {version('pyigtl')}",
    }


def stand_in(frame: Frame) -> Result:
    """No registration at all: what the loop itself costs."""
    return Result(POSE, "none", 0.0, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--frames", type=int, default=250)
    parser.add_argument("--rate", type=float, default=25.0, help="frames per second")
    parser.add_argument("--method", default=DEFAULT, help="what locates the frames end to end")
    options = parser.parse_args()
    large = np.random.default_rng(0).random((4, 480, 640), np.float32)
    stream = Stream(large, 0.2, options.frames + WARM_UP, options.rate)
    rows = []
    for measure in (to_source, to_server, there_and_back, there_and_back_pyigtl):
        rows += [row(name, "640x480", "", times, stream) for name, times in measure(stream).items()]
        print(rows[-1], flush=True)
    rows += loop_rows(options.method, options.frames + WARM_UP, options.rate)
    if options.out:
        write_sheet(options.out, rows)


def loop_rows(method: str, count: int, rate_hz: float) -> list[dict[str, Any]]:
    """The whole loop on frames of a phantom, with a method and with none."""
    from scopereg.data import phantom
    from scopereg.geometry import sample_poses

    patient = phantom.create("echo", seed=100_000)
    images = patient.acquire(*sample_poses(16, 10, patient.shape, torch.Generator().manual_seed(0))).images
    stream = Stream(images.numpy(), patient.spacing_mm, count, rate_hz)
    scene = Scene(patient.volume, "phantom", Plan(method))
    scene.register(Frame(images[0], patient.spacing_mm, (0, 0)))  # warm up
    rows = []
    threads = torch.get_num_threads()
    for name, register, workers in (("none", stand_in, 1), (method, scene.register, 1), (method, scene.register, 2)):
        torch.set_num_threads(max(threads // workers, 1))
        measured = end_to_end(stream, scene, register, workers)
        rows += [row(what, "128x128", name, times, stream, workers) for what, times in measured.items()]
        print(*rows[-3:], sep="\n", flush=True)
    return rows


if __name__ == "__main__":
    main()
