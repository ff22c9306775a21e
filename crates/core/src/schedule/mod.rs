//! The future scans of a session: their names, starts and durations.
//!
//! A [`Schedule`] is read from one of three formats, which are recognised by their first bytes:
//!
//! ```text
//! TOML   [[scan]]                         CSV   scan,start,duration
//!        name = "no0001"                        no0001,2026-11-22T18:00:00Z,40s
//!        start = "2026-11-22T18:00:00Z"         no0002,2026-11-22T18:01:00Z,40s
//!        duration = "40s"
//!        repeat = 60                      VEX   VEX_rev = 1.5; … $SCHED; … scan No0001; …
//!        pause = "20s"
//! ```
//!
//! An [`Agenda`](agenda::Agenda) then gives the next step at any time.

pub mod agenda;
mod csv;
pub mod room;
mod toml;
mod vex;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use fullbore_time::{self as time, Tai};
use serde::Serialize;

use crate::hint::Hint;
use crate::name::{self, Name};

/// The largest text that is read.
pub const LARGEST: usize = 16 << 20;

/// The largest number of scans of one schedule: a day of a scan every second.
pub const MOST_SCANS: usize = 86_400;

/// The longest scan.
pub const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// One planned scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// Its name within the session.
    pub name: Name,
    /// Time of its first frame.
    pub start: Tai,
    /// Time of its end.
    pub end: Tai,
    /// The observed target, if the schedule has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl Planned {
    /// Returns its duration.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end.since(self.start).max(0) as u64)
    }
}

/// All scans of a session, in the order of their starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// The session in the text, if there is one; [`Schedule::session_name`] checks that it is a valid name.
    pub session: Option<String>,
    /// The scans.
    pub scans: Vec<Planned>,
    /// Changes that were necessary to record it, one sentence each.
    pub notes: Vec<String>,
}

/// The reason why a text is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is larger than [`LARGEST`].
    #[error("a schedule of {bytes} bytes is larger than {LARGEST}")]
    Size {
        /// Its size.
        bytes: usize,
    },
    /// The format is unknown or wrong.
    #[error("line {line}: {what}")]
    Form {
        /// The line, from 1.
        line: usize,
        /// The reason.
        what: String,
    },
    /// A scan is invalid.
    #[error("scan `{scan}`: {what}")]
    Scan {
        /// Its name, as given.
        scan: String,
        /// The reason.
        what: String,
    },
    /// The session's name is invalid.
    #[error("the session's name")]
    Session {
        /// The reason.
        #[source]
        source: name::Error,
    },
    /// The text has several stations, and none was chosen.
    #[error("the schedule is for the stations {stations}")]
    Station {
        /// The stations with scans.
        stations: String,
    },
    /// A station was chosen, but the text has none.
    #[error("this schedule is not a VEX file; only VEX files have stations")]
    NoStations,
    /// The text has no scans.
    #[error("the schedule has no scan")]
    Empty,
    /// The text has more than [`MOST_SCANS`] scans.
    #[error("the schedule has more than {MOST_SCANS} scans")]
    TooMany,
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Form { .. } => {
                "a schedule is TOML with [[scan]] tables, CSV that begins with the line \
                 scan,start,duration, or a VEX file"
            }
            Error::Station { .. } => "choose one with --station",
            Error::NoStations => "leave out --station",
            Error::Scan { .. } => {
                "a scan has a name of letters, digits, - + and _, a start such as 2026-11-22T18:00:00Z \
                 and a duration such as 40s"
            }
            Error::Size { .. } | Error::Session { .. } | Error::Empty | Error::TooMany => {
                return None;
            }
        }))
    }
}

/// A scan as given in the text, before any check.
struct Given {
    name: String,
    start: Tai,
    duration: Duration,
    target: Option<String>,
}

impl Schedule {
    /// Reads a schedule in any of the three formats. `station` is the two-letter code whose scans are taken from a VEX
    /// file; it may be left out if there is only one.
    ///
    /// # Errors
    ///
    /// The first error, with its line or its scan.
    pub fn read(text: &str, station: Option<&str>) -> Result<Self, Error> {
        if text.len() > LARGEST {
            return Err(Error::Size { bytes: text.len() });
        }
        Self::read_within(text, station)
    }

    fn read_within(text: &str, station: Option<&str>) -> Result<Self, Error> {
        let text = text.trim_start_matches('\u{feff}');
        let (session, given) = if vex::is_vex(text) {
            vex::read(text, station)?
        } else if station.is_some() {
            return Err(Error::NoStations);
        } else if csv::is_csv(text) {
            (None, csv::read(text)?)
        } else {
            toml::read(text)?
        };
        let mut schedule = Self { session, scans: Vec::new(), notes: Vec::new() };
        if given.is_empty() {
            return Err(Error::Empty);
        }
        if given.len() > MOST_SCANS {
            return Err(Error::TooMany);
        }
        for scan in given {
            schedule.scans.push(checked(scan)?);
        }
        schedule.settle()?;
        Ok(schedule)
    }

    /// Reads a schedule from a file's bytes: UTF-8, or else Latin-1, in which stations still write the names of people.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn read_bytes(bytes: &[u8], station: Option<&str>) -> Result<Self, Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::read(text, station),
            Err(_) if bytes.len() > LARGEST => Err(Error::Size { bytes: bytes.len() }),
            Err(_) => {
                let text: String = bytes.iter().copied().map(char::from).collect();
                Self::read_within(&text, station)
            }
        }
    }

    /// Returns the session that the text names.
    ///
    /// # Errors
    ///
    /// The session is not a valid name.
    pub fn session_name(&self) -> Result<Option<Name>, Error> {
        let named = self.session.as_deref().map(Name::session).transpose();
        named.map_err(|source| Error::Session { source })
    }

    /// Returns consecutive scans with less than `lead` between them: the second must be armed that much before its
    /// start.
    pub fn short_pauses(&self, lead: Duration) -> impl Iterator<Item = (&Planned, &Planned)> {
        let short = move |two: &&[Planned]| {
            let pause = two[1].start.since(two[0].end).max(0).unsigned_abs();
            u128::from(pause) < lead.as_nanos()
        };
        self.scans.windows(2).filter(short).map(|two| (&two[0], &two[1]))
    }

    /// Sorts the scans, and ends each by the start of the next one.
    fn settle(&mut self) -> Result<(), Error> {
        self.scans.sort_by_key(|scan| (scan.start, scan.end));
        let mut names = BTreeSet::new();
        for scan in &self.scans {
            if !names.insert(scan.name.as_str()) {
                let what = "two scans have this name".to_owned();
                return Err(Error::Scan { scan: scan.name.to_string(), what });
            }
        }
        for n in 1..self.scans.len() {
            let (before, after) = self.scans.split_at_mut(n);
            let (before, after) = (&mut before[n - 1], &after[0]);
            if before.start == after.start {
                let what = format!("it starts at the same time as scan `{}`", after.name);
                return Err(Error::Scan { scan: before.name.to_string(), what });
            }
            if before.end > after.start {
                self.notes.push(format!(
                    "scan {} overlaps scan {} by {} s, and ends when that one starts",
                    before.name,
                    after.name,
                    before.end.since(after.start) as f64 / 1e9,
                ));
                before.end = after.start;
            }
        }
        Ok(())
    }
}

fn checked(given: Given) -> Result<Planned, Error> {
    let wrong = |what: String| Error::Scan { scan: given.name.clone(), what };
    let name: Name = given.name.parse().map_err(|error: name::Error| wrong(error.to_string()))?;
    if given.duration.is_zero() {
        return Err(wrong("it lasts no time".to_owned()));
    }
    if given.duration > LONGEST {
        return Err(wrong("it lasts longer than 30 days".to_owned()));
    }
    let lasts = given.duration.as_nanos() as i64;
    let end = given.start.plus_ns(lasts);
    // Instants saturate at the limits of 64 bits of nanoseconds.
    if end.since(given.start) != lasts || given.start == Tai(i64::MIN) {
        return Err(wrong("it is not between the years 1678 and 2261".to_owned()));
    }
    Ok(Planned { name, start: given.start, end, target: given.target })
}

/// Parses a start; `wrong` adds the line or scan to an error.
fn start(text: &str, wrong: impl Fn(String) -> Error) -> Result<Tai, Error> {
    text.parse().map_err(|error: time::Error| wrong(error.to_string()))
}

/// A duration such as `40s` or `1m 30s`; a bare number is seconds.
fn duration(text: &str, wrong: impl Fn(String) -> Error) -> Result<Duration, Error> {
    let text = text.trim();
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds
        .map_or_else(|| humantime::parse_duration(text), Ok)
        .map_err(|_| wrong(format!("`{text}` is not a duration")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Tai {
        text.parse().unwrap()
    }

    fn names(schedule: &Schedule) -> Vec<&str> {
        schedule.scans.iter().map(|scan| scan.name.as_str()).collect()
    }

    const CSV: &str = "scan,start,duration\n\
                       no0002,2026-11-22T18:01:00Z,40s\n\
                       no0001,2026-11-22T18:00:00Z,40\n";

    #[test]
    fn scans_come_in_the_order_of_their_starts() {
        let schedule = Schedule::read(CSV, None).unwrap();
        assert_eq!(names(&schedule), ["no0001", "no0002"]);
        assert_eq!(schedule.scans[0].end, at("2026-11-22T18:00:40Z"));
        assert_eq!(schedule.scans[1].duration(), Duration::from_secs(40));
        assert!(schedule.notes.is_empty());
    }

    #[test]
    fn the_three_forms_say_the_same() {
        let csv = Schedule::read(CSV, None).unwrap();
        let toml = "[[scan]]\nname = \"no0001\"\nstart = 2026-11-22T18:00:00Z\nduration = \"40s\"\n\
                    [[scan]]\nname = \"no0002\"\nstart = \"2026-11-22T18:01:00Z\"\nduration = 40\n";
        assert_eq!(Schedule::read(toml, None).unwrap(), csv);
        let vex = "VEX_rev = 1.5;\n$SCHED;\n\
                   scan no0001; start=2026y326d18h00m00s; mode=m; source=s;\n station=Ef: 0 sec: 40 sec: 0 GB: : : 1;\nendscan;\n\
                   scan no0002; start=2026y326d18h01m00s; mode=m; source=s;\n station=Ef: 0 sec: 40 sec: 0 GB: : : 1;\nendscan;\n";
        let vex = Schedule::read(vex, None).unwrap();
        assert_eq!(names(&vex), names(&csv));
        let times = |s: &Schedule| s.scans.iter().map(|s| (s.start, s.end)).collect::<Vec<_>>();
        assert_eq!(times(&vex), times(&csv));
        assert_eq!(vex.scans[0].target.as_deref(), Some("s"));
    }

    #[test]
    fn a_scan_that_runs_into_the_next_ends_there_and_it_is_said() {
        let text = "scan,start,duration\na,2026-11-22T18:00:00Z,90s\nb,2026-11-22T18:01:00Z,40s\n";
        let schedule = Schedule::read(text, None).unwrap();
        assert_eq!(schedule.scans[0].end, schedule.scans[1].start);
        assert_eq!(schedule.notes.len(), 1);
        assert!(schedule.notes[0].contains("by 30 s"), "{:?}", schedule.notes);
    }

    #[test]
    fn a_pause_that_is_shorter_than_arming_ahead_takes_is_named() {
        let text = "scan,start,duration\na,2026-11-22T18:00:00Z,40s\nb,2026-11-22T18:00:44.9Z,40s\n\
                    c,2026-11-22T18:01:29.9Z,40s\nd,2026-11-22T18:02:00Z,40s\n";
        let schedule = Schedule::read(text, None).unwrap();
        let short = schedule.short_pauses(Duration::from_secs(5));
        let names: Vec<_> = short.map(|(a, b)| (a.name.as_str(), b.name.as_str())).collect();
        assert_eq!(names, [("a", "b"), ("c", "d")]);
    }

    #[test]
    fn a_file_in_latin_1_is_read_and_no_other_form_has_stations() {
        let text = "* Schedule of Jos\u{e9}\n\n  * and others\nVEX_rev = 1.5;\n$EXPER; def X; exper_name = N24K1; \
                    PI_name = \"Jos\u{e9}; *\"; enddef;\n$SCHED;\nscan a; start=2026y326d18h; \
                    source=M\u{fc}; station=Ef: 0 sec: 4 sec; endscan;\n";
        let latin: Vec<u8> = text.chars().map(|sign| sign as u8).collect();
        let schedule = Schedule::read_bytes(&latin, Some("Ef")).unwrap();
        assert_eq!(schedule, Schedule::read_bytes(text.as_bytes(), None).unwrap());
        assert_eq!(schedule.scans[0].target.as_deref(), Some("M\u{fc}"));
        assert_eq!(schedule.session_name().unwrap().unwrap().as_str(), "n24k1");
        let error = Schedule::read(CSV, Some("Ef")).unwrap_err();
        assert_eq!(error, Error::NoStations);
        assert_eq!(error.hint().unwrap(), "leave out --station");
    }

    #[test]
    fn what_can_be_no_session_is_no_hindrance_where_another_is_typed() {
        let text = "session = \"a b\"\n[[scan]]\nname = \"a\"\nstart = 2026-11-22T18:00:00Z\nduration = 4\n";
        let schedule = Schedule::read(text, None).unwrap();
        assert_eq!(schedule.session.as_deref(), Some("a b"));
        assert!(matches!(schedule.session_name(), Err(Error::Session { .. })));
    }

    #[test]
    fn what_cannot_be_recorded_is_refused_by_name() {
        for (text, part) in [
            ("scan,start,duration\n", "no scan"),
            ("scan,start,duration\na,2026-11-22T18:00:00Z,0s\n", "`a`: it lasts no time"),
            ("scan,start,duration\n../a,2026-11-22T18:00:00Z,4s\n", "`../a`"),
            ("scan,start,duration\na,yesterday,4s\n", "line 2"),
            ("scan,start,duration\na,2026-11-22T18:00:00Z,4 parsecs\n", "parsecs"),
            ("scan,start,duration\na,2026-11-22T18:00:00Z,400d\n", "30 days"),
            (
                "scan,start,duration\na,2026-11-22T18:00:00Z,4s\na,2026-11-22T19:00:00Z,4s\n",
                "two scans have this name",
            ),
            (
                "scan,start,duration\na,2026-11-22T18:00:00Z,4s\nb,2026-11-22T18:00:00Z,5s\n",
                "starts at the same time",
            ),
            ("scan,start,duration\na,2926-11-22T18:00:00Z,4s\n", "`a`: it is not between"),
            ("scan,start,duration\na,1026-11-22T18:00:00Z,4s\n", "`a`: it is not between"),
            ("rubbish", "line 1"),
        ] {
            let error = Schedule::read(text, None).unwrap_err();
            assert!(error.to_string().contains(part), "{text:?} gave {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,200}") {
            for text in [text.clone(), format!("scan,start,duration\n{text}"), format!("VEX_rev=1.5;$SCHED;{text}")] {
                if let Ok(schedule) = Schedule::read(&text, None) {
                    proptest::prop_assert!(schedule.scans.windows(2).all(|two| two[0].end <= two[1].start));
                }
            }
        }
    }
}
