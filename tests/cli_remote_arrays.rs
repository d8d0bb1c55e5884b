//! Arrays on a server: of a file only what is needed is asked for.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod support;

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

/// A server of files that answers ranges, and counts the bytes that it gives.
struct Server {
    url: String,
    given: Arc<AtomicU64>,
}

impl Server {
    fn start(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let given = Arc::new(AtomicU64::new(0));
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
        self.given.swap(0, Ordering::SeqCst)
    }
}

/// Answers requests on a connection until it is closed.
fn answer(stream: TcpStream, files: &BTreeMap<String, Vec<u8>>, given: &AtomicU64) -> Option<()> {
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
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\nLast-Modified: Sun, 01 Nov 2020 00:00:00 GMT\r\n\r\n",
            end - start
        );
        output.write_all(head.as_bytes()).ok()?;
        if method == "GET" {
            for piece in file[start..end].chunks(64 << 10) {
                output.write_all(piece).ok()?;
                given.fetch_add(piece.len() as u64, Ordering::SeqCst);
            }
        }
    }
}

const MIB: u64 = 1 << 20;

/// An array of 64 MiB in NPY, C or Fortran order.
fn npy(fortran: &str) -> Vec<u8> {
    let text = format!("{{'descr': '<i4', 'fortran_order': {fortran}, 'shape': (64, 512, 512), }}");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&u16::try_from(text.len() + 1).unwrap().to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
    out.extend((0..64 * 512 * 512_i32).flat_map(i32::to_le_bytes));
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
    let convert = |name: &str, options: &str| {
        let out = format!("{name}{}", options.replace([' ', '-', '='], ""));
        let command = format!("convert {}/{name} --out {out} --memory 256MiB --json {options}", server.url);
        let summary = folder.run(&command).ok().summary();
        (summary["records_out"].as_u64().unwrap(), server.given())
    };
    let (records, given) = convert("two.nc", "--var b");
    // Of 32 MiB; how much is read ahead is a matter of time.
    assert!(records == 16 && given < 31 * MIB, "{given}");
    // Not twice, whatever the order of the axes and the records; heads and what is read ahead come on top.
    for (name, options, expected) in [
        ("c.npy", "", 64),
        ("f.npy", "", 64),
        ("c.npy", "--record-dim dim_1", 512),
        ("c.npy", "--record-dim dim_2", 512),
    ] {
        let (records, given) = convert(name, options);
        assert!(records == expected && given < 96 * MIB, "{name} {options}: {given}");
    }
    let again = folder.run(&format!("convert {}/two.nc --out two.ncvarb --json", server.url)).ok().summary();
    assert_eq!(again["sources_unchanged"], 1);
    assert!(server.given() < 2 * MIB);
}
