"""Documents of every format that can be read, made here from a few words, and hostile ones beside them."""

import csv
import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from xml.sax.saxutils import escape

from pypdf import PdfReader, PdfWriter

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def pdf(pages: Sequence[str], beside: bytes = b"", packed: bool = False, trailer: bytes = b"") -> bytes:
    """Each page a few lines of text; `beside` is a stream that no page shows, such as a large picture."""
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids: list[int] = []
    for text in pages:
        lines = b"".join(
            b"(%b) Tj T* " % line.replace("\\", "").replace("(", "").replace(")", "").encode("latin-1", "replace")
            for line in text.split("\n")
        )
        content = b"BT /F1 12 Tf 14 TL 72 720 Td " + lines + b"ET"
        objects.append(
            _stream(zlib.compress(content) if packed else content, b"/Filter /FlateDecode" if packed else b"")
        )
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            b" /Contents %d 0 R >>" % len(objects)
        )
        kids.append(len(objects))
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%b] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    if beside:
        objects.append(_stream(beside, b""))
    return _file(objects, trailer)


def _stream(content: bytes, filters: bytes) -> bytes:
    return b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), filters, content)


def _file(objects: Sequence[bytes], trailer: bytes) -> bytes:
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n")
    starts: list[int] = []
    for number, body in enumerate(objects, 1):
        starts.append(out.tell())
        out.write(b"%d 0 obj\n%b\nendobj\n" % (number, body))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % start for start in starts)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %b >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, trailer, table))
    return out.getvalue()


def encrypted_pdf(text: str) -> bytes:
    """With a password that one must know to read it."""
    writer = PdfWriter(PdfReader(io.BytesIO(pdf([text]))))
    writer.encrypt("secret", algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def pdf_bomb(megabytes: int = 200) -> bytes:
    """A page whose content is small, and unpacks to so much."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"(a) Tj " * 149_797) for _ in range(megabytes)) + packer.flush()
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [5 0 R] >>",
        font,
        _stream(packed, b"/Filter /FlateDecode"),
        page,
    ]
    return _file(objects, b"")


def archive(parts: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in parts.items():
            made.writestr(name, content)
    return out.getvalue()


def relations(targets: dict[str, tuple[str, str]]) -> str:
    items = "".join(
        f'<Relationship Id="{name}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for name, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{RELATIONS}">{items}</Relationships>'


def docx(paragraphs: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]] = ()) -> bytes:
    """Paragraphs, each with its style: `Heading1`, or nothing."""
    body = "".join(_word_paragraph(text, style) for style, text in paragraphs)
    table = "".join(
        "<w:tr>" + "".join(f"<w:tc>{_word_paragraph(cell, '')}</w:tc>" for cell in row) + "</w:tr>" for row in rows
    )
    document = f'<w:document xmlns:w="{W}"><w:body>{body}<w:tbl>{table}</w:tbl></w:body></w:document>'
    styles = "".join(
        f'<w:style w:styleId="berschrift{level}"><w:name w:val="heading {level}"/></w:style>' for level in (1, 2)
    )
    return archive({"word/document.xml": document, "word/styles.xml": f'<w:styles xmlns:w="{W}">{styles}</w:styles>'})


def _word_paragraph(text: str, style: str) -> str:
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def pptx(slides: Sequence[tuple[str, str]]) -> bytes:
    """Title and text of each. The files are named in another order than that in which they are shown."""
    names = [f"slide{len(slides) - place}.xml" for place in range(len(slides))]
    parts: dict[str, str | bytes] = {}
    for name, (title, text) in zip(names, slides, strict=True):
        shapes = (
            f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>{escape(title)}'
            f"</a:t></a:r></a:p></p:txBody></p:sp><p:sp><p:txBody><a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p>"
            "</p:txBody></p:sp>"
        )
        parts[f"ppt/slides/{name}"] = f'<p:sld xmlns:p="{P}" xmlns:a="{A}"><p:cSld>{shapes}</p:cSld></p:sld>'
    ids = "".join(f'<p:sldId r:id="r{place}" id="{256 + place}"/>' for place in range(len(slides)))
    parts["ppt/presentation.xml"] = (
        f'<p:presentation xmlns:p="{P}" xmlns:r="{OFFICE}"><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>'
    )
    targets = {f"r{place}": ("slide", f"slides/{name}") for place, name in enumerate(names)}
    parts["ppt/_rels/presentation.xml.rels"] = relations(targets)
    return archive(parts)


def xlsx(sheets: dict[str, Sequence[Sequence[str]]]) -> bytes:
    """Texts are shared, as Excel shares them; a text that is a number is a number, and `date:45000` a date."""
    shared: dict[str, int] = {}
    parts: dict[str, str | bytes] = {}
    listed = ""
    for place, (name, rows) in enumerate(sheets.items(), 1):
        listed += f'<sheet name="{escape(name)}" sheetId="{place}" r:id="r{place}"/>'
        written = "".join(
            f'<row r="{number}">'
            + "".join(_cell(column, number, value, shared) for column, value in enumerate(row))
            + "</row>"
            for number, row in enumerate(rows, 1)
        )
        parts[f"xl/worksheets/sheet{place}.xml"] = (
            f'<worksheet xmlns="{S}"><sheetData>{written}</sheetData></worksheet>'
        )
    texts = "".join(f"<si><t>{escape(text)}</t></si>" for text in shared)
    parts["xl/workbook.xml"] = f'<workbook xmlns="{S}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>'
    parts["xl/sharedStrings.xml"] = f'<sst xmlns="{S}">{texts}</sst>'
    parts["xl/styles.xml"] = (
        f'<styleSheet xmlns="{S}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>'
    )
    targets = {f"r{place}": ("worksheet", f"worksheets/sheet{place}.xml") for place in range(1, len(sheets) + 1)}
    parts["xl/_rels/workbook.xml.rels"] = relations(targets)
    return archive(parts)


def _cell(column: int, row: int, value: str, shared: dict[str, int]) -> str:
    where = f"{chr(ord('A') + column)}{row}"
    if value.startswith("date:"):
        return f'<c r="{where}" s="1"><v>{value[5:]}</v></c>'
    if value.replace(".", "").isdecimal():
        return f'<c r="{where}"><v>{value}</v></c>'
    return f'<c r="{where}" t="s"><v>{shared.setdefault(value, len(shared))}</v></c>'


def csv_file(rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


def every_format(mark: str) -> dict[str, bytes]:
    """A file of each, by its name; all say the mark, in a place that a format can name."""
    return {
        "a.pdf": pdf(["First page", f"The {mark} stands on the second page."]),
        "a.docx": docx([("berschrift1", "Care"), ("", "Before."), ("Heading2", "Water"), ("", f"The {mark} is here.")]),
        "a.pptx": pptx([("Welcome", "Nothing yet"), ("Findings", f"The {mark} is here.")]),
        "a.xlsx": xlsx({"Empty": [], "Stock": [["item", "count"], ["rose", "3"], [mark, "7"]]}),
        "a.html": f"<title>Garden</title><h1>Care</h1><h2>Water</h2><p>The <b>{mark}</b> is here.".encode(),
        "a.md": f"# Care\n\nBefore.\n\n## Water\n\nThe {mark} is here.\n".encode(),
        "a.csv": csv_file([["item", "count"], ["rose", "3"], [mark, "7"]]),
        "a.json": json.dumps({"care": "x", "water": [{"what": mark}]}).encode(),
        "a.txt": f"First.\n\nThe {mark} is here.\n".encode(),
    }


def docx_bomb() -> bytes:
    """A paragraph that unpacks to a gigabyte."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made, made.open("word/document.xml", "w") as part:
        part.write(f'<w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>'.encode())
        for _ in range(1 << 10):
            part.write(b"a" * (1 << 20))
    return out.getvalue()


def billion_laughs() -> bytes:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(10))
    document = f'<!DOCTYPE w [{entities}]><w:document xmlns:w="{W}"><w:p><w:t>&l9;</w:t></w:p></w:document>'
    return archive({"word/document.xml": document})
