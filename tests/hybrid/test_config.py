"""The configuration of memory: what is taken, what is refused, and what is never said."""

import copy
import json
import logging
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from hybrid_agent import KEY, shown
from whence.errors import SetupError
from whence.hybrid import GatewayConfig, HybridMemory, MemoryConfig, Secret

MISPLACED = "uk_in-the-wrong-field"
CREDENTIALS = {"baseUrl": "http://127.0.0.1:8010", "userId": "ann", "userKey": KEY}
WHOLE = CREDENTIALS | {
    "appId": "crm",
    "projectId": "north",
    "scope": ["current_chat", "all_user_memory"],
    "topK": 3,
    "timeoutSeconds": 2.5,
}


def hybrid(**gateway: Any) -> dict[str, Any]:
    return {"memory": {"mode": "hybrid", "gateway": gateway}}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in CREDENTIALS.items() if key != name}


WRONG: dict[str, dict[str, Any]] = {
    "memory: must be an object": {"memory": KEY},
    "memory: knows only mode and gateway": {"memory": {"userKey": KEY}},
    "memory.mode: must be curated or hybrid": {"memory": {"mode": MISPLACED, "gateway": CREDENTIALS}},
    "memory.mode: must be curated": {"memory": {"mode": None, "gateway": CREDENTIALS}},
    "memory.gateway: must be an object": {"memory": {"mode": "hybrid", "gateway": KEY}},
    "memory.gateway: knows only baseUrl": hybrid(**CREDENTIALS, user_key=KEY),
    "memory.gateway.baseUrl: must be an address": hybrid(**CREDENTIALS | {"baseUrl": MISPLACED}),
    "memory.gateway.baseUrl: must be an": hybrid(**CREDENTIALS | {"baseUrl": "ftp://127.0.0.1"}),
    "memory.gateway.baseUrl: must": hybrid(**CREDENTIALS | {"baseUrl": 8010}),
    "memory.gateway.baseUrl: must be an addr": hybrid(**CREDENTIALS | {"baseUrl": "http://xn--"}),
    "memory.gateway.baseUrl: must be an ad": hybrid(**CREDENTIALS | {"baseUrl": "http://two words"}),
    "memory.gateway.baseUrl: must have a port from 1 to 65535": hybrid(**CREDENTIALS | {"baseUrl": "http://h:99999"}),
    "memory.gateway.baseUrl: holds the key": hybrid(**CREDENTIALS | {"baseUrl": f"http://h/{KEY}"}),
    "memory.gateway.appId: holds the key": hybrid(**CREDENTIALS, appId=KEY),
    "without a password": hybrid(**CREDENTIALS | {"baseUrl": f"http://ann:{MISPLACED}@127.0.0.1"}),
    "a query": hybrid(**CREDENTIALS | {"baseUrl": f"http://127.0.0.1?key={MISPLACED}"}),
    "memory.gateway.userId: must be a text": hybrid(**CREDENTIALS | {"userId": 7}),
    "memory.gateway.userKey: must be a text": hybrid(**CREDENTIALS | {"userKey": f"{KEY}\n" + f"{KEY}"}),
    "memory.gateway.appId: must": hybrid(**CREDENTIALS, appId=""),
    "memory.gateway.projectId: must": hybrid(**CREDENTIALS, projectId=None),
    "memory.gateway.scope: must be a list of one or more": hybrid(**CREDENTIALS, scope=[]),
    "memory.gateway.scope: must be a list": hybrid(**CREDENTIALS, scope="current_chat"),
    "memory.gateway.scope: must be": hybrid(**CREDENTIALS, scope=["current_chat", MISPLACED]),
    "memory.gateway.scope: must": hybrid(**CREDENTIALS, scope=[["resources"]]),
    "memory.gateway.topK: must be a whole number from 1 to 100": hybrid(**CREDENTIALS, topK=0),
    "memory.gateway.topK: must be a whole number": hybrid(**CREDENTIALS, topK=101),
    "memory.gateway.topK: must be a": hybrid(**CREDENTIALS, topK="8"),
    "memory.gateway.topK: must be": hybrid(**CREDENTIALS, topK=True),
    "memory.gateway.topK: must": hybrid(**CREDENTIALS, topK=8.5),
    "memory.gateway.timeoutSeconds: must be a number of seconds greater than 0": hybrid(
        **CREDENTIALS, timeoutSeconds=0
    ),
    "memory.gateway.timeoutSeconds: must be a number": hybrid(**CREDENTIALS, timeoutSeconds=-1),
    "memory.gateway.timeoutSeconds: must be a": hybrid(**CREDENTIALS, timeoutSeconds=float("nan")),
    "memory.gateway.timeoutSeconds: must be": hybrid(**CREDENTIALS, timeoutSeconds=10**400),
    "memory.gateway.timeoutSeconds: must": hybrid(**CREDENTIALS, timeoutSeconds="10"),
}


# As docs/reference/hybrid.md lists it


def test_no_section_is_implicit_hybrid() -> None:
    config = MemoryConfig.parse({"model": "any"})
    assert (config.mode, config.is_explicit, config.gateway) == ("hybrid", False, None)
    assert config == MemoryConfig.parse({}) == MemoryConfig()


@pytest.mark.parametrize("document", [{}, {"memory": {}}, {"memory": {"gateway": without("userKey")}}])
async def test_implicit_hybrid_without_credentials_has_curated_memory_and_one_warning(
    document: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with HybridMemory(MemoryConfig.parse(document), tmp_path) as memory:
        assert memory.gateway is None
        assert memory.tool.call({"action": "add", "target": "user", "text": "Likes tea"})["ok"]
        assert (await memory.before_run("s", "Hello")).snapshot.user.text == "- Likes tea\n"
    (warning,) = caplog.records
    assert (warning.name, warning.levelno) == ("whence.hybrid", logging.WARNING)
    assert "the memory gateway is off" in warning.getMessage()


@pytest.mark.parametrize("gateway", [None, {}, CREDENTIALS, {"topK": -1}, "nonsense"])
async def test_explicit_curated_neither_needs_nor_opens_a_gateway(
    gateway: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    section = {"mode": "curated"} | ({} if gateway is None else {"gateway": gateway})
    config = MemoryConfig.parse({"memory": section})
    assert (config.mode, config.is_explicit, config.gateway) == ("curated", True, None)
    async with HybridMemory(config, tmp_path) as memory:
        assert memory.gateway is None
    assert not caplog.records


async def test_explicit_hybrid_reads_camel_case_and_opens_both_layers(tmp_path: Path) -> None:
    config = MemoryConfig.parse(hybrid(**WHOLE))
    assert config.is_explicit
    assert config.gateway == GatewayConfig(
        base_url="http://127.0.0.1:8010",
        user_id="ann",
        user_key=Secret(KEY),
        app_id="crm",
        project_id="north",
        scope=("current_chat", "all_user_memory"),
        top_k=3,
        timeout_seconds=2.5,
    )
    async with HybridMemory(config, tmp_path) as memory:
        assert memory.gateway is not None
        assert memory.curated.snapshot().memory.text == ""


@pytest.mark.parametrize("name", CREDENTIALS)
@pytest.mark.parametrize("value", [None, "", "  ", "absent"])
def test_explicit_hybrid_without_credentials_is_refused(name: str, value: str | None) -> None:
    given = without(name) if value == "absent" else CREDENTIALS | {name: value}
    with pytest.raises(SetupError, match=rf"^memory\.gateway\.{name}: is needed"):
        MemoryConfig.parse(hybrid(**given))
    with pytest.raises(SetupError, match=r"^memory\.gateway\.baseUrl: is needed"):
        MemoryConfig.parse({"memory": {"mode": "hybrid"}})


@pytest.mark.parametrize("said", WRONG)
def test_what_is_invalid_is_refused_by_its_name(said: str) -> None:
    with pytest.raises(SetupError) as refused:
        MemoryConfig.parse(WRONG[said])
    assert said in str(refused.value)
    assert refused.value.errors[0].field.startswith("memory")


def test_no_warning_and_no_error_holds_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    missing = [hybrid(**without(name)) for name in CREDENTIALS if name != "userKey"]
    said: list[str] = []
    for document in (*WRONG.values(), *missing):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(document))
        for read in (lambda: MemoryConfig.parse(document), lambda: MemoryConfig.from_file(path)):  # noqa: B023
            with pytest.raises(SetupError) as refused:
                read()
            said.append(shown(refused.value))
            assert MISPLACED not in shown(refused.value), "nor in a variable of ours that a traceback shows"
    HybridMemory(MemoryConfig.parse({"memory": {"gateway": {"userKey": KEY}}}), tmp_path)
    assert caplog.records
    assert KEY not in "\n".join((*said, caplog.text, *capfd.readouterr()))


# More of the same


def test_defaults() -> None:
    gateway = MemoryConfig.parse(hybrid(**CREDENTIALS)).gateway
    assert gateway is not None
    assert (gateway.app_id, gateway.project_id, gateway.scope) == ("default", "default", ("current_chat", "resources"))
    assert (gateway.top_k, gateway.timeout_seconds) == (8, 10)


def test_implicit_hybrid_with_credentials_has_a_gateway() -> None:
    config = MemoryConfig.parse({"memory": {"gateway": CREDENTIALS}})
    assert not config.is_explicit
    assert config.gateway is not None


def test_what_is_wrong_is_refused_also_where_credentials_are_missing() -> None:
    with pytest.raises(SetupError, match="topK"):
        MemoryConfig.parse({"memory": {"gateway": {"topK": 0}}})


def test_a_scope_that_is_named_twice_counts_once() -> None:
    gateway = MemoryConfig.parse(hybrid(**CREDENTIALS, scope=["resources", "resources"])).gateway
    assert gateway is not None
    assert gateway.scope == ("resources",)


def test_a_file_is_read_and_one_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(SetupError, match="cannot be read: No such file"):
        MemoryConfig.from_file(path)
    path.write_text(json.dumps(hybrid(**CREDENTIALS)))
    assert MemoryConfig.from_file(path) == MemoryConfig.parse(hybrid(**CREDENTIALS))
    for none in (None, KEY, [KEY]):
        with pytest.raises(SetupError, match="must be an object") as refused:
            MemoryConfig.parse(none)  # pyright: ignore[reportArgumentType]
        assert KEY not in shown(refused.value)
    for text in (f'{{"memory": "{KEY}"', "[]", "", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(SetupError, match="is not a JSON object") as refused:
            MemoryConfig.from_file(path)
        assert KEY not in shown(refused.value)


def test_in_python_too_the_rules_hold() -> None:
    with pytest.raises(SetupError, match="are needed"):
        MemoryConfig(mode="hybrid", is_explicit=True)
    gateway = MemoryConfig.parse(hybrid(**CREDENTIALS)).gateway
    assert gateway is not None
    with pytest.raises(SetupError, match="topK"):
        replace(gateway, top_k=101)
    with pytest.raises(SetupError, match="must be a Secret") as refused:
        replace(gateway, user_key="uk_plain")  # pyright: ignore[reportArgumentType]
    assert "uk_plain" not in str(refused.value)
    assert MemoryConfig(mode="curated", is_explicit=True, gateway=gateway).gateway is None


def test_a_secret_is_shown_nowhere() -> None:
    secret = Secret(KEY)
    config = MemoryConfig.parse(hybrid(**CREDENTIALS))
    for said in (
        f"{secret} {secret!r} %s" % secret,
        repr(config),
        str(asdict(config)),
        str(vars(config)),
    ):
        assert KEY not in said
    for written in (secret, config, [config]):
        with pytest.raises(TypeError, match="not written down") as refused:
            pickle.dumps(written)
        assert KEY not in shown(refused.value)
    with pytest.raises(TypeError):
        secret.__getstate__()
    assert not hasattr(secret, "__dict__")
    assert copy.copy(secret) is copy.deepcopy(secret) is secret
    assert secret == Secret(KEY) != Secret("another")
    assert len({secret, Secret(KEY)}) == 1
    assert secret != Secret(KEY + "\ud800")
    assert secret != KEY
    assert secret.reveal() == KEY
