"""The process that reads one file: bounded before it looks at a byte of it, and with nothing to lose."""

import os
import resource
import sys
from typing import TYPE_CHECKING, cast

import msgspec

from whence.documents import CPU_SECONDS, MEMORY_BYTES, Unreadable
from whence.documents.read import read

if TYPE_CHECKING:
    from whence.documents.kinds import Kind


def bound() -> None:
    """Where a system does not know one of these bounds, whoever started this still ends it in time."""
    for what, most, at_all in (
        (resource.RLIMIT_AS, MEMORY_BYTES, MEMORY_BYTES),
        # At the first it is told why it ends, so that the reason can be told.
        (resource.RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + 5),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
    ):
        try:
            resource.setrlimit(what, (most, at_all))
        except (ValueError, OSError):
            continue


def main() -> None:
    bound()
    answer: object
    try:
        with os.fdopen(0, "rb", closefd=False) as file:
            answer = read(file, cast("Kind", sys.argv[1]))
    except Unreadable as error:
        answer = {"reason": error.reason}
    except MemoryError:
        answer = {"reason": f"needs more than {MEMORY_BYTES >> 20} MiB of memory to be read"}
    except RecursionError:
        answer = {"reason": "is nested too deeply"}
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
