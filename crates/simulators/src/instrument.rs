//! A receiver for demonstrations: two polarisations of 8 MHz, sampled with two bits, as VDIF.
//!
//! ```text
//! noise with a slope ─┐
//! a line of a maser ──┤
//! a carrier ──────────┼─► 2-bit sampler ─► VDIF, threads 0 and 1 ─► UDP, at the pace of the clock
//! phase-cal comb ─────┤
//! bursts, sometimes ──┘
//! ```
//!
//! The samples are computed once, as pieces of a quarter of a second. Each signal has whole periods in a piece, so pieces
//! follow one another without a step, in an order that does not look like a loop.

use std::f64::consts::TAU;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fullbore_formats::vdif::{Header, Second};
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;

/// Samples per second of each polarisation.
pub const SAMPLE_RATE: u32 = 16_000_000;

/// Frames per second of each polarisation.
pub const FRAMES_PER_SECOND: u32 = 800;

/// Bytes of a frame: a header of 32, and 20 000 samples.
pub const FRAME_BYTES: u32 = 5032;

/// The frequency of the carrier, in Hz.
pub const CARRIER_HZ: f64 = 2_600_000.0;

/// The distance of the phase-cal tones, in Hz.
pub const COMB_HZ: u32 = 1_000_000;

/// The middle of the maser's line, in Hz.
pub const MASER_HZ: f64 = 4_700_000.0;

/// Polarisations, each a thread.
const THREADS: u16 = 2;

/// Pieces in a second.
const PIECES: u32 = 4;

/// Samples of a piece.
const PIECE: usize = (SAMPLE_RATE / PIECES) as usize;

/// The order of pieces: 0 has no burst, 1 a sweep, 2 pulses.
const ORDER: [usize; 16] = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0];

/// The level at which a sampler of two bits changes to the outer states, in standard deviations (Cooper 1970).
const THRESHOLD: f32 = 0.9816;

/// Frames of a thread that are sent without a pause, so that a sender that was late does not flood the recorder.
const AT_ONCE: u64 = 40;

/// After a longer stop of the machine, frames are not sent at all.
const MOST_LATE: u64 = 10 * FRAMES_PER_SECOND as u64;

/// The receiver.
#[derive(Debug)]
pub struct Instrument {
    /// The payloads of each piece and thread.
    pieces: Vec<[Vec<u8>; THREADS as usize]>,
}

/// What changes a receiver while it sends. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Controls(Arc<Switches>);

#[derive(Debug, Default)]
struct Switches {
    lose: AtomicU32,
    ended: AtomicBool,
}

impl Controls {
    /// Does not send so many of the next frames.
    pub fn lose(&self, frames: u32) {
        // Requests of several people add up to at most a second.
        let most = FRAMES_PER_SECOND * u32::from(THREADS);
        let add = |before: u32| Some(before.saturating_add(frames).min(most));
        let _ = self.0.lose.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Ends the sender.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }

    /// True if the next frame is lost.
    fn loses(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.0.lose.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }
}

impl Default for Instrument {
    fn default() -> Self {
        Self::new()
    }
}

impl Instrument {
    /// Computes the samples: some tens of millions, so it takes a second or so.
    pub fn new() -> Self {
        let piece = |burst| [0, 1].map(|thread| payload(thread, burst));
        Self { pieces: [Burst::None, Burst::Sweep, Burst::Pulses].map(piece).into() }
    }

    /// The frame of a thread: `number` counts the frames of a thread from 1970.
    pub fn frame(&self, number: u64, thread: u16, frame: &mut Vec<u8>) {
        let rate = u64::from(FRAMES_PER_SECOND);
        let in_piece = rate / u64::from(PIECES);
        let piece = ORDER[(number / in_piece % ORDER.len() as u64) as usize];
        let payload_bytes = FRAME_BYTES as usize - 32;
        let start = (number % in_piece) as usize * payload_bytes;
        let mut header = Header::default().with_frame_bytes(FRAME_BYTES).with_bits_per_sample(2);
        header.set_time(Second((number / rate) as i64), (number % rate) as u32);
        let header = header.with_thread(thread).with_station(u16::from_be_bytes(*b"Fb"));
        frame.clear();
        frame.extend(header.as_bytes());
        let payloads = &self.pieces[piece][usize::from(thread)];
        frame.extend(&payloads[start..start + payload_bytes]);
    }

    /// Sends in time until the controls end it.
    pub fn send(&self, to: SocketAddr, controls: &Controls) -> io::Result<()> {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(to)?;
        let (clock, mut frame) = (Clock::new(), Vec::new());
        let mut next = number_at(clock.now());
        while !controls.0.ended.load(Ordering::Acquire) {
            let now = number_at(clock.now());
            next = next.max(now.saturating_sub(MOST_LATE));
            let until = now.min(next + AT_ONCE);
            while next < until {
                for thread in 0..THREADS {
                    self.frame(next, thread, &mut frame);
                    if controls.loses() {
                        continue;
                    }
                    // Nobody listens before the recording begins and after it has ended.
                    let _ = socket.send(&frame);
                }
                next += 1;
            }
            std::thread::sleep(Duration::from_millis(4));
        }
        Ok(())
    }
}

/// The number of the frame that begins at or before an instant, counted from 1970.
fn number_at(time: Tai) -> u64 {
    let ns = u128::try_from(time.0).unwrap_or(0);
    (ns * u128::from(FRAMES_PER_SECOND) / 1_000_000_000) as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Burst {
    None,
    /// A carrier that moves from 5.5 to 7.5 MHz.
    Sweep,
    /// Pulses of noise, as a radar's.
    Pulses,
}

/// The samples of a piece, four in each byte, the first in the lowest bits.
fn payload(thread: u16, burst: Burst) -> Vec<u8> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ u64::from(thread) << 32 ^ burst as u64);
    let gain = if thread == 0 { 1.0 } else { 0.6 };
    let (mut carrier, mut middle) = (Turn::new(CARRIER_HZ), Turn::new(MASER_HZ));
    let mut sweep = Turn::new(5_500_000.0);
    let mut maser = [0.0f32; 2];
    let mut before = 0.0;
    let mut bytes = vec![0; PIECE / 4];
    for number in 0..PIECE {
        let noise = random.gaussian();
        // A passband that falls by some decibels towards its upper edge.
        let mut sample = 0.92 * noise + 0.35 * before;
        before = noise;
        sample += 0.4 * gain * carrier.next().0;
        for part in &mut maser {
            *part = 0.99 * *part + 0.14 * random.uniform();
        }
        let (cosine, sine) = middle.next();
        sample += 0.25 * gain * (maser[0] * cosine - maser[1] * sine);
        if number % (SAMPLE_RATE / COMB_HZ) as usize == 0 {
            sample += 0.8;
        }
        match burst {
            Burst::None => {}
            Burst::Sweep => {
                sweep.hasten(2_000_000.0 / PIECE as f64);
                sample += 0.5 * gain * sweep.next().0;
            }
            Burst::Pulses if number / 40_000 % 25 == 0 => sample += 1.2 * random.gaussian(),
            Burst::Pulses => {}
        }
        let state = match sample {
            _ if sample < -THRESHOLD => 0,
            _ if sample < 0.0 => 1,
            _ if sample < THRESHOLD => 2,
            _ => 3,
        };
        bytes[number / 4] |= state << (2 * (number % 4));
    }
    bytes
}

/// A phase that turns at a frequency. Its cosine and sine come from a product, which is faster than the functions.
struct Turn {
    at: (f64, f64),
    step: (f64, f64),
    frequency: f64,
}

impl Turn {
    fn new(frequency: f64) -> Self {
        Self { at: (1.0, 0.0), step: Self::step(frequency), frequency }
    }

    fn step(frequency: f64) -> (f64, f64) {
        let angle = TAU * frequency / f64::from(SAMPLE_RATE);
        (angle.cos(), angle.sin())
    }

    /// Turns faster from now on by so many Hz. The step is computed anew once in a while.
    fn hasten(&mut self, hertz: f64) {
        let before = self.frequency;
        self.frequency += hertz;
        if before as u64 / 500 != self.frequency as u64 / 500 {
            self.step = Self::step(self.frequency);
        }
    }

    fn next(&mut self) -> (f32, f32) {
        let ((a, b), (c, d)) = (self.at, self.step);
        self.at = (a * c - b * d, a * d + b * c);
        (a as f32, b as f32)
    }
}

/// Numbers that look random: xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number with the mean 0 and the deviation 1, all equally likely.
    fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 * (3.464_101_6 / (1 << 24) as f32) - 1.732_050_8
    }

    /// A number with the mean 0 and the deviation 1, close to a normal distribution: the sum of four uniform ones.
    fn gaussian(&mut self) -> f32 {
        let all = self.next();
        let sum: f32 = (0..4).map(|n| (all >> (16 * n) & 0xFFFF) as f32).sum();
        (sum - 131_070.0) * (1.0 / 37_837.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_carry_the_time_and_the_thread_and_follow_one_another() {
        // One small piece in place of the whole.
        let each = FRAME_BYTES as usize - 32;
        let in_piece = (FRAMES_PER_SECOND / PIECES) as usize;
        let bytes: Vec<u8> = (0..in_piece * each).map(|n| (n / each) as u8).collect();
        let piece = [bytes.clone(), bytes];
        let instrument = Instrument { pieces: vec![piece.clone(), piece.clone(), piece] };
        let number = number_at(Tai(1_700_000_000_500_000_000));
        let mut frame = Vec::new();
        for (more, thread) in [(0, 0), (1, 1), (in_piece as u64, 1)] {
            instrument.frame(number + more, thread, &mut frame);
            let header = Header::read(&frame).unwrap();
            assert_eq!((frame.len(), header.thread()), (FRAME_BYTES as usize, thread));
            assert_eq!(header.second(), Second(1_700_000_000));
            assert_eq!(u64::from(header.frame_number()), 400 + more);
            assert_eq!(u64::from(frame[32]), more % in_piece as u64 % 256);
        }
        assert!(ORDER.iter().all(|piece| *piece < instrument.pieces.len()));
    }

    #[test]
    fn numbers_are_spread_as_they_should_be() {
        let mut random = Random(7);
        for draw in [Random::gaussian, Random::uniform] {
            let drawn: Vec<f64> = (0..100_000).map(|_| f64::from(draw(&mut random))).collect();
            let mean = drawn.iter().sum::<f64>() / 1e5;
            let square = drawn.iter().map(|it| it * it).sum::<f64>() / 1e5;
            assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "{mean} {square}");
        }
    }

    #[test]
    fn as_many_frames_are_lost_as_were_asked_for() {
        let controls = Controls::default();
        assert!(!controls.loses());
        controls.lose(3);
        assert_eq!((0..10).filter(|_| controls.loses()).count(), 3);
        controls.lose(u32::MAX);
        let most = (FRAMES_PER_SECOND * 2) as usize;
        assert_eq!((0..2 * most).filter(|_| controls.loses()).count(), most);
    }
}
