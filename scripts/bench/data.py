#!/usr/bin/env python3
"""Makes the inputs of bench.py: the same bytes on every machine, whatever is there already is kept.

    python3 scripts/bench/data.py FOLDER [--rows 6500000] [--files 1000] [--samples 100000]

    FOLDER/clinical.csv     rows of hospital visits, 17 columns: ids, time, decimals, whole numbers, categories, free text with
                            quotes, line feeds and more than ASCII; one value in 25 is missing
    FOLDER/csv_parts/*.csv  the same rows in many files, each with a header
    FOLDER/clinical.jsonl   the same rows as JSON Lines
    FOLDER/tree/*/*         samples of three files: an image that does not compress (8 to 12 KiB), a JSON of 200 bytes, a label

Made only for bench_compact.py, by pyarrow, compressed with snappy:

    FOLDER/pq_small/*       2,000 Parquet files of 0.5 MB with the same columns
    FOLDER/pq_plain/*       the same values without dictionaries
    FOLDER/pq_medium/*      500 of 3.4 MB
"""

import argparse
import csv
import datetime
import io
import json
import multiprocessing
import pathlib
import random
import shutil

COLUMNS = ("patient_id visit_id ts heart_rate sbp temp_c glucose weight_kg height_cm age n_meds los_days bed sex department "
           "icd10 note").split()
DECIMALS = [(78, 14, 1), (124, 18, 1), (36.8, 0.5, 2), (5.9, 1.6, 3), (74, 16, 2), (168, 11, 1)]
WARDS = ("cardiology oncology emergency neurology radiology paediatrics surgery icu geriatrics dermatology urology "
         "psychiatry").split()
PHRASES = ["stable over night", "mild headache since noon", "no known allergies", "review in two weeks", "BP raised, repeat",
           "no chest pain", "metformin 500 mg begun", "asthma, controlled", "wound clean and dry", "sent home", "scan normal",
           "waiting for labs", "rest, fluids", "slept badly", "eats well", "walks alone", "family informed", "form signed",
           "came from ward 4", "no fever", "SpO2 98% on air", "vaccine refused", "light diet", "sat up for an hour"]
ODD = ['says "it hurts, there"', "Frau Müller", "37 °C at the café", "経過観察", "first line\nsecond line", "fine 🙂", "tab\there",
       "one; two", "ends in a comma,", '""twice quoted""']
START = datetime.datetime(2019, 1, 1)


def rows_of(number, first, count):
    rng = random.Random(f"rows {number}")
    chance, below, normal = rng.random, rng.randrange, rng.gauss
    maybe = lambda value: None if chance() < 0.04 else value
    for row in range(first, first + count):
        words = rng.choices(PHRASES, k=below(6))
        if chance() < 0.15:
            words.insert(len(words) // 2, rng.choice(ODD))
        yield [f"PAT-{below(1, 50_001):05}", f"V{row:09}",
               (START + datetime.timedelta(seconds=below(189_216_000))).isoformat(" "),
               *(maybe(round(normal(mean, spread), places)) for mean, spread, places in DECIMALS),
               below(100), maybe(min(int(rng.expovariate(0.33)), 30)), maybe(min(int(rng.expovariate(0.25)), 40)), below(1, 999),
               maybe(rng.choice("FMX")), rng.choice(WARDS), maybe(f"{rng.choice('ABCEGIJKLMNRSZ')}{below(40):02}.0"),
               "; ".join(words) or None]


def write_part(job):
    folder, number, first, count = job
    table, lines = io.StringIO(newline=""), []
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows_of(number, first, count):
        writer.writerow(row)
        lines.append(json.dumps(dict(zip(COLUMNS, row)), ensure_ascii=False, separators=(",", ":")) + "\n")
    (folder / "csv_parts" / f"part-{number:05}.csv").write_bytes(table.getvalue().encode())
    (folder / "jsonl_parts" / f"part-{number:05}.jsonl").write_bytes("".join(lines).encode())


def write_samples(job):
    folder, number, first, count = job
    rng = random.Random(f"samples {number}")
    below = folder / f"{number:05}"
    below.mkdir()
    for sample in range(first, first + count):
        label = rng.randrange(1000)
        facts = {"patient_id": f"PAT-{rng.randrange(1, 50_001):05}", "image_id": f"{sample:08}", "width": 512, "height": 512,
                 "label": label, "bbox": [rng.randrange(512) for _ in range(4)], "source": "scanner-07",
                 "caption": "frontal view, portable; nothing acute"}
        (below / f"{sample:08}.jpg").write_bytes(b"\xff\xd8\xff\xe0" + rng.randbytes(8188 + rng.randrange(4096)) + b"\xff\xd9")
        (below / f"{sample:08}.json").write_text(json.dumps(facts))
        (below / f"{sample:08}.cls").write_text(str(label))


def parts(folder, total, pieces):
    edges = [total * i // pieces for i in range(pieces + 1)]
    return [(folder, i, edges[i], edges[i + 1] - edges[i]) for i in range(pieces)]


def make_tables(folder, rows, files):
    for name in ("csv_parts", "jsonl_parts"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
    with multiprocessing.Pool() as pool:
        pool.map(write_part, parts(folder, rows, files), chunksize=4)
    header = (",".join(COLUMNS) + "\n").encode()
    with open(folder / "clinical.csv", "wb") as table, open(folder / "clinical.jsonl", "wb") as lines:
        table.write(header)
        for number in range(files):
            table.write((folder / "csv_parts" / f"part-{number:05}.csv").read_bytes()[len(header):])
            lines.write((folder / "jsonl_parts" / f"part-{number:05}.jsonl").read_bytes())
    shutil.rmtree(folder / "jsonl_parts")


def make_tree(folder, samples):
    shutil.rmtree(folder / "tree", ignore_errors=True)
    (folder / "tree").mkdir(parents=True)
    with multiprocessing.Pool() as pool:
        pool.map(write_samples, parts(folder / "tree", samples, max(1, samples // 1000)), chunksize=1)


def write_parquet(job):
    import numpy
    import pyarrow
    import pyarrow.compute as pc
    import pyarrow.parquet
    folder, number, rows, dictionaries = job
    rng = numpy.random.default_rng([rows, number])
    maybe = lambda values, share=0.04: pyarrow.array(values, mask=rng.random(rows) < share)
    below = lambda least, most: rng.integers(least, most, rows)
    pick = lambda words: numpy.array(words, dtype=object)[below(0, len(words))]
    padded = lambda prefix, numbers, width: numpy.char.add(prefix, numpy.char.zfill(numbers.astype(str), width))
    notes = ["; ".join(words) for words in zip(pick(PHRASES + ODD), pick(PHRASES), pick(PHRASES), pick(PHRASES + ODD))]
    codes = [f"{letter}{code:02}.0" for letter in "ABCEGIJKLMNRSZ" for code in range(40)]
    decimals = [maybe(numpy.round(rng.normal(mean, spread, rows), places)) for mean, spread, places in DECIMALS]
    columns = [pyarrow.array(padded("PAT-", below(1, 50_001), 5)), pyarrow.array(padded("V", numpy.arange(rows) + number * rows, 9)),
               pyarrow.array(numpy.datetime64(START, "us") + below(0, 189_216_000) * numpy.timedelta64(1_000_000, "us")), *decimals,
               pyarrow.array(below(0, 100)), maybe(rng.poisson(3, rows)), maybe(rng.poisson(4, rows)), pyarrow.array(below(1, 999)),
               maybe(pick(list("FMX"))), pyarrow.array(pick(WARDS)), maybe(pick(codes)), maybe(numpy.array(notes, dtype=object), 0.1)]
    pyarrow.parquet.write_table(pyarrow.table(columns, names=COLUMNS), folder / f"part-{number:05}.parquet", compression="snappy",
                                use_dictionary=dictionaries)


def make_parquet(folder, files, rows, dictionaries):
    if folder.exists():
        return
    making = folder.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    with multiprocessing.Pool() as pool:
        pool.map(write_parquet, [(making, number, rows, dictionaries) for number in range(files)], chunksize=4)
    making.rename(folder)


def make(folder, rows, files, samples):
    if not (folder / "clinical.jsonl").exists():
        make_tables(folder, rows, files)
    if not (folder / "tree").exists():
        make_tree(folder, samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=6_500_000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=100_000)
    options = parser.parse_args()
    make(options.folder, options.rows, options.files, options.samples)


if __name__ == "__main__":
    main()
