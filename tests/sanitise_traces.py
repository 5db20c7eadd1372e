"""Stacks and spans as programs print them, with numbers and names from a seed."""

import json
from random import Random

from sanitise_values import HEX, Make, digits, one_of, pick

FUNCTIONS = ["handle", "load_order", "charge_card", "parse_body", "send_invoice", "retry_call", "fetch_rows"]


def python(rng: Random) -> str:
    frames = "".join(
        f'  File "/srv/app/{name}.py", line {rng.randrange(5, 900)}, in {name}\n    return {name}(request)\n'
        for name in rng.sample(FUNCTIONS, rng.randrange(1, 5))
    )
    raised = rng.choice(
        ("ValueError: invalid literal for int() with base 10: 'x'", "KeyError: 'amount'", "shop.errors.Declined")
    )
    return f"Traceback (most recent call last):\n{frames}{raised}"


def python_carets(rng: Random) -> str:
    return (
        f'Traceback (most recent call last):\n  File "C:\\new\\app.py", line {rng.randrange(9, 99)}, in <module>\n'
        "    main()\n    ~~~~^^\nRuntimeError: event loop is closed"
    )


def python_chain(rng: Random) -> str:
    because = rng.choice(
        (
            "During handling of the above exception, another exception occurred:",
            "The above exception was the direct cause of the following exception:",
        )
    )
    return f"{python(rng)}\n\n{because}\n\n{python(rng)}"


def python_escaped(rng: Random) -> str:
    return json.dumps(python(rng))[1:-1]


def java(rng: Random) -> str:
    frames = "".join(
        f"\n\tat com.acme.shop.{name.title()}.run({name.title()}.java:{digits(rng, 3)})" for name in FUNCTIONS[:3]
    )
    cause = (
        "\nCaused by: java.net.SocketTimeoutException: Read timed out\n"
        f"\tat java.base/java.net.Socket.read(Socket.java:{digits(rng, 3)})\n\t... {rng.randrange(3, 40)} more"
    )
    head = rng.choice(
        (
            'Exception in thread "main" java.lang.NullPointerException: order is null',
            "java.lang.IllegalStateException: closed",
        )
    )
    return head + frames + rng.choice(("", cause))


def javascript(rng: Random) -> str:
    head = rng.choice(
        ("TypeError: Cannot read properties of undefined (reading 'id')", "Error: connect ECONNREFUSED 127.0.0.1:6379")
    )
    return (
        f"{head}\n    at getUser (/app/src/users.js:{rng.randrange(5, 99)}:{rng.randrange(3, 60)})\n"
        f"    at async handler (file:///app/src/index.mjs:{rng.randrange(5, 99)}:7)\n"
        "    at /app/node_modules/express/lib/router/layer.js:95:5\n"
        "    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)"
    )


def firefox(rng: Random) -> str:
    base = "https://app.example.com/static/js"
    return f"render@{base}/main.js:{rng.randrange(9, 99)}:12\nflush@{base}/vendor.js:1:{digits(rng, 4)}"


def go(rng: Random) -> str:
    return (
        "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\n"
        f"main.(*Server).pick(0xc00{pick(rng, HEX, 7)}, 0x5)\n"
        f"\t/home/ci/src/app/server.go:{rng.randrange(9, 300)} +0x1d\n"
        f"main.main()\n\t/home/ci/src/app/main.go:{rng.randrange(9, 90)} +0x85\nexit status 2"
    )


def dotnet(rng: Random) -> str:
    return (
        "System.InvalidOperationException: Sequence contains no elements\n"
        f"   at System.Linq.ThrowHelper.ThrowNoElementsException()\n"
        f"   at Shop.Orders.First(Int32 id) in /src/Orders.cs:line {rng.randrange(9, 99)}"
    )


def ruby(rng: Random) -> str:
    where = f"app/models/order.rb:{rng.randrange(9, 99)}:in `total'"
    return f"{where}: undefined method `+' for nil (NoMethodError)\n\tfrom app/bill.rb:{rng.randrange(9, 99)}:in `run'"


def rust(rng: Random) -> str:
    return (
        "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds\n"
        "stack backtrace:\n   0: core::panicking::panic_fmt\n"
        f"             at /rustc/{pick(rng, HEX, 12)}/library/core/src/panicking.rs:72:14\n"
        "   1: app::main\n             at ./src/main.rs:4:5"
    )


def span(rng: Random) -> dict[str, object]:
    start = 1_700_000_000_000_000_000 + rng.randrange(10**15)
    return {
        "traceId": pick(rng, HEX, 32),
        "spanId": pick(rng, HEX, 16),
        "parentSpanId": pick(rng, HEX, 16),
        "name": rng.choice(("POST /orders", "chat gpt-4o", "SELECT orders")),
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + rng.randrange(10**9)),
        "attributes": [{"key": "user.email", "value": {"stringValue": 'a {brace} in "text"'}}],
    }


def otlp(rng: Random) -> str:
    scope = {"scope": {"name": "openai"}, "spans": [span(rng) for _ in range(rng.randrange(1, 4))]}
    return json.dumps(
        {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]}, indent=rng.choice((None, 2))
    )


def console(rng: Random) -> str:
    shown = {
        "name": "charge",
        "context": {"trace_id": "0x" + pick(rng, HEX, 32), "span_id": "0x" + pick(rng, HEX, 16), "trace_state": "[]"},
        "kind": "SpanKind.INTERNAL",
        "parent_id": None,
        "start_time": "2026-03-01T10:00:00.000000Z",
        "end_time": "2026-03-01T10:00:00.120000Z",
    }
    return json.dumps(shown, indent=4)


def span_lines(rng: Random) -> str:
    return "\n".join(json.dumps(span(rng)) for _ in range(3))


def jaeger(rng: Random) -> str:
    one = {
        "traceID": pick(rng, HEX, 32),
        "spanID": pick(rng, HEX, 16),
        "operationName": "get",
        "startTime": 1,
        "duration": 15,
    }
    return json.dumps({"data": [{"traceID": one["traceID"], "spans": [one]}]})


def otlp_cut(rng: Random) -> str:
    return otlp(rng)[:-20]


TRACE_DUMP: dict[str, Make] = {
    "trace_python": one_of(python, python_chain, python_carets),
    "trace_python_escaped": python_escaped,
    "trace_java": java,
    "trace_js": one_of(javascript, firefox),
    "trace_go": go,
    "trace_dotnet": dotnet,
    "trace_ruby": ruby,
    "trace_rust": rust,
    "trace_otlp": otlp,
    "trace_spans": one_of(console, span_lines, jaeger),
    "trace_otlp_cut": otlp_cut,
}
