//! Measures how fast one core decodes payloads of 8000 bytes, in GB/s of output.
//!
//! `cargo run --release -p fullbore-formats --example decode_rate`

use std::hint::black_box;
use std::time::{Duration, Instant};

use fullbore_formats::samples::decode::{Decoder, Output};

/// Time for each encoding.
const EACH: Duration = Duration::from_millis(400);

fn measure<T: Output>(name: &str) {
    let encoding = name.parse().expect("it is an encoding");
    let decoder = Decoder::<T>::new(encoding).expect("it fits");
    let payload: Vec<u8> = (0..8000u32).map(|byte| (byte * 37) as u8).collect();
    let mut values = vec![T::default(); decoder.values_in(payload.len())];
    let (begun, mut bytes) = (Instant::now(), 0);
    while begun.elapsed() < EACH {
        for _ in 0..100 {
            decoder.decode(black_box(&payload), &mut values);
            black_box(&values);
            bytes += size_of_val(&*values);
        }
    }
    let rate = bytes as f64 / begun.elapsed().as_secs_f64() / 1e9;
    println!("{name:>8} as {:<4} {rate:6.1} GB/s", T::NAME);
}

fn main() {
    for name in [
        "ro1", "ro2", "rm2", "ro4", "ro8", "ro16", "ri8", "ru8", "ri16_le", "ri16_be", "ru16_le",
        "ri32_le", "ri32_be", "ru32_le", "rf32_le", "rf64_le",
    ] {
        measure::<f32>(name);
    }
    for name in ["ro1", "ro2", "ro4", "ro8", "ri8"] {
        measure::<i8>(name);
    }
    for name in ["ro2", "ro16", "ri16_le", "ri16_be"] {
        measure::<i16>(name);
    }
}
