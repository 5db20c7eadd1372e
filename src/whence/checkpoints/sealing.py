"""What of a thread is sealed, and how it stands in the tables of the framework.

Those tables want some of a checkpoint in clear, to join and to order by: the ids of threads, namespaces, checkpoints
and tasks, the names of channels, and which version of each a checkpoint has. Everything else is sealed: values of
channels wherever they stand, pending writes, metadata, and the rest of the checkpoint. Whether something is sealed is
told by what is stored, not by a setting, so that both may stand side by side.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from whence.crypto import SubjectKey

SEALED = "whence.sealed"
"""Where in a JSON object the sealed rest of it stands."""
RUN = "whence.run"
"""Where in sealed metadata a keyed hash of the run's id stands, by which a run is deleted."""

_MARK = "sealed:"
_CLEAR_OF_CHECKPOINT = ("v", "id", "channel_versions")
# That a graph has channels which are kept as differences, as the framework's pruning wants to know.
_FLAGS = ("counters_since_delta_snapshot", "delta_writes_versioned")

Json = dict[str, Any]


class UnknownKey(Exception):
    """Something is sealed under a key that was made elsewhere since keys were read, or that is gone."""


class Keys:
    """A user's keys for checkpoints, the newest of which seals."""

    def __init__(self, keys: Mapping[UUID, SubjectKey]) -> None:
        self._keys = {key_id.hex: keys[key_id] for key_id in sorted(keys)}
        self.newest = list(self._keys.values())[-1] if self._keys else None

    def __getitem__(self, name: str) -> SubjectKey:
        try:
            return self._keys[name]
        except KeyError:
            raise UnknownKey from None

    def marks(self, run_id: str) -> list[str]:
        """What a run may be known by, whichever key it was sealed under."""
        return [_run_mark(key, run_id) for key in self._keys.values()]


class Sealer:
    """Seals and opens what one thread holds. It is bound to the thread: moved to another, it does not open."""

    def __init__(self, keys: Keys, stored_as: str) -> None:
        self._keys = keys
        self._thread = stored_as.encode()

    def seal_value(self, kind: str, data: bytes) -> tuple[str, bytes]:
        """A value of a channel, or a write, as the framework serialised it."""
        key = self._newest
        return _MARK + key.key_id.hex, self._seal(key, b"value", kind.encode() + b"\0" + data)

    def open_value(self, kind: str, data: bytes) -> tuple[str, bytes]:
        if not kind.startswith(_MARK):
            return kind, data
        opened = self._open(self._keys[kind.removeprefix(_MARK)], b"value", bytes(data))
        inner, _, plain = opened.partition(b"\0")
        return inner.decode(), plain

    def seal_checkpoint(self, place: str, checkpoint: Json, apart: set[str] | frozenset[str]) -> Json:
        """`apart` are the channels whose values the framework stores by themselves; what it makes of them stays."""
        values: Json = checkpoint.get("channel_values") or {}
        clear = {name: checkpoint[name] for name in _CLEAR_OF_CHECKPOINT if name in checkpoint}
        rest = {name: value for name, value in checkpoint.items() if name not in clear}
        rest["channel_values"] = {name: value for name, value in values.items() if name not in apart}
        clear["channel_values"] = {name: value for name, value in values.items() if name in apart}
        return clear | {SEALED: self._seal_json(b"checkpoint " + place.encode(), rest)}

    def open_checkpoint(self, place: str, checkpoint: Json) -> Json:
        if SEALED not in checkpoint:
            return checkpoint
        clear = {name: value for name, value in checkpoint.items() if name != SEALED}
        rest = self._open_json(b"checkpoint " + place.encode(), checkpoint[SEALED])
        values = rest["channel_values"] | clear["channel_values"]
        return rest | clear | {"channel_values": values}

    def seal_metadata(self, place: str, metadata: Json) -> Json:
        """The ids of the checkpoints above it stay, because calls of subgraphs are pruned by them."""
        sealed: Json = {SEALED: self._seal_json(b"metadata " + place.encode(), metadata)}
        if "parents" in metadata:
            sealed["parents"] = metadata["parents"]
        if "run_id" in metadata:
            sealed[RUN] = _run_mark(self._newest, str(metadata["run_id"]))
        return sealed | {flag: True for flag in _FLAGS if flag in metadata}

    def open_metadata(self, place: str, metadata: Json) -> Json:
        if SEALED not in metadata:
            return metadata
        return self._open_json(b"metadata " + place.encode(), metadata[SEALED])

    @property
    def _newest(self) -> SubjectKey:
        assert self._keys.newest is not None, "whoever seals has made a key"
        return self._keys.newest

    def _seal_json(self, what: bytes, value: Json) -> str:
        key = self._newest
        sealed = self._seal(key, what, json.dumps(value).encode())
        return f"{key.key_id.hex}:{base64.b64encode(sealed).decode()}"

    def _open_json(self, what: bytes, sealed: str) -> Json:
        name, _, text = sealed.partition(":")
        return json.loads(self._open(self._keys[name], what, base64.b64decode(text)))

    def _seal(self, key: SubjectKey, what: bytes, plain: bytes) -> bytes:
        return key.seal(what + b" of " + self._thread, plain, b"").ciphertext

    def _open(self, key: SubjectKey, what: bytes, sealed: bytes) -> bytes:
        return key.open(what + b" of " + self._thread, sealed)


def place_of(checkpoint_ns: str, checkpoint_id: str) -> str:
    """What binds a sealed part of a checkpoint to it."""
    return f"{checkpoint_id} {checkpoint_ns}"


def contains(value: Any, wanted: Any) -> bool:
    """Whether a JSON value contains another, as Postgres means it by `@>`."""
    if isinstance(wanted, dict):
        pairs = cast("Json", wanted)
        return isinstance(value, dict) and all(name in value and contains(value[name], pairs[name]) for name in pairs)
    if isinstance(wanted, (list, tuple)):
        items, there = cast("list[Any]", wanted), cast("list[Any]", value)
        return isinstance(value, list) and all(any(contains(each, item) for each in there) for item in items)
    # In Python, True is 1; in JSON it is not.
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _run_mark(key: SubjectKey, run_id: str) -> str:
    return key.mark(f"run {run_id}")
