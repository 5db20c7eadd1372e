"""`WhenceStore`: the `BaseStore` of LangGraph over the memory of a Whence, served or embedded.

A batch is one request. What a value says is made into a text here, by LangGraph's own rules for fields, so that the
server knows nothing of them; amid which run it was put is told with it.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Self, cast
from uuid import UUID, uuid5

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)

from whence.client import AsyncWhence, Whence
from whence.errors import NotFound, SetupError
from whence.wire import (
    SPAN_NAMESPACE,
    DeleteItem,
    Explanation,
    GetItem,
    ItemOp,
    ItemOutcome,
    ItemsAnswer,
    ListNamespaces,
    NamespaceMatch,
    PutItem,
    SearchItems,
    StoredItem,
    Within,
)

SECONDS_A_MINUTE = 60.0

Namespace = tuple[str, ...]
SubjectOf = Callable[[Namespace], str | None]
"""Whose data an item is, by its namespace; None for the user's own."""


class WhenceStore(BaseStore):
    """Items as memories of one user: `graph = builder.compile(store=WhenceStore(Whence(key=…)))`.

    `index` are the fields that a question can find an item by, unless a put names others; all of the value where it is
    left out, nothing where it is False. `ttl` is LangGraph's own configuration, in minutes. `subject` says whose data
    the items of a namespace are, so that the erasure of that person removes them. An administrator names the `user`."""

    supports_ttl = True

    def __init__(
        self,
        client: Whence | AsyncWhence,
        *,
        agent: str = "store",
        user: str | None = None,
        index: Iterable[str] | Literal[False] | None = None,
        ttl: TTLConfig | None = None,
        subject: SubjectOf | None = None,
    ) -> None:
        self._client = client
        self._is_ours = False
        self._agent = agent
        self._user = user
        self._index = _fields("index", index)
        self.ttl_config = ttl
        self._subject = subject
        self._loop = _running_loop() if isinstance(client, AsyncWhence) else None

    @classmethod
    def embedded(cls, data_dir: str | PathLike[str] | None = None, *, user: str = "langgraph", **options: Any) -> Self:
        """On the data of a folder, without a server; `close` ends it. The items are those of `user`."""
        store = cls(Whence.embedded(data_dir, user=user), **options)
        store._is_ours = True
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Ends a Whence that this has opened; one that it was given is left to who opened it."""
        if self._is_ours and isinstance(self._client, Whence):
            self._client.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        listed = list(ops)
        asked, within = self._asked(listed), _within()
        if not asked:
            return []
        if isinstance(self._client, AsyncWhence):
            loop = self._other_loop()
            sent = asyncio.run_coroutine_threadsafe(self._send(self._client, asked, within), loop)
            return _results(listed, sent.result())
        return _results(listed, self._client.items(asked, agent=self._agent, user_id=self._user, within=within))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        listed = list(ops)
        asked, within = self._asked(listed), _within()
        if not asked:
            return []
        if isinstance(self._client, AsyncWhence):
            self._loop = self._loop or asyncio.get_running_loop()
            return _results(listed, await self._send(self._client, asked, within))
        answer = await asyncio.to_thread(
            self._client.items, asked, agent=self._agent, user_id=self._user, within=within
        )
        return _results(listed, answer)

    def explain(self, namespace: Namespace, key: str) -> Explanation:
        """Where an item came from, since when it is there, what it replaced, when it was recalled."""
        if isinstance(self._client, AsyncWhence):
            loop = self._other_loop()
            return asyncio.run_coroutine_threadsafe(self.aexplain(namespace, key), loop).result()
        answer = self._client.items([_peek(namespace, key)], agent=self._agent, user_id=self._user)
        return self._client.explain(_memory_of(answer))

    async def aexplain(self, namespace: Namespace, key: str) -> Explanation:
        """The same, awaited."""
        if not isinstance(self._client, AsyncWhence):
            return await asyncio.to_thread(self.explain, namespace, key)
        return await self._client.explain(_memory_of(await self._send(self._client, [_peek(namespace, key)], None)))

    async def _send(self, client: AsyncWhence, ops: list[ItemOp], within: Within | None) -> ItemsAnswer:
        return await client.items(ops, agent=self._agent, user_id=self._user, within=within)

    def _other_loop(self) -> asyncio.AbstractEventLoop:
        """The one that the client works on, for who calls from another thread, such as a node that is not async."""
        if self._loop is None or not self._loop.is_running():
            raise SetupError("an AsyncWhence needs its event loop: give the store a Whence to call it without one")
        if _running_loop() is self._loop:
            raise SetupError("this would block the event loop: await the store's async methods, such as aput")
        return self._loop

    def _asked(self, ops: list[Op]) -> list[ItemOp]:
        return [self._op(op) for op in ops]

    def _op(self, op: Op) -> ItemOp:
        _check_labels(op)
        match op:
            case GetOp():
                return GetItem(namespace=op.namespace, key=op.key, refresh=op.refresh_ttl)
            case SearchOp():
                return SearchItems(
                    namespace=op.namespace_prefix,
                    query=op.query or "",
                    filter=op.filter or {},
                    limit=op.limit,
                    offset=op.offset,
                    refresh=op.refresh_ttl,
                )
            case PutOp():
                return self._put(op)
            case ListNamespacesOp():
                conditions = [
                    NamespaceMatch(each.match_type, each.path) for each in op.match_conditions or () if each.path
                ]
                return ListNamespaces(
                    conditions=tuple(conditions), max_depth=op.max_depth, limit=op.limit, offset=op.offset
                )
            case _:
                raise ValueError(f"this is no operation of a store: {type(op).__name__}")

    def _put(self, op: PutOp) -> PutItem | DeleteItem:
        if not op.namespace:
            raise InvalidNamespaceError("Namespace cannot be empty.")
        if op.value is None:
            return DeleteItem(namespace=op.namespace, key=op.key)
        value = dict(op.value)
        # Strict, unlike the client's encoder, which writes a time or a set as what comes back as something else.
        written = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        _check_names(value)
        fields = self._index if op.index is None else _fields("index", op.index)
        return PutItem(
            namespace=op.namespace,
            key=op.key,
            value=msgspec.Raw(written),
            text=_text(value, fields),
            ttl_s=None if op.ttl is None else op.ttl * SECONDS_A_MINUTE,
            subject_id=self._subject(op.namespace) if self._subject is not None else None,
        )


def _check_names(value: Any) -> None:
    """JSON has names that are text, and writing others as text would put something else in their place."""
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        for name, within in fields.items():
            if not isinstance(name, str):
                raise TypeError(f"names in a value are text, not {type(name).__name__}")
            _check_names(within)
    elif isinstance(value, (list, tuple)):
        for within in cast("Sequence[object]", value):
            _check_names(within)


def _check_labels(op: Op) -> None:
    """As the methods of a store do; what comes in a batch has not been through them."""
    match op:
        case GetOp() | PutOp():
            paths = [op.namespace]
        case SearchOp():
            paths = [op.namespace_prefix]
        case ListNamespacesOp():
            paths = [condition.path for condition in op.match_conditions or ()]
        case _:
            paths = []
    for label in (label for path in paths for label in cast("tuple[object, ...]", path)):
        if not isinstance(label, str) or not label or "." in label or "\x00" in label:
            raise InvalidNamespaceError(f"a label is text that is not empty and has no full stop, unlike {label!r}")


def _fields(name: str, index: Iterable[str] | Literal[False] | None) -> tuple[str, ...]:
    """As paths. What LangGraph takes beside them, such as an embedder, is Whence's own to choose."""
    if index is False:
        return ()
    if index is None:
        return ("$",)
    if isinstance(index, Mapping | str):
        raise SetupError(f"{name}: a list of fields; the embedder is a setting of Whence")
    return tuple(index)


def _text(value: dict[str, Any], fields: tuple[str, ...]) -> str:
    """What the fields of a value say, as lines; the whole of it with the names that things have in it."""
    said: list[str] = []
    for field in fields:
        said += _lines(value) if field == "$" else get_text_at_path(value, tokenize_path(field))
    return "\n".join(dict.fromkeys(said))


def _lines(value: object, name: str = "") -> list[str]:
    if isinstance(value, dict):
        inner = cast("dict[object, object]", value)
        return [line for key, part in inner.items() for line in _lines(part, f"{name} {key}".strip())]
    if isinstance(value, list | tuple):
        return [line for part in cast("Iterable[object]", value) for line in _lines(part, name)]
    return [] if value is None or value == "" else [f"{name}: {value}" if name else str(value)]


def _peek(namespace: Namespace, key: str) -> GetItem:
    return GetItem(namespace=namespace, key=key, refresh=False)


def _memory_of(answer: ItemsAnswer) -> UUID:
    item = answer.results[0].item
    if item is None:
        raise NotFound("there is no such item")
    return item.memory_id


def _results(ops: list[Op], answer: ItemsAnswer) -> list[Result]:
    return [_result(op, outcome) for op, outcome in zip(ops, answer.results, strict=True)]


def _result(op: Op, outcome: ItemOutcome) -> Result:
    match op:
        case GetOp():
            return None if outcome.item is None else _item(outcome.item)
        case SearchOp():
            return [_found(item) for item in outcome.items]
        case ListNamespacesOp():
            return outcome.namespaces
        case _:
            return None


def _item(item: StoredItem) -> Item:
    return Item(
        value=json.loads(bytes(item.value)),
        key=item.key,
        namespace=item.namespace,
        created_at=item.created_at,
        updated_at=item.updated_at,
    )


def _found(item: StoredItem) -> SearchItem:
    value = json.loads(bytes(item.value))
    return SearchItem(item.namespace, item.key, value, item.created_at, item.updated_at, item.score)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# --- amid which run ---------------------------------------------------------------------------------------------------


def _within() -> Within | None:
    """The thread of the graph that calls, and the span that is open, so that what is stored is found from its trace."""
    thread, span = _thread(), _span()
    if thread is None and span is None:
        return None
    if span is None:
        return Within(session_id=thread)
    return Within(session_id=thread, trace_id=span[0], parent_event_id=uuid5(SPAN_NAMESPACE, ":".join(span)))


def _thread() -> str | None:
    from langchain_core.runnables.config import var_child_runnable_config  # noqa: PLC0415

    config = var_child_runnable_config.get()
    thread = (config or {}).get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)


def _span() -> tuple[str, str] | None:
    """Of OpenTelemetry, where the program uses it; OpenInference keeps those of LangChain to itself, and tells them."""
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None:
        return None
    instrumented = sys.modules.get("openinference.instrumentation.langchain")
    span = instrumented.get_current_span() if instrumented is not None else None
    context = (span or tracing.get_current_span()).get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None
