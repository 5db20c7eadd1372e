"""Named SQL: every static statement of a module stands in a `queries.sql` beside it.

A statement follows a line `-- name: …`. What several statements share follows `-- fragment: …` and is put in where a
statement, or a later fragment, says `{…}`.
"""

import re
from importlib import resources

_BLOCK = re.compile(rb"^-- (name|fragment): (\w+)\n", re.MULTILINE)


def load(package: str) -> dict[str, bytes]:
    """The statements of `package`, by name. Comments are kept out of what travels to the server."""
    text = (resources.files(package) / "queries.sql").read_bytes()
    parts = _BLOCK.split(text)[1:]
    blocks = list(zip(parts[::3], parts[1::3], map(_without_comments, parts[2::3]), strict=True))
    fragments: dict[bytes, bytes] = {}
    for kind, name, body in blocks:
        if kind == b"fragment":
            fragments[name] = _filled(body, fragments)
    return {name.decode(): _filled(body, fragments) for kind, name, body in blocks if kind == b"name"}


def _without_comments(body: bytes) -> bytes:
    lines = [line for line in body.splitlines() if not line.lstrip().startswith(b"--")]
    return b"\n".join(lines).strip().rstrip(b";")


def _filled(body: bytes, fragments: dict[bytes, bytes]) -> bytes:
    for name, fragment in fragments.items():
        body = body.replace(b"{" + name + b"}", fragment)
    return body
