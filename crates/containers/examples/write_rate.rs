//! Measures how fast payloads of 8000 bytes become files of samples, in GB/s of output, beside `cp` of as many bytes.
//!
//! `cargo run --release -p fullbore-containers --example write_rate -- DIRECTORY`
//!
//! The time ends when the file is durable, as that of `cp` with `sync`. Each row writes 1 GB of output.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use fullbore_containers::{Ending, Opening, Origin, Recoder, SampleFormat, SampleType};
use fullbore_formats::samples::SampleLayout;

/// Bytes of each file.
const FILE_BYTES: u64 = 1_000_000_000;

/// Bytes of a payload, as VLBI recorders send them.
const PAYLOAD: usize = 8000;

fn main() -> Result<(), Box<dyn Error>> {
    let place = std::env::args_os().nth(1).ok_or("name a directory")?;
    let place = Path::new(&place);
    let sigmf = |hash| SampleFormat::Sigmf { hash };
    let (npy, zarr) = (SampleFormat::Numpy, SampleFormat::Zarr);
    for (name, format, from, values) in [
        ("npy:", npy, "ri16_le", Some(SampleType::I16)),
        ("npy:", npy, "ri16_be", Some(SampleType::I16)),
        ("npy:", npy, "ri16_le", None),
        ("npy:", npy, "ro2", None),
        ("npy:", npy, "ro2", Some(SampleType::I8)),
        ("zarr:", zarr, "ri16_le", Some(SampleType::I16)),
        ("zarr:", zarr, "ri16_be", Some(SampleType::I16)),
        ("zarr:", zarr, "ro2", None),
        ("sigmf:?hash=false", sigmf(false), "ci16_be", None),
        ("sigmf:?hash=false", sigmf(false), "ro2", Some(SampleType::I8)),
        ("sigmf:", sigmf(true), "ci16_be", None),
    ] {
        let path = place.join("written");
        let layout = SampleLayout::new(from.parse()?, 1);
        let encoding = format.encoding(layout.encoding, values)?;
        let (begun, bytes) = (Instant::now(), write(format, &path, &layout, values)?);
        print(&format!("{name} {from} as {encoding}"), bytes, begun);
        format.remove(&path);
    }
    let (from, to) = (place.join("from"), place.join("to"));
    std::fs::write(&from, vec![1; FILE_BYTES as usize])?;
    let begun = Instant::now();
    let copied = Command::new("cp").arg("--reflink=never").args([&from, &to]).status()?;
    std::fs::File::open(&to)?.sync_all()?;
    assert!(copied.success(), "cp failed");
    print("cp, and sync", FILE_BYTES, begun);
    std::fs::remove_file(from)?;
    std::fs::remove_file(to)?;
    Ok(())
}

fn print(name: &str, bytes: u64, begun: Instant) {
    println!("{name:40} {:5.2} GB/s", bytes as f64 / begun.elapsed().as_secs_f64() / 1e9);
}

/// Writes one file. Returns its length.
fn write(
    format: SampleFormat,
    path: &Path,
    layout: &SampleLayout,
    values: Option<SampleType>,
) -> Result<u64, Box<dyn Error>> {
    let encoding = format.encoding(layout.encoding, values)?;
    let mut recoder = Recoder::new(layout.encoding, encoding)?;
    let layout = SampleLayout { encoding, ..layout.clone() };
    let (start, origin) = (None, Origin::default());
    let opening = Opening { scan: "s_a", stream: "x", layout: &layout, start, origin };
    let mut file = format.create(path, &opening)?;
    let payload: Vec<u8> = (0..PAYLOAD).map(|byte| (byte * 37) as u8).collect();
    let mut bytes = 0;
    while bytes < FILE_BYTES {
        recoder.recode(&payload, |samples| {
            bytes += samples.len() as u64;
            file.append(samples)
        })?;
    }
    file.finish(&Ending::default())?;
    Ok(bytes)
}
