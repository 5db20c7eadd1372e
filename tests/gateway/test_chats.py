"""The memory gateway over HTTP, as an agent's program sees it."""

import asyncio
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from conftest import Server, Workspace, whence

MARCH = 1_772_000_000_000


def message(content: Any, at: int = 0, role: str = "user", sender: str = "ann") -> dict[str, Any]:
    return {"sender_id": sender, "role": role, "timestamp": MARCH + at, "content": content}


@dataclass(frozen=True)
class Gateway:
    """One user's calls, with the key in the body as an agent sends it."""

    http: httpx.Client
    user_id: str
    user_key: str

    def call(self, verb: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/memories/{verb}", json={"user_id": self.user_id, "user_key": self.user_key, **body})

    def done(self, verb: str, **body: Any) -> Any:
        answer = self.call(verb, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def add(self, *messages: dict[str, Any], session_id: str = "chat:1", **more: Any) -> Any:
        return self.done("add", session_id=session_id, messages=list(messages), **more)

    def search(self, query: str, **more: Any) -> list[Any]:
        return self.done("search", **{"query": query, "scope": ["all_user_memory"], "top_k": 10} | more)["results"]

    def texts(self, query: str, **more: Any) -> list[str]:
        return [result["text"] for result in self.search(query, **more)]


@pytest.fixture
def nobody(server: Server) -> Iterator[httpx.Client]:
    with server.client(None) as client:
        yield client


def made(admin: httpx.Client, nobody: httpx.Client, user_id: str) -> Gateway:
    answer = admin.post("/users", json={"user_id": user_id})
    assert answer.status_code == 201, answer.text
    return Gateway(nobody, user_id, answer.json()["user_key"])


@pytest.fixture
def ann(admin: httpx.Client, nobody: httpx.Client) -> Gateway:
    return made(admin, nobody, "ann")


@pytest.fixture
def bob(admin: httpx.Client, nobody: httpx.Client) -> Gateway:
    return made(admin, nobody, "bob")


# Users and keys


def test_a_user_is_made_once_and_shown_a_key_once(admin: httpx.Client, nobody: httpx.Client) -> None:
    first = admin.post("/users", json={"user_id": "zoe"})
    again = admin.post("/users", json={"user_id": "zoe"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["user_key"].startswith("uk_")
    assert again.json() == {"user_id": "zoe", "user_key": None, "created_at": first.json()["created_at"]}
    assert admin.post("/users", json={"user_id": ""}).json()["errors"][0]["field"] == "user_id"
    zoe = {"Authorization": f"Bearer {first.json()['user_key']}"}
    assert nobody.post("/users", json={"user_id": "eve"}, headers=zoe).status_code == 403
    assert nobody.post("/users", json={"user_id": "eve"}).status_code == 401


def test_a_key_comes_in_the_body_or_in_the_header_and_both_must_agree(
    ann: Gateway, bob: Gateway, admin: httpx.Client, workspace: Workspace
) -> None:
    body = {"session_id": "chat:1", "messages": [message("I keep bees on the roof")]}
    bearer = {"Authorization": f"Bearer {ann.user_key}"}
    asked = {"query": "bees", "scope": ["all_user_memory"]}

    def post(headers: dict[str, str] | None = None, **who: Any) -> int:
        return ann.http.post("/memories/add", json={**body, **who}, headers=headers).status_code

    assert post(user_id="ann", user_key=ann.user_key) == 200
    assert post(bearer) == post(bearer, user_id="ann") == post(bearer, user_id="ann", user_key=ann.user_key) == 200
    assert post() == post(user_id="ann") == 401
    assert post(user_key=ann.user_key) == 422
    assert post(bearer, user_id="bob") == 422
    assert post(bearer, user_id="bob", user_key=bob.user_key) == 401
    assert post(bearer, user_id="ann", user_key="uk_x.y.z") == 401
    assert admin.post("/memories/search", json=asked).json()["errors"][0]["field"] == "user_id"
    found = admin.post("/memories/search", json={**asked, "user_id": "ann"}).json()["results"]
    assert [result["text"] for result in found] == ["I keep bees on the roof"]


def test_a_wrong_key_and_an_unknown_user_are_told_alike(ann: Gateway, bob: Gateway) -> None:
    wrong_secret = ann.user_key[:-6] + "AAAAAA"
    wrong_id = ann.user_key.replace(ann.user_key.split(".")[-2], "0" * 12)
    answers = [
        ann.http.post("/memories/flush", json={"session_id": "chat:1", "user_id": user_id, "user_key": key})
        for user_id, key in (
            ("ann", wrong_secret),
            ("ann", wrong_id),
            ("nobody", wrong_secret),
            ("nobody", ann.user_key),
            ("ann", bob.user_key),
            ("ann", "nonsense"),
        )
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert ann.user_key not in answers[0].text


# Add and search


def test_what_was_added_is_found_at_once_with_who_said_it_and_where_it_comes_from(ann: Gateway) -> None:
    added = ann.add(
        message("I would like to learn to sail this summer"),
        message("There is a sailing school in Brest", 1_000, "assistant", "helper"),
    )
    assert (added["message_count"], added["status"], len(added["memory_ids"])) == (2, "stored", 2)
    assert added["position"] > 0
    assert [result["status"] for result in added["results"]] == ["stored", "stored"]
    found = {result["id"]: result for result in ann.search("school", conversation_id="1", scope=["current_chat"])}
    best = found[added["memory_ids"][1]]
    assert best["text"] == "There is a sailing school in Brest"
    assert (best["session_id"], best["source_scope"], best["resource_uri"]) == ("chat:1", "current_chat", None)
    assert (best["role"], best["sender_id"], best["trust"]) == ("assistant", "helper", "assistant")
    assert best["timestamp"] == MARCH + 1_000
    assert best["flags"] == []
    assert best["provenance"][0] | {"event_id": added["memory_ids"][1], "role": "told"} == best["provenance"][0]


def test_a_message_that_is_sent_again_is_stored_once(ann: Gateway) -> None:
    one, two = message("I have read Middlemarch twice"), message("It was worth it", 1)
    first = ann.add(one, two, one)
    assert [result["status"] for result in first["results"]] == ["stored", "stored", "repeated"]
    again = ann.add(two, one, message("And so did my brother", 2))
    assert [result["status"] for result in again["results"]] == ["repeated", "repeated", "stored"]
    whole = ann.add(one, two)
    assert (whole["status"], set(whole["memory_ids"])) == ("unchanged", set(first["memory_ids"]))
    assert whole["position"] == first["position"]
    elsewhere = ann.add(one, session_id="chat:2")
    assert elsewhere["results"][0]["status"] == "stored"
    for other in (message("I have read Middlemarch twice", 1), message("I have read Middlemarch twice", sender="eva")):
        assert ann.add(other)["status"] == "stored"
    texts = [
        result["text"]
        for result in ann.search("Middlemarch worth brother", scope=["current_chat"], conversation_id="1")
    ]
    assert sorted(texts) == ["And so did my brother", *3 * ["I have read Middlemarch twice"], "It was worth it"]


def test_content_may_be_parts_of_which_the_texts_count(ann: Gateway) -> None:
    parts = [
        {"type": "text", "text": "This is my kitchen"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "text", "text": "painted in yellow"},
    ]
    added = ann.add(message(parts), message([parts[1]], 1), message("  ", 2))
    stored, picture, blank = added["results"]
    assert stored["skipped_parts"] == ["image_url"]
    assert (picture["status"], picture["skipped_parts"], blank["status"]) == ("no_text", ["image_url"], "no_text")
    assert added["message_count"] == 3
    assert ann.texts("kitchen") == ["This is my kitchen\npainted in yellow"]


def test_a_long_message_is_kept_whole_in_pieces(ann: Gateway) -> None:
    words = " ".join(f"word{number}" for number in range(6_000))
    text = f"{words} the rare heron {words}"
    added = ann.add(message(text))
    assert len(added["memory_ids"]) == len(added["results"][0]["memory_ids"]) > 1
    assert len(ann.search("rare heron", top_k=1)) == 1
    found = {result["id"]: result["text"] for result in ann.search("word1 word5999", top_k=100)}
    assert "".join(found[memory_id] for memory_id in added["memory_ids"]) == text
    assert ann.add(message(text))["status"] == "unchanged"


def test_what_must_not_be_remembered_is_taken_out_and_told(ann: Gateway) -> None:
    added = ann.add(message("My card is 4111 1111 1111 1111, keep it"))
    assert added["results"][0]["sanitised"] == {"card": 1}
    [found] = ann.search("card")
    assert "4111" not in found["text"]
    assert found["flags"] == ["sanitised"]


def test_a_message_of_a_clock_that_is_ahead_is_found(ann: Gateway) -> None:
    far = 4_000_000_000_000
    ann.add({"sender_id": "ann", "role": "user", "timestamp": far, "content": "The harvest was late"})
    [found] = ann.search("harvest")
    assert found["timestamp"] < far
    again = {"sender_id": "ann", "role": "user", "timestamp": far, "content": "The harvest was late"}
    assert ann.add(again)["status"] == "unchanged"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [message(f"m{number}") for number in range(501)]}, "messages"),
        ({"messages": [message("fine"), message("x", role="system")]}, "messages[1].role"),
        ({"messages": [message("fine"), message("x" * 200_001)]}, "messages[1].content"),
        ({"messages": [message("fine"), message("a\x00b")]}, "messages[1].content"),
        ({"messages": [message("fine") | {"timestamp": 0}]}, "messages[0].timestamp"),
        ({"messages": [message("fine") | {"timestamp": 10**16}]}, "messages[0].timestamp"),
        ({"messages": [message("fine") | {"sender_id": " "}]}, "messages[0].sender_id"),
        ({"messages": [{"role": "user", "timestamp": 1, "content": "x"}]}, "messages[0].sender_id"),
        ({"session_id": "1"}, "session_id"),
        ({"session_id": "chat:"}, "session_id"),
        ({"session_id": "resource://ann/1"}, "session_id"),
        ({"app_id": "x" * 121}, "app_id"),
        ({"project_id": ""}, "project_id"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_what_cannot_be_added_is_refused_by_its_field_and_nothing_is_stored(
    ann: Gateway, change: dict[str, Any], field: str
) -> None:
    answer = ann.call("add", **{"session_id": "chat:1", "messages": [message("fine")]} | change)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert ann.search("fine") == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": []}, "scope"),
        ({"scope": ["everything"]}, "scope[0]"),
        ({"scope": ["current_chat"]}, "conversation_id"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 101}, "top_k"),
        ({"query": "x" * 200_001}, "query"),
        ({"conversation_id": "x" * 300}, "conversation_id"),
        ({"scope": ["current_chat"], "conversation_id": "x" * 252}, "conversation_id"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_its_field(ann: Gateway, change: dict[str, Any], field: str) -> None:
    answer = ann.call("search", **{"query": "tea", "scope": ["all_user_memory"], "top_k": 3} | change)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


def test_scopes_are_searched_together_and_each_result_says_of_which_it_is(ann: Gateway, admin: httpx.Client) -> None:
    ann.add(message("The green boat leaks"), session_id="chat:here")
    ann.add(message("The green boat was sold"), session_id="chat:there")
    chunk = {
        "agent": "gateway", "tier": "persistent", "kind": "episodic", "text": "Manual of the green boat",
        "role": "document", "session_id": "resource://ann/r1", "user_id": "ann",
    }  # fmt: skip
    assert admin.post("/v1/memories", json=chunk).status_code == 200

    def scopes(*names: str) -> dict[str, str]:
        found = ann.search("green boat", scope=list(names), conversation_id="here")
        assert len({result["id"] for result in found}) == len(found)
        return {result["text"]: result["source_scope"] for result in found}

    here = {"The green boat leaks": "current_chat"}
    manual = {"Manual of the green boat": "resources"}
    assert scopes("current_chat") == here
    assert scopes("resources") == manual
    assert scopes("current_chat", "resources") == here | manual
    everything = {"The green boat leaks", "The green boat was sold", "Manual of the green boat"}
    assert scopes("all_user_memory") == dict.fromkeys(everything, "all_user_memory")
    assert scopes("current_chat", "all_user_memory", "resources") == here | manual | {
        "The green boat was sold": "all_user_memory"
    }
    [result] = ann.search("green boat", scope=["resources"])
    assert (result["resource_uri"], result["trust"]) == ("resource://ann/r1", "document")


def test_a_chat_is_found_by_its_whole_name_only(ann: Gateway) -> None:
    for name in ("a", "a*", "ab"):
        ann.add(message(f"The lamp of {name}"), session_id=f"chat:{name}")
    for name in ("a", "a*", "ab"):
        assert ann.texts("lamp", scope=["current_chat"], conversation_id=name) == [f"The lamp of {name}"]
    assert ann.texts("lamp", scope=["current_chat", "resources"], conversation_id="*") == []


def test_partitions_and_users_never_meet(ann: Gateway, bob: Gateway) -> None:
    pairs = [("default", "default"), ("a", "b"), ("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("default", "b")]
    for number, (app_id, project_id) in enumerate(pairs):
        ann.add(message(f"The secret word is word{number}"), app_id=app_id, project_id=project_id)
    bob.add(message("The secret word is bobs", sender="bob"))
    for number, (app_id, project_id) in enumerate(pairs):
        for scope in (["all_user_memory"], ["current_chat", "resources"]):
            found = ann.texts(
                "secret word", app_id=app_id, project_id=project_id, scope=scope, conversation_id="1", top_k=100
            )
            assert found == [f"The secret word is word{number}"]
    assert bob.texts("secret word") == ["The secret word is bobs"]


# Put right, delete


def test_an_overridden_text_is_found_instead_and_the_old_one_stays_in_the_history(ann: Gateway) -> None:
    [memory_id] = ann.add(message("My bicycle is blue"))["memory_ids"]
    done = ann.done("override", id=memory_id, session_id="chat:1", text="My bicycle is red")
    assert (done["superseded"], done["session_id"]) == (memory_id, "chat:1")
    assert ann.texts("bicycle") == ["My bicycle is red"]
    assert ann.done("override", id=memory_id, session_id="chat:1", text="My bicycle is red")["id"] == done["id"]
    bearer = {"Authorization": f"Bearer {ann.user_key}"}
    assert ann.http.get(f"/v1/memories/{done['id']}", headers=bearer).json()["position"] == done["position"]
    last = ann.done("override", id=done["id"], session_id="chat:1", text="My bicycle is green")
    assert ann.texts("bicycle") == ["My bicycle is green"]
    for each in (memory_id, done["id"], last["id"]):
        history = ann.http.get(f"/v1/memories/{each}/history", headers=bearer).json()["memories"]
        assert [memory["text"][14:] for memory in history] == ["blue", "red", "green"]
    assert history[0]["superseded_by"] == done["id"]
    explained = ann.http.get(f"/v1/memories/{last['id']}/explain", headers=bearer).json()
    assert explained["superseded"] == [done["id"]]
    late = ann.call("override", id=memory_id, session_id="chat:1", text="My bicycle is grey")
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    found = ann.search("bicycle")[0]
    assert (found["id"], found["role"], found["sender_id"]) == (last["id"], "user", "ann")
    assert found["timestamp"] == MARCH


def test_a_deleted_memory_is_found_no_more_not_even_when_it_is_sent_again(ann: Gateway) -> None:
    told = message("I am afraid of the dark cellar")
    [memory_id] = ann.add(told)["memory_ids"]
    assert ann.texts("cellar")
    assert ann.done("delete", id=memory_id, session_id="chat:1")["id"] == memory_id
    assert ann.texts("cellar") == []
    assert ann.done("delete", id=memory_id, session_id="chat:1")["id"] == memory_id
    assert ann.add(told)["results"][0]["status"] == "repeated"
    assert ann.texts("cellar") == []
    assert ann.call("override", id=memory_id, session_id="chat:1", text="x").status_code == 404


def test_missing_and_foreign_memories_are_told_alike(ann: Gateway, bob: Gateway) -> None:
    [foreign] = bob.add(message("Bob has a boat", sender="bob"))["memory_ids"]
    [own] = ann.add(message("Ann has a canoe"), session_id="chat:other")["memory_ids"]
    [apart] = ann.add(message("Ann has a kayak"), project_id="apart")["memory_ids"]
    for verb, more in (("delete", {}), ("override", {"text": "x"})):
        answers = [
            ann.call(verb, id=memory_id, session_id="chat:1", **more)
            for memory_id in (str(uuid.uuid4()), foreign, own, apart)
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert len({answer.content for answer in answers}) == 1
        assert set(answers[0].headers) == set(answers[1].headers)
    assert bob.texts("boat") == ["Bob has a boat"]
    assert ann.call("delete", id="no-uuid", session_id="chat:1").json()["errors"][0]["field"] == "id"


def test_missing_and_foreign_take_the_same_time(ann: Gateway, bob: Gateway) -> None:
    """By the median of some pairs, which take turns: what one of them waits for is waited for by the other."""
    [foreign] = bob.add(message("Bob has a boat", sender="bob"))["memory_ids"]
    keyed = {"user_id": "ann", "user_key": ann.user_key, "session_id": "chat:1"}
    wrong = ann.user_key[:-6] + "AAAAAA"
    pairs = (
        ("delete", {**keyed, "id": foreign}, lambda: {**keyed, "id": str(uuid.uuid4())}),
        ("flush", {**keyed, "user_key": wrong}, lambda: {**keyed, "user_id": "nobody", "user_key": wrong}),
    )
    for verb, one, other in pairs:
        taken: tuple[list[float], list[float]] = ([], [])

        def differ(verb: str = verb, one: Any = one, other: Any = other, taken: Any = taken) -> bool:
            for number in range(40):
                body = other() if number % 2 else one
                started = time.perf_counter()
                ann.http.post(f"/memories/{verb}", json=body)
                taken[number % 2].append(time.perf_counter() - started)
            first, second = map(statistics.median, taken)
            return max(first, second) > 1.5 * min(first, second) + 0.002

        # A machine that is busy with something else gives them more time to become alike.
        assert not all(differ() for _ in range(8))


def test_an_erased_user_begins_anew(ann: Gateway, admin: httpx.Client, nobody: httpx.Client) -> None:
    told = message("I live in Lyon")
    [memory_id] = ann.add(told)["memory_ids"]
    ann.done("flush", session_id="chat:1")
    assert admin.post("/v1/erasures", json={"subject_id": "ann"}).status_code == 200
    assert ann.call("search", query="Lyon", scope=["all_user_memory"]).status_code == 401
    anew = made(admin, nobody, "ann")
    assert anew.search("Lyon") == []
    added = anew.add(told)
    assert added["status"] == "stored"
    assert added["memory_ids"] != [memory_id]
    assert anew.done("flush", session_id="chat:1")["status"] == "extracted"


# No loop


def test_a_recalled_text_that_comes_back_is_not_stored_again(ann: Gateway) -> None:
    told = "My grandmother taught me to bake rye bread"
    [memory_id] = ann.add(message(told))["memory_ids"]
    [found] = ann.search("What did my grandmother teach me?")
    for role in ("assistant", "user", "tool"):
        added = ann.add(message(f" {found['text'].upper()}\n", 5, role))
        assert (added["status"], added["position"]) == ("unchanged", None)
        [result] = added["results"]
        assert result == {"status": "echo", "memory_ids": [memory_id], "recalled": [memory_id]}
    assert ann.texts("rye bread") == [told]


def test_a_recalled_text_inside_a_message_is_left_out_of_what_is_stored(ann: Gateway) -> None:
    told = "My grandmother taught me to bake rye bread"
    [memory_id] = ann.add(message(told))["memory_ids"]
    ann.search("What did my grandmother teach me?")
    block = f"Reference:\n[1] (current_chat) {told}\n- memory: {told}.\n\nShall I order some flour for you?"
    quoted = f'You said: "{told}". I do not believe it.'
    grown = f"{told} and much else on her farm"
    added = ann.add(
        message(block, 1, "assistant", "helper"), message(quoted, 2, "assistant", "helper"), message(grown, 3)
    )
    assert [result["status"] for result in added["results"]] == 3 * ["stored"]
    assert [result.get("recalled", []) for result in added["results"]] == [[memory_id], [memory_id], []]
    texts = set(ann.texts("grandmother rye bread flour believe farm reference"))
    assert texts == {
        told,
        "Reference:\n\nShall I order some flour for you?",
        'You said: "[…]". I do not believe it.',
        grown,
    }


def test_what_is_said_again_by_chance_is_stored_again(ann: Gateway) -> None:
    ann.add(message("Thanks a lot!"), message("What is on my calendar today?", 1))
    ann.search("Thanks a lot!")
    assert ann.add(message("Thanks a lot!", 2))["status"] == "stored"
    assert "What is on my calendar today?" in ann.texts("What is on my calendar today?")
    assert ann.add(message("What is on my calendar today?", 3))["status"] == "stored"


def test_what_another_user_or_partition_was_given_does_not_count(ann: Gateway, bob: Gateway) -> None:
    told = "The lighthouse keeper has two cats"
    ann.add(message(told))
    ann.search("lighthouse")
    assert bob.add(message(told, sender="bob"))["status"] == "stored"
    assert ann.add(message(told, 1), app_id="other")["status"] == "stored"


# Flush


def test_a_flush_draws_facts_with_the_words_that_say_so(ann: Gateway) -> None:
    said = "Grüße! I live in Lyon and I love hiking in the Alps."
    [source, *_] = ann.add(message(said), message("I live in Paris", 1, "assistant", "helper"))["memory_ids"]
    done = ann.done("flush", session_id="chat:1")
    assert (done["status"], done["message_count"], done["extractor"], done["dropped"]) == ("extracted", 2, "rules", [])
    facts = {fact["text"]: fact for fact in done["facts"]}
    assert set(facts) == {"ann lives in Lyon", "ann loves hiking"}
    for fact in facts.values():
        first, last = fact["byte_range"]
        assert said.encode()[first:last].decode() == fact["quote"]
        assert fact["source_id"] == source
    [found] = [each for each in ann.search("Where does ann live?") if each["text"] == "ann lives in Lyon"]
    assert found["kind"] == "semantic"
    assert (found["role"], found["sender_id"], found["trust"]) == ("user", "ann", "user")
    [_, drawn] = found["provenance"]
    assert (drawn["event_id"], drawn["role"], drawn["quote"]) == (source, "memory", "I live in Lyon")
    assert drawn["byte_range"] == facts["ann lives in Lyon"]["byte_range"]
    bearer = {"Authorization": f"Bearer {ann.user_key}"}
    explained = ann.http.get(f"/v1/memories/{found['id']}/explain", headers=bearer).json()
    assert explained["sources"][0]["quote"] == "I live in Lyon"
    assert explained["memory"]["fact"] == {
        "subject": "ann", "predicate": "lives in", "object": "Lyon", "confidence": 0.8
    }  # fmt: skip


def test_a_flush_is_safe_to_repeat_and_reads_on_where_it_ended(ann: Gateway) -> None:
    assert ann.done("flush", session_id="chat:1")["status"] == "no_extraction"
    ann.add(message("I live in Lyon"))
    first = ann.done("flush", session_id="chat:1")
    assert (first["status"], first["message_count"]) == ("extracted", 1)
    again = ann.done("flush", session_id="chat:1")
    assert (again["status"], again["message_count"], again["position"]) == ("no_extraction", 0, None)
    ann.add(message("Good morning", 1))
    read = ann.done("flush", session_id="chat:1")
    assert (read["status"], read["message_count"], read["position"] > 0) == ("no_extraction", 1, True)
    ann.add(message("I moved to Berlin", 2))
    [fact] = ann.done("flush", session_id="chat:1")["facts"]
    assert fact["text"] == "ann lives in Berlin"
    facts = [result["text"] for result in ann.search("Where does ann live?") if result["kind"] == "semantic"]
    assert facts == ["ann lives in Berlin"]


def test_what_is_over_ends_only_what_held(ann: Gateway) -> None:
    ann.add(message("I live in Paris."), message("I no longer live in Lyon.", 1))
    assert [fact["text"] for fact in ann.done("flush", session_id="chat:1")["facts"]] == ["ann lives in Paris"]
    ann.add(message("I don't live in Paris any more.", 2))
    assert [fact["text"] for fact in ann.done("flush", session_id="chat:1")["facts"]] == [
        "ann no longer lives in Paris"
    ]
    facts = [result["text"] for result in ann.search("Where does ann live?") if result["kind"] == "semantic"]
    assert facts == ["ann no longer lives in Paris"]


def test_a_fact_goes_with_the_message_that_alone_says_so(ann: Gateway) -> None:
    one, two = (ann.add(message("I have a dog named Rex", at))["memory_ids"][0] for at in (0, 1))
    other = ann.add(message("I'm allergic to cats", 2))["memory_ids"][0]
    ann.done("flush", session_id="chat:1")

    def facts() -> set[str]:
        return {result["text"] for result in ann.search("dog Rex cats") if result["kind"] == "semantic"}

    assert facts() == {"ann has a dog named Rex", "ann is allergic to cats"}
    assert ann.done("delete", id=one, session_id="chat:1")["forgotten"] == []
    assert facts() == {"ann has a dog named Rex", "ann is allergic to cats"}
    assert len(ann.done("delete", id=two, session_id="chat:1")["forgotten"]) == 1
    assert facts() == {"ann is allergic to cats"}
    done = ann.done("override", id=other, session_id="chat:1", text="I'm allergic to peanuts")
    assert len(done["forgotten"]) == 1
    assert facts() == set()
    assert [fact["text"] for fact in ann.done("flush", session_id="chat:1")["facts"]] == ["ann is allergic to peanuts"]


def test_no_fact_comes_of_a_text_that_was_recalled(ann: Gateway, admin: httpx.Client) -> None:
    ann.add(message("I live in Lyon, near the old harbour"))
    ann.search("Where do I live?")
    ann.add(message("> I live in Lyon, near the old harbour\nIs that so?", 1, "assistant", "helper"))
    done = ann.done("flush", session_id="chat:1")
    assert [fact["quote"] for fact in done["facts"]] == ["I live in Lyon"]


# Many at once


def conversation(name: str, count: int) -> list[dict[str, Any]]:
    """Of the size of a real one: two people over weeks, each text with the name of its user in it."""
    topics = ("the garden", "a trip to Oslo", "her violin", "the broken oven", "a job interview", "their old dog")
    return [
        message(
            f"Turn {number} of {name}: we talked about {topics[number % 6]} and decided on plan {number * 7 % 101}",
            number * 60_000,
            ("user", "assistant")[number % 2],
            (name, "helper")[number % 2],
        )
        for number in range(count)
    ]


async def test_twenty_users_at_once_find_only_their_own(
    admin: httpx.Client, nobody: httpx.Client, server: Server
) -> None:
    users = [made(admin, nobody, f"user{number}") for number in range(20)]
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:

        async def post(user: Gateway, verb: str, **body: Any) -> Any:
            keyed = {"user_id": user.user_id, "user_key": user.user_key, **body}
            answer = await http.post(f"/memories/{verb}", json=keyed)
            assert answer.status_code == 200, answer.text
            return answer.json()

        async def add(user: Gateway) -> None:
            said = conversation(user.user_id, 420)
            added = await post(user, "add", session_id="chat:long", messages=said)
            assert len(set(added["memory_ids"])) == 420

        async def search(user: Gateway) -> None:
            found = await post(user, "search", query="violin plan", scope=["all_user_memory"], top_k=100)
            assert len(found["results"]) == 100
            assert all(f" of {user.user_id}: " in result["text"] for result in found["results"])

        await asyncio.gather(*map(add, users))
        await asyncio.gather(*map(search, users))


async def test_two_hundred_requests_in_flight_are_all_answered(ann: Gateway, server: Server) -> None:
    limits = httpx.Limits(max_connections=200)
    keyed = {"user_id": "ann", "user_key": ann.user_key}
    bodies = [
        ("add", {"session_id": f"chat:{number}", "messages": [message(f"I live in Town{number} by the sea")]})
        if number % 4 == 0
        else ("flush", {"session_id": f"chat:{number - 1}"})
        if number % 4 == 1
        else ("search", {"query": "by the sea", "scope": ["all_user_memory"], "top_k": 5})
        for number in range(200)
    ]
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
        answers = await asyncio.gather(
            *(http.post(f"/memories/{verb}", json={**keyed, **body}) for verb, body in bodies)
        )
    assert {answer.status_code for answer in answers} == {200}
    assert len(ann.search("Town", top_k=100)) >= 50


async def test_of_two_flushes_at_once_one_has_extracted(ann: Gateway, server: Server) -> None:
    ann.add(message("I live in Lyon"), message("I love jazz", 1))
    keyed = {"user_id": "ann", "user_key": ann.user_key, "session_id": "chat:1"}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        answers = await asyncio.gather(*(http.post("/memories/flush", json=keyed) for _ in range(6)))
    done = [answer.json() for answer in answers]
    assert sorted(each["status"] for each in done) == ["extracted", *5 * ["no_extraction"]]
    facts = [result["text"] for result in ann.search("Lyon jazz", top_k=100) if result["kind"] == "semantic"]
    assert sorted(facts) == ["ann lives in Lyon", "ann loves jazz"]


async def test_of_two_overrides_at_once_one_holds(ann: Gateway, server: Server) -> None:
    [memory_id] = ann.add(message("The code of the gate is old"))["memory_ids"]
    keyed = {"user_id": "ann", "user_key": ann.user_key, "id": memory_id, "session_id": "chat:1"}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        answers = await asyncio.gather(
            *(http.post("/memories/override", json={**keyed, "text": f"The code is {number}"}) for number in range(4))
        )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert len(ann.texts("code")) == 1


def test_a_rebuild_gives_the_same_memory(
    ann: Gateway, admin: httpx.Client, server: Server, workspace: Workspace
) -> None:
    ids = ann.add(message("I live in Lyon"), message("I love jazz", 1), message("I hate rain", 2))["memory_ids"]
    ann.done("flush", session_id="chat:1")
    ann.done("override", id=ids[0], session_id="chat:1", text="I live in Paris")
    ann.done("delete", id=ids[1], session_id="chat:1")
    where = ("--workspace", workspace.workspace_id, "--data-dir", server.data_dir)
    done = whence("rebuild", "--verify", *where)
    assert done.returncode == 0, done.stderr + done.stdout
