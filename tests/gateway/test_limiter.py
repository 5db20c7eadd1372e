"""How many requests a user may make."""

from pathlib import Path

import pytest

from conftest import serving
from whence.errors import TooManyRequests
from whence.gateway import limiter as module
from whence.gateway.limiter import Limiter
from whence.identity import Principal

ANN, BOB = (Principal("w", name, is_admin=False) for name in ("ann", "bob"))


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(limiter: Limiter, who: Principal) -> bool:
    try:
        limiter.check(limiter.take(who))
    except TooManyRequests:
        return False
    return True


def test_a_user_may_make_as_many_as_a_minute_allows_and_more_when_time_has_passed() -> None:
    time = Time()
    limiter = Limiter(6, time)
    assert [taken(limiter, ANN) for _ in range(8)] == [*6 * [True], False, False]
    assert taken(limiter, BOB)
    time.now = 10.0
    assert [taken(limiter, ANN) for _ in range(2)] == [True, False]
    time.now = 1_000.0
    assert [taken(limiter, ANN) for _ in range(7)] == [*6 * [True], False]


def test_without_a_limit_nothing_is_counted() -> None:
    limiter = Limiter(None)
    assert all(limiter.take(ANN) is None for _ in range(1_000))


def test_headers_say_what_is_left() -> None:
    limiter = Limiter(60, Time())
    allowance = limiter.take(ANN)
    assert allowance is not None
    assert allowance.headers == [(b"ratelimit-policy", b'"user";q=60;w=60'), (b"ratelimit", b'"user";r=59;t=1')]


def test_who_came_last_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUCKETS", 2)
    limiter = Limiter(1, Time())
    users = [Principal("w", f"u{number}", is_admin=False) for number in range(3)]
    assert all(taken(limiter, user) for user in users)
    assert not taken(limiter, users[2])
    assert taken(limiter, users[0])


def test_a_server_with_a_limit_answers_429_by_header_and_by_body(tmp_path: Path) -> None:
    with serving(tmp_path / "data", tmp_path / "log", WHENCE_RATE_LIMIT="3") as server:
        with server.client(server.admin_key) as admin:
            key = admin.post("/users", json={"user_id": "ann"}).json()["user_key"]
        body = {"user_id": "ann", "user_key": key, "query": "tea", "scope": ["all_user_memory"]}
        with server.client(None) as nobody:
            answers = [nobody.post("/memories/search", json=body) for _ in range(4)]
            assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
            assert answers[0].headers["ratelimit"].startswith('"user";r=2;t=')
            assert answers[3].headers["ratelimit-policy"] == '"user";q=3;w=60'
            assert int(answers[3].headers["retry-after"]) >= 1
            assert answers[3].json()["code"] == "too_many_requests"
            for path in ("/health", "/metrics"):
                assert nobody.get(path).status_code == 200
        with server.client(key) as ann:
            assert ann.get("/v1/events").status_code == 429
