//! Arrays on a server: of a file only what is needed is asked for.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use crate::{hdf5, support};

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use support::Folder;

/// A server of files that answers ranges, unless their names begin with `whole/`, and counts the bytes that it gives,
/// and the requests for some.
struct Server {
    url: String,
    given: Arc<(AtomicU64, AtomicU64)>,
}

impl Server {
    fn start(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let given = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let (files, counter) = (Arc::new(files), Arc::clone(&given));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, counter) = (Arc::clone(&files), Arc::clone(&counter));
                std::thread::spawn(move || answer(stream, &files, &counter));
            }
        });
        Self { url, given }
    }

    /// Bytes given since the last time.
    fn given(&self) -> u64 {
        self.given.0.swap(0, Ordering::SeqCst)
    }

    /// Requests since the last time.
    fn asked(&self) -> u64 {
        self.given.1.swap(0, Ordering::SeqCst)
    }
}

/// Answers requests on a connection until it is closed.
fn answer(stream: TcpStream, files: &BTreeMap<String, Vec<u8>>, given: &(AtomicU64, AtomicU64)) -> Option<()> {
    let mut input = BufReader::new(stream.try_clone().ok()?);
    let mut output = stream;
    loop {
        let (mut first, mut range) = (String::new(), None);
        if input.read_line(&mut first).ok()? == 0 {
            return None;
        }
        loop {
            let mut line = String::new();
            input.read_line(&mut line).ok()?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(asked) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                let (start, end) = asked.trim().split_once('-')?;
                range = Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()));
            }
        }
        let mut words = first.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        let range = range.filter(|_| !path.starts_with("/whole/"));
        let Some(file) = files.get(path.trim_start_matches('/')) else {
            output.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok()?;
            continue;
        };
        let (start, end) = match range {
            Some((start, end)) => (start, end.map_or(file.len(), |end| (end + 1).min(file.len()))),
            None => (0, file.len()),
        };
        let status = if range.is_some() {
            format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{}", end - 1, file.len())
        } else {
            "200 OK".to_owned()
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\nLast-Modified: Sun, 01 Nov 2020 \
             00:00:00 GMT\r\n\r\n",
            end - start
        );
        output.write_all(head.as_bytes()).ok()?;
        if method == "GET" {
            given.1.fetch_add(1, Ordering::SeqCst);
            for piece in file[start..end].chunks(64 << 10) {
                output.write_all(piece).ok()?;
                given.0.fetch_add(piece.len() as u64, Ordering::SeqCst);
            }
        }
    }
}

const MIB: u64 = 1 << 20;

/// What may be fetched to know what is where: the begin of a file twice, and pieces elsewhere.
const METADATA: u64 = 4 * MIB;

/// An array of 16 MiB in NPY, C or Fortran order.
fn npy(fortran: &str) -> Vec<u8> {
    let text = format!("{{'descr': '<i4', 'fortran_order': {fortran}, 'shape': (64, 256, 256), }}");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&u16::try_from(text.len() + 1).unwrap().to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
    out.extend((0..64 * 256 * 256_i32).flat_map(i32::to_le_bytes));
    out
}

/// A classic netCDF file with `v0(t, x)`, `v1(t, x)` ..., whose records lie between each other.
fn netcdf_records(variables: u32, records: u32, bytes: u32) -> Vec<u8> {
    let mut out = b"CDF\x01".to_vec();
    let number = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_be_bytes());
    [records, 10, 2, 1].into_iter().for_each(|n| number(&mut out, n));
    out.extend_from_slice(b"t\0\0\0");
    [0, 1].into_iter().for_each(|n| number(&mut out, n));
    out.extend_from_slice(b"x\0\0\0");
    [bytes, 0, 0, 11, variables].into_iter().for_each(|n| number(&mut out, n));
    let start = u32::try_from(out.len()).unwrap() + variables * 44;
    for variable in 0..variables {
        number(&mut out, 2);
        out.extend_from_slice(format!("v{variable}\0\0").as_bytes());
        [2, 0, 1, 0, 0, 1, bytes, start + variable * bytes].into_iter().for_each(|n| number(&mut out, n));
    }
    assert_eq!(out.len(), start as usize - 4 * variables as usize);
    out.resize(start as usize, 0);
    out.extend((0..variables * records * bytes).map(|n| u8::try_from(n % 251).unwrap()));
    out
}

/// A classic netCDF file with `a(t, x)` and `b(t, x)`, bytes of 16 MiB each.
fn netcdf() -> Vec<u8> {
    let mut out = b"CDF\x01".to_vec();
    let mut begins = Vec::new();
    let number = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_be_bytes());
    let name = |out: &mut Vec<u8>, name: &str| {
        out.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
        out.extend_from_slice(name.as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
    };
    [0, 10, 2].into_iter().for_each(|n| number(&mut out, n));
    name(&mut out, "t");
    number(&mut out, 16);
    name(&mut out, "x");
    number(&mut out, 1 << 20);
    [0, 0, 11, 2].into_iter().for_each(|n| number(&mut out, n));
    for variable in ["a", "b"] {
        name(&mut out, variable);
        [2, 0, 1, 0, 0, 1, 1 << 24].into_iter().for_each(|n| number(&mut out, n));
        begins.push(out.len());
        number(&mut out, 0);
    }
    for (at, number) in begins.into_iter().zip(0_u32..) {
        let begin = u32::try_from(out.len()).unwrap() + (number << 24);
        out[at..at + 4].copy_from_slice(&begin.to_be_bytes());
    }
    out.extend((0..2 << 24_u32).map(|n: u32| u8::try_from(n % 251).unwrap()));
    out
}

#[test]
fn only_what_is_needed_is_downloaded() {
    let files = [("c.npy", npy("False")), ("f.npy", npy("True")), ("two.nc", netcdf())];
    let server = Server::start(files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect());
    let folder = Folder::new();
    for name in ["c.npy", "f.npy", "two.nc"] {
        let shown = folder.run(&format!("inspect {}/{name}", server.url)).ok().stdout;
        assert!(shown.contains("record"), "{shown}");
        let given = server.given();
        assert!(given < 16 * MIB, "inspect {name}: {given}");
    }
    // So little memory that an array does not fit, and what more than one record needs has to be kept on disk.
    let convert = |name: &str, options: &str| {
        let out = format!("{name}{}", options.replace([' ', '-', '='], ""));
        let command = format!("convert {}/{name} --out {out} --memory 64MiB --json {options}", server.url);
        let summary = folder.run(&command).ok().summary();
        (summary["records_out"].as_u64().unwrap(), server.given())
    };
    let (records, given) = convert("two.nc", "--read var=b");
    assert!(records == 16 && given < 16 * MIB + METADATA, "{given}");
    // Not twice, whatever the order of the axes and the records; heads and what is read ahead come on top.
    for (name, options, expected) in [
        ("c.npy", "", 64),
        ("f.npy", "", 64),
        ("c.npy", "--read record-dim=dim_1", 256),
        ("c.npy", "--read record-dim=dim_2", 256),
    ] {
        let (records, given) = convert(name, options);
        assert!(records == expected && given < 16 * MIB + METADATA, "{name} {options}: {given}");
    }
    let again = folder.run(&format!("convert {}/two.nc --out two.ncreadvarb --json", server.url)).ok().summary();
    assert_eq!(again["sources_unchanged"], 1);
    assert!(server.given() < 2 * MIB);
}

/// Of six variables whose chunks lie between each other one is wanted, or all of them: what is fetched is bounded by
/// what is wanted, and however fast a machine is, it does not fetch more.
#[test]
fn chunks_between_others_are_fetched_without_them() {
    let sizes = [("tiny.h5", 4_u32 << 10), ("small.h5", 64 << 10), ("large.h5", 1 << 20)];
    let of_bytes = |bytes: u32| (2 << 20) / bytes;
    let mut files: BTreeMap<String, Vec<u8>> = sizes
        .iter()
        .map(|(name, bytes)| ((*name).to_owned(), hdf5::interleaved(6, of_bytes(*bytes).into(), *bytes)))
        .collect();
    files.insert("classic.nc".to_owned(), netcdf_records(6, 32, 64 << 10));
    let folder = Folder::new();
    files.iter().for_each(|(name, bytes)| drop(folder.write(name, bytes)));
    let server = Server::start(files);
    let shards = |out: &str| -> Vec<Vec<u8>> { folder.only_shards(out).into_iter().map(|(_, bytes)| bytes).collect() };
    for (name, chunk) in sizes.into_iter().chain([("classic.nc", 64 << 10)]) {
        // Where chunks lie is asked for alone, a node of 64 of them at a time.
        let nodes = 6 * (u64::from(of_bytes(chunk)).div_ceil(64) + 2);
        for (options, wanted, most_requests) in [
            ("--read var=v2", 2 * MIB, u64::from(of_bytes(chunk)) + 20),
            ("", 12 * MIB, 60 + nodes),
            ("--read var=v1,v4 --read record-dim=dim_1", 4 * MIB, 2 * u64::from(of_bytes(chunk)) + 20),
        ] {
            if options.contains("dim_1") && chunk != 64 << 10 || options.contains("dim_1") && name == "classic.nc" {
                continue;
            }
            let at = format!("{name}{}", options.replace([' ', '-', '=', ','], ""));
            let run = |source: &str, out: &str| {
                folder
                    .run(&format!("convert {source}/{name} --out {out} --memory 256MiB --json {options}"))
                    .ok()
                    .summary()
            };
            server.given();
            server.asked();
            let summary = run(&server.url, &format!("{at}.remote"));
            let (given, asked) = (server.given(), server.asked());
            let spare = if wanted < 12 * MIB { wanted } else { 0 };
            assert!(given <= wanted + spare + METADATA, "{name} {options}: {given} bytes for {wanted}");
            assert!(asked <= most_requests, "{name} {options}: {asked} requests");
            let local = run(".", &format!("{at}.local"));
            assert_eq!(summary["records_out"], local["records_out"]);
            let (remote, local) = (shards(&format!("{at}.remote")), shards(&format!("{at}.local")));
            assert!(!local.is_empty() && remote == local, "{name} {options}: other rows come of it");
        }
    }
}

#[test]
fn servers_without_ranges_give_the_start() {
    let csv: String = (0..5_000).map(|n| format!("P{n},{}\n", n % 7)).collect();
    let files = [("whole/a.csv", format!("id,x\n{csv}").into_bytes()), ("whole/two.nc", netcdf())];
    let server = Server::start(files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect());
    let folder = Folder::new();
    let shown = folder.run(&format!("inspect {}/whole/a.csv", server.url)).ok().stdout;
    assert!(shown.contains("csv") && shown.contains("5,000 records"), "{shown}");
    let shown = folder.run(&format!("inspect {}/whole/two.nc", server.url)).ok().stdout;
    assert!(shown.contains("16 records"), "{shown}");
    // What is far behind the start is not fetched in this way.
    let run = folder.run(&format!("convert {}/whole/two.nc --out out", server.url));
    assert!(run.stderr.contains("download the file and pass its path"), "{}", run.stderr);
    assert_eq!(run.code, 5);
}
