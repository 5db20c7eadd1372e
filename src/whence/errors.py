"""Every error that Whence raises on purpose.

    WhenceError
    ├── InvalidInput            the caller sent something wrong; names the fields
    │   ├── MalformedBody       the bytes are not what the content type says
    │   ├── RepeatsCanon        memory that repeats a rule of its world; names the rule
    │   ├── TooLarge            a stated limit was passed
    │   └── UnsupportedMedia    a content type that is not spoken here
    ├── Unauthenticated         no key, or a key that is not valid
    ├── Forbidden               the key is valid, and not for this
    ├── NotFound                missing, or somebody else's: the caller cannot tell which
    ├── Conflict                the same id was stored earlier with other content
    ├── TooManyRequests         the user has made as many requests as a minute allows
    ├── NotSealed               the event is stored, and no seal covers it yet
    ├── Damaged                 the ledger is not what its seals say it is
    ├── Unavailable             try again later
    │   └── Overloaded          the queue of writes is full
    └── SetupError              the installation is not usable as it is; says what to do
        └── DatabaseError       the database cannot be started, reached or used

`code` is stable and documented in docs/reference/errors.md.
"""

from typing import ClassVar, Final

import msgspec


class FieldError(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong, and where."""

    field: str
    message: str
    code: str | None = None
    """Of the error that it would be by itself, where that has one of its own: an item of a batch is told by this."""


class WhenceError(Exception):
    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors


class InvalidInput(WhenceError):
    code = "invalid_input"
    status = 422
    title = "Invalid input"


class MalformedBody(InvalidInput):
    code = "malformed_body"
    status = 400
    title = "Malformed body"


class RepeatsCanon(InvalidInput):
    """What the database refuses with SQLSTATE 23514, and the constraint `memories_canon`."""

    code = "repeats_canon"
    title = "Repeats the canon"


class TooLarge(InvalidInput):
    code = "too_large"
    status = 413
    title = "Too large"


class UnsupportedMedia(InvalidInput):
    code = "unsupported_media_type"
    status = 415
    title = "Unsupported media type"


class Unauthenticated(WhenceError):
    code = "unauthenticated"
    status = 401
    title = "Not authenticated"


class Forbidden(WhenceError):
    code = "forbidden"
    status = 403
    title = "Forbidden"


class NotFound(WhenceError):
    code = "not_found"
    status = 404
    title = "Not found"


class Conflict(WhenceError):
    code = "conflict"
    status = 409
    title = "Conflict"


class TooManyRequests(WhenceError):
    code = "too_many_requests"
    status = 429
    title = "Too many requests"

    retry_after: int = 1
    """Seconds after which there is room again."""


class NotSealed(WhenceError):
    code = "not_sealed"
    status = 409
    title = "Not sealed yet"


class Damaged(WhenceError):
    code = "damaged"
    title = "Ledger damaged"


class Unavailable(WhenceError):
    code = "unavailable"
    status = 503
    title = "Unavailable"


class Overloaded(Unavailable):
    code = "overloaded"
    title = "Overloaded"


class SetupError(WhenceError):
    code = "setup"
    title = "Set-up error"


class DatabaseError(SetupError):
    code = "database"
    title = "Database error"


_KINDS: Final[dict[str, type[WhenceError]]] = {kind.code: kind for kind in (RepeatsCanon, Unavailable)}


def refusal_of(errors: tuple[FieldError, ...]) -> WhenceError:
    """What one item was refused for, as what is raised where it was alone."""
    first = errors[0]
    kind = _KINDS.get(first.code or "", InvalidInput)
    return kind(f"{first.field}: {first.message}", errors)
