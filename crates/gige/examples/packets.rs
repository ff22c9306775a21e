//! Writes the packets of a camera to standard output, each behind its length of 32 bits (little-endian):
//! `cargo run -p fullbore-gige --example packets gvsp://192.0.2.7 2`, for two seconds.

use std::io::{IoSliceMut, Write};
use std::time::{Duration, Instant};

use fullbore_capture::DatagramInput;
use fullbore_gige::{CameraConfig, CameraInput};
use fullbore_linux::sys::receive::Received;

/// Packets of one call, and the largest one.
const PACKETS: usize = 32;
const LARGEST: usize = 16 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (endpoint, seconds) =
        words.next().zip(words.next()).ok_or("give an endpoint and seconds")?;
    let config = CameraConfig::parse(&endpoint)?;
    let (mut input, about) = CameraInput::open(&config, 8 << 20)?;
    eprintln!("{about}");
    let end = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let mut output = std::io::stdout().lock();
    let mut slots = vec![[0; LARGEST]; PACKETS];
    while Instant::now() < end {
        let mut slices: Vec<_> = slots.iter_mut().map(|slot| IoSliceMut::new(slot)).collect();
        let mut received = [Received::default(); PACKETS];
        let count = input.receive(&mut slices, 1, &mut received)?;
        drop(slices);
        for (slot, message) in slots.iter().zip(&received).take(count) {
            let bytes = message.bytes.min(LARGEST);
            output.write_all(&(bytes as u32).to_le_bytes())?;
            output.write_all(&slot[..bytes])?;
        }
        if count == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    input.take_warnings().iter().for_each(|warning| eprintln!("{warning}"));
    Ok(())
}
