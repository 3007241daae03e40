"""Uploads: a volume from a page into a temporary file, with limits on its name and its size, and judged apart.

Until a child process has read it (`io.apart`), nothing of this process looks into it; and what is shown later are the
voxels that the child answered. So an upload can neither name other files nor harm the server.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.requests import ClientDisconnect, Request

from scopereg.errors import ScopeRegError
from scopereg.io.read_image import ending_of, endings


class UploadError(ScopeRegError):
    """An upload that is not taken, with the status of the answer."""

    def __init__(self, status: int, what: str, fix: str, *, hang_up: bool = False) -> None:
        super().__init__(what, where="upload", fix=fix)
        self.status = status
        self.hang_up = hang_up  # what is still to come has no end that we know of


@asynccontextmanager
async def receive_upload(request: Request, largest: int) -> AsyncIterator[tuple[Path, str]]:
    """The body of a request in a temporary file, which is gone afterwards, and the name that it shall have."""
    name = plain_name(request.query_params.get("name", ""))
    if largest <= 0:
        raise UploadError(403, "uploads are off", "start scopereg live with uploads=True")
    stated = request.headers.get("content-length", "")
    too_large = UploadError(
        413, f"it has more than {largest / 2**20:g} MB", "crop it, or raise max_upload_mb=", hang_up=not stated
    )
    if stated.isdecimal() and int(stated) > largest:
        raise too_large
    with tempfile.TemporaryDirectory(prefix="scopereg-") as folder:
        path = Path(folder) / f"upload{ending_of(name, written=True)}"
        size = 0
        try:
            with path.open("wb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > largest:
                        raise too_large
                    file.write(chunk)
        except ClientDisconnect:
            raise UploadError(400, "it ended before it was whole", "upload it again") from None
        except OSError as error:
            raise UploadError(507, f"it cannot be kept: {error.strerror or error}", "free some space") from None
        if size == 0:
            raise UploadError(400, "it is empty", "upload a volume")
        yield path, name


def plain_name(name: str) -> str:
    """The name of a volume, for people to read: no folder, no odd letters, a known ending."""
    last = re.split(r"[/\\\x00]", name)[-1].strip()
    plain = "".join(letter if letter.isprintable() else "_" for letter in last)[-100:]
    if not ending_of(plain, written=True):
        raise UploadError(
            415, f"{plain!r} is no volume by its name", f"upload a file ending in {', '.join(endings(written=True))}"
        )
    return plain
