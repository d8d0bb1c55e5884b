#!/bin/sh
# Makes datasets.tar.gz beside this file with the program that is given: sh make.sh PATH/TO/shardify
# Samples are k000 to k119 with the parts `cls` and `txt`, and of every seventh `seg.png`; rows have `id`, `name` and more.
set -eu
program=$(realpath "$1")
cd "$(dirname "$0")"
work=/tmp/shardify-testdata
rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT

python3 - "$work" <<'PYTHON'
import io, pathlib, sys, tarfile

work = pathlib.Path(sys.argv[1])
for folder, start in (("samples", 0), ("later", 60)):
    (work / folder).mkdir()
    for i in range(start, start + 60):
        (work / folder / f"k{i:03}.cls").write_text(str(i % 10))
        (work / folder / f"k{i:03}.txt").write_text(f"text of {i} " * (i * 7 % 23))
        if i % 7 == 3:
            (work / folder / f"k{i:03}.seg.png").write_bytes(bytes([i]) * i)
for name, start in (("rows", 0), ("more", 150)):
    with open(work / f"{name}.csv", "w") as file:
        file.write("id,person,name,value,day\n")
        for i in range(start, start + 150):
            value = "" if i % 11 == 4 else i * 0.5
            file.write(f"{i},P{i // 3},name {i} {'x' * (i * 5 % 17)},{value},2026-01-{i % 28 + 1:02}\n")
(work / "ids.txt").write_text("\n".join(["k005", "k006", "k059", "k060", "k100"]))
(work / "foreign").mkdir()
with tarfile.open(work / "foreign/0.tar", "w", format=tarfile.GNU_FORMAT) as tar:
    for i in range(20):
        folder = tarfile.TarInfo("d")
        folder.type = tarfile.DIRTYPE
        if i % 5 == 0:
            tar.addfile(folder)
        for ext in ("cls", "txt"):
            data = f"{ext} {i}".encode()
            member = tarfile.TarInfo(f"d/{'long' * (30 if i == 7 else 1)}{i:02}.{ext}")
            member.size, member.mtime, member.uname = len(data), 7, "somebody"
            tar.addfile(member, io.BytesIO(data))
PYTHON

archive=$PWD/datasets.tar.gz
here=$work/datasets
mkdir "$here"
cd "$work"
convert() { # name and options of a dataset, whose sources are in two runs
    name=$1 first=$2 second=$3
    shift 3
    for source in $first $second; do
        "$program" convert "$source" --out "$here/$name" --quiet "$@"
    done
}
convert tar samples later --to tar --records-per-shard 25
convert tar-zst samples later --to tar --codec zstd
"$program" compact "$here/tar-zst" --quiet
convert tar-gzip samples later --to tar --codec gzip --records-per-shard 40
convert tfrecord rows.csv more.csv --to tfrecord --records-per-shard 70
convert tfrecord-gzip rows.csv more.csv --to tfrecord --codec gzip --records-per-shard 100
convert parquet rows.csv more.csv --records-per-shard 70
convert parquet-samples samples later --records-per-shard 50
convert split rows.csv more.csv --subject person --split train=0.8,test=0.2
convert shuffled rows.csv more.csv --to tfrecord --shuffle 7 --records-per-shard 80
convert sorted rows.csv more.csv --records-per-shard 60
"$program" compact "$here/sorted" --sort-by name --quiet
convert erased samples later --to tar --records-per-shard 20
"$program" erase "$here/erased" --ids ids.txt --all-versions --quiet
convert compacted rows.csv more.csv --to tar --subject person --records-per-shard 40
"$program" erase "$here/compacted" --subject P7 --quiet
"$program" compact "$here/compacted" --quiet
"$program" adopt foreign --out "$here/adopted" --quiet
"$program" pull "$here/shuffled" "$here/pulled" --quiet
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$here" -c . | gzip -9n > "$archive"
