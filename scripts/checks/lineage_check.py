#!/usr/bin/env python3
"""Holds what shardify says of history and lineage against independent computations and other people's validators.

drift: the population stability index of each column against numpy, of versions that fit the sample and of larger ones.
events: OpenLineage's own Python classes take every event and facet; with --openlineage-spec, the published JSON schemas do as well
(a folder with OpenLineage.json and facets/*.json, as in the folder spec/ of its repository).
documents: mlcroissant reads the records that the Croissant file describes, prov reads PROV-JSON, mlflow's entity takes the dataset.
roots: of each version, made from its log entry and tables by Python's hashlib and blake3 as docs/FORMAT.md has it.
private ids: HMAC-SHA-256 is computed in SQL by DuckDB, which finds the records that shardify finds, and sees no id in any table.
"""
import argparse
import base64
import glob
import hashlib
import hmac
import json
import math
import pathlib
import re
import tempfile

import blake3
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import harness
from harness import finish
from hmac_sql import HMAC_SQL

LEAST_SHARE = 1e-4
FEW_VALUES = 20


class Shardify:
    def __init__(self, binary, folder):
        self.binary, self.folder = str(pathlib.Path(binary).resolve()), folder

    def __call__(self, *arguments, code=0, env=None):
        return harness.run(self.binary, *arguments, codes=(code,), folder=self.folder, environment=env).decode()

    def objects(self, *arguments, **more):
        return [json.loads(line) for line in self(*arguments, "--json", **more).splitlines()]


def psi(before, after):
    """The index of two columns, from the definition: no code of shardify, no bins of shardify."""
    if before.dtype == object:
        before, after = [values[[v is not None for v in values]] for values in (before, after)]
        values, counts = np.unique(before.astype(str), return_counts=True)
        # The commonest; of equally common ones the least.
        top = [v for _, v in sorted(zip(-counts, values))][:FEW_VALUES]
        count = lambda column: [int((column == v).sum()) for v in top]
        a, b = count(before), count(after)
        a, b = a + [len(before) - sum(a)], b + [len(after) - sum(b)]
    else:
        # NaN is above all numbers, and no bound of a bin.
        known = before[~np.isnan(before)]
        distinct = np.unique(known)
        edges = distinct
        if len(distinct) > FEW_VALUES:
            edges = np.unique(np.quantile(known, np.arange(1, 10) / 10, method="inverted_cdf"))
        bins = lambda column: np.bincount(np.searchsorted(edges, column, side="left"), minlength=len(edges) + 1)
        a, b = bins(before), bins(after)
    a, b = [np.maximum(np.array(side) / sum(side), LEAST_SHARE) for side in (a, b)]
    return float(((b - a) * np.log(b / a)).sum())


def table(rows, shift, random):
    city = np.array(["Bonn", "Kiel", "Ulm", "Rome"], dtype=object)[random.choice(4, rows, p=[0.4 - shift / 10, 0.3, 0.2, 0.1 + shift / 10])]
    city[random.random(rows) < 0.05 + shift / 5] = None
    score = random.normal(shift, 1 + shift / 2, rows)
    score[random.random(rows) < 0.02] = np.nan
    return {
        "score": score,
        "age": random.integers(0, 90, rows).astype(float),
        "grade": random.integers(0, 5, rows) * (1.0 + (shift > 0.2)),
        "city": city,
        "text": np.array([f"w{int(x)}" for x in random.exponential(8 + 5 * shift, rows)], dtype=object),
    }


def write(path, columns):
    arrays = {name: pa.array(values, from_pandas=False) for name, values in columns.items()}
    arrays["grade"] = pa.array(columns["grade"].astype("int32"))
    pq.write_table(pa.table(arrays), path)


def check_drift(binary, folder, rows, tolerance):
    random = np.random.default_rng(rows)
    run = Shardify(binary, folder)
    (folder / "in").mkdir()
    old, new = table(rows, 0.0, random), table(rows // 2, 0.5, random)
    write(folder / "in/a.parquet", old)
    run("convert", "in", "--out", "d")
    write(folder / "in/b.parquet", new)
    run("convert", "in", "--out", "d")
    found = run.objects("manifest", "d", "--drift", "v1", "v2", "--psi", "0.02", "--volume", "0.6", code=1)
    columns = {o["column"]: o for o in found if o["type"] == "column"}
    assert set(columns) == set(old), columns.keys()
    for name in old:
        both = np.concatenate([old[name], new[name]])
        expected = psi(old[name], both)
        assert math.isclose(columns[name]["psi"], expected, rel_tol=tolerance, abs_tol=tolerance), (name, columns[name]["psi"], expected)
        nulls = lambda c: float(np.mean([v is None for v in c]))
        assert math.isclose(columns[name]["nulls_before"], nulls(old[name]), abs_tol=1e-12), name
        assert math.isclose(columns[name]["nulls_after"], nulls(both), abs_tol=1e-12), name
        assert ("psi" in columns[name]["beyond"]) == (columns[name]["psi"] > 0.02), name
    # The same at any number of threads, and with little memory.
    for more in (["--jobs", "1"], ["--jobs", "3"]):
        again = run.objects("manifest", "d", "--drift", "v1", "v2", "--psi", "0.02", "--volume", "0.6", *more, code=1)
        assert [o["psi"] for o in again if o["type"] == "column"] == [o["psi"] for o in found if o["type"] == "column"]
    shown = ", ".join(f"{name} {column['psi']:.4f}" for name, column in columns.items())
    print(f"drift of {rows:,} rows: {shown}")


def check_rules(run, folder, facet_v2):
    """The results of rules as facets of the dataset, in a file of their own."""
    (folder / "rules.toml").write_text("[columns.id]\nunique = true\n[columns.x]\nmax = 1\nnot_null = true\n")
    run("check", "d", "--rules", "rules.toml", "--openlineage", "rules.jsonl", code=1)
    events = [json.loads(line) for line in (folder / "rules.jsonl").read_text().splitlines()]
    assert [(e["eventType"], e["outputs"]) for e in events] == [("START", []), ("COMPLETE", [])]
    found = events[1]["inputs"][0]["inputFacets"]
    plain = lambda facet: {name: value for name, value in found[facet].items() if not name.startswith("_")}
    asserted, measured = facet_v2.data_quality_assertions_dataset, facet_v2.data_quality_metrics_input_dataset
    # A field that a class does not know is an error here.
    assertions = [asserted.Assertion(**one) for one in plain("dataQualityAssertions")["assertions"]]
    metrics = plain("dataQualityMetrics")
    columns = {name: measured.ColumnMetrics(**one) for name, one in metrics.pop("columnMetrics").items()}
    facets = {
        "dataQualityAssertions": asserted.DataQualityAssertionsDatasetFacet(assertions=assertions),
        "dataQualityMetrics": measured.DataQualityMetricsInputDatasetFacet(columnMetrics=columns, **metrics),
    }
    for name, facet in facets.items():
        assert found[name]["_schemaURL"].split("#")[1] == facet._get_schema().split("#")[1], name
    assert [(one.assertion, one.success) for one in assertions] == [("unique", True), ("not_null", True), ("max", False)], assertions
    assert (columns["x"].nullCount, columns["x"].max, columns["id"].distinctCount) == (0, 1.5, 6), columns


def check_events(binary, folder, spec):
    from openlineage.client import event_v2, facet_v2

    run = Shardify(binary, folder)
    for part in ("a", "b"):
        (folder / part).mkdir()
        for i in range(3):
            (folder / part / f"{i}.csv").write_text(f"id,x\n{part}{i},1.5\n")
    told = ["--openlineage", "events.jsonl"]
    run("convert", "a", "b/0.csv", "--out", "d", "--id", "id", *told)
    run("convert", "a", "b", "--out", "d", *told)
    run("compact", "d", "--min-inputs", "2", *told)
    run("adopt", "d", "--out", "e", *told)
    run("convert", "nowhere", "--out", "d", *told, code=2)
    check_rules(run, folder, facet_v2)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [e["eventType"] for e in events] == ["START", "COMPLETE"] * 4 + ["START", "FAIL"]
    assert len(events[1]["inputs"]) == 2, events[1]["inputs"]
    classes = {
        "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
        "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
        "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
        "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
        "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    }

    def facets(found):
        out = {}
        for name, fields in found.items():
            assert fields["_producer"] and fields["_schemaURL"].startswith("https://openlineage.io/spec/facets/"), fields
            # A field that the class does not know is an error here.
            out[name] = classes[name](**{k: v for k, v in fields.items() if not k.startswith("_")})
        return out

    for event in events:
        side = lambda d: {"namespace": d["namespace"], "name": d["name"], "facets": facets(d.get("facets", {}))}
        parsed = event_v2.RunEvent(
            eventType=event_v2.RunState[event["eventType"]], eventTime=event["eventTime"], producer=event["producer"],
            run=event_v2.Run(event["run"]["runId"], facets(event["run"].get("facets", {}))),
            job=event_v2.Job(event["job"]["namespace"], event["job"]["name"], facets(event["job"]["facets"])),
            inputs=[event_v2.InputDataset(**side(d)) for d in event["inputs"]],
            outputs=[event_v2.OutputDataset(**side(d), outputFacets=facets(d.get("outputFacets", {}))) for d in event["outputs"]],
        )
        assert parsed.run.runId == event["run"]["runId"]
    if spec:
        validate_events(events, spec)
    print(f"{len(events)} events of OpenLineage{' by the published schemas' if spec else ''}")


def validate_events(events, spec):
    import jsonschema
    import referencing

    registry = referencing.Registry()
    for path in [f"{spec}/OpenLineage.json", *glob.glob(f"{spec}/facets/*.json")]:
        schema = json.loads(pathlib.Path(path).read_text())
        registry = registry.with_resource(schema["$id"], referencing.Resource.from_contents(schema))

    def validate(what, schema):
        checker = jsonschema.FormatChecker()
        jsonschema.Draft202012Validator({"$ref": schema}, registry=registry, format_checker=checker).validate(what)

    def walk(part):
        if isinstance(part, dict) and "_schemaURL" in part:
            validate(part, part["_schemaURL"])
        for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            walk(value)

    for event in events:
        validate(event, event["schemaURL"])
        walk(event)


def check_documents(binary, folder):
    import mlcroissant
    import prov.model
    from mlflow.entities import Dataset

    run = Shardify(binary, folder)
    (folder / "in").mkdir()
    for i in range(3):
        (folder / f"in/{i}.csv").write_text(f"id,x,day\nP{i},{i}.5,2026-11-2{i}\n")
        run("convert", "in", "--out", "d", "--id", "id")
    run("compact", "d", "--min-inputs", "2")
    run("manifest", "d", "--tag", "gold")
    (folder / "d/croissant.json").write_text(run("manifest", "d", "--export", "croissant"))
    dataset = mlcroissant.Dataset(str(folder / "d/croissant.json"))
    assert not dataset.metadata.issues.errors, dataset.metadata.issues.report()
    records = sorted((r["records/id"], r["records/x"]) for r in dataset.records("records"))
    assert records == [(b"P0", 0.5), (b"P1", 1.5), (b"P2", 2.5)], records
    (folder / "tars").mkdir()
    (folder / "tars/a.txt").write_text("a")
    run("convert", "tars", "--out", "t")
    (folder / "t/croissant.json").write_text(run("manifest", "t", "--export", "croissant"))
    assert not mlcroissant.Dataset(str(folder / "t/croissant.json")).metadata.issues.errors

    document = prov.model.ProvDocument.deserialize(content=run("manifest", "d", "--export", "prov"), format="json")
    kinds = [type(record).__name__ for record in document.get_records()]
    assert kinds.count("ProvGeneration") == 5 and kinds.count("ProvActivity") == 5, kinds
    assert kinds.count("ProvDerivation") == 3 + 4, kinds

    described = json.loads(run("manifest", "d", "--export", "mlflow", "--at", "gold"))
    entity = Dataset(**described)
    assert Dataset.from_proto(entity.to_proto()).name == "d@v4" and len(entity.digest) <= 10
    source = json.loads(entity.source)["uri"]
    assert json.loads(pathlib.Path(source.removeprefix("file://")).read_text())["version"] == 4
    print("Croissant, PROV and MLflow")


def check_private(binary, folder, to, mode):
    run = Shardify(binary, folder)
    key = hashlib.sha256(f"{to} {mode}".encode()).digest()
    (folder / "key").write_bytes(key if to == "parquet" else base64.b64encode(key) if to == "tar" else key.hex().encode())
    (folder / "in").mkdir(exist_ok=True)
    for part in range(3):
        rows = "".join(f"VISIT-{i},PATIENT-{i % 17},{i}\n" for i in range(part * 100, part * 100 + 100))
        (folder / f"in/{part}.csv").write_text("visit,patient,x\n" + rows)
        run("convert", "in", "--out", "d", "--to", to, "--id", "visit", "--subject", "patient", "--id-mode", mode, "--id-key", "key")
    run("compact", "d", "--min-inputs", "2")
    run("verify", "d", "--read-data")
    sql = duckdb.connect()
    sql.execute(HMAC_SQL)
    token = lambda id: hmac.new(key, id.encode(), hashlib.sha256).hexdigest()[:32]
    tables = f"{folder}/d/_shardify"
    newest = json.loads(pathlib.Path(min(glob.glob(f"{tables}/log/*.json"))).read_text())
    for id, kind in (("VISIT-123", "record"), ("PATIENT-5", "subject")):
        found = sql.execute(f"select hmac_sha256('{key.hex()}', ?)[:32]", [id]).fetchone()[0]
        assert found == token(id), (found, token(id))
        # The lookup of docs/FORMAT.md: numbers in the index, and rows of sidecars by their token.
        live = [f"{folder}/d/{segment['path']}/*.table" for segment in newest["segments"] if segment["kind"] == kind]
        numbers = sql.execute(
            "select count(*) from read_parquet($live) where hash40 = ('0x' || substr($token, 1, 10))::ubigint",
            {"live": live, "token": found}).fetchone()[0]
        rows = sql.execute(
            f"select count(*) from read_parquet('{tables}/sidecar/*/*.table') where substr({kind}_id, 1, 32) = ?", [found]).fetchone()[0]
        expected = [o for o in run.objects("manifest", "d", "--find", id, "--id-key", "key") if o["type"] == "hit"]
        assert numbers == len(expected) == (1 if kind == "record" else len([i for i in range(300) if i % 17 == 5])), numbers
        # Sidecars of merged shards are there until a vacuum.
        assert rows == 2 * numbers, rows
    for path in glob.glob(f"{tables}/**/*.table", recursive=True):
        for column in pq.read_table(path).columns:
            assert not any("VISIT" in str(v) or "PATIENT" in str(v) for v in column.to_pylist()), path
    run("manifest", "d", "--find", "VISIT-123", code=2)
    print(f"private ids of {to}, {mode}: DuckDB finds what shardify finds")


def merkle(leaves):
    """RFC 6962, 2.1."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + merkle(leaves[:split]) + merkle(leaves[split:])).digest()


def leaf(text):
    return hashlib.sha256(b"\0" + text.encode()).digest()


def seals_of(segment):
    """Size, tail and hash of each bucket, as the log has them."""
    data, seals = base64.b64decode(segment["seals"]), []
    while data:
        numbers = []
        for _ in range(2):
            length = next(i for i, byte in enumerate(data) if byte < 0x80) + 1
            numbers.append(sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data[:length])))
            data = data[length:]
        seals.append((*numbers, data[:32].hex()))
        data = data[32:]
    return seals


def sealed_leaf(dataset, segment):
    """The leaf of a segment without a root: its buckets are as the log says, and hashes are those of five bytes."""
    assert segment["hash_bytes"] == 5 and "root" not in segment, segment
    buckets, seals = [], seals_of(segment)
    assert len(seals) == segment["buckets"], segment
    for number, (size, tail, digest) in enumerate(seals):
        path = pathlib.Path(f"{dataset}/{segment['path']}/b={number:04x}.table")
        data = path.read_bytes()
        assert (len(data), blake3.blake3(data[len(data) - tail :]).hexdigest()) == (size, digest), path
        file = pq.ParquetFile(path)
        assert b"shardify.blake3" not in (file.metadata.metadata or {}), path
        table = file.read()
        if not segment.get("ordered"):
            pairs = list(zip(table["hash40"].to_pylist(), table["record"].to_pylist()))
            assert pairs == sorted(pairs) and all(pair[0] < 1 << 40 for pair in pairs), path
        buckets.append(leaf(f"bucket {number} {size}:{tail}:{digest}\n"))
    root = merkle(buckets).hex()
    return leaf(f"sealed {segment['kind']} {segment['record_base']} {segment['pairs']} {segment['buckets']} {root}\n")


def segment_leaf(dataset, segment):
    if "hash_bytes" in segment:
        return sealed_leaf(dataset, segment)
    buckets = []
    for number in range(segment["buckets"]):
        ending = "table" if segment["path"].endswith(".segment") else "parquet"
        file = pq.ParquetFile(f"{dataset}/{segment['path']}/b={number:04x}.{ending}")
        table = file.read()
        pairs = np.empty((len(table), 2), "<u8")
        if segment.get("ordered"):
            ids = table["id"].to_pylist()
            assert ids == sorted(ids, key=str.encode), segment["path"]
            hashes = [int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big") for id in ids]
            order = np.lexsort((table["record"].to_numpy(), np.array(hashes, "<u8")))
            pairs[:, 0], pairs[:, 1] = np.array(hashes, "<u8")[order], table["record"].to_numpy()[order]
        else:
            pairs[:, 0], pairs[:, 1] = table["hash"].to_numpy(), table["record"].to_numpy()
        checksum = blake3.blake3(pairs.tobytes()).hexdigest()
        assert file.metadata.metadata[b"shardify.blake3"].decode() == checksum, number
        buckets.append(leaf(f"bucket {number} {len(table)} {checksum}\n"))
    root = merkle(buckets).hex()
    assert root == segment["root"], segment
    return leaf(f"segment {segment['kind']} {segment['record_base']} {segment['pairs']} {segment['buckets']} {root}\n")


def root_of(dataset, entry):
    """The root of a version that was not read through an erasure, from docs/FORMAT.md."""
    lists = []
    for one in entry["shards"]:
        rows = pq.read_table(f"{dataset}/{one['path']}").to_pylist()
        root = merkle([leaf(f"shard {r['path']} {r['records']} {r['checksum'].hex()}\n") for r in rows]).hex()
        assert root == one["root"], one
        lists.append(leaf(f"list {len(rows)} {root}\n"))
    stones = hashlib.sha256()
    for one in entry.get("erasures", {}).get("tombstones", []):
        for r in pq.read_table(f"{dataset}/{one['path']}").to_pylist():
            stones.update(f"{r['first']} {r['records']} v{r['version']}\n".encode())
    segments = [segment_leaf(dataset, segment) for segment in entry["segments"]]
    private = entry["settings"].get("private")
    ids = f"ids {private['mode']} {private['check']}\n" if private else "ids plain\n"
    head = (f"shardify root 1\nversion {entry['version']}\n{ids}lists {len(lists)}\nsegments {len(segments)}\n"
            f"tombstones {stones.hexdigest()}\n")
    return merkle([leaf(head), *lists, *segments]).hex()


def check_roots(binary, folder, proofs):
    run, rows, roots = Shardify(binary, folder), 1_300_000, []
    (folder / "in").mkdir()
    # Visits ascend, so their ids are stored, and patients do not, so their hashes are.
    ids = [f"VISIT-{i:07},PATIENT-{i % 40_000}" for i in range(rows)]

    def step(*arguments):
        run(*arguments)
        entry = json.loads(pathlib.Path(min(glob.glob(f"{folder}/d/_shardify/log/*.json"))).read_text())
        shown = run.objects("manifest", "d", "--root")[-1]["root"]
        assert root_of(folder / "d", entry) == entry["root"] == shown, arguments
        assert entry["format"] == 1, entry["format"]
        assert shown not in roots
        roots.append(shown)

    for number, first in enumerate([0, *range(rows - 900, rows, 100)]):
        end = rows - 900 if first == 0 else first + 100
        (folder / f"in/{number}.csv").write_text("visit,patient\n" + "\n".join(ids[first:end]) + "\n")
        step("convert", "in", "--out", "d", "--id", "visit", "--subject", "patient", *["--proofs"][: proofs and not number])
    step("compact", "d", "--min-inputs", "2")
    step("manifest", "d", "--tag", "gold")
    step("erase", "d", "VISIT-0000077", "PATIENT-5")
    step("erase", "d", "VISIT-0000123", "--all-versions")
    run("verify", "d")
    for version, then in enumerate(roots[:-1], 1):
        # The erased record was in each of them.
        assert run.objects("manifest", "d", "--root", "--at", f"v{version}")[-1]["root"] != then
    print(f"roots of {len(roots)} versions{' with proofs' if proofs else ''}: what Python makes of the log and its tables")


def check_guide(binary, folder):
    """The SQL of the guide to finding records, as it stands there."""
    root = pathlib.Path(__file__).resolve().parents[2]
    text = (root / "docs/guides/find.md").read_text()
    queries = re.findall(r"```sql\n(.*?)```", text[text.index("## SQL on the index"):], flags=re.S)
    run, key = Shardify(binary, folder), hashlib.sha256(b"guide").digest()
    (folder / "key").write_bytes(key)
    patients, found = root / "testdata/patients", []
    run("convert", patients, "--to", "parquet", "--subject", "person_id", "--out", "plain")
    run("convert", patients, "--to", "parquet", "--subject", "person_id", "--out", "private", "--id-mode", "sealed", "--id-key", "key")
    expected = len([o for o in run.objects("manifest", "plain", "--find", "7") if o["type"] == "hit"])
    sql = duckdb.connect()
    for name, query in zip(("plain", "private"), queries):
        for statement in query.replace("DATASET", f"{folder}/{name}").replace("'KEY'", f"'{key.hex()}'").split(";"):
            rows = sql.execute(statement).fetchall() if statement.strip() else []
            found += [len(rows)] if rows else []
    assert found == [expected] * 4 and expected > 1000, found
    print("the SQL of docs/guides/find.md finds what shardify finds")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rows", type=int, default=300_000, help="rows of a version that is larger than the sample")
    parser.add_argument("--openlineage-spec", help="folder with the published JSON schemas of OpenLineage")
    arguments = parser.parse_args()
    for rows, tolerance in ((20_000, 1e-9), (arguments.rows, 5e-3)):
        with tempfile.TemporaryDirectory() as folder:
            check_drift(arguments.shardify, pathlib.Path(folder), rows, tolerance)
    with tempfile.TemporaryDirectory() as folder:
        check_events(arguments.shardify, pathlib.Path(folder), arguments.openlineage_spec)
    with tempfile.TemporaryDirectory() as folder:
        check_documents(arguments.shardify, pathlib.Path(folder))
    for proofs in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            check_roots(arguments.shardify, pathlib.Path(folder), proofs)
    with tempfile.TemporaryDirectory() as folder:
        check_guide(arguments.shardify, pathlib.Path(folder))
    for to in ("parquet", "tar", "tfrecord"):
        for mode in ("hmac", "sealed"):
            with tempfile.TemporaryDirectory() as folder:
                check_private(arguments.shardify, pathlib.Path(folder), to, mode)
    return 0


if __name__ == "__main__":
    finish(main)
