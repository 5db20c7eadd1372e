"""The section `memory` of an agent's configuration: read, checked, and never repeated where a key could be seen.

No message here quotes a value: what was put into the wrong field may be the key.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Self, cast, get_args

import httpx
import msgspec

from whence.errors import FieldError, SetupError

Mode = Literal["curated", "hybrid"]
Scope = Literal["current_chat", "resources", "all_user_memory"]

DEFAULT_PART: Final = "default"
DEFAULT_SCOPE: Final[tuple[Scope, ...]] = ("current_chat", "resources")
DEFAULT_TOP_K = 8
MAX_TOP_K = 100
DEFAULT_TIMEOUT_SECONDS = 10.0
MAX_TIMEOUT_SECONDS = 86_400.0
MIN_TELLING_CHARACTERS = 8
"""A key that is shorter is found in other texts by chance."""
MAX_PORT = 65_535

_REQUIRED: Final = ("baseUrl", "userId", "userKey")
_SECTION: Final = ("mode", "gateway")
_GATEWAY: Final = (*_REQUIRED, "appId", "projectId", "scope", "topK", "timeoutSeconds")


class Secret:
    """A text that is only told to who asks for it by `reveal()`: in no repr, no format, no copy and no pickle."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        return self.__value

    def __bool__(self) -> bool:
        return bool(self.__value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # Any text can be encoded in this way: the error of one that cannot would quote it.
        mine, others = (each.reveal().encode(errors="surrogatepass") for each in (self, other))
        return hmac.compare_digest(mine, others)

    def __hash__(self) -> int:
        return hash(self.__value)

    def __repr__(self) -> str:
        return "Secret(…)"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not written down: read the configuration again instead")

    def __reduce_ex__(self, _: object) -> NoReturn:
        self.__getstate__()


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    """Which memory gateway an agent has, and what of it. Raises SetupError that names the field as the file does."""

    base_url: str
    user_id: str
    user_key: Secret
    app_id: str = DEFAULT_PART
    project_id: str = DEFAULT_PART
    scope: tuple[Scope, ...] = DEFAULT_SCOPE
    top_k: int = DEFAULT_TOP_K
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        for name, value in (("userId", self.user_id), ("appId", self.app_id), ("projectId", self.project_id)):
            _check_text(name, value)
        # Anything but a Secret could be shown, so it is not taken.
        if not isinstance(cast("object", self.user_key), Secret):
            raise _wrong("gateway.userKey", "must be a Secret")
        _check_text("userKey", self.user_key.reveal())
        self._check_key_stays()
        _check_scope(self.scope)
        _check_top_k(self.top_k)
        _check_seconds(self.timeout_seconds)

    def _check_key_stays(self) -> None:
        """The other fields are shown in log lines, events and reprs."""
        for name, value in (
            ("baseUrl", self.base_url),
            ("userId", self.user_id),
            ("appId", self.app_id),
            ("projectId", self.project_id),
        ):
            if self.user_key.reveal() in value and len(self.user_key.reveal()) >= MIN_TELLING_CHARACTERS:
                raise _wrong(f"gateway.{name}", "holds the key, which has a field of its own")


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """The section `memory`: which layers an agent has, and whether somebody asked for the gateway.

    Curated memory is there in both modes. Where hybrid is only what nobody decided against, a gateway without
    credentials is left out; where it was asked for, they must be there.
    """

    mode: Mode = "hybrid"
    is_explicit: bool = False
    """Whether the mode was written down."""
    gateway: GatewayConfig | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise _wrong("mode", "must be curated or hybrid")
        if self.mode == "hybrid" and self.is_explicit and self.gateway is None:
            raise _wrong("gateway", f"{', '.join(_REQUIRED)} are needed where mode is hybrid")
        if self.mode == "curated":
            object.__setattr__(self, "gateway", None)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """From a whole configuration, of which only `memory` is read."""
        try:
            return cls._parsed(_hidden(document))
        except SetupError as error:
            # Without the frames below it: their variables hold what was refused, which may be the key.
            refused = error.with_traceback(None)
        document = {}
        raise refused

    @classmethod
    def _parsed(cls, document: Mapping[str, Any]) -> Self:
        if "memory" not in document:
            return cls()
        section = document["memory"]
        if section is None:
            raise _wrong("", "must be an object")
        if not set(section) <= set(_SECTION):
            raise _wrong("", "knows only mode and gateway")
        is_explicit = "mode" in section
        mode = section.get("mode", "hybrid")
        gateway = _gateway(section.get("gateway", {}), is_explicit) if mode == "hybrid" else None
        return cls(mode=mode, is_explicit=is_explicit, gateway=gateway)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """From a file of JSON."""
        return cls.parse(_document(Path(path)))


def _document(path: Path) -> dict[str, Any]:
    try:
        return _hidden(msgspec.json.decode(path.read_bytes(), type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        wrong = "is not a JSON object: see docs/reference/hybrid.md"
    except OSError as error:
        wrong = f"cannot be read: {error.strerror}"
    # Outside of the handlers, whose errors hold what was read.
    raise SetupError(f"{path} {wrong}")


def _hidden(document: Mapping[str, Any]) -> dict[str, Any]:
    """The section alone, in which the key is a Secret, and null whatever could be the key in a wrong place."""
    if not isinstance(cast("object", document), Mapping):
        raise SetupError("a configuration must be an object")
    if "memory" not in document:
        return {}
    section = _object(document["memory"], _SECTION)
    if section is not None and "gateway" in section:
        gateway = _object(section["gateway"], _GATEWAY)
        if gateway is not None and "userKey" in gateway:
            gateway["userKey"] = _secret(gateway["userKey"])
        section["gateway"] = gateway
    return {"memory": section}


def _object(value: object, known: Sequence[str]) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        return None
    return {name: each if name in known else None for name, each in cast("Mapping[str, Any]", value).items()}


def _secret(value: object) -> Secret:
    """What is no text at all is as good as missing."""
    return value if isinstance(value, Secret) else Secret(value.strip() if isinstance(value, str) else "")


def _gateway(given: Mapping[str, Any] | None, is_explicit: bool) -> GatewayConfig | None:
    """None where credentials are missing, and nobody asked for them. What is there must be right in any case."""
    if given is None:
        raise _wrong("gateway", "must be an object")
    if not set(given) <= set(_GATEWAY):
        raise _wrong("gateway", f"knows only {', '.join(_GATEWAY)}")
    missing = [name for name in _REQUIRED if _is_blank(given.get(name))]
    if missing and is_explicit:
        raise _wrong(f"gateway.{missing[0]}", "is needed where mode is hybrid; curated does without a gateway")
    scope = given.get("scope", DEFAULT_SCOPE)
    _check_scope(scope)
    # What is missing is stood in for, so that the rest is checked.
    config = GatewayConfig(
        base_url="http://missing" if "baseUrl" in missing else given["baseUrl"],
        user_id="missing" if "userId" in missing else given["userId"],
        user_key=Secret("missing") if "userKey" in missing else given["userKey"],
        app_id=given.get("appId", DEFAULT_PART),
        project_id=given.get("projectId", DEFAULT_PART),
        scope=tuple(dict.fromkeys(scope)),
        top_k=given.get("topK", DEFAULT_TOP_K),
        timeout_seconds=given.get("timeoutSeconds", DEFAULT_TIMEOUT_SECONDS),
    )
    return None if missing else config


def _is_blank(value: object) -> bool:
    return not value or (isinstance(value, str) and not value.strip())


def _check_url(url: object) -> None:
    try:
        address = httpx.URL(url) if isinstance(url, str) else httpx.URL()
        host = address.host  # which is decoded only now
    except (httpx.InvalidURL, UnicodeError):
        address, host = httpx.URL(), ""
    if address.scheme not in ("http", "https") or not host or "%20" in host:
        raise _wrong("gateway.baseUrl", "must be an address that begins with http:// or https://")
    if address.port is not None and not 0 < address.port <= MAX_PORT:
        raise _wrong("gateway.baseUrl", f"must have a port from 1 to {MAX_PORT}, or none")
    if address.userinfo or address.query or address.fragment:
        # It would be seen in log lines, and the key has a field of its own.
        raise _wrong("gateway.baseUrl", "must be an address without a password, a query and a fragment")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        value = None
        raise _wrong(f"gateway.{name}", "must be a text of printable characters, and not empty")


def _check_scope(scope: object) -> None:
    known = get_args(Scope)
    listed = cast("Sequence[object]", scope) if isinstance(scope, list | tuple) else ()
    if not listed or any(each not in known for each in listed):
        raise _wrong("gateway.scope", f"must be a list of one or more of {', '.join(known)}")


def _check_top_k(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_TOP_K:
        raise _wrong("gateway.topK", f"must be a whole number from 1 to {MAX_TOP_K}")


def _check_seconds(value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_TIMEOUT_SECONDS:
        raise _wrong("gateway.timeoutSeconds", "must be a number of seconds greater than 0, and at most a day")


def _wrong(field: str, message: str) -> SetupError:
    place = f"memory.{field}".rstrip(".")
    return SetupError(f"{place}: {message}", (FieldError(place, message),))
