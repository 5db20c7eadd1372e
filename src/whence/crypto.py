"""Keys and ciphers: payloads are encrypted per subject, subject keys are wrapped, events commit to their payloads."""

import hashlib
import hmac
import os
from pathlib import Path
from typing import NamedTuple, Protocol
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


class Wrapped(NamedTuple):
    """A wrapped key, and the name of the key-encryption key that wrapped it."""

    kek_id: str
    key: bytes


class KeyProvider(Protocol):
    """Keeps the key-encryption keys. A provider for a key management service implements the same three names."""

    @property
    def kek_id(self) -> str:
        """Names the key that wraps now, so that data wrapped under another is noticed. Not secret."""
        ...

    async def wrap(self, keys: list[bytes]) -> list[bytes]: ...

    async def unwrap(self, wrapped: list[Wrapped]) -> list[bytes]: ...


class LocalKeyProvider:
    """The key-encryption key in a file that only its owner can read."""

    def __init__(self, kek: bytes) -> None:
        self._kek = kek
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
        return cls(kek)

    async def wrap(self, keys: list[bytes]) -> list[bytes]:
        return [aes_key_wrap_with_padding(self._kek, key) for key in keys]

    async def unwrap(self, wrapped: list[Wrapped]) -> list[bytes]:
        try:
            return [aes_key_unwrap_with_padding(self._kek, key) for _, key in wrapped]
        except InvalidUnwrap as error:
            raise SetupError(f"a subject key was not wrapped by {self.kek_id}: is it the right key file?") from error


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
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    finally:
        os.unlink(fresh)


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
        self._salts = _derived(key, b"whence payload commitment")
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
        return hmac.digest(self._salts, place, "sha256")


def commit(salt: bytes, canonical: bytes) -> bytes:
    """What an auditor recomputes, given one event's salt and payload."""
    return hmac.digest(salt, canonical, "sha256")
