"""Resources over HTTP, as another program sees them."""

import asyncio
import socket
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

import made_documents as made
from conftest import Server, Workspace
from whence.app import App
from whence.errors import MalformedBody
from whence.gateway.forms import Form, read_form
from whence.resources import MAX_RECEIVED_AT_ONCE
from whence.resources.spool import Spool


@pytest.fixture
async def keys(app: App, workspace: Workspace) -> dict[str, str]:
    return {name: await app.identity.add_user(workspace.workspace_id, name) for name in ("ann", "bob")}


@pytest.fixture
def ann(server: Server, keys: dict[str, str]) -> Iterator[httpx.Client]:
    with server.client(keys["ann"]) as client:
        yield client


@pytest.fixture
def bob(server: Server, keys: dict[str, str]) -> Iterator[httpx.Client]:
    with server.client(keys["bob"]) as client:
        yield client


def add(client: httpx.Client, content: bytes, name: str = "a.txt", **fields: str) -> httpx.Response:
    return client.post("/resources", files={"file": (name, content)}, data=fields, timeout=60)


def ready(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """What became of it, when it is read."""
    assert answer.status_code in (200, 201), answer.text
    found = answer.json()
    until = time.monotonic() + 60
    while found["status"] == "processing" and time.monotonic() < until:
        time.sleep(0.1)
        found = client.get(f"/resources/{found['resource_id']}").json()
    return found


def hits(client: httpx.Client, query: str, **more: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/recall", json={"query": query, "agent": "gateway", **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["hits"]


WHERE = {
    "a.pdf": {"page": 2},
    "a.docx": {"heading": ["Care", "Water"]},
    "a.pptx": {"slide": 2, "heading": ["Findings"]},
    "a.xlsx": {"sheet": "Stock", "row": 1, "last_row": 3},
    "a.html": {"heading": ["Care", "Water"]},
    "a.md": {"heading": ["Care", "Water"]},
    "a.csv": {"row": 1, "last_row": 3},
    "a.json": {"heading": ["water"]},
    "a.txt": {},
}


@pytest.mark.parametrize("name", WHERE)
def test_each_format_is_found_by_what_it_says_with_where_it_stands(ann: httpx.Client, name: str) -> None:
    mark = "Zq" + "".join(chr(ord("a") + int(digit, 16)) for digit in uuid.uuid4().hex[:10])
    answer = add(ann, made.every_format(mark)[name], name)
    assert answer.status_code == 201
    stored = answer.json()
    assert stored["status"] == "ready", stored
    assert stored["uri"] == stored["session_id"] == f"resource://ann/{stored['resource_id']}"
    assert stored["name"] == name
    assert stored["chunks"] >= 1
    best = next(hit for hit in hits(ann, f"Where is {mark}?") if mark in hit["text"])
    assert best["trust"] == best["role"] == "document"
    assert best["speaker"] == name
    assert best["session_id"] == stored["uri"]
    start, end = best["location"].pop("start"), best["location"].pop("end")
    assert end - start == len(best["text"].encode())
    assert best["location"] == WHERE[name]
    assert {"role": "event", "event_id": stored["resource_id"]}.items() <= best["provenance"][1].items()
    explained = ann.get(f"/v1/memories/{best['memory_id']}/explain").json()
    assert explained["memory"]["location"].items() >= WHERE[name].items()
    assert explained["sources"][0]["event"]["event_type"] == "resource.added"


def test_the_same_bytes_are_one_resource_of_a_user_and_of_each_partition(ann: httpx.Client, bob: httpx.Client) -> None:
    content = f"The rose of {uuid.uuid4()}".encode()
    first, again = add(ann, content), add(ann, content, "other.txt")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    others = [add(bob, content), add(ann, content, app_id="shop"), add(ann, content, app_id="shop", project_id="eu")]
    assert [answer.status_code for answer in others] == [201, 201, 201]
    assert len({answer.json()["resource_id"] for answer in (first, *others)}) == 4
    [listed] = ann.get("/resources").json()["resources"]
    assert listed == first.json()
    [in_shop] = ann.get("/resources", params={"app_id": "shop"}).json()["resources"]
    assert in_shop == others[1].json()
    found = ann.post("/v1/recall", json={"query": "rose", "agent": "gateway/shop/eu"}).json()["hits"]
    assert [hit["session_id"] for hit in found] == [others[2].json()["uri"]]


def test_uploads_that_race_make_one_resource(ann: httpx.Client, server: Server, keys: dict[str, str]) -> None:
    content = f"The rose of {uuid.uuid4()}".encode() * 2_000
    answers: list[httpx.Response] = []

    def send() -> None:
        with server.client(keys["ann"]) as client:
            answers.append(add(client, content))

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert len({answer.json()["resource_id"] for answer in answers}) == 1
    done = ready(ann, answers[0])
    assert len(ann.get("/v1/memories", params={"session_id": done["uri"]}).json()["memories"]) == done["chunks"]


def test_what_is_deleted_is_not_found_any_more_and_can_be_added_again(ann: httpx.Client) -> None:
    mark = f"Zq{uuid.uuid4().hex}"
    content = f"The {mark} blooms.".encode()
    stored = add(ann, content).json()
    assert [hit["session_id"] for hit in hits(ann, mark)] == [stored["uri"]]
    path = f"/resources/{stored['resource_id']}"
    assert ann.delete(path).json()["status"] == "deleted"
    assert hits(ann, mark) == []
    assert ann.get(path).status_code == 404
    assert ann.get("/resources").json() == {"resources": [], "next": None}
    assert ann.delete(path).json()["status"] == "deleted"
    again = add(ann, content)
    assert again.status_code == 201
    assert [hit["session_id"] for hit in hits(ann, mark)] == [again.json()["uri"]]
    told = ann.get("/v1/events", params={"session_id": stored["uri"], "event_type": "resource.deleted"}).json()[
        "events"
    ]
    assert len(told) == 1
    said = ann.get(f"/v1/events/{told[0]['event_id']}/payload").json()["memory"]
    assert said["deleted_by"] == "ann"


def test_a_missing_one_and_somebody_elses_look_the_same(ann: httpx.Client, bob: httpx.Client) -> None:
    stored = add(ann, f"The rose of {uuid.uuid4()}".encode()).json()
    for method in ("GET", "DELETE"):
        foreign = bob.request(method, f"/resources/{stored['resource_id']}")
        missing = bob.request(method, f"/resources/{uuid.uuid4()}")
        assert foreign.status_code == missing.status_code == 404
        assert foreign.json() == missing.json()
    assert ann.get(f"/resources/{stored['resource_id']}").json()["status"] == "ready"
    assert hits(bob, "rose") == []


def test_the_list_is_paged_newest_first(ann: httpx.Client) -> None:
    names = [f"{number}.txt" for number in range(5)]
    for name in names:
        add(ann, f"The rose of {name} {uuid.uuid4()}".encode(), name)
    seen: list[str] = []
    before = None
    while True:
        page = ann.get("/resources", params={"limit": 2} | ({"before": before} if before else {})).json()
        seen += [item["name"] for item in page["resources"]]
        before = page["next"]
        if before is None:
            break
    assert seen == names[::-1]


def test_a_key_in_the_form_does_and_one_of_somebody_else_does_not(
    server: Server, workspace: Workspace, keys: dict[str, str]
) -> None:
    with server.client(None) as nobody:
        content = f"The rose of {uuid.uuid4()}".encode()
        added = add(nobody, content, user_id="ann", user_key=keys["ann"], app_id="shop")
        assert added.status_code == 201
        assert added.json()["user_id"] == "ann"
        refused = {
            "no key": add(nobody, content),
            "another's": add(nobody, content, user_id="ann", user_key=keys["bob"]),
            "wrong": add(nobody, content, user_id="ann", user_key=keys["ann"][:-1] + "!"),
        }
        assert {name: answer.status_code for name, answer in refused.items()} == dict.fromkeys(refused, 401)
        assert add(nobody, content, user_key=keys["ann"]).json()["errors"][0]["field"] == "user_id"
        assert not any(keys["bob"] in answer.text for answer in refused.values())
        for_bob = add(nobody, content, user_id="bob", user_key=workspace.admin_key)
        assert (for_bob.json()["user_id"], for_bob.json()["added_by"]) == ("bob", "admin")
        for path in ("/resources", f"/resources/{added.json()['resource_id']}"):
            assert nobody.get(path).status_code == 401
    with server.client(keys["bob"]) as bob:
        mixed = add(bob, content, user_id="ann")
        assert (mixed.status_code, mixed.json()["errors"][0]["field"]) == (422, "user_id")
        [hit] = hits(bob, "rose")
        assert hit["said_by"] == "admin"


def part(name: str, content: str = "") -> str:
    file = '; filename="a.txt"' if name == "file" else ""
    end = "" if name == "file" else "\r\n"
    return f'--x\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{content}{end}'


def unfinished(server: Server, form: str) -> socket.socket:
    """An upload of which the rest does not come, by somebody without a bearer key."""
    url = httpx.URL(server.url)
    opened = socket.create_connection((url.host, url.port or 80), timeout=20)
    headers = "Host: x\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 20000000\r\n"
    opened.sendall(f"POST /resources HTTP/1.1\r\n{headers}\r\n{form}".encode())
    return opened


def test_nothing_of_a_file_is_taken_from_somebody_who_is_not_known(server: Server, keys: dict[str, str]) -> None:
    """The answers come although the files do not."""
    forms = {
        "the file first": (part("file", "A rose"), 401),
        "no key": (part("user_id", "ann") + part("file", "A rose"), 401),
        "no user": (part("user_key", keys["ann"]) + part("file", "A rose"), 422),
        "a wrong key": (part("user_id", "ann") + part("user_key", keys["bob"]) + part("file", "A rose"), 401),
        "a key given twice": (part("user_key", "a") + part("user_key", keys["ann"]) + part("file", "A rose"), 422),
    }
    for name, (form, status) in forms.items():
        with unfinished(server, form) as opened:
            assert opened.recv(4096).startswith(f"HTTP/1.1 {status} ".encode()), name


def test_whoever_has_no_key_keeps_nobody_from_uploading(server: Server, ann: httpx.Client) -> None:
    with ExitStack() as held:
        for number in range(MAX_RECEIVED_AT_ONCE + 8):
            form = part("file", "A rose") if number % 2 else part("user_id", "ann") + part("app_id")
            held.enter_context(unfinished(server, form))
        assert add(ann, f"The rose of {uuid.uuid4()}".encode()).status_code == 201


def test_an_upload_that_comes_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.gateway.forms.FORM_SECONDS", 0.2)

    class Slow:
        content_type = ("multipart/form-data", {"boundary": "x"})
        scope = frozenset({"user"})

        async def stream(self) -> AsyncIterator[bytes]:
            yield part("file").encode()
            while True:
                await asyncio.sleep(0.01)
                yield b"A rose."

    async def begin(_fields: dict[str, str]) -> Spool:
        return Spool()

    form = Form(begin)
    with pytest.raises(MalformedBody, match="not all of it"):
        asyncio.run(read_form(Slow(), frozenset(), form))  # type: ignore[arg-type]
    form.close()


def test_a_file_is_taken_for_what_it_is_whatever_it_is_called(ann: httpx.Client) -> None:
    stored = ann.post("/resources", files={"file": ("a.txt", made.pdf(["A rose"]), "text/plain")}).json()
    assert stored["content_type"] == "application/pdf"
    assert stored["declared_type"] == "text/plain"
    assert stored["chunks"] == 1
    page = ann.post("/resources", files={"file": ("a.pdf", b"<!DOCTYPE html><p>A rose", "application/pdf")}).json()
    assert page["content_type"] == "text/html"
    lines = ann.post("/resources", files={"file": ("a.json", b'{"rose": ', "application/json")}).json()
    assert (lines["status"], lines["content_type"]) == ("ready", "text/plain")


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b"", 422, "empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), 415, "an image"),
        (bytes(range(256)) * 4, 415, "none of the formats"),
        (made.archive({"a.txt": "rose"}), 415, "an archive"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), 415, "old form or with a password"),
    ],
    ids=["empty", "image", "binary", "archive", "old Office"],
)
def test_what_cannot_be_a_document_is_refused_with_the_field(
    ann: httpx.Client, content: bytes, status: int, said: str
) -> None:
    answer = add(ann, content, "a.docx")
    assert answer.status_code == status
    assert answer.json()["errors"][0]["field"] == "file"
    assert said in answer.json()["detail"]
    assert ann.get("/resources").json()["resources"] == []


HOSTILE = {
    "encrypted.pdf": (lambda: made.encrypted_pdf("A rose"), "is encrypted"),
    "bomb.docx": (made.docx_bomb, "unpacks to more than"),
    "bomb.pdf": (made.pdf_bomb, "unpacks to more"),
    "laughs.docx": (made.billion_laughs, "entities"),
    "scan.pdf": (lambda: made.pdf([""]), "no text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_read_fails_with_a_reason_and_the_server_goes_on(ann: httpx.Client, name: str) -> None:
    make, said = HOSTILE[name]
    content = make()
    failed = ready(ann, add(ann, content, name))
    assert failed["status"] == "failed"
    assert said in failed["reason"]
    assert failed["chunks"] == 0
    assert ann.get("/health").status_code == 200
    # It may be tried again, and is listed once.
    again = add(ann, content, name)
    assert again.status_code == 201
    assert again.json()["resource_id"] != failed["resource_id"]
    assert len(ann.get("/resources").json()["resources"]) == 1


@pytest.mark.parametrize("name", WHERE)
def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes_or_fails_with_a_reason(ann: httpx.Client, name: str) -> None:
    whole = made.every_format("rose")[name]
    done = ready(ann, add(ann, whole[: len(whole) * 2 // 3], name))
    assert done["status"] == "ready" or "damaged or cut off" in done["reason"]


def test_a_pdf_as_large_as_they_may_be_is_read_and_a_larger_one_is_refused(ann: httpx.Client) -> None:
    pages = [f"The rose on page {number} is {'red ' * 30}" for number in range(1, 201)]
    content = made.pdf(pages, beside=bytes((25 << 20) - 100_000))
    content += b"\n" * ((25 << 20) - len(content))
    stored = ready(ann, add(ann, content, "large.pdf"))
    assert (stored["status"], stored["chunks"], stored["size"]) == ("ready", 200, 25 << 20)
    assert any(hit["location"]["page"] == 77 for hit in hits(ann, "the rose on page 77", top_k=50))
    over = add(ann, content + b"\n", "large.pdf")
    assert over.status_code == 413
    assert over.json()["errors"][0]["field"] == "file"


def test_the_form_is_told_what_is_wrong_with_it(ann: httpx.Client) -> None:
    wrong = {
        "file": ann.post("/resources", files={"app_id": (None, "shop")}),
        "color": add(ann, b"rose", color="red"),
        "app_id": add(ann, b"rose", app_id="x" * 5_000),
        "project_id": add(ann, b"rose", project_id=" "),
    }
    assert {name: answer.json()["errors"][0]["field"] for name, answer in wrong.items()} == {
        name: name for name in wrong
    }
    assert {answer.status_code for answer in wrong.values()} == {422}
    assert ann.post("/resources", json={"file": "rose"}).status_code == 415
    cut_off = ann.post(
        "/resources",
        content=b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nrose',
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )
    assert cut_off.status_code == 400
    assert ann.get("/resources").json()["resources"] == []


def test_secrets_are_taken_out_of_what_is_remembered(ann: httpx.Client) -> None:
    card = "4111 1111 1111 1111"
    text = f"# Card {card}\n\nThe rose was paid with {card}.\n"
    stored = add(ann, text.encode(), f"{card}.md").json()
    [hit] = hits(ann, "rose")
    assert card not in str(hit)
    assert hit["sanitised"] == {"card": 2}
    assert "sanitised" in hit["flags"]
    assert card not in str(stored)
