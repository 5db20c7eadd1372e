"""Raw traces in text: stacks of calls, and spans as exporters write them.

A memory is what was learnt from a failure, not its print-out, which is long, names paths and arguments, and drowns what
is said around it. A block is found line by line, or by matching braces once over the text.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

Span = tuple[int, int]

MIN_FRAMES = 2
"""Frames that make a stack; one alone is a place in the code that somebody mentions. Python's are marked by a line of
their own, and one is enough."""

MAX_MESSAGE_LINES = 3
"""Between the line that tells of a crash and its first frame."""


def may_hold_traces(text: str) -> bool:
    """A stack has lines, a span has braces, and most texts have neither."""
    return "\n" in text or "\\n" in text or "{" in text or "[" in text


def trace_dumps(text: str) -> Iterator[Span]:
    if "\n" in text or "\\n" in text:
        yield from _stacks(text)
    if ("{" in text or "[" in text) and _SPAN_KEY.search(text):
        yield from _span_dumps(text)


# --- stacks of calls ------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    start: int
    end: int
    text: str


_LINE = re.compile(r"[^\n]*+")
_ESCAPED_LINE = re.compile(r"(?:[^\n\\]|\\(?!n))*+")
_ESCAPED = re.compile(r"\\n(?: {2}|\\t|\t)")
"""A stack inside a JSON string: its newlines are two characters, and end lines too."""

_PYTHON = re.compile(r"[ |+-]{0,40}(?:Exception Group )?Traceback \(most recent call last\):")
_PYTHON_FRAME = re.compile(r'[ \t|]{0,40}File \\?"[^"\n]{1,500}", line [0-9]{1,9}')
_FRAME = re.compile(
    r"(?:[ \t]|\\t){0,40}(?:"
    r"at (?:async |new )?[^\s(][^(\n]{0,300}+\([^)\n]{0,300}\)"  # Java, JavaScript, .NET
    r"|at (?:async )?\S{1,300}:[0-9]{1,9}(?::[0-9]{1,9})?[ \t]{0,4}\Z"  # JavaScript, Rust
    r"|[\w$.<>/*\[\]]{0,100}@(?:https?|file|webpack|moz-extension)[^\s]{1,300}:[0-9]{1,9}:[0-9]{1,9}"  # Firefox, Safari
    r"|(?:from )?\S{1,300}\.rb:[0-9]{1,9}:in [`']"  # Ruby
    r"|#[0-9]{1,4} (?:\S{1,300}\([0-9]{1,9}\): |\{main\})"  # PHP
    r"|\S{1,300}\.go:[0-9]{1,9}(?: \+0x[0-9a-f]{1,16})?[ \t]{0,4}\Z"  # Go
    r"|#[0-9]{1,4} {1,6}0x[0-9a-f]{6,16} in "  # gdb
    r")"
)
_RUST_CALL = re.compile(r"[ \t]{0,8}[0-9]{1,4}: [\w<>:{}$ &,'#.-]{3,300}\Z")
_MORE = re.compile(
    r"[ \t]{0,40}(?:\.\.\. [0-9]{1,9} (?:more|common frames)|Caused by: |Suppressed: |goroutine [0-9]{1,9} \["
    r"|exit status [0-9]|--- End of|\[signal |\^\^|~~|note: |stack backtrace:|\[cause\]"
    r"|During handling of the above"
    r"|The above exception was)"
)
_HEAD = re.compile(
    r"(?:Error|Exception|Throwable|Fault|Failure|panic: |goroutine [0-9]|panicked at|Caused by: |Stack ?trace"
    r"|Fatal error|backtrace)",
    re.IGNORECASE,
)
_CRASH = re.compile(r"panicked at|panic: |Exception in thread|Unhandled|Uncaught")
_RAISED = re.compile(r"[ |]{0,40}[A-Za-z_][\w.]{0,200}(?:: |:?\Z)")


def _stacks(text: str) -> Iterator[Span]:
    if not _STACK_MARK.search(text):
        return
    lines = list(_lines(text))
    at = 0
    while at < len(lines):
        begin = _PYTHON.search(lines[at].text)
        after, found = _python_end(lines, at) if begin else _frames_end(lines, at)
        if found:
            first = lines[at].start + (begin.start() if begin else 0)
            first += len(text[first : lines[at].end]) - len(text[first : lines[at].end].lstrip())
            yield first, _end(lines[after - 1], first, text)
        # Lines that were no stack from here on are none from a later one on: each is looked at once.
        at = max(after, at + 1)


_STACK_MARK = re.compile(r"Traceback \(most recent|\bat \S|:[0-9]{1,9}:in |\.go:[0-9]|#[0-9] |@(?:http|file|webpack)")


def _lines(text: str) -> Iterator[_Line]:
    form = _ESCAPED_LINE if _ESCAPED.search(text) else _LINE
    at = 0
    while at < len(text):
        match = form.match(text, at)
        end = match.end() if match else at
        yield _Line(at, end, text[at:end].rstrip("\r"))
        at = end + (1 if text[end : end + 1] == "\n" else 2)


def _end(line: _Line, first: int, text: str) -> int:
    """A stack inside a JSON string ends with the string."""
    if text[max(0, line.start - 2) : line.start] == "\\n" and (quote := text.find('"', line.start, line.end)) >= 0:
        return quote - (text[quote - 1] == "\\")
    return max(first, line.start + len(line.text.rstrip()))


def _python_end(lines: list[_Line], at: int) -> tuple[int, bool]:
    """The line after the exception that was raised, and whether there was a frame: else somebody writes of stacks."""
    after, framed, raised = at + 1, False, False
    while after < len(lines):
        line = lines[after].text
        if _PYTHON_FRAME.match(line):
            framed, raised = True, False
        elif raised:
            chained = _chained(lines, after)
            if chained == after:
                break
            after, raised = chained, False
            continue
        elif line[:1] not in (" ", "\t", "|") or (not framed and _PYTHON.search(line)):
            if not framed or not _RAISED.match(line):
                break
            raised = True
        after += 1
    return after, framed


def _chained(lines: list[_Line], after: int) -> int:
    """Where the next stack of a chain begins, or `after` if none does."""
    for at in range(after, min(after + 4, len(lines))):
        if _PYTHON.search(lines[at].text):
            return at + 1
        if lines[at].text.strip() and not _MORE.match(lines[at].text):
            break
    return after


def _frames_end(lines: list[_Line], at: int) -> tuple[int, bool]:
    """The line after a run of frames that begins here, with what says before it what failed; and whether it is one."""
    after = at + 1 if _is_head(lines, at) else at
    message = after + MAX_MESSAGE_LINES if after > at and _CRASH.search(lines[at].text[:400]) else after
    frames = 0
    while after < len(lines):
        line = lines[after].text
        if _FRAME.match(line):
            frames += 1
        elif not (_MORE.match(line) or _leads_to_frame(lines, after)) and (frames or after >= message):
            break
        after += 1
    if frames < MIN_FRAMES:
        return at + 1 if message > at + 1 else after, False
    return after, True


def _is_head(lines: list[_Line], at: int) -> bool:
    return bool(_HEAD.search(lines[at].text[:400])) and at + 1 < len(lines) and not _FRAME.match(lines[at].text)


def _leads_to_frame(lines: list[_Line], at: int) -> bool:
    """Go and Rust name a call on one line and its place on the next; between goroutines is an empty line."""
    if at + 1 >= len(lines):
        return False
    line, following = lines[at].text, lines[at + 1].text
    if not line.strip():
        return following.startswith("goroutine ") or (bool(following.strip()) and _leads_to_frame(lines, at + 1))
    called = line.endswith(")") or line.startswith("created by ") or _RUST_CALL.match(line)
    return bool(called) and bool(_FRAME.match(following))


# --- spans as exporters write them ----------------------------------------------------------------------------------

_SPAN_KEY = re.compile(r"[\"'](?:resource_?spans|scope_?spans|trace_?id)[\"']", re.IGNORECASE)
_WHOLE = re.compile(r"[\"'](?:resource_?spans|scope_?spans)[\"']\s{0,20}:", re.IGNORECASE)
_TRACE_ID = re.compile(r"[\"']trace_?id[\"']\s{0,20}:", re.IGNORECASE)
_SPAN_ID = re.compile(r"[\"'](?:parent_?)?(?:span_?)?id[\"']\s{0,20}:", re.IGNORECASE)
_TIMED = re.compile(r"[\"'](?:start_?time\w{0,20}|duration\w{0,10}|end_?time\w{0,20})[\"']\s{0,20}:", re.IGNORECASE)
_SIGN = re.compile(r'\\.|[{}\[\]"\n]', re.DOTALL)
_OPENS = {"}": "{", "]": "["}
_DUMP_BEGINS = re.compile(r"[{\[\s]{1,200}[\"'](?:resource_?spans|scope_?spans|trace_?id)[\"']", re.IGNORECASE)
_CUT = re.compile(r"\n\s{0,20}\n|\n```")
"""Where a dump ends that was cut off: JSON has no empty lines."""


def _span_dumps(text: str) -> Iterator[Span]:
    """JSON that holds spans; dumps that follow each other, as exporters write them line by line, are one block."""
    last: Span | None = None
    for start, end in _json_values(text):
        if not _holds_spans(text, start, end):
            continue
        if last and not text[last[1] : start].strip(" \t\r\n,"):
            last = last[0], end
            continue
        if last:
            yield last
        last = start, end
    if last:
        yield last


def _holds_spans(text: str, start: int, end: int) -> bool:
    if _WHOLE.search(text, start, end):
        return True
    return all(key.search(text, start, end) for key in (_TRACE_ID, _SPAN_ID, _TIMED))


def _json_values(text: str) -> list[Span]:
    """The outermost objects and lists whose brackets match, in order, or else one that the text's end cuts off."""
    opened: list[tuple[str, int]] = []
    values: list[Span] = []
    quoted = False
    for match in _SIGN.finditer(text):
        sign, at = match[0], match.start()
        if sign == "\n":
            quoted = False  # A string never spans lines, so a stray quotation mark costs one line at most.
        elif sign == '"':
            quoted = not quoted
        elif not quoted and sign in "{[":
            opened.append((sign, at))
        elif not quoted and sign in "}]" and opened and opened[-1][0] == _OPENS[sign]:
            _, start = opened.pop()
            while values and values[-1][0] > start:
                values.pop()
            values.append((start, at + 1))
    cut = next((at for _, at in opened if _DUMP_BEGINS.match(text, at)), None)
    if cut is None:
        return values
    end = _CUT.search(text, opened[-1][1])
    return [*(value for value in values if value[1] <= cut), (cut, end.start() if end else len(text))]
