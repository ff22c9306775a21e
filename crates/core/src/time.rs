//! The one instant of fullbore: nanoseconds of TAI, with UTC only at the edges.
//!
//! UTC repeats or skips nothing here: the leap second at the end of 2016 makes
//! `2016-12-31T23:59:59` and `2017-01-01T00:00:00` two seconds apart, as they were.

use std::fmt;
use std::str::FromStr;

use hifitime::{Duration, Epoch, TimeScale};
use serde::{Deserialize, Serialize};

/// An instant: nanoseconds of TAI since 1970-01-01 00:00:00 TAI.
///
/// In JSON it is UTC text with nanoseconds: `2026-11-21T18:00:00.123456789Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tai(pub i64);

/// A text that is not a UTC time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a UTC time; write 2026-11-21T18:00:00Z")]
pub struct Error {
    /// What was given.
    pub text: String,
}

const NS: i64 = 1_000_000_000;

/// 1970-01-01 00:00 on the TAI scale.
fn origin() -> Epoch {
    Epoch::from_gregorian_tai(1970, 1, 1, 0, 0, 0, 0)
}

impl Tai {
    /// From the host's clock (`CLOCK_REALTIME`, nanoseconds of Unix time).
    pub fn from_unix_ns(ns: i128) -> Self {
        let whole_seconds = ns.div_euclid(i128::from(NS)) as f64;
        let epoch = Epoch::from_unix_seconds(whole_seconds);
        Tai(Self::of(epoch).0 + ns.rem_euclid(i128::from(NS)) as i64)
    }

    /// Midnight UTC of the half-year `epoch` half-years after 2000-01-01 (VDIF's reference epoch).
    pub fn of_half_year(epoch: u32) -> Self {
        let (year, month) =
            (2000 + (epoch / 2) as i32, if epoch.is_multiple_of(2) { 1 } else { 7 });
        Self::of(Epoch::from_gregorian_utc(year, month, 1, 0, 0, 0, 0))
    }

    /// The half-year this instant lies in, and whole SI seconds since it began.
    pub fn half_year(self) -> (u32, u32) {
        let (year, month, ..) = self.epoch().to_gregorian_utc();
        let half = ((year - 2000).max(0) as u32) * 2 + u32::from(month >= 7);
        (half, ((self.0 - Self::of_half_year(half).0).max(0) / NS) as u32)
    }

    /// This instant moved by so many nanoseconds; saturates.
    pub fn plus_ns(self, ns: i64) -> Self {
        Tai(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this instant; saturates.
    pub fn since(self, earlier: Tai) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Differences of UTC epochs leave leap seconds out, so the scale changes before the subtraction.
    fn of(epoch: Epoch) -> Self {
        let ns = (epoch.to_time_scale(TimeScale::TAI) - origin()).total_nanoseconds();
        Tai(ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    fn epoch(self) -> Epoch {
        origin() + Duration::from_truncated_nanoseconds(self.0)
    }
}

impl fmt::Display for Tai {
    /// UTC with microseconds, or as many digits as asked for: `2026-11-21T18:00:00.000000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, hour, minute, second, ns) = self.epoch().to_gregorian_utc();
        let digits = f.precision().unwrap_or(6).clamp(1, 9);
        let fraction = &format!("{ns:09}")[..digits];
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction}Z")
    }
}

impl From<Tai> for String {
    fn from(time: Tai) -> String {
        format!("{time:.9}")
    }
}

impl TryFrom<String> for Tai {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl FromStr for Tai {
    type Err = Error;

    /// Reads `2026-11-21T18:00:00[.fraction][Z]`; `T` may be a blank. Always UTC.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error { text: text.to_owned() };
        let plain = text.trim().trim_end_matches(['Z', 'z']);
        let (date, time) = plain.split_once(['T', ' ']).ok_or_else(bad)?;
        let date: Vec<u16> = fields(date, '-').ok_or_else(bad)?;
        let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
        let clock: Vec<u16> = fields(clock, ':').ok_or_else(bad)?;
        let &[year, month, day] = date.as_slice() else { return Err(bad()) };
        let &[hour, minute, second] = clock.as_slice() else { return Err(bad()) };
        if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let ns: u32 = format!("{fraction:0<9}").parse().map_err(|_| bad())?;
        let narrow = |n: u16| u8::try_from(n).map_err(|_| bad());
        Epoch::maybe_from_gregorian_utc(
            i32::from(year),
            narrow(month)?,
            narrow(day)?,
            narrow(hour)?,
            narrow(minute)?,
            narrow(second)?,
            ns,
        )
        .map(Self::of)
        .map_err(|_| bad())
    }
}

fn fields(text: &str, separator: char) -> Option<Vec<u16>> {
    text.split(separator).map(|part| part.parse().ok()).collect()
}

/// The time of frame `frame` of `frames_per_second`, in nanoseconds after the whole second.
pub fn frame_ns(frame: u64, frames_per_second: u64) -> i64 {
    (u128::from(frame) * NS as u128 / u128::from(frames_per_second.max(1))) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Tai {
        text.parse().unwrap()
    }

    #[test]
    fn the_leap_second_of_2016_is_counted() {
        assert_eq!(at("2017-01-01T00:00:00Z").since(at("2016-12-31T23:59:59Z")), 2 * NS);
    }

    #[test]
    fn reference_epochs_are_half_years_of_utc() {
        assert_eq!(Tai::of_half_year(0), at("2000-01-01T00:00:00Z"));
        assert_eq!(Tai::of_half_year(53), at("2026-07-01T00:00:00Z"));
        assert_eq!(at("2026-11-21T00:00:01Z").half_year(), (53, 143 * 86400 + 1));
        assert_eq!(at("2016-12-31T23:59:59Z").half_year().0, 33);
        assert_eq!(at("2017-01-01T00:00:00Z").half_year(), (34, 0));
    }

    #[test]
    fn the_hosts_clock_and_text_agree() {
        assert_eq!(Tai::from_unix_ns(0), at("1970-01-01T00:00:00Z"));
        let instant = Tai::from_unix_ns(1_795_284_000_123_456_789);
        assert_eq!(instant.to_string(), "2026-11-21T18:00:00.123456Z");
        assert_eq!(at("2026-11-21 18:00:00.123456789"), instant);
        let json = serde_json::to_string(&instant).unwrap();
        assert_eq!(json, "\"2026-11-21T18:00:00.123456789Z\"");
        assert_eq!(serde_json::from_str::<Tai>(&json).unwrap(), instant);
    }

    #[test]
    fn bad_times_are_refused() {
        for text in ["", "yesterday", "2026-13-01T00:00:00", "2026-11-21T25:00:00", "2026-11-21"] {
            assert!(text.parse::<Tai>().is_err(), "{text}");
        }
    }
}
