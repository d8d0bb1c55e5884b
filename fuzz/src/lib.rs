//! Fuzz targets of all readers: libFuzzer decides what to keep, [`mutate`] knows where lengths and offsets lie.

pub mod mutate;

pub use libfuzzer_sys;

use shardify::fuzzing;

/// To be called once, before the first input: panics that the library turns into errors are none of the fuzzer's
/// business.
pub fn start() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !shardify::format::guard::is_decoding() {
            tell(panic);
        }
    }));
}

/// Runs a target; who blames the program or the storage for what the bytes are is a finding.
pub fn run(name: &str, bytes: &[u8]) {
    let target = fuzzing::TARGETS.iter().find(|(known, _)| *known == name).expect("a target of the library").1;
    if let Err(error) = target(bytes) {
        assert!(!fuzzing::blames(&error), "{:?}: {error}", error.kind());
    }
}

/// A mutation for libFuzzer: half of them its own, half of them by structure.
pub fn mutated(name: &str, data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed.is_multiple_of(2) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let new = mutate::mutant(name, &data[..size], &mut mutate::Random::new(u64::from(seed)));
    let length = new.len().min(max_size);
    data[..length].copy_from_slice(&new[..length]);
    length
}

/// The target of cargo-fuzz for an entry function of the library.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        use $crate::libfuzzer_sys;
        libfuzzer_sys::fuzz_target!(init: $crate::start(), |data: &[u8]| $crate::run(stringify!($name), data));
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutated(stringify!($name), data, size, max_size, seed)
        });
    };
}
