#!/usr/bin/env python3
"""Sheets of workbooks have the values that openpyxl, xlrd and python-calamine read, and damaged or hostile ones end in errors.

    python3 scripts/checks/excel_check.py --shardify target/ci/shardify [--books 40] [--flips 60] [--cuts 30] [--corpus FOLDER] [--seed 1]

Generated xlsx books of all types, with both epochs, texts in the table of texts and in cells, gaps, empty rows, errors, hidden sheets and headers further
down: the Parquet rows are those of openpyxl in read-only mode, value by value and type by type, at 1 and 4 threads, with gzip around the book, and from
standard input. Those of `testdata/excel`, and of a folder of the tests of calamine if `--corpus` names one, are compared with python-calamine (xlsb, ods),
xlrd (xls) and openpyxl. A book that is cut or has a bit flipped ends in an error or gives the rows of the whole one; bombs and stated sizes are refused in
little memory. Needs a build with the feature `excel`, and openpyxl, python-calamine and xlrd.
"""

import argparse
import datetime
import gzip
import io
import math
import pathlib
import random
import tempfile
import zipfile

import openpyxl
import pyarrow.parquet as pq
import python_calamine
import xlrd
from harness import ADDRESS_SPACE, ROOT, Failure, convert_bounded, expect, finish, not_run
from openpyxl.cell import WriteOnlyCell
from openpyxl.utils.escape import unescape

DATA = ROOT / "testdata" / "excel"
TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


class Program:
    def __init__(self, binary):
        self.binary = str(pathlib.Path(binary).resolve())

    def convert(self, source, out, *more, codes=(0,), stdin=None):
        """Runs a conversion; returns the exit code and standard error."""
        code, _, errors = convert_bounded(self.binary, source, out, "--json", *more, stdin=stdin)
        if code not in codes:
            raise Failure(f"{source}: exit code {code}, expected {codes}\n{errors[-2000:]}")
        return code, errors


def rows_of(dataset):
    """Names, types and rows of all Parquet shards."""
    shards = sorted(path for path in pathlib.Path(dataset).rglob("*.parquet") if "_shardify" not in path.parts and path.stem.isdigit())
    tables = [pq.read_table(shard) for shard in shards]
    names = tables[0].column_names if tables else []
    return names, [str(one.type) for one in tables[0].schema] if tables else [], [list(row.values()) for one in tables for row in one.to_pylist()]


def kind_of(value):
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case datetime.datetime():
            return "stamp" if value.time() != datetime.time() else "date"
        case datetime.date():
            return "date"
        case datetime.time():
            return "time"
        case datetime.timedelta():
            return "span"
    return "text"


def rounded(value):
    """Milliseconds, as a moment of pyarrow."""
    if isinstance(value, datetime.datetime):
        value += datetime.timedelta(microseconds=500)
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    if isinstance(value, datetime.timedelta):
        return datetime.timedelta(milliseconds=round(value / datetime.timedelta(milliseconds=1)))
    return value


def number_text(number):
    if float(number).is_integer() and abs(number) < 1e17:
        return str(int(number))
    text = repr(float(number)).replace("e+", "e")
    return text.replace("e-0", "e-")


def as_text(value):
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            return number_text(value)
        case datetime.datetime():
            value = rounded(value)
            if value.time() == datetime.time():
                return value.date().isoformat()
            return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
        case datetime.time():
            return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
        case datetime.date():
            return value.isoformat()
        case datetime.timedelta():
            milliseconds = round(value / datetime.timedelta(milliseconds=1))
            size = f"{abs(milliseconds) / 1000:.3f}".rstrip("0").rstrip(".")
            return "P0D" if milliseconds == 0 else ("-" if milliseconds < 0 else "") + f"PT{size}S"
    return value


def table_of(cells, header=True):
    """What a sheet is as a table, given its rows as an oracle has them: names, and rows in the types of their columns."""
    rows = [[None if value is None or value == "" else value for value in row] for row in cells]
    while rows and all(value is None for value in rows[-1]):
        rows.pop()
    while rows and all(value is None for value in rows[0]):
        rows.pop(0)
    if not rows:
        return [], []
    used = [at for row in rows for at, value in enumerate(row) if value is not None]
    first, last = min(used), max(used)
    rows = [(row + [None] * (last + 1))[first : last + 1] for row in rows]
    names = rows.pop(0) if header else [f"column_{at + 1}" for at in range(last - first + 1)]
    columns = []
    for at in range(len(names)):
        values = [row[at] for row in rows]
        kinds = {kind_of(value) for value in values if value is not None}
        if kinds == {"number"}:
            whole = all(float(value).is_integer() and abs(value) < 2**53 for value in values if value is not None)
            values = [None if value is None else int(value) if whole else float(value) for value in values]
        elif kinds == {"date"}:
            values = [value.date() if isinstance(value, datetime.datetime) else value for value in values]
        elif kinds and kinds <= {"date", "stamp"}:
            moment = datetime.datetime
            values = [rounded(v if isinstance(v, moment) or v is None else moment(v.year, v.month, v.day)) for v in values]
        elif len(kinds) > 1:
            values = [None if value is None else as_text(value) for value in values]
        else:
            values = [rounded(value) for value in values]
        columns.append(values)
    return names, [list(row) for row in zip(*columns)]


def compare(what, found, expected):
    expect(f"{what}: columns", found[0], expected[0])
    expect(f"{what}: rows", len(found[2]), len(expected[1]))
    for number, (row, wanted) in enumerate(zip(found[2], expected[1]), 1):
        for name, value, other in zip(found[0], row, wanted):
            same = value == other and type(value) is type(other) or isinstance(value, float) and isinstance(other, float) and math.isnan(value) and math.isnan(other)
            if not same:
                raise Failure(f"{what}: record {number}, {name}: expected {other!r}, found {value!r}")


# ---- Generated books ----


def value_of(rng, kind):
    day = datetime.datetime(1900, 3, 1) + datetime.timedelta(days=rng.randrange(70000))
    match kind:
        case "whole":
            return rng.choice([0, 1, -1, rng.randrange(-(10**6), 10**6), 2**53 - 1])
        case "real":
            return rng.choice([0.5, 1, 1e-7, 1e300, rng.uniform(-1e6, 1e6), 123456789.125])
        case "large":
            return rng.choice([2**53, 10**17, 1])
        case "date":
            return day
        case "stamp":
            return day + datetime.timedelta(milliseconds=rng.randrange(86_400_000))
        case "time":
            return datetime.time(rng.randrange(24), rng.randrange(60), rng.randrange(60), rng.randrange(1000) * 1000)
        case "span":
            return datetime.timedelta(seconds=rng.randrange(10**6))
        case "bool":
            return rng.random() < 0.5
        case "text":
            return rng.choice(["00123", "ü <&> \"'", "a\nb", "1", "x" * 300, "  blanks ", "日本語", "=not a formula"[1:], "TRUE", "2024-01-01"])
    return None


KINDS = ["whole", "real", "large", "date", "stamp", "time", "span", "bool", "text", "empty", "mixed"]


def make_book(rng, path):
    """Writes a book; returns the options to read it."""
    write_only = rng.random() < 0.3
    book = openpyxl.Workbook(write_only=write_only)
    if rng.random() < 0.3:
        book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904
    name = rng.choice(["Sheet1", "Visits 2024", "Übersicht & mehr"])
    sheet = book.create_sheet(name) if write_only else book.active
    sheet.title = name
    kinds = [rng.choice(KINDS) for _ in range(rng.randrange(1, 9))]
    skip, options = 0, []
    if rng.random() < 0.3:
        skip = rng.randrange(1, 4)
        for _ in range(skip):
            sheet.append(["A title that is no header", 7])
        options += ["--read", f"skip={skip}"]
    header = rng.random() < 0.8
    left = rng.choice([0, 0, 2])
    if header:
        sheet.append([None] * left + [f"{kind} {at}" for at, kind in enumerate(kinds)])
    else:
        options += ["--read", "header=no"]
    for row in range(rng.choice([0, 1, 5, 60, 2000])):
        if rng.random() < 0.02 and row:
            sheet.append([])
            continue
        cells = [None] * left
        for kind in kinds:
            kind = rng.choice(KINDS[:9]) if kind == "mixed" else kind
            value = None if rng.random() < 0.1 else value_of(rng, kind)
            if kind == "span" and write_only and value is not None:
                cell = WriteOnlyCell(sheet, value)
                cell.number_format = "[h]:mm:ss"
                value = cell
            cells.append(value)
        sheet.append(cells)
    if rng.random() < 0.4:
        other = book.create_sheet("Names of people")
        other.append(["name"])
        other.append(["somebody"])
        other.sheet_state = rng.choice(["hidden", "veryHidden"])
    if rng.random() < 0.3:
        book.create_sheet("Nothing")
    book.save(path)
    return name, skip, header, options


def openpyxl_rows(path, name, skip=0):
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    # Excel writes a carriage return as `_x000D_`, which openpyxl leaves as it is.
    plain = lambda value: unescape(value) if isinstance(value, str) else value
    rows = [[plain(value) for value in row] for number, row in enumerate(book[name].iter_rows(values_only=True), 1) if number > skip]
    book.close()
    return rows


def check_generated(program, folder, rng, count):
    for number in range(count):
        path = folder / f"book{number}.xlsx"
        name, skip, header, options = make_book(rng, path)
        expected = table_of(openpyxl_rows(path, name, skip), header)
        for variant in range(3 if number % 5 == 0 else 1):
            source, stdin, jobs = path, None, rng.choice([1, 4])
            if variant == 1:
                source = folder / f"book{number}.xlsx.gz"
                source.write_bytes(gzip.compress(path.read_bytes()))
            if variant == 2:
                source, stdin, options = "-", path.read_bytes(), ["--from", "excel", *options]
            # A visible sheet without a cell is refused beside a hidden one with some.
            codes = (0,) if expected[0] else (0, 6)
            code, _ = program.convert(source, folder / "out", "--jobs", jobs, *options, codes=codes, stdin=stdin)
            if code:
                continue
            compare(f"book {number} of seed, as {source}", rows_of(folder / "out") if expected[1] else (expected[0], [], []), expected)
    print(f"ok    {count} generated books, value by value as openpyxl reads them")


# ---- Files of other writers ----


def calamine_rows(path, name):
    rows = python_calamine.CalamineWorkbook.from_path(path).get_sheet_by_name(name).to_python(skip_empty_area=False)
    if path.suffix != ".ods":
        return rows
    # OpenDocument has one type for times of day and durations.
    midnight = datetime.datetime.min
    spans = lambda value: datetime.datetime.combine(midnight, value) - midnight if isinstance(value, datetime.time) else value
    return [[spans(value) for value in row] for row in rows]


def xlrd_rows(path, name):
    book = xlrd.open_workbook(path, formatting_info=True)
    sheet = book.sheet_by_name(name)
    epoch = openpyxl.utils.datetime.MAC_EPOCH if book.datemode else openpyxl.utils.datetime.WINDOWS_EPOCH
    rows = []
    for row in range(sheet.nrows):
        cells = []
        for cell in sheet.row(row):
            if cell.ctype == xlrd.XL_CELL_DATE:
                style = book.format_map[book.xf_list[cell.xf_index].format_key].format_str
                value = openpyxl.utils.datetime.from_excel(cell.value, epoch, timedelta="[h" in style.lower())
            elif cell.ctype == xlrd.XL_CELL_BOOLEAN:
                value = bool(cell.value)
            elif cell.ctype in (xlrd.XL_CELL_ERROR, xlrd.XL_CELL_EMPTY, xlrd.XL_CELL_BLANK):
                value = None
            else:
                value = cell.value
            cells.append(value)
        rows.append(cells)
    return rows


ERRORS = {"#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"}


def without_errors(rows):
    return [[None if value in ERRORS else value for value in row] for row in rows]


def oracles(path):
    """The readers of a file, apart from python-calamine, which has the same decoder beneath it for all but ods."""
    match path.suffix:
        case ".xlsx" | ".xlsm":
            return [("openpyxl", openpyxl_rows)]
        case ".xls":
            return [("xlrd", xlrd_rows)]
    return [("python-calamine", calamine_rows)]


def check_files(program, folder, files, exceptions):
    seen = refused = 0
    wrong = []
    for path in files:
        try:
            names = [sheet.name for sheet in python_calamine.CalamineWorkbook.from_path(path).sheets_metadata]
        except Exception:
            # What is no workbook for it may be one, but must not crash.
            refused += program.convert(path, folder / "out", "--from", "excel", "--read", "header=no", codes=(0, 2, 6))[0] != 0
            continue
        for name in names:
            what = f"{path.name}/{name}"
            code, errors = program.convert(path, folder / "out", "--from", "excel", "--read", "header=no", "--read", f"sheet={name}", codes=(0, 6))
            if what in exceptions or path.name in exceptions:
                continue
            for oracle, read in oracles(path):
                try:
                    rows = without_errors(read(path, name))
                except Exception as error:
                    not_run(f"{what} by {oracle}", str(error)[:80])
                    continue
                expected = table_of(rows, header=False)
                try:
                    if code and expected[1]:
                        raise Failure(f"{what}: {oracle} reads {len(expected[1])} rows, and shardify says {errors[-600:]}")
                    if expected[1]:
                        compare(f"{what}, by {oracle}", rows_of(folder / "out"), expected)
                        seen += 1
                except Failure as failure:
                    wrong.append(str(failure))
    if wrong:
        raise Failure("\n".join(wrong))
    print(f"ok    {seen} sheets of {len(files)} files of other writers, value by value; {refused} files refused")


# ---- Damage ----


def check_damage(program, folder, rng, flips, cuts):
    options = ("--from", "excel", "--read", "header=no", "--read", "sheet=Sheet1", "--jobs", 1)
    errors = same = 0
    for path in [DATA / "date.xlsx", DATA / "date.xlsb", DATA / "date.xls", DATA / "merged_cells.ods"]:
        whole = path.read_bytes()
        program.convert(path, folder / "out", *options)
        rows = rows_of(folder / "out")[2]
        damaged = folder / f"damaged{path.suffix}"
        for number in range(flips + cuts):
            if number < flips:
                at = rng.randrange(len(whole))
                damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
            else:
                at = rng.randrange(len(whole))
                damaged.write_bytes(whole[:at])
            code, _ = program.convert(damaged, folder / "out", *options, codes=(0, 6))
            if code:
                errors += 1
            elif path.suffix != ".xls":
                # Parts of archives have checksums, sectors have none.
                expect(f"{path.name}, damaged at {at}", rows_of(folder / "out")[2], rows)
                same += 1
    print(f"ok    damaged books: {errors} errors, {same} with the rows of the whole one")


def hostile_book(texts="<sst/>", data="", styles="<styleSheet/>", extra=()):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression=zipfile.ZIP_DEFLATED) as book:
        book.writestr("_rels/.rels", f'<Relationships><Relationship Id="r" Type="{TYPES}/officeDocument" Target="xl/workbook.xml"/></Relationships>')
        book.writestr("xl/workbook.xml", f'<workbook xmlns:r="{TYPES}"><sheets><sheet name="S" sheetId="1" r:id="s"/></sheets></workbook>')
        book.writestr("xl/_rels/workbook.xml.rels", f'<Relationships><Relationship Id="s" Type="{TYPES}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>')
        book.writestr("xl/sharedStrings.xml", texts)
        book.writestr("xl/styles.xml", styles)
        book.writestr("xl/worksheets/sheet1.xml", f"<worksheet><sheetData>{data}</sheetData></worksheet>")
        for name, content in extra:
            book.writestr(name, content)
    return out.getvalue()


def hostile_ods(table):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as book:
        book.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        book.writestr("META-INF/manifest.xml", "<manifest:manifest/>")
        book.writestr("content.xml", f'<office:document-content><table:table table:name="S">{table}</table:table></office:document-content>')
    return out.getvalue()


def check_hostile(program, folder):
    cell = '<row r="2"><c r="A2" t="inlineStr"><is><t>{}</t></is></c></row>'
    repeated = '<table:table-row table:number-rows-repeated="1048576"><table:table-cell table:number-columns-repeated="16384" office:value-type="float" office:value="1"/></table:table-row>'
    spaces = '<table:table-row><table:table-cell office:value-type="string"><text:p>' + '<text:s text:c="4294967295"/>' * 50 + "</text:p></table:table-cell></table:table-row>"
    books = {
        "stated.xlsx": hostile_book(texts='<sst uniqueCount="99999999999"/>'),
        "wide.xlsx": hostile_book(texts='<sst uniqueCount="18446744073709551615"/>'),
        "texts.xlsx": hostile_book(texts="<sst>" + "<si><t>abcdefgh</t></si>" * 12_000_000 + "</sst>"),
        "long.xlsx": hostile_book(data=cell.format("x" * (60 << 20))),
        "blanks.xlsx": hostile_book(data=" " * (300 << 20)),
        "runs.xlsx": hostile_book(data='<row r="2"><c r="A2" t="inlineStr"><is>' + "<t>abcdefgh</t>" * 12_000_000 + "</is></c></row>"),
        "styles.xlsx": hostile_book(styles="<styleSheet><cellXfs>" + "<xf/>" * 9_000_000 + "</cellXfs></styleSheet>"),
        "far.xlsx": hostile_book(data='<row r="4294967295"><c r="A4294967295"><v>1</v></c></row>'),
        "repeats.ods": hostile_ods(repeated),
        "spaces.ods": hostile_ods(spaces),
    }
    for name, content in books.items():
        path = folder / name
        path.write_bytes(content)
        _, errors = program.convert(path, folder / "out", "--read", "header=no", codes=(6,))
        if name not in errors:
            raise Failure(f"{name}: an error that does not name it: {errors[-500:]}")
    refused = sorted((DATA / "refused").iterdir())
    for path in refused:
        _, errors = program.convert(path, folder / "out", codes=(6,))
        if "pass_" in path.name and "password" not in errors:
            raise Failure(f"{path.name}: an error without the password: {errors[-500:]}")
    print(f"ok    {len(books)} hostile books, {len(refused)} encrypted or damaged ones refused by name within {ADDRESS_SPACE >> 30} GiB of addresses")


# Sheets on which the readers disagree, and why.
EXCEPTIONS = {
    "encoded_entities.xlsx": "blanks around a text without xml:space, which openpyxl keeps and Excel does not",
    "minimal_package.xlsx": "the same",
    "whitespace_trim.xlsx": "the same",
    "sheet_name_parsing.xls": "texts that xlrd reads as one byte a character",
    "issue_174.xlsx": "a stated size over which openpyxl iterates for minutes",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--books", type=int, default=40)
    parser.add_argument("--flips", type=int, default=60)
    parser.add_argument("--cuts", type=int, default=30)
    parser.add_argument("--corpus", help="a folder of workbooks of other writers")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program, rng = Program(options.shardify), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        check_generated(program, folder, rng, options.books)
        files = sorted(path for path in DATA.iterdir() if path.is_file())
        if options.corpus:
            files += sorted(path for path in pathlib.Path(options.corpus).iterdir() if path.suffix in (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"))
        check_files(program, folder, files, EXCEPTIONS)
        check_damage(program, folder, rng, options.flips, options.cuts)
        check_hostile(program, folder)


if __name__ == "__main__":
    finish(main)
