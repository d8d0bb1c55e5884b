//! Envelopes of WAV recordings, from their first bytes: whole numbers of 8 to 32 bits and floating-point numbers of 32.
//!
//! ```text
//! "RIFF" size "WAVE"  ["fmt " size: format, channels, rate, ...]  ["data" size: frames of one value a channel]
//! ```

use serde::Serialize;

/// Number of points of an envelope.
const POINTS: usize = 240;

/// A decoded recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wave {
    /// Frames per second.
    pub sample_rate: u32,
    /// Number of channels.
    pub channels: u16,
    /// Length in seconds, as stated.
    pub seconds: f64,
    /// Seconds that were decoded.
    pub decoded_seconds: f64,
    /// Least and greatest value of the first channel in equal parts of what was decoded, from -1 to 1.
    pub envelope: Vec<(f32, f32)>,
}

/// Decodes a recording from its first bytes; `None` if it is no WAV file of a known kind.
pub(super) fn wave(start: &[u8]) -> Option<Wave> {
    if start.get(..4)? != b"RIFF" || start.get(8..12)? != b"WAVE" {
        return None;
    }
    let mut at = 12_usize;
    let mut format = None;
    loop {
        let id = start.get(at..at.checked_add(4)?)?;
        let length = u32::from_le_bytes(*start.get(at + 4..at + 8)?.first_chunk()?);
        let body = at + 8;
        match id {
            b"fmt " => format = Some(Format::parse(start.get(body..)?)?),
            b"data" => return format?.decode(start.get(body..)?, length),
            _ => {}
        }
        // Chunks begin at even offsets.
        at = body.checked_add(usize::try_from(length).ok()?)?.checked_add(length as usize & 1)?;
    }
}

struct Format {
    is_float: bool,
    channels: u16,
    rate: u32,
    bits: u16,
}

impl Format {
    fn parse(body: &[u8]) -> Option<Self> {
        let short = |at: usize| Some(u16::from_le_bytes(*body.get(at..at + 2)?.first_chunk()?));
        let kind = match short(0)? {
            // The extensible format states the kind in its own field.
            0xfffe => short(24)?,
            kind => kind,
        };
        let (channels, bits) = (short(2)?, short(14)?);
        let rate = u32::from_le_bytes(*body.get(4..8)?.first_chunk()?);
        let is_known = matches!((kind, bits), (1, 8 | 16 | 24 | 32) | (3, 32));
        (is_known && channels > 0 && rate > 0).then_some(Self { is_float: kind == 3, channels, rate, bits })
    }

    fn decode(&self, data: &[u8], stated: u32) -> Option<Wave> {
        let width = usize::from(self.bits / 8);
        let frame = width * usize::from(self.channels);
        let data = data.get(..data.len().min(usize::try_from(stated).ok()?))?;
        let frames = data.len() / frame;
        let value = |at: usize| data.get(at * frame..at * frame + width).map_or(0.0, |bytes| self.value(bytes));
        let points = POINTS.min(frames);
        let point = |number: usize| {
            let range = number * frames / points..(number + 1) * frames / points;
            range.map(value).fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
        };
        let seconds = |frames: f64| frames / f64::from(self.rate);
        Some(Wave {
            sample_rate: self.rate,
            channels: self.channels,
            seconds: seconds(f64::from(stated) / frame as f64),
            decoded_seconds: seconds(frames as f64),
            envelope: (0..points).map(point).collect(),
        })
    }

    /// Returns a value from -1 to 1; those that are no numbers are 0.
    fn value(&self, bytes: &[u8]) -> f32 {
        let value = match *bytes {
            [byte] => (f32::from(byte) - 128.0) / 128.0,
            [low, high] => f32::from(i16::from_le_bytes([low, high])) / 32_768.0,
            [_, middle, high] => f32::from(i16::from_le_bytes([middle, high])) / 32_768.0,
            [a, b, c, d] if self.is_float => f32::from_le_bytes([a, b, c, d]),
            [_, _, c, d] => f32::from(i16::from_le_bytes([c, d])) / 32_768.0,
            _ => 0.0,
        };
        if value.is_nan() { 0.0 } else { value.clamp(-1.0, 1.0) }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn file(kind: u16, bits: u16, data: &[u8]) -> Vec<u8> {
        let length = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
        let mut out = [&b"RIFF"[..], &length(0), b"WAVE", b"LIST", &length(3), b"abc\0", b"fmt ", &length(16)].concat();
        let frame = bits / 8;
        out.extend([kind.to_le_bytes(), 1_u16.to_le_bytes()].concat());
        out.extend([8_000_u32.to_le_bytes(), (8_000 * u32::from(frame)).to_le_bytes()].concat());
        out.extend([frame.to_le_bytes(), bits.to_le_bytes()].concat());
        out.extend([&b"data"[..], &length(data.len()), data].concat());
        out
    }

    #[test]
    fn values_of_every_width_are_decoded() {
        let half = |bytes: &[u8]| bytes.repeat(4_000);
        for (kind, bits, data) in [
            (1, 8, half(&[192, 64])),
            (1, 16, half(&[0, 0x40, 0, 0xc0])),
            (1, 24, half(&[0, 0, 0x40, 0, 0, 0xc0])),
            (1, 32, half(&[0, 0, 0, 0x40, 0, 0, 0, 0xc0])),
            (3, 32, half(&[0.5_f32.to_le_bytes(), (-0.5_f32).to_le_bytes()].concat())),
        ] {
            let wave = wave(&file(kind, bits, &data)).unwrap();
            assert_eq!((wave.seconds, wave.decoded_seconds, wave.channels), (1.0, 1.0, 1), "{kind} {bits}");
            assert_eq!(wave.envelope.len(), POINTS);
            assert!(wave.envelope.iter().all(|point| *point == (-0.5, 0.5)), "{kind} {bits}");
        }
    }

    #[test]
    fn damaged_recordings_are_none() {
        let whole = file(1, 16, &[0; 4_000]);
        for length in 0..whole.len() {
            let cut = wave(&whole[..length]);
            assert!(cut.is_none_or(|wave| wave.decoded_seconds <= wave.seconds), "{length}");
        }
        for at in 0..60 {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = wave(&damaged);
            }
        }
        assert!(wave(&file(1, 16, &[])).unwrap().envelope.is_empty());
    }
}
