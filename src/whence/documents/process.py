"""Reading a file in a process of its own, with bounded time, memory and output."""

import asyncio
import os
import signal
import sys
from typing import Final

import msgspec

from whence.documents import CPU_SECONDS, Document, File, Unreadable
from whence.documents.kinds import Kind

WALL_SECONDS = 240.0
"""More than the time that it may compute, because others may be computing too."""
MAX_OUTPUT_BYTES = 96 << 20
READERS_AT_ONCE = 2

_PIECE_BYTES = 1 << 18


class _Answer(msgspec.Struct):
    """Either what it says, or why nothing can be had from it."""

    reason: str | None = None
    content_type: str = ""


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode
_decode_document: Final = msgspec.json.Decoder(Document).decode


class Readers:
    """Those that run at once are bounded; others wait for their turn."""

    def __init__(self, at_once: int = READERS_AT_ONCE) -> None:
        self._turns = asyncio.Semaphore(at_once)

    async def read(self, file: File, kind: Kind) -> Document:
        """Raises Unreadable, with a reason for who sent the file."""
        async with self._turns:
            output, code = await _run(file, kind)
        if code != 0:
            raise Unreadable(_reason(code))
        # Beside the event loop: there may be many megabytes of it.
        return await asyncio.to_thread(_decoded, output)


async def _run(file: File, kind: Kind) -> tuple[bytes, int]:
    file.seek(0)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "whence.documents",
        kind,
        stdin=file,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        # Nothing of ours: settings may hold passwords.
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WALL_SECONDS):
            return await _output(process), await process.wait()
    except TimeoutError:
        raise Unreadable(f"takes more than {WALL_SECONDS:.0f} seconds to read") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _output(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    parts: list[bytes] = []
    size = 0
    while part := await process.stdout.read(_PIECE_BYTES):
        parts.append(part)
        size += len(part)
        if size > MAX_OUTPUT_BYTES:
            raise Unreadable(f"has more than {MAX_OUTPUT_BYTES >> 20} MiB of text")
    return b"".join(parts)


def _decoded(output: bytes) -> Document:
    answer = _decode_answer(output)
    if answer.reason is not None:
        raise Unreadable(answer.reason)
    return _decode_document(output)


def _reason(code: int) -> str:
    if code == -signal.SIGXCPU:
        return f"takes more than {CPU_SECONDS} seconds of computing to read"
    return "cannot be read: the process that read it ended without an answer; it may be damaged"
