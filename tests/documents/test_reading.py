"""Text out of files: what each format says, where it stands, and what hostile ones cost."""

import asyncio
import contextlib
import io
import tempfile
import time
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_documents as made
from whence.documents import Block, Place, Unreadable, process
from whence.documents.chunks import MAX_CHUNK_CHARACTERS, chunks_of, clean, pieces
from whence.documents.kinds import kind_of
from whence.documents.process import Readers
from whence.documents.read import read


def said(content: bytes, name: str = "a.txt", declared: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    file = io.BytesIO(content)
    found = read(file, kind_of(file, name, declared))
    places = [
        {"page": chunk.place.page, "slide": chunk.place.slide, "sheet": chunk.place.sheet}
        | {"heading": chunk.place.heading, "row": chunk.row, "last_row": chunk.last_row}
        for chunk in found.chunks
    ]
    return [
        (chunk.text, {name: value for name, value in place.items() if value})
        for chunk, place in zip(found.chunks, places, strict=True)
    ]


async def read_apart(content: bytes, name: str) -> Any:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return await Readers().read(file, kind_of(file, name, None))


async def reason(content: bytes, name: str) -> str:
    with pytest.raises(Unreadable) as refused:
        await read_apart(content, name)
    return refused.value.reason


@given(st.text(max_size=8_000))
def test_pieces_are_short_and_nothing_is_lost_but_space(text: str) -> None:
    found = list(pieces(text))
    assert all(0 < len(piece) <= MAX_CHUNK_CHARACTERS for piece in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_long_text_is_cut_behind_sentences_and_words_where_there_are_any() -> None:
    sentences = "The rose is red and the violet is blue. " * 100
    assert all(piece.endswith(".") for piece in pieces(sentences))
    words = "rose " * 1_000
    assert set(" ".join(pieces(words)).split()) == {"rose"}
    assert [len(piece) for piece in pieces("x" * 4_000)] == [1_500, 1_500, 1_000]


def test_paragraphs_are_gathered_up_to_a_size_and_a_new_heading_begins_anew() -> None:
    here, there = Place(heading=("A",)), Place(heading=("B",))
    blocks = [Block("x " * 300, here), Block("y " * 300, here), Block("z " * 300, here), Block("w", there)]
    found = list(chunks_of(blocks))
    assert [chunk.place for chunk in found] == [here, here, there]
    assert [chunk.text[0] for chunk in found] == ["x", "z", "w"]


def test_control_characters_and_halves_of_characters_are_taken_out() -> None:
    assert clean("a\x00b\x1fc\r\nd\ud800e \n\n\n\nf") == "abc\nd\ufffde\n\nf"


def test_rows_of_a_long_table_stand_under_the_names_of_its_columns() -> None:
    rows = [["item", "count"], *([f"rose {number}", str(number)] for number in range(400))]
    for content, name in ((made.csv_file(rows), "a.csv"), (made.xlsx({"Stock": rows}), "a.xlsx")):
        found = said(content, name)
        assert len(found) > 3
        assert all(text.startswith("item | count\n") for text, _ in found)
        where = next(place for text, place in found if "rose 250 |" in text)
        assert where["row"] <= 252 <= where["last_row"]


def test_a_sheet_has_numbers_dates_and_gaps() -> None:
    [(text, place)] = said(made.xlsx({"S": [["day", "price"], ["date:45292", "9.5"]]}), "a.xlsx")
    assert text == "day | price\n2024-01-01 | 9.5"
    assert place == {"sheet": "S", "row": 1, "last_row": 2}


def test_tables_in_a_text_are_read_row_by_row() -> None:
    [(text, _)] = said(made.docx([("", "Prices")], [["rose", "3"], ["lily", "4"]]), "a.docx")
    assert text == "Prices\n\nrose | 3\n\nlily | 4"
    page = b"<html><table><tr><th>item<th>count<tr><td>rose<td>3</table>"
    [(text, _)] = said(page, "a.html")
    assert text == "item | count\n\nrose | 3"


def test_what_is_fenced_in_markdown_has_no_headings() -> None:
    found = said(b"Top\n===\n\n```\n# not one\n\nstill\n```\n\nSub\n---\ntext", "a.md")
    assert [place.get("heading") for _, place in found] == [("Top",), ("Top", "Sub")]
    assert "# not one\n\nstill" in found[0][0]


def test_scripts_and_styles_are_not_what_a_page_says() -> None:
    [(text, _)] = said(b"<html><style>p {}</style><script>let rose = '<p>no'</script><p>A&nbsp;r&ouml;se &amp; more")
    assert text == "A röse & more"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_text_is_read_in_the_encoding_that_it_is_in(encoding: str) -> None:
    [(text, _)] = said("Schöne Rösen".encode(encoding))
    assert text == "Schöne Rösen"


def test_a_text_that_ends_in_the_middle_of_a_character_is_read_to_there() -> None:
    [(text, _)] = said("Rosé".encode()[:-1])
    assert text == "Ros"


def test_json_is_told_value_by_value_with_the_names_that_lead_there() -> None:
    found = said(b'{"care": {"water": ["daily", 3, null]}, "none": {}}', "a.json")
    assert found == [
        ("care.water[0]: daily\ncare.water[1]: 3\ncare.water[2]: null", {"heading": ("care",)}),
        ("none: {}", {"heading": ("none",)}),
    ]
    deep = b"[" * 50_000 + b'"rose"' + b"]" * 50_000
    file = io.BytesIO(deep)
    assert read(file, kind_of(file, "a.json", None)).content_type == "text/plain"


async def test_a_reader_has_bounded_memory_and_says_so() -> None:
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            with contextlib.suppress(psutil.NoSuchProcess):
                most = max(most, *(one.memory_info().rss for one in readers_running()), 0)
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    assert "of memory" in await reason(b'{"a": [' + b"[]," * 8_500_000 + b"0]}", "a.json")
    watching.cancel()
    assert 100 << 20 < most < 1_100 << 20


async def test_a_reader_has_bounded_time_and_is_gone_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WALL_SECONDS", 0.5)
    started = time.monotonic()
    assert "seconds to read" in await reason(made.pdf(["The rose\n" * 40] * 3_000), "a.pdf")
    assert time.monotonic() - started < 10
    assert not readers_running()


async def test_a_reader_has_bounded_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_OUTPUT_BYTES", 1 << 20)
    assert "of text" in await reason(b"The rose is red. " * 200_000, "a.txt")


async def test_a_reader_that_is_killed_is_told_as_such() -> None:
    async def kill() -> None:
        while not (found := readers_running()):
            await asyncio.sleep(0.01)
        found[0].kill()

    killing = asyncio.create_task(kill())
    assert "ended without an answer" in await reason(made.pdf(["The rose\n" * 40] * 3_000), "a.pdf")
    await killing


async def test_readers_wait_for_their_turn() -> None:
    readers, most = Readers(at_once=1), 0

    async def one() -> None:
        nonlocal most
        with tempfile.TemporaryFile() as file:
            file.write(b"A rose")
            file.flush()
            await readers.read(file, "text")

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(readers_running()))
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(one() for _ in range(4)))
    watching.cancel()
    assert most == 1


async def test_a_reader_gets_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHENCE_EMBEDDER_KEY", "secret")
    seen: list[dict[str, str]] = []

    async def look() -> None:
        while not seen:
            seen.extend(one.environ() for one in readers_running())
            await asyncio.sleep(0.005)

    looking = asyncio.create_task(look())
    await read_apart(made.pdf(["The rose\n" * 40] * 200), "a.pdf")
    await looking
    assert set(seen[0]) == {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}


def readers_running() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if child.is_running() and "whence.documents" in _command(child)]


def _command(one: psutil.Process) -> list[str]:
    try:
        return one.cmdline()
    except psutil.Error:
        return []


async def test_an_archive_of_very_many_parts_is_not_looked_through() -> None:
    many = {f"word/{number}.xml": "" for number in range(10_500)} | {"word/document.xml": "<x/>"}
    assert "parts" in await reason(made.archive(many), "a.docx")


async def test_a_sheet_that_names_what_is_not_there_is_told_as_damaged() -> None:
    missing = {"xl/workbook.xml": "<workbook xmlns:r='r'><sheets><sheet name='S' r:id='r1'/></sheets></workbook>"}
    missing["xl/_rels/workbook.xml.rels"] = made.relations({"r1": ("worksheet", "worksheets/sheet1.xml")})
    assert "is missing in it" in await reason(made.archive(missing), "a.xlsx")
    assert "not valid XML" in await reason(made.archive({"word/document.xml": "<w><p>"}), "a.docx")


async def test_what_a_file_calls_its_parts_is_told_in_short_and_without_signs_that_are_not_seen() -> None:
    named = {"xl/workbook.xml": "<workbook xmlns:r='r'><sheets><sheet name='S' r:id='r1'/></sheets></workbook>"}
    named["xl/_rels/workbook.xml.rels"] = made.relations({"r1": ("worksheet", "a&#x202E;b&#10;" + "c" * 5_000)})
    assert await reason(made.archive(named), "a.xlsx") == f"is damaged: xl/ab{'c' * 95} is missing in it"
