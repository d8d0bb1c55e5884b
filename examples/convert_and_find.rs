//! Converts tables of patients, finds one, and erases one from all versions.
//!
//! ```sh
//! cargo run --release --example convert_and_find -- target/examples/patients
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use shardify::{ErrorKind, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = std::env::args().nth(1).unwrap_or_else(|| "target/examples/patients".to_owned());
    let session = Session::new()?;
    let report = session
        .convert("testdata/patients/OBSERVATION.csv", &out)
        .source("testdata/patients/MEASUREMENT.csv")
        .subject("person_id")
        .run()?;
    let counts = report.counts();
    println!("read {} records, wrote {} to {} shards", counts.records_in, counts.records_out, counts.shards_added);

    let dataset = session.open(&out)?;
    let found = dataset.find(["11"])?;
    println!("subject 11 has {} records in version {}", found.count(), found.version());
    for record in found.records().iter().take(3) {
        let row = record.source_row().map_or_else(String::new, |row| format!(" row {row}"));
        println!("  {} row {}, from {}{row}", record.shard(), record.row(), record.source());
    }

    match dataset.erase().subject("7").all_versions().reason("request 17").run() {
        Ok(erased) => println!("erased {} records; the receipt is {:?}", erased.records(), erased.receipt()),
        Err(error) if error.kind() == ErrorKind::Conflict => println!("another run was faster: {error}"),
        Err(error) => return Err(error.into()),
    }
    let sound = session.open(&out)?.verify_data()?.is_sound();
    println!("the dataset is {}", if sound { "sound" } else { "damaged" });
    Ok(())
}
