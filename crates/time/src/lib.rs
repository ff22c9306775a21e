//! The time type of fullbore: nanoseconds of TAI, with UTC only for input and output.
//!
//! TAI repeats and omits no second. With the leap second at the end of 2016, `2016-12-31T23:59:59` and
//! `2017-01-01T00:00:00` are two seconds apart, and the leap second has a text of its own, `2016-12-31T23:59:60`.
//! [`leap`] has the list of leap seconds.
//!
//! It reads no clock and no file: a leap second table is read elsewhere, and installed here.

#![forbid(unsafe_code)]

mod calendar;
pub mod leap;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use calendar::Date;

/// An instant: nanoseconds of TAI since 1970-01-01 00:00:00 TAI.
///
/// In JSON it is UTC text with nanoseconds: `2026-11-21T18:00:00.123456789Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tai(pub i64);

/// The error for a text that is not a UTC time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text has another form, or names a day or an hour that does not exist.
    #[error("`{text}` is not a UTC time; write 2026-11-21T18:00:00Z")]
    Form {
        /// The given text.
        text: String,
    },
    /// Second 60 of a minute without a leap second.
    #[error("`{text}` is not a UTC time: that minute has no leap second ({table})")]
    NoLeapSecond {
        /// The given text.
        text: String,
        /// The table of leap seconds.
        table: String,
    },
}

const NS: i64 = 1_000_000_000;

const DAY: i64 = 86_400;

impl Tai {
    /// Converts the host's clock (`CLOCK_REALTIME`, nanoseconds of Unix time). It does not distinguish a leap second
    /// from the second before it; this returns the first of the two.
    pub fn from_unix_ns(ns: i128) -> Self {
        let unix = ns.div_euclid(i128::from(NS));
        let unix = unix.clamp(i128::from(i64::MIN / 2), i128::from(i64::MAX / 2)) as i64;
        let second = unix.saturating_add(leap::in_force().offset(unix));
        Self::of_second(second, ns.rem_euclid(i128::from(NS)) as i64)
    }

    /// Returns nanoseconds of Unix time, as the host's clock shows the instant. A leap second has the time of the second
    /// before it.
    pub fn unix_ns(self) -> i128 {
        let (unix, _) = leap::in_force().to_unix(self.0.div_euclid(NS));
        i128::from(unix) * i128::from(NS) + i128::from(self.0.rem_euclid(NS))
    }

    /// Returns the instant `ns` nanoseconds after a whole second. Instants beyond the range saturate.
    fn of_second(second: i64, ns: i64) -> Self {
        let exact = i128::from(second) * i128::from(NS) + i128::from(ns);
        Tai(exact.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    /// Returns the instant of a day of a year, counted from 1, and nanoseconds since its start by a clock that shows
    /// UTC; `None` for a time that the day does not have.
    pub fn of_day_of_year(
        year: u16,
        day: u16,
        [hour, minute]: [u32; 2],
        second_ns: i64,
    ) -> Option<Self> {
        let first = Date { year: i64::from(year), month: 1, day: 1 }.days();
        let date = Date::of_days(first + i64::from(day) - 1);
        let second = u32::try_from(second_ns.div_euclid(NS)).ok()?;
        let whole = (date.year == i64::from(year)).then(|| utc(date, [hour, minute, second]))??;
        Some(Self::of_second(whole, second_ns.rem_euclid(NS)))
    }

    /// Returns midnight UTC of the half-year `epoch` half-years after 2000-01-01 (VDIF's reference epoch).
    pub fn of_half_year(epoch: u32) -> Self {
        let unix = first_day(epoch) * DAY;
        Tai((unix + leap::in_force().offset(unix)).saturating_mul(NS))
    }

    /// Returns the half-year of this instant, and whole SI seconds since its start.
    pub fn half_year(self) -> (u32, u32) {
        let (unix, _) = leap::in_force().to_unix(self.0.div_euclid(NS));
        let date = Date::of_days(unix.div_euclid(DAY));
        let half = ((date.year - 2000).max(0) as u32) * 2 + u32::from(date.month >= 7);
        (half, (self.since(Self::of_half_year(half)).max(0) / NS) as u32)
    }

    /// Returns this instant moved by `ns` nanoseconds; saturates.
    pub fn plus_ns(self, ns: i64) -> Self {
        Tai(self.0.saturating_add(ns))
    }

    /// Returns the nanoseconds from `earlier` to this instant; saturates.
    pub fn since(self, earlier: Tai) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Tai {
    /// Writes UTC with microseconds, or with the requested number of digits: `2026-11-21T18:00:00.000000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (second, ns) = (self.0.div_euclid(NS), self.0.rem_euclid(NS));
        let (unix, inserted) = leap::in_force().to_unix(second);
        let Date { year, month, day } = Date::of_days(unix.div_euclid(DAY));
        let of_day = unix.rem_euclid(DAY);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60 + inserted);
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

    /// Parses `2026-11-21T18:00:00[.fraction][Z]`; `T` may be a blank. Always UTC; a leap second is second 60.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Form { text: text.to_owned() };
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
        let date = Date::new(i64::from(year), u32::from(month), u32::from(day)).ok_or_else(bad)?;
        let clock = [hour, minute, second].map(u32::from);
        let whole = utc(date, clock).ok_or_else(|| match clock[2] {
            60 => {
                Error::NoLeapSecond { text: text.to_owned(), table: leap::in_force().to_string() }
            }
            _ => bad(),
        })?;
        Ok(Self::of_second(whole, i64::from(ns)))
    }
}

/// Returns the TAI second of a second of UTC, if it exists.
fn utc(date: Date, [hour, minute, second]: [u32; 3]) -> Option<i64> {
    if hour > 23 || minute > 59 {
        return None;
    }
    let inserted = i64::from(second) - 59;
    let of_day = i64::from(hour * 3600 + minute * 60 + second.min(59));
    let unix = date.days() * DAY + of_day;
    leap::in_force().to_tai(unix, inserted.max(0))
}

fn fields(text: &str, separator: char) -> Option<Vec<u16>> {
    text.split(separator).map(|part| part.parse().ok()).collect()
}

/// A day of UTC, as a modified Julian date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

impl Day {
    /// Returns the day of an instant; the first day of 2000 for an earlier one.
    pub fn of(time: Tai) -> Self {
        let (epoch, seconds) = time.half_year();
        Day(mjd_of_half_year(epoch) + seconds / DAY as u32)
    }
}

/// Returns the modified Julian date of the first day of the half-year `epoch` half-years after 2000-01-01.
pub fn mjd_of_half_year(epoch: u32) -> u32 {
    const MJD_OF_1970: i64 = 40_587;
    (first_day(epoch) + MJD_OF_1970) as u32
}

/// Returns the first day of a half-year, counted from 1970-01-01.
fn first_day(epoch: u32) -> i64 {
    let month = if epoch.is_multiple_of(2) { 1 } else { 7 };
    Date { year: 2000 + i64::from(epoch / 2), month, day: 1 }.days()
}

/// Returns the time of frame `frame` of `frames_per_second`, in nanoseconds after the whole second.
pub fn frame_ns(frame: u64, frames_per_second: u64) -> i64 {
    (u128::from(frame) * NS as u128 / u128::from(frames_per_second.max(1))) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Tai {
        text.parse().unwrap()
    }

    /// The first seconds after every leap second, as UTC text.
    const AFTER_LEAPS: [&str; 27] = [
        "1972-07", "1973-01", "1974-01", "1975-01", "1976-01", "1977-01", "1978-01", "1979-01",
        "1980-01", "1981-07", "1982-07", "1983-07", "1985-07", "1988-01", "1990-01", "1991-01",
        "1992-07", "1993-07", "1994-07", "1996-01", "1997-07", "1999-01", "2006-01", "2009-01",
        "2012-07", "2015-07", "2017-01",
    ];

    fn after_leap(month: &str) -> Tai {
        at(&format!("{month}-01T00:00:00Z"))
    }

    proptest! {
        #[test]
        fn text_and_time_are_one_to_one_around_every_leap_second(
            month in prop::sample::select(&AFTER_LEAPS[..]),
            seconds in -90i64..90,
            ns in 0..NS,
        ) {
            let time = after_leap(month).plus_ns(seconds * NS + ns);
            let text = format!("{time:.9}");
            prop_assert_eq!(at(&text), time, "{}", text);
            let next = format!("{:.9}", time.plus_ns(1));
            prop_assert!(next > text, "{} is not after {}", next, text);
            // The seconds on the clock equal the seconds since the minute began.
            let expected = match seconds {
                -1 => 60,
                _ if seconds < 0 => (seconds + 1).rem_euclid(60),
                _ => seconds % 60,
            };
            prop_assert_eq!(text[17..19].parse::<i64>().unwrap(), expected, "{}", text);
        }

        #[test]
        fn text_and_time_are_one_to_one_at_any_time(ns in any::<i64>()) {
            // Years of four digits.
            prop_assume!(ns > i64::MIN + 100 * NS && ns < i64::MAX - 100 * NS);
            prop_assert_eq!(at(&format!("{:.9}", Tai(ns))), Tai(ns));
        }

        #[test]
        fn a_half_year_and_its_seconds_are_the_time(
            month in prop::sample::select(&AFTER_LEAPS[22..]),
            seconds in -90i64..90,
        ) {
            let time = after_leap(month).plus_ns(seconds * NS);
            let (half, since) = time.half_year();
            prop_assert_eq!(Tai::of_half_year(half).plus_ns(i64::from(since) * NS), time);
            prop_assert_eq!(seconds >= 0, since < 90);
        }
    }

    #[test]
    fn every_leap_second_has_a_text_of_its_own() {
        for month in AFTER_LEAPS {
            let after = after_leap(month);
            let text = |ns| after.plus_ns(ns).to_string()[10..].to_owned();
            assert_eq!(text(-37 * NS), "T23:59:24.000000Z", "{month}");
            assert_eq!(text(-2 * NS), "T23:59:59.000000Z", "{month}");
            assert_eq!(text(-NS), "T23:59:60.000000Z", "{month}");
            assert_eq!(text(-1), "T23:59:60.999999Z", "{month}");
        }
    }

    #[test]
    fn second_60_is_refused_where_there_was_none() {
        for text in ["2016-12-30T23:59:60Z", "2016-12-31T23:58:60Z", "2016-06-30T23:59:60Z"] {
            let error = text.parse::<Tai>().unwrap_err().to_string();
            assert!(error.contains("no leap second") && error.contains("2017-01-01"), "{error}");
        }
        assert!("2016-12-31T23:59:61Z".parse::<Tai>().is_err());
    }

    #[test]
    fn the_hosts_clock_goes_by_a_leap_second_as_by_any_other() {
        let unix = |seconds: i128| Tai::from_unix_ns(seconds * i128::from(NS));
        let midnight = 1_483_228_800;
        assert_eq!(unix(midnight), at("2017-01-01T00:00:00Z"));
        for before in 1..60 {
            let text = format!("2016-12-31T23:59:{:02}Z", 60 - before);
            assert_eq!(unix(midnight - before), at(&text), "{text}");
        }
    }

    #[test]
    fn the_leap_second_of_2016_is_counted() {
        assert_eq!(at("2017-01-01T00:00:00Z").since(at("2016-12-31T23:59:59Z")), 2 * NS);
    }

    #[test]
    fn the_first_and_the_last_instant_are_read_as_they_are_written() {
        for ns in [i64::MIN, i64::MIN + 1, i64::MIN + NS, i64::MAX - NS, i64::MAX] {
            assert_eq!(at(&format!("{:.9}", Tai(ns))), Tai(ns));
        }
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
