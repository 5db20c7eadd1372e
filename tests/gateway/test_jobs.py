"""Jobs over HTTP: an administrator sees those of the own workspace."""

import re

import httpx

from conftest import Server, Workspace
from whence.app import App


async def test_an_administrator_sees_the_jobs_of_the_own_workspace_alone(
    app: App, server: Server, workspace: Workspace, admin: httpx.Client
) -> None:
    other = f"{workspace.workspace_id}-b"
    with server.client(await app.identity.add_workspace(other)) as elsewhere:
        ids = [await app.queue.defer(f"not-worked-{n}", workspace.workspace_id) for n in range(3)]
        assert elsewhere.get("/v1/jobs").json() == {"jobs": [], "next": None}
    page = admin.get("/v1/jobs", params={"limit": 2}).json()
    assert [job["job_id"] for job in page["jobs"]] == ids[:0:-1]
    assert {job["workspace_id"] for job in page["jobs"]} == {workspace.workspace_id}
    rest = admin.get("/v1/jobs", params={"before": page["next"]}).json()
    assert ([job["job_id"] for job in rest["jobs"]], rest["next"]) == (ids[:1], None)
    assert admin.get("/v1/jobs", params={"failed": "true"}).json()["jobs"] == []


async def test_a_user_sees_no_jobs(app: App, server: Server, workspace: Workspace) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    with server.client(key) as client:
        assert client.get("/v1/jobs").json()["code"] == "forbidden"


async def test_metrics_tell_how_jobs_ended_and_how_many_wait(
    app: App, server: Server, workspace: Workspace, admin: httpx.Client
) -> None:
    await app.queue.defer("not-worked-counted", workspace.workspace_id)
    said = admin.get("/metrics").text
    assert 'whence_jobs_waiting{job="not-worked-counted"} 1.0' in said
    assert re.search(r'whence_jobs_total\{job="sweep-working",outcome="succeeded"\} \d', said)
    assert workspace.workspace_id not in said
