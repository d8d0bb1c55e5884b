//! Answers rows of a table of test vectors: reads parameters and questions from standard input, and adds the answers.
//!
//! A row has, separated by tabs: records, block, lanes, window, seed, epoch, basis, global batch size, number of ranks,
//! a step, a rank, and turns, separated by commas, or `all`. Added are the positions at these turns, the turns of these
//! numbers as positions, and the positions that the rank reads in the step. Lines that begin with `#` are repeated.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::{error::Error, io};

use shardify_order::{EpochOrder, OrderParameters, Remainder, StepLayout};

fn main() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lines() {
        let line = line?;
        if line.starts_with('#') {
            println!("{line}");
            continue;
        }
        println!("{}", answered(&line)?);
    }
    Ok(())
}

/// Returns the first twelve columns of a row, and the answers.
pub(crate) fn answered(line: &str) -> Result<String, Box<dyn Error>> {
    let columns: Vec<&str> = line.split('\t').collect();
    let column = |at: usize| columns.get(at).copied().ok_or("a row has twelve columns");
    let number = |at: usize| Ok::<u64, Box<dyn Error>>(column(at)?.parse()?);
    let mut basis = [0; 32];
    for (byte, digits) in basis.iter_mut().zip(column(6)?.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits)?, 16)?;
    }
    let order = EpochOrder::new(OrderParameters {
        records: number(0)?,
        block: number(1)?,
        lanes: number(2)?,
        window: number(3)?,
        seed: number(4)?,
        epoch: number(5)?,
        basis,
    })?;
    let layout = StepLayout::new(&order, number(7)?, Remainder::Delivered)?;
    let asked = match column(11)? {
        "all" => (0..order.parameters().records).collect(),
        turns => turns.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?,
    };
    let rank = layout.rank(number(10)?, number(8)?)?;
    let answers = [
        joined(asked.iter().map(|turn| order.position_at(*turn))),
        joined(asked.iter().map(|position| order.turn_of(*position))),
        joined(layout.turns_of(number(9)?, rank)?.map(|turn| order.position_at(turn))),
    ];
    let questions: Vec<&str> = columns.iter().copied().take(12).collect();
    Ok([questions.join("\t"), answers.map(|answer| answer.unwrap_or_default()).join("\t")].join("\t"))
}

fn joined(numbers: impl Iterator<Item = Option<u64>>) -> Option<String> {
    let texts: Option<Vec<String>> = numbers.map(|number| Some(number?.to_string())).collect();
    Some(texts?.join(","))
}
