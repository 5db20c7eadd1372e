"""Keys and ciphers: payloads are encrypted per subject, subject keys are wrapped, events commit to their payloads."""

import asyncio
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.keywrap import (
    InvalidUnwrap,
    aes_key_unwrap_with_padding,
    aes_key_wrap_with_padding,
)

from whence.errors import SetupError

KEY_BYTES = 32
NONCE_BYTES = 12
SHREDDED_FILE = "shredded.keys"

_FINGERPRINT = re.compile(r"^[0-9a-f-]{36} ([0-9a-f]{64})$", re.MULTILINE)


class Wrapped(NamedTuple):
    """A wrapped key, and the name of the key-encryption key that wrapped it."""

    kek_id: str
    key: bytes


class Shredded(NamedTuple):
    """A key that must never open anything again: its id, for people, and the SHA-256 of its wrapped form."""

    key_id: UUID
    fingerprint: str


class KeyProvider(Protocol):
    """Keeps the key-encryption keys. A provider for a key management service implements the same four names."""

    @property
    def kek_id(self) -> str:
        """Names the key that wraps now, so that data wrapped under another is noticed. Not secret."""
        ...

    async def wrap(self, keys: list[bytes]) -> list[bytes]: ...

    async def unwrap(self, wrapped: list[Wrapped]) -> list[bytes | None]:
        """None for a key that was shredded, wherever its wrapped form was found again."""
        ...

    async def shred(self, keys: Sequence[Shredded]) -> None:
        """Returns when it is certain that these will not be unwrapped any more. The same key twice is no failure."""
        ...


class LocalKeyProvider:
    """The key-encryption key in a file that only its owner can read, and beside it a list of what was shredded.

    The list is not in the database, because a backup of the database is what it guards against: the wrapped keys in
    there come back with it, and this list does not.
    """

    def __init__(self, kek: bytes, shredded: Path | None = None) -> None:
        self._kek = kek
        self._shredded = shredded and _ShreddedKeys(shredded)
        self.kek_id = "local-" + hashlib.sha256(b"whence kek id" + kek).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"LocalKeyProvider({self.kek_id})"

    @classmethod
    def from_file(cls, path: Path) -> "LocalKeyProvider":
        """Reads the key, or makes it where there is none yet."""
        try:
            if not path.exists():
                _create_key_file(path)
            kek = bytes.fromhex(path.read_text("ascii").strip())
        except OSError as error:
            raise SetupError(f"the key file {path} cannot be used: {error.strerror}") from error
        except ValueError as error:
            raise SetupError(f"the key file {path} does not hold a key: restore it from a backup") from error
        if len(kek) != KEY_BYTES:
            raise SetupError(f"the key file {path} does not hold a key: restore it from a backup")
        return cls(kek, path.with_name(SHREDDED_FILE))

    async def wrap(self, keys: list[bytes]) -> list[bytes]:
        return [aes_key_wrap_with_padding(self._kek, key) for key in keys]

    async def unwrap(self, wrapped: list[Wrapped]) -> list[bytes | None]:
        shredded = self._shredded.known() if self._shredded else frozenset[str]()
        try:
            return [
                None
                if shredded and hashlib.sha256(key).hexdigest() in shredded
                else aes_key_unwrap_with_padding(self._kek, key)
                for _, key in wrapped
            ]
        except InvalidUnwrap as error:
            raise SetupError(f"a subject key was not wrapped by {self.kek_id}: is it the right key file?") from error

    async def shred(self, keys: Sequence[Shredded]) -> None:
        if self._shredded is None:
            raise SetupError("keys cannot be shredded: there is no file that would remember it")
        # Beside the event loop: the disk is waited for.
        await asyncio.to_thread(self._shredded.add, keys)


class _ShreddedKeys:
    """A file that only grows: a line with the id and the fingerprint of each key. Other processes may add to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = -1
        self._known: frozenset[str] = frozenset()

    def known(self) -> frozenset[str]:
        """The fingerprints. It is read again when it has grown; asking for its size costs a microsecond."""
        try:
            size = self._path.stat().st_size
            if size != self._size:
                self._known = frozenset(_FINGERPRINT.findall(self._path.read_text("ascii", "replace")))
                self._size = size
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise SetupError(f"{self._path} cannot be read: {error.strerror}") from error
        return self._known

    def add(self, keys: Sequence[Shredded]) -> None:
        fresh = [key for key in keys if key.fingerprint not in self.known()]
        if not fresh:
            return
        try:
            self._append("".join(f"{key.key_id} {key.fingerprint}\n" for key in fresh))
        except OSError as error:
            raise SetupError(f"{self._path} cannot be written: {error.strerror}") from error

    def _append(self, lines: str) -> None:
        """One write, after a line end of its own where a crash has cut off what came before."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            file.write((b"\n" if torn else b"") + lines.encode("ascii"))
            os.fsync(file.fileno())
        _sync_folder(self._path.parent)


def _create_key_file(path: Path) -> None:
    """Two processes may start at once: the first to link its file wins, and a file is never seen half written."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(KEY_BYTES).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            return
        _sync_folder(path.parent)
    finally:
        os.unlink(fresh)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return HKDFExpand(SHA256(), KEY_BYTES, purpose).derive(key)


class SealedPayload(NamedTuple):
    ciphertext: bytes
    commitment: bytes


class SubjectKey:
    """Seals one subject's payloads. Once the key is gone, neither payload nor commitment tells anything."""

    def __init__(self, key_id: UUID, key: bytes) -> None:
        self.key_id = key_id
        self._aead = AESGCM(_derived(key, b"whence payload encryption"))
        # To be copied: that takes half as long as to begin anew.
        self._salts = hmac.new(_derived(key, b"whence payload commitment"), digestmod="sha256")
        self._marks = _derived(key, b"whence names in payloads")

    def __repr__(self) -> str:
        return f"SubjectKey({self.key_id})"

    @staticmethod
    def generate() -> bytes:
        return os.urandom(KEY_BYTES)

    def seal(self, place: bytes, plaintext: bytes, canonical: bytes) -> SealedPayload:
        """`place` binds the ciphertext to its event, so that payloads cannot be swapped between events."""
        nonce = os.urandom(NONCE_BYTES)
        ciphertext = nonce + self._aead.encrypt(nonce, plaintext, place)
        return SealedPayload(ciphertext, commit(self.salt(place), canonical))

    def sealing(self, place: bytes, plaintext: bytes, canonical: bytes) -> "Sealing":
        """The same for later. Raises now where it could not be done then."""
        return Sealing(self, place, plaintext, canonical)

    def open(self, place: bytes, ciphertext: bytes) -> bytes:
        try:
            return self._aead.decrypt(ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:], place)
        except InvalidTag as error:
            raise SetupError("a stored payload does not decrypt: it was changed, or its key was") from error

    def mark(self, text: str) -> str:
        """The same for the same text, and without the key neither to be guessed nor to be compared with a guess."""
        return hmac.digest(self._marks, text.encode(), "sha256").hex()

    def salt(self, place: bytes) -> bytes:
        """Derived, not stored, so the same content of the same event commits to the same value."""
        made = self._salts.copy()
        made.update(place)
        return made.digest()


class Sealing:
    """A payload that is sealed once, when it is needed, and not held in clear any longer."""

    __slots__ = ("_done", "_given", "key", "size")

    def __init__(self, key: SubjectKey, place: bytes, plaintext: bytes, canonical: bytes) -> None:
        self.key = key
        self.size = len(plaintext)
        self._given = (place, plaintext, canonical)
        self._done: SealedPayload | None = None

    @property
    def is_done(self) -> bool:
        return self._done is not None

    def done(self) -> SealedPayload:
        if self._done is None:
            self._done = self.key.seal(*self._given)
            self._given = (b"", b"", b"")
        return self._done


class ShreddedKey(SubjectKey):
    """In the place of a key that was shredded and has come back, with a backup of the database, in its wrapped form."""

    def __init__(self, key_id: UUID) -> None:
        self.key_id = key_id

    def seal(self, place: bytes, plaintext: bytes, canonical: bytes) -> NoReturn:
        raise SetupError(_SHREDDED)

    def sealing(self, place: bytes, plaintext: bytes, canonical: bytes) -> NoReturn:
        raise SetupError(_SHREDDED)

    def open(self, place: bytes, ciphertext: bytes) -> NoReturn:
        raise SetupError(_SHREDDED)

    def mark(self, text: str) -> NoReturn:
        raise SetupError(_SHREDDED)

    def salt(self, place: bytes) -> NoReturn:
        raise SetupError(_SHREDDED)


_SHREDDED = "the subject was erased after this backup of the database was made: run `whence erase --restored`"


def commit(salt: bytes, canonical: bytes) -> bytes:
    """What an auditor recomputes, given one event's salt and payload."""
    return hmac.digest(salt, canonical, "sha256")
