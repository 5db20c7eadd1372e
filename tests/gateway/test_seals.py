"""Seals over HTTP: what was sealed, proofs that hold without us, and who may ask for them."""

import httpx

from conftest import Server, Workspace
from samples import new_id, sample
from whence.app import App
from whence.merkle import verify_consistency, verify_inclusion


async def sealed(app: App, workspace: Workspace, admin: httpx.Client, *counts: int) -> list[str]:
    """Seals after each of these numbers of events; the ids of all events."""
    ids: list[str] = []
    for count in counts:
        batch = [sample(user_id="ann") for _ in range(count)]
        assert admin.post("/v1/events", json={"events": batch}).json()["accepted"] == count
        ids += [item["event_id"] for item in batch]
        await app.ledger.seals.seal(workspace.workspace_id)
    return ids


def hashes(values: list[str]) -> list[bytes]:
    return [bytes.fromhex(value) for value in values]


async def test_seals_are_listed_in_pages(app: App, workspace: Workspace, admin: httpx.Client) -> None:
    assert admin.get("/v1/seals").json() == {"seals": [], "next": None}
    await sealed(app, workspace, admin, 2, 3, 4)
    page = admin.get("/v1/seals", params={"limit": 2}).json()
    assert [seal["size"] for seal in page["seals"]] == [2, 5]
    assert set(page["seals"][0]) == {"size", "root", "sealed_at"}
    assert len(page["seals"][0]["root"]) == 64
    rest = admin.get("/v1/seals", params={"limit": 2, "after": page["next"]}).json()
    assert ([seal["size"] for seal in rest["seals"]], rest["next"]) == ([9], None)


async def test_a_proof_of_an_event_holds_without_the_server(
    app: App, workspace: Workspace, admin: httpx.Client
) -> None:
    ids = await sealed(app, workspace, admin, 300, 7)
    root = admin.get("/v1/seals", params={"after": 300}).json()["seals"][0]["root"]
    for place in (0, 255, 256, 306):
        proof = admin.get(f"/v1/events/{ids[place]}/proof").json()
        assert set(proof) == {"event_id", "global_position", "leaf", "index", "size", "root", "path"}
        assert (proof["event_id"], proof["global_position"]) == (ids[place], place + 1)
        assert (proof["index"], proof["size"], proof["root"]) == (place, 307, root)
        leaf = proof["leaf"].encode()
        assert ids[place].encode() in leaf
        assert verify_inclusion(leaf, place, 307, hashes(proof["path"]), bytes.fromhex(root))
        assert not verify_inclusion(leaf + b" ", place, 307, hashes(proof["path"]), bytes.fromhex(root))


async def test_a_proof_of_consistency_holds_without_the_server(
    app: App, workspace: Workspace, admin: httpx.Client
) -> None:
    await sealed(app, workspace, admin, 5, 300, 1)
    roots = {seal["size"]: seal["root"] for seal in admin.get("/v1/seals").json()["seals"]}
    for asked, new in (({"from": 5, "to": 305}, 305), ({"from": 5}, 306), ({"from": 305, "to": 306}, 306)):
        proof = admin.get("/v1/seals/consistency", params=asked).json()
        assert set(proof) == {"from", "to", "from_root", "to_root", "path"}
        old = asked["from"]
        assert (proof["from"], proof["to"]) == (old, new)
        assert (proof["from_root"], proof["to_root"]) == (roots[old], roots[new])
        both = hashes([proof["from_root"], proof["to_root"]])
        assert verify_consistency(old, new, both[0], both[1], hashes(proof["path"]))


async def test_failures_are_told_apart(app: App, workspace: Workspace, admin: httpx.Client) -> None:
    await sealed(app, workspace, admin, 2, 3)
    fresh = sample()
    admin.post("/v1/events", json=fresh)
    for path, status, code in (
        (f"/v1/events/{fresh['event_id']}/proof", 409, "not_sealed"),
        (f"/v1/events/{new_id()}/proof", 404, "not_found"),
        ("/v1/seals?limit=0", 422, "invalid_input"),
        ("/v1/seals?limit=1001", 422, "invalid_input"),
        ("/v1/seals?after=-1", 422, "invalid_input"),
        ("/v1/seals?size=1", 422, "invalid_input"),
        ("/v1/seals/consistency", 422, "invalid_input"),
        ("/v1/seals/consistency?from_=2", 422, "invalid_input"),
        ("/v1/seals/consistency?from=0", 422, "invalid_input"),
        ("/v1/seals/consistency?from=5&to=2", 422, "invalid_input"),
        ("/v1/seals/consistency?from=3", 404, "not_found"),
        ("/v1/seals/consistency?from=2&to=9", 404, "not_found"),
        ("/v1/seals/consistency?from=99999999999999999999", 422, "invalid_input"),
    ):
        answer = admin.get(path)
        assert (answer.status_code, answer.json()["code"]) == (status, code), path


async def test_who_may_ask(app: App, workspace: Workspace, admin: httpx.Client, server: Server) -> None:
    [first] = await sealed(app, workspace, admin, 1)
    keys = {user: await app.identity.add_user(workspace.workspace_id, user) for user in ("ann", "bob")}
    other = await app.identity.add_workspace(f"{workspace.workspace_id}-2")
    with server.client(keys["ann"]) as ann, server.client(keys["bob"]) as bob, server.client(other) as stranger:
        assert ann.get(f"/v1/events/{first}/proof").json() == admin.get(f"/v1/events/{first}/proof").json()
        assert ann.get("/v1/seals").json() == admin.get("/v1/seals").json() == bob.get("/v1/seals").json()
        missing = bob.get(f"/v1/events/{new_id()}/proof").json()
        assert (
            bob.get(f"/v1/events/{first}/proof").json() == missing == stranger.get(f"/v1/events/{first}/proof").json()
        )
        assert stranger.get("/v1/seals").json()["seals"] == []
        assert stranger.get("/v1/seals/consistency?from=1").status_code == 404
    with server.client(None) as anyone:
        for path in ("/v1/seals", "/v1/seals/consistency?from=1", f"/v1/events/{first}/proof"):
            assert anyone.get(path).status_code == 401


def test_the_description_names_from_as_it_is_sent(admin: httpx.Client) -> None:
    document = admin.get("/openapi.json").json()
    operation = document["paths"]["/v1/seals/consistency"]["get"]
    assert [(item["name"], item["required"]) for item in operation["parameters"]] == [("from", True), ("to", False)]
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
    assert set(document["components"]["schemas"][answer]["properties"]) == {
        "from",
        "to",
        "from_root",
        "to_root",
        "path",
    }
    assert "409" in document["paths"]["/v1/events/{event_id}/proof"]["get"]["responses"]
