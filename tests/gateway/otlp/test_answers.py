"""What an exporter is told."""

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from whence.errors import UnsupportedMedia
from whence.gateway import otlp

PROTOBUF, JSON = "application/x-protobuf", "application/json"


@pytest.mark.parametrize("kind", ["traces", "logs"])
def test_full_success_says_nothing(kind):
    assert otlp.encode_answer(kind, PROTOBUF, 0, "") == b""
    assert otlp.encode_answer(kind, JSON, 0, "") == b"{}"


def test_partial_success_in_protobuf():
    traces = ExportTraceServiceResponse.FromString(otlp.encode_answer("traces", PROTOBUF, 3, "why"))
    assert (traces.partial_success.rejected_spans, traces.partial_success.error_message) == (3, "why")
    logs = ExportLogsServiceResponse.FromString(otlp.encode_answer("logs", PROTOBUF, 2, "why"))
    assert (logs.partial_success.rejected_log_records, logs.partial_success.error_message) == (2, "why")


def test_partial_success_in_json():
    traces = json.loads(otlp.encode_answer("traces", JSON, 3, "why"))
    assert traces == {"partialSuccess": {"rejectedSpans": "3", "errorMessage": "why"}}
    logs = json.loads(otlp.encode_answer("logs", "application/json; charset=utf-8", 2, "why"))
    assert logs == {"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "why"}}


def test_a_warning_without_rejections_is_a_partial_success():
    answer = ExportTraceServiceResponse.FromString(otlp.encode_answer("traces", PROTOBUF, 0, "mind"))
    assert answer.HasField("partial_success")
    assert answer.partial_success.error_message == "mind"


def test_an_error_is_a_status():
    # google.rpc.Status: int32 code = 1, string message = 2.
    assert otlp.encode_error(PROTOBUF, 3, "bad") == b"\x08\x03\x12\x03bad"
    assert json.loads(otlp.encode_error(JSON, 3, "bad")) == {"code": 3, "message": "bad"}


def test_an_answer_needs_a_known_content_type():
    with pytest.raises(UnsupportedMedia):
        otlp.encode_answer("traces", "text/plain", 0, "")
