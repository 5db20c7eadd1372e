"""Writes the client's synchronous twin from the asynchronous one. `make sync` runs this.

Names are replaced token by token, so what a text or a comment says of `await` stays; the client's own name changes
there too. ruff then lays it out, because lines have become shorter.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "whence" / "client"
SOURCE = CLIENT / "asynchronous.py"
TWIN = CLIENT / "synchronous.py"

DROPPED = frozenset({"async", "await"})
RENAMED = {
    "AsyncWhence": "Whence",
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "asyncio": "time",
    "aiter_bytes": "iter_bytes",
    "aclose": "close",
    "aread": "read",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
FIRST_LINE = (
    '"""`Whence`: every verb of the HTTP interface. Made by `make sync` from asynchronous.py; do not edit."""\n'
)


def twin_of(source: str) -> str:
    body = source[source.index("\n") + 1 :]
    lines = body.splitlines(keepends=True)
    # From the end, so that what is yet to be replaced stays where it is.
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(body).readline))):
        row, start, end = token.start[0] - 1, token.start[1], token.end[1]
        if token.type == tokenize.NAME and token.string in DROPPED:
            lines[row] = lines[row][:start] + lines[row][end:].removeprefix(" ")
        elif token.type == tokenize.NAME and token.string in RENAMED:
            lines[row] = lines[row][:start] + RENAMED[token.string] + lines[row][end:]
        elif token.type in (tokenize.STRING, tokenize.COMMENT) and token.start[0] == token.end[0]:
            lines[row] = lines[row][:start] + token.string.replace("AsyncWhence", "Whence") + lines[row][end:]
    return _laid_out(FIRST_LINE + "".join(lines))


def _laid_out(code: str) -> str:
    for command in (("check", "--quiet", "--select", "I", "--fix-only"), ("format", "--quiet")):
        arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TWIN), "-"]
        code = subprocess.run(arguments, input=code, text=True, capture_output=True, check=True).stdout
    return code


def leftovers(twin: str) -> list[str]:
    """What still sounds asynchronous, and would fail only when it is called."""
    return re.findall(r"\b(?:async|await|[Aa]sync[A-Z]\w*|asyncio|__a\w+__)\b", twin)


if __name__ == "__main__":
    TWIN.write_text(twin_of(SOURCE.read_text()))
