//! The progress line: bytes per second, records, shards and time left, on standard error.
//!
//! Workers only add to counters; a thread of its own draws. It draws nothing in the first quarter of a second, so that
//! quick commands stay quiet, and nothing at all where standard error is not a terminal. With `--progress always`, a
//! line a second is written there: text, or an object with `--json`. Notes are objects with `--json`, too, so that
//! every line of standard error is one.

use std::{
    io::{IsTerminal, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{args::ProgressWhen, human::plural, json};
use crate::{
    events::{Event, Observer},
    units::Size,
};

const DELAY: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_millis(100);

/// Interval of the lines that `--progress always` prints without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Counts events and draws them.
#[derive(Debug)]
pub(super) struct Progress {
    mode: Mode,
    quiet: bool,
    json: bool,
    bytes: AtomicU64,
    records: AtomicU64,
    shards: AtomicU64,
    total: AtomicU64,
    phase: Mutex<(&'static str, Instant)>,
    bar: Mutex<Option<ProgressBar>>,
    stopped: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Bar,
    Lines,
    Objects,
}

/// Columns of a terminal from which on a bar fits beside the numbers.
const BAR_WIDTH: u16 = 90;

impl Progress {
    pub(super) fn new(when: ProgressWhen, quiet: bool, json: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let mode = match when {
            ProgressWhen::Never => Mode::Off,
            ProgressWhen::Auto if quiet || json || !terminal => Mode::Off,
            ProgressWhen::Always if json => Mode::Objects,
            ProgressWhen::Always if !terminal => Mode::Lines,
            ProgressWhen::Auto | ProgressWhen::Always => Mode::Bar,
        };
        Self {
            mode,
            quiet,
            json,
            bytes: AtomicU64::new(0),
            records: AtomicU64::new(0),
            shards: AtomicU64::new(0),
            total: AtomicU64::new(0),
            phase: Mutex::new(("", Instant::now())),
            bar: Mutex::new(None),
            stopped: AtomicBool::new(false),
        }
    }

    /// Starts to draw.
    pub(super) fn start_drawing(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        if self.mode == Mode::Off {
            return None;
        }
        let progress = Arc::clone(self);
        Some(std::thread::spawn(move || progress.draw_loop()))
    }

    /// Ends drawing and clears the line.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(bar) = self.bar.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }

    fn draw_loop(&self) {
        let started = Instant::now();
        let mut last_line = started;
        while !self.stopped.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let (phase, since) = *self.phase.lock().unwrap_or_else(PoisonError::into_inner);
            if started.elapsed() < DELAY || phase.is_empty() {
                continue;
            }
            match self.mode {
                Mode::Off => return,
                Mode::Bar => self.update_bar(phase, since),
                Mode::Lines if last_line.elapsed() >= LINE_EVERY => {
                    last_line = Instant::now();
                    let _ = writeln!(std::io::stderr(), "{phase}: {}", self.status_text(since));
                }
                Mode::Objects if last_line.elapsed() >= LINE_EVERY => {
                    last_line = Instant::now();
                    json::write_event("progress", &self.progress_object(phase));
                }
                Mode::Lines | Mode::Objects => {}
            }
        }
    }

    fn update_bar(&self, phase: &'static str, since: Instant) {
        let mut slot = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let is_new = slot.is_none();
        // Each setter draws: a new bar is hidden until all of them were called.
        let bar = slot.get_or_insert_with(ProgressBar::hidden);
        let (bytes, total) = (self.bytes.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let width = terminal_size::terminal_size_of(std::io::stderr()).map_or(BAR_WIDTH, |(width, _)| width.0);
        // A bar says nothing if the total is unknown, and the line must not be longer than the terminal is wide.
        let template =
            if total > 0 && width >= BAR_WIDTH { "{prefix} {bar:24} {wide_msg}" } else { "{prefix} {wide_msg}" };
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(phase);
        bar.set_length(total.max(1));
        bar.set_position(bytes.min(total));
        bar.set_message(self.status_text(since));
        if is_new {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            bar.tick();
        }
    }

    fn progress_object(&self, phase: &'static str) -> serde_json::Value {
        let total = self.total.load(Ordering::Relaxed);
        serde_json::json!({
            "phase": phase,
            "bytes": self.bytes.load(Ordering::Relaxed),
            "bytes_total": (total > 0).then_some(total),
            "records": self.records.load(Ordering::Relaxed),
            "shards": self.shards.load(Ordering::Relaxed),
        })
    }

    fn status_text(&self, since: Instant) -> String {
        let (bytes, total) = (self.bytes.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let seconds = since.elapsed().as_secs_f64().max(0.001);
        let rate = bytes as f64 / seconds;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive and for show")]
        let rate_bytes = rate as u64;
        let left = match total.checked_sub(bytes) {
            Some(left) if rate > 0.0 && bytes > 0 => format!(", {} left", format_clock(left as f64 / rate)),
            _ => String::new(),
        };
        let share = match total {
            0 => String::new(),
            total => format!(" of {}{left}", Size(total)),
        };
        let mut text = format!("{}{share}, {}/s", Size(bytes), Size(rate_bytes));
        for (count, noun) in [(&self.records, "record"), (&self.shards, "shard")] {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                text.push_str(&format!(", {}", plural(count, noun)));
            }
        }
        text
    }
}

fn format_clock(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a range of u64")]
    let seconds = seconds.clamp(0.0, 1e9).round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3_600, seconds % 3_600 / 60),
    }
}

impl Observer for Progress {
    fn event(&self, event: Event) {
        match event {
            Event::Phase { name, bytes } => {
                *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = (name, Instant::now());
                self.bytes.store(0, Ordering::Relaxed);
                self.records.store(0, Ordering::Relaxed);
                self.shards.store(0, Ordering::Relaxed);
                self.total.store(bytes.unwrap_or(0), Ordering::Relaxed);
            }
            Event::Read { bytes, records } => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                self.records.fetch_add(records, Ordering::Relaxed);
            }
            Event::Shard { .. } => {
                self.shards.fetch_add(1, Ordering::Relaxed);
            }
            Event::Note(_) if self.quiet => {}
            Event::Note(note) if self.json => json::write_message("note", &note),
            Event::Note(note) => {
                let line = format!("note: {}", super::human::clean(&note));
                match self.bar.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                    Some(bar) => bar.println(line),
                    None => {
                        let _ = writeln!(std::io::stderr(), "{line}");
                    }
                }
            }
            // Events may be added.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_short() {
        assert_eq!(format_clock(5.4), "5 s");
        assert_eq!(format_clock(61.0), "1:01 min");
        assert_eq!(format_clock(7_260.0), "2:01 h");
    }
}
