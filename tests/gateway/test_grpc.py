"""OTLP/gRPC, switched on: the real exporter, the same events as over HTTP."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from conftest import Server, clean_environment, serving

RECORDINGS = Path(__file__).parent.parent / "data" / "otlp"
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@pytest.fixture(scope="module")
def grpc_port(unused_port: int) -> int:
    return unused_port


@pytest.fixture(scope="module")
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def switched_on(tmp_path_factory: pytest.TempPathFactory, grpc_port: int) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("grpc")
    with serving(folder / "data", folder / "log", WHENCE_OTLP_GRPC_PORT=str(grpc_port)) as server:
        yield server


def call(port: int, method: str, body: bytes, key: str | None) -> bytes:
    metadata = [("authorization", f"Bearer {key}")] if key else []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        return channel.unary_unary(method)(body, metadata=metadata, timeout=20)


def test_the_real_exporter_stores_a_tree(switched_on: Server, grpc_port: int) -> None:
    exporter = OTLPSpanExporter(
        f"http://127.0.0.1:{grpc_port}",
        insecure=True,
        headers={"authorization": f"Bearer {switched_on.admin_key}"},
        compression=grpc.Compression.Gzip,
    )
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer") as outer, tracer.start_as_current_span("inner"):
        trace_id = f"{outer.get_span_context().trace_id:032x}"
    provider.shutdown()
    with switched_on.client(switched_on.admin_key) as client:
        inner, outer_event = client.get(f"/v1/events?trace_id={trace_id}").json()["events"]
        assert inner["parent_event_id"] == outer_event["event_id"]
        assert client.get(f"/v1/events/{inner['event_id']}/payload").json()["name"] == "inner"


def test_a_recorded_export_gives_the_same_events_as_over_http(switched_on: Server, grpc_port: int) -> None:
    traces = (RECORDINGS / "genai-langgraph-openai-grpc-traces.pb").read_bytes()
    logs = (RECORDINGS / "genai-langgraph-openai-grpc-logs.pb").read_bytes()
    assert call(grpc_port, TRACES, traces, switched_on.admin_key) == b""
    assert call(grpc_port, LOGS, logs, switched_on.admin_key) == b""
    with switched_on.client(switched_on.admin_key) as client:
        before = client.get("/v1/events?limit=1000").json()
        for path, body in (("/v1/traces", traces), ("/v1/logs", logs)):
            answer = client.post(path, content=body, headers={"Content-Type": "application/x-protobuf"})
            assert (answer.status_code, answer.content) == (200, b"")
        assert client.get("/v1/events?limit=1000").json() == before, "the same ids, so nothing is stored twice"


@pytest.mark.parametrize(
    ("body", "key", "code"),
    [
        (b"", None, grpc.StatusCode.UNAUTHENTICATED),
        (b"", "uk_default.000000000000.wrong", grpc.StatusCode.UNAUTHENTICATED),
        (b"\xff\xff\xff", "admin", grpc.StatusCode.INVALID_ARGUMENT),
        (b" " * ((32 << 20) + 1), "admin", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_what_is_wrong_has_its_status_code(
    switched_on: Server, grpc_port: int, body: bytes, key: str | None, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(grpc_port, TRACES, body, switched_on.admin_key if key == "admin" else key)
    assert refused.value.code() == code


def test_it_is_off_unless_it_is_switched_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whence", "config", "--json", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
    assert json.loads(done.stdout)["otlp_grpc_port"] is None
    with serving(tmp_path / "data", tmp_path / "log") as server:
        listening = psutil.Process(server.process.pid).net_connections(kind="tcp")
        assert len([one for one in listening if one.status == psutil.CONN_LISTEN]) == 1


def test_a_port_that_is_taken_is_one_line(switched_on: Server, grpc_port: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whence", "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    environment = clean_environment() | {"WHENCE_OTLP_GRPC_PORT": str(grpc_port)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1
    assert f"cannot serve OTLP/gRPC on 127.0.0.1 port {grpc_port}" in done.stderr
