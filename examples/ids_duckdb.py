#!/usr/bin/env python3
"""Where the records of a person are: by `find`, and by SQL on the tables of the dataset, without shardify.

    python examples/ids_duckdb.py [OUT]
"""

import sys

import duckdb

import shardify

PERSON = "7"

# Record numbers from the index of subjects, which has ids where they ascend, and else hashes; see docs/FORMAT.md.
NUMBERS = """
    with pairs as (
        select null::varchar as id, null::ubigint as hash40, null::ubigint as record
        union all by name select * from read_parquet($tables || '/index/subject/*/*.table', union_by_name = true))
    select count(distinct record) from pairs
    where id = $person or hash40 = ('0x' || substr(sha256($person), 1, 10))::ubigint
"""
# Where each of them came from.
ORIGINS = """
    select source, count(*) from read_parquet($tables || '/sidecar/*/*.table', union_by_name = true)
    where subject_id = $person group by all order by all
"""


def main(out):
    report = shardify.convert("testdata/patients", out=out, subject="person_id")
    print(f"{report.records_out} records of {report.sources} tables")

    hits = shardify.find(out, PERSON)
    print(f"find: {len(hits)} records of person {PERSON}, the first in row {hits[0].ordinal} of {hits[0].shard}")

    given = {"tables": f"{out}/_shardify", "person": PERSON}
    (number,) = duckdb.execute(NUMBERS, given).fetchone()
    print(f"SQL:  {number} records of person {PERSON}")
    for source, records in duckdb.execute(ORIGINS, given).fetchall():
        print(f"      {records:5} from {source}")

    # The rows of exactly this version. A glob over the folder would also read shards of older versions.
    rows = shardify.open(out).duckdb()
    print(f"rows: {rows.filter(f'person_id = {PERSON}').aggregate('count(*)').fetchall()[0][0]}")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "target/examples/patients")
