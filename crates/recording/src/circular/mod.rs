//! Circular recordings: the newest data stays, and a trigger keeps a part of it as a scan of its own.
//!
//! ```text
//!            oldest                                                    newest
//! pieces     …-12 │ …-13 │ …-14 │ …-15 │ …-16 │ …-17 │ …-18   being recorded: …-19
//!            goes                ├──── before ────┼ after ┤
//!                                            trigger
//! kept                          s_burst1 = …-14, …-15, …-16, …-17, …-18 joined
//! ```
//!
//! A circular recording is a series of scans without a pause, its *pieces*. The oldest piece is removed when the newer ones
//! are long enough. A trigger is a small file in `<member>/.fullbore/triggers`, so it survives the recorder, and any
//! program can set one. While a trigger waits for its last piece, none of its pieces is removed. Then its pieces become one
//! scan by hard links ([`join`](fullbore_care::join)). `docs/decisions/0032-circular-recordings.md` compares this with
//! chunks that are written over.
//!
//! | part | |
//! |---|---|
//! | `plan` | which pieces a trigger covers, and which pieces go: pure |
//! | `fit` | whether the disks hold the recording |
//! | `trigger` | the files of triggers |
//! | [`TriggerRequest`] | a trigger as a user asks for it |
//! | `source` | triggers from packets, markers and samples |
//! | `lookout` | the thread that looks for conditions in the samples |
//! | [`Keeper`] | joins and removes pieces |
//! | [`InMemory`] | pieces in memory, and `copier` writes what triggers keep of them to the store |

mod copier;
pub(crate) mod fit;
mod keeper;
pub(crate) mod lookout;
mod memory;
mod plan;
mod request;
mod source;
mod trigger;

use std::fmt;
use std::time::Duration;

use fullbore_core::name::{self, Name, ScanName};
use fullbore_core::retention::Retention;
use fullbore_time::Tai;

pub use keeper::{Keeper, Settled, rings, settle};
pub use memory::{InMemory, InMemoryError, MemoryError};
pub(crate) use memory::{make as make_in_memory, roots as roots_in_memory};
pub use request::{RequestError, TriggerRequest, exists, is_kept};
pub use source::{HOLD_OFF, SourceError, TriggerSource, TriggerTimes};
pub use trigger::{Trigger, TriggerError};

/// The shortest piece. A cut waits up to 300 ms for the next block of each stream.
const SHORTEST_PIECE: Duration = Duration::from_secs(1);

/// The longest piece: a trigger waits for the end of the piece in which it ends.
const LONGEST_PIECE: Duration = Duration::from_secs(60);

/// Pieces of a circular recording, if none is shorter or longer than allowed.
const PIECES: u32 = 30;

/// Bytes of the part of a piece's name behind the name of the recording: `-20261127T090000Z-` and a number.
const SUFFIX_BYTES: usize = 27;

/// The name of a circular recording: that of a scan, before its pieces get a time and a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingName(pub ScanName);

impl RingName {
    /// The name of the first piece of a recorder that begins now. The others have this name and a number.
    ///
    /// # Errors
    ///
    /// The name of the recording is too long for a time and a number behind it.
    pub fn first_piece(&self, begun: Tai) -> Result<ScanName, name::Error> {
        let text = format!("{}-{}", self.0.scan, stamp(begun));
        if self.0.scan.as_str().len() + SUFFIX_BYTES > name::LONGEST {
            let length = self.0.scan.as_str().len() + SUFFIX_BYTES;
            return Err(name::Error::Length { text, length });
        }
        Ok(ScanName { session: self.0.session.clone(), scan: text.parse()? })
    }

    /// The recording to which a scan belongs as a piece: `s_ring` for `s_ring-20261127T090000Z-7`.
    pub fn of_piece(scan: &ScanName) -> Option<Self> {
        let text = scan.scan.as_str();
        let (before, last) = text.rsplit_once('-')?;
        let (ring, time) = match is_stamp(last) {
            true => (before, last),
            false if last.bytes().all(|it| it.is_ascii_digit()) => before.rsplit_once('-')?,
            false => return None,
        };
        let ring: Name = ring.parse().ok().filter(|_| is_stamp(time))?;
        Some(Self(ScanName { session: scan.session.clone(), scan: ring }))
    }

    /// A name for what a trigger keeps, if the user gives none: `s_ring-kept-20261127T090000Z-250`.
    pub fn kept(&self, at: Tai) -> Result<ScanName, name::Error> {
        let ms = at.0.rem_euclid(1_000_000_000) / 1_000_000;
        let text = format!("{}-kept-{}-{ms:03}ms", self.0.scan, stamp(at));
        Ok(ScanName { session: self.0.session.clone(), scan: text.parse()? })
    }
}

impl fmt::Display for RingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Formats a time as `20261127T090000Z`.
fn stamp(time: Tai) -> String {
    let text = format!("{time:.1}");
    let whole = text.split('.').next().unwrap_or("");
    whole.chars().filter(|sign| !matches!(sign, '-' | ':')).chain(['Z']).collect()
}

fn is_stamp(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    text.is_ascii()
        && text.len() == 16
        && digits(&text[..8])
        && &text[8..9] == "T"
        && digits(&text[9..15])
        && &text[15..] == "Z"
}

/// The length of a piece: a duration, or a number of bytes.
pub(crate) fn piece_limit(limit: Retention) -> (Option<Duration>, Option<u64>) {
    match limit {
        Retention::Age(age) => (Some((age / PIECES).clamp(SHORTEST_PIECE, LONGEST_PIECE)), None),
        Retention::Size(size) => (Some(LONGEST_PIECE), Some((size.0 / u64::from(PIECES)).max(1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(text: &str) -> RingName {
        RingName(text.parse().unwrap())
    }

    #[test]
    fn a_piece_has_the_name_of_its_recording_a_time_and_a_number() {
        let at: Tai = "2026-11-27T09:00:00.25Z".parse().unwrap();
        let first = ring("s_sky-x").first_piece(at).unwrap();
        assert_eq!(first.to_string(), "s_sky-x-20261127T090000Z");
        assert_eq!(RingName::of_piece(&first), Some(ring("s_sky-x")));
        let seventh: ScanName = format!("{first}-7").parse().unwrap();
        assert_eq!(RingName::of_piece(&seventh), Some(ring("s_sky-x")));
        let kept = ring("s_sky-x").kept(at).unwrap();
        assert_eq!(kept.to_string(), "s_sky-x-kept-20261127T090000Z-250ms");
        for other in
            [kept.to_string().as_str(), "s_sky", "s_sky-7", "s_20261127T090000Z", "s_a-7-8"]
        {
            assert_eq!(RingName::of_piece(&other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn a_name_without_room_for_time_and_number_is_refused() {
        let at: Tai = "2026-11-27T09:00:00Z".parse().unwrap();
        let longest = "x".repeat(name::LONGEST - SUFFIX_BYTES);
        let first = ring(&format!("s_{longest}")).first_piece(at).unwrap();
        assert!(format!("{first}-999999999").parse::<ScanName>().is_ok());
        assert!(ring(&format!("s_{longest}x")).first_piece(at).is_err());
    }

    #[test]
    fn a_piece_is_a_small_part_of_the_recording() {
        let of = |text: &str| piece_limit(text.parse().unwrap());
        assert_eq!(of("30min"), (Some(Duration::from_secs(60)), None));
        assert_eq!(of("5min"), (Some(Duration::from_secs(10)), None));
        assert_eq!(of("5s"), (Some(SHORTEST_PIECE), None));
        assert_eq!(of("30GB"), (Some(LONGEST_PIECE), Some(1_000_000_000)));
    }
}
