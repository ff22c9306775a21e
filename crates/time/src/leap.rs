//! Leap seconds: the offset of TAI from UTC, and the end of its validity.
//!
//! ```text
//! UTC  23:59:58  23:59:59  23:59:60  00:00:00
//! TAI  00:00:34  00:00:35  00:00:36  00:00:37      end of 2016: the offset goes from 36 s to 37 s
//! Unix   …798      …799      …799      …800
//! ```
//!
//! A process has one [`Table`], chosen once at its start: the built-in one, or a newer one that the caller has read
//! from a file.

use std::fmt;
use std::sync::OnceLock;

use sha1::{Digest, Sha1};

use super::Tai;
use super::calendar::Date;

/// A step: from a Unix second on, TAI is this many seconds ahead of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    unix: i64,
    offset: i64,
}

/// All steps of UTC against TAI. Before the first one, in 1972, the offset is taken as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    steps: Vec<Step>,
    /// Unix second from which on leap seconds may be missing; `None`: not in the file.
    expires: Option<i64>,
    source: String,
}

/// The reason why a text is not a table of leap seconds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A line is invalid.
    #[error("line {line} is not a line of a table of leap seconds: `{text}`")]
    Line {
        /// From 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// The text has no leap seconds.
    #[error(
        "it contains no leap seconds; give a leap-seconds.list, or the file leapseconds of the time zone database"
    )]
    Empty,
    /// A `#h` line is not a SHA-1 checksum.
    #[error("line {line} begins with #h but is not a SHA-1 checksum in five words: `{text}`")]
    Checksum {
        /// From 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// The data does not match the checksum in the file.
    #[error(
        "the SHA-1 checksum of its data is {found}, and its line #h states {stated}, so the file is damaged or was \
         changed by hand: download it again, or remove the line #h if you changed the file"
    )]
    Damaged {
        /// The checksum in the `#h` line.
        stated: String,
        /// The checksum of the data.
        found: String,
    },
    /// The table contradicts known leap seconds.
    #[error(
        "its leap seconds up to 2017 differ from the known ones, so the file is damaged or cut short"
    )]
    Contradicts,
}

const DAY: i64 = 86_400;
/// From 1900-01-01, the NTP epoch, to 1970-01-01.
const NTP_TO_UNIX: i64 = 2_208_988_800;
/// The largest number of steps in a file.
const MOST_STEPS: usize = 1000;
/// The first whole-second difference between UTC and TAI: 1972-01-01, 10 s.
const FIRST: Step = Step { unix: 63_072_000, offset: 10 };

/// The first days with one second more than before, up to IERS Bulletin C 72 (July 2026).
const BUILT_IN: [(i64, u32); 27] = [
    (1972, 7),
    (1973, 1),
    (1974, 1),
    (1975, 1),
    (1976, 1),
    (1977, 1),
    (1978, 1),
    (1979, 1),
    (1980, 1),
    (1981, 7),
    (1982, 7),
    (1983, 7),
    (1985, 7),
    (1988, 1),
    (1990, 1),
    (1991, 1),
    (1992, 7),
    (1993, 7),
    (1994, 7),
    (1996, 1),
    (1997, 7),
    (1999, 1),
    (2006, 1),
    (2009, 1),
    (2012, 7),
    (2015, 7),
    (2017, 1),
];

/// The date up to which Bulletin C 72 excludes further leap seconds.
const BUILT_IN_EXPIRES: Date = Date { year: 2027, month: 6, day: 28 };

static IN_FORCE: OnceLock<Table> = OnceLock::new();

/// Returns the table that converts all times of this process.
pub fn in_force() -> &'static Table {
    IN_FORCE.get_or_init(Table::built_in)
}

/// Installs a table. Returns it as an error if one is installed already: times converted by that one would change.
pub fn install(table: Table) -> Result<&'static Table, Table> {
    IN_FORCE.set(table)?;
    Ok(in_force())
}

impl Table {
    /// Returns the built-in table.
    pub fn built_in() -> Self {
        let later = (11..).zip(BUILT_IN).map(|(offset, (year, month))| Step {
            unix: Date { year, month, day: 1 }.days() * DAY,
            offset,
        });
        Table {
            steps: std::iter::once(FIRST).chain(later).collect(),
            expires: Some(BUILT_IN_EXPIRES.days() * DAY),
            source: "built in".to_owned(),
        }
    }

    /// Parses a `leap-seconds.list` (IERS, IANA, NIST), or `leapseconds` of the time zone database. `source` is the
    /// name of the file.
    pub fn read(text: &str, source: &str) -> Result<Self, Error> {
        let mut table = Table { steps: Vec::new(), expires: None, source: source.to_owned() };
        check(text)?;
        for (number, line) in text.lines().enumerate() {
            let added = table.add(line.trim());
            if added.is_none() || table.steps.len() > MOST_STEPS {
                let text = line.chars().take(80).collect();
                return Err(Error::Line { line: number + 1, text });
            }
        }
        if table.steps.is_empty() {
            return Err(Error::Empty);
        }
        let known = Self::built_in().steps;
        let ordered = table.steps.is_sorted_by_key(|step| step.unix);
        match table.steps.starts_with(&known) && ordered {
            true => Ok(table),
            false => Err(Error::Contradicts),
        }
    }

    /// Takes one line of either kind of file; `None` if it belongs to neither.
    fn add(&mut self, line: &str) -> Option<()> {
        if let Some(note) = line.strip_prefix('#') {
            self.note(note);
            return Some(());
        }
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            ["Expires", date @ .., "00:00:00"] => self.expires = Some(day(date)? * DAY),
            ["Leap", date @ .., "23:59:60", "+", _] => self.step_after(day(date)?, 1),
            ["Leap", date @ .., "23:59:59", "-", _] => self.step_after(day(date)?, -1),
            [ntp, offset] => {
                let unix = ntp.parse::<i64>().ok()?.checked_sub(NTP_TO_UNIX)?;
                let offset = offset.parse().ok().filter(|offset| (-999..1000).contains(offset))?;
                self.steps.push(Step { unix, offset });
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads a comment with the expiry of the table: `#@ 3991593600` by NTP, `#expires 1782604800` by Unix.
    fn note(&mut self, note: &str) {
        let after = |mark| note.strip_prefix(mark)?.split_whitespace().next()?.parse::<i64>().ok();
        let expires = after("@").map(|ntp| ntp.saturating_sub(NTP_TO_UNIX)).or(after("expires "));
        self.expires = expires.or(self.expires);
    }

    /// Adds a step: the day after this one is the first with another offset.
    fn step_after(&mut self, day: i64, more: i64) {
        if self.steps.is_empty() {
            self.steps.push(FIRST);
        }
        let offset = self.steps.last().map_or(0, |step| step.offset) + more;
        self.steps.push(Step { unix: (day + 1) * DAY, offset });
    }

    /// Returns the table that is valid for longer.
    #[must_use]
    pub fn or_longer(self, other: Table) -> Table {
        if other.expires > self.expires { other } else { self }
    }

    /// Returns the time from which on leap seconds may be missing.
    pub fn expires(&self) -> Option<Tai> {
        self.expires.map(|unix| Tai((unix + self.offset(unix)).saturating_mul(super::NS)))
    }

    /// Returns a warning if the table may lack leap seconds at that time.
    pub fn warning(&self, now: Tai) -> Option<String> {
        let expires = self.expires().filter(|expires| now >= *expires)?;
        Some(format!(
            "the table of leap seconds ({}) ended on {}: if there was a leap second since then, UTC times are one \
             second off; update the system's time zone data, or name a newer leap-seconds.list in FULLBORE_LEAP_SECONDS",
            self.source,
            &expires.to_string()[..10]
        ))
    }

    /// Returns TAI minus UTC at a Unix second.
    pub(super) fn offset(&self, unix: i64) -> i64 {
        let next = self.steps.partition_point(|step| step.unix <= unix);
        next.checked_sub(1).map_or(0, |last| self.steps[last].offset)
    }

    /// Returns the Unix second of a second of TAI. Inserted seconds have that of the second before them; the other
    /// number counts them from 1.
    pub(super) fn to_unix(&self, tai: i64) -> (i64, i64) {
        let next = self.steps.partition_point(|step| step.unix.saturating_add(step.offset) <= tai);
        let offset = next.checked_sub(1).map_or(0, |last| self.steps[last].offset);
        let unix = tai.saturating_sub(offset);
        match self.steps.get(next) {
            Some(step) if unix >= step.unix => (step.unix - 1, unix - (step.unix - 1)),
            _ => (unix, 0),
        }
    }

    /// Returns the second of TAI of a Unix second, or of the `inserted`th second after it. `None` if UTC has no such
    /// second.
    pub(super) fn to_tai(&self, unix: i64, inserted: i64) -> Option<i64> {
        let offset = self.offset(unix);
        let tai = unix.checked_add(offset)?;
        let step = self.steps.iter().find(|step| step.unix == unix + 1);
        let more = step.map_or(0, |step| step.offset - offset);
        // The writer of the time may know a leap second that was announced after the table's expiry.
        let unknown = self.expires.is_some_and(|expires| unix >= expires) && ends_month(unix);
        let there = (more.min(0)..=more).contains(&inserted) && (more >= 0 || inserted != 0);
        (there || (unknown && inserted == 1)).then(|| tai + inserted)
    }
}

/// Compares a `leap-seconds.list` with the checksum in its `#h` line, if it has one.
///
/// The checksum is the SHA-1 of the digits of all data, in the order of the file, without whitespace and comments:
/// those of the update (`#$`), of the expiry (`#@`) and of each line of the table. It is written as five words; some
/// publishers omit the leading zeros of a word.
fn check(text: &str) -> Result<(), Error> {
    let mut stated: Option<[u32; 5]> = None;
    let mut hash = Sha1::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(words) = line
            .strip_prefix("#h")
            .filter(|it| it.is_empty() || it.starts_with(char::is_whitespace))
        {
            let words = words.split_whitespace().map(|word| u32::from_str_radix(word, 16).ok());
            let words = words.collect::<Option<Vec<u32>>>().and_then(|it| it.try_into().ok());
            let text = || line.chars().take(80).collect();
            stated = Some(words.ok_or_else(|| Error::Checksum { line: number + 1, text: text() })?);
        } else {
            let data = ["#$", "#@"].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
            let data = data.split('#').next().unwrap_or_default();
            hash.update(data.bytes().filter(u8::is_ascii_digit).collect::<Vec<u8>>());
        }
    }
    let digest = hash.finalize();
    let word = |n| u32::from_be_bytes(std::array::from_fn(|byte| digest[4 * n + byte]));
    let found: [u32; 5] = std::array::from_fn(word);
    match stated {
        Some(stated) if stated != found => {
            Err(Error::Damaged { stated: in_words(stated), found: in_words(found) })
        }
        _ => Ok(()),
    }
}

/// `49db2447 571e5e1b 2f002a53 9c8da8e4 39b8e49e`
fn in_words(checksum: [u32; 5]) -> String {
    checksum.map(|word| format!("{word:08x}")).join(" ")
}

/// True if a Unix second is the last of a month.
fn ends_month(unix: i64) -> bool {
    (unix + 1).rem_euclid(DAY) == 0 && Date::of_days((unix + 1).div_euclid(DAY)).day == 1
}

/// `1972 Jun 30` as days since 1970.
fn day(date: &[&str]) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let [year, month, day] = date else { return None };
    let month = MONTHS.iter().position(|name| name == month)? as u32 + 1;
    let year: u16 = year.parse().ok()?;
    Some(Date::new(i64::from(year), month, day.parse().ok()?)?.days())
}

impl fmt::Display for Table {
    /// `TAI-UTC is 37 s since 2017-01-01, known until 2027-06-28 (built in)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let date = |unix: i64| {
            let Date { year, month, day } = Date::of_days(unix.div_euclid(DAY));
            format!("{year:04}-{month:02}-{day:02}")
        };
        if let Some(step) = self.steps.last() {
            write!(f, "TAI-UTC is {} s since {}, ", step.offset, date(step.unix))?;
        }
        match self.expires {
            Some(expires) => write!(f, "known until {} ({})", date(expires), self.source),
            None => write!(f, "expiry unknown ({})", self.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(table: &Table) -> String {
        let lines = table
            .steps
            .iter()
            .map(|step| format!("{}\t{} # a day\n", step.unix + NTP_TO_UNIX, step.offset));
        format!(
            "#\tUpdated\n#$\t3960835200\n#@\t{}\n{}",
            table.expires.unwrap() + NTP_TO_UNIX,
            lines.collect::<String>()
        )
    }

    fn leapseconds(table: &Table) -> String {
        let days = table.steps[1..].iter().map(|step| Date::of_days(step.unix / DAY - 1));
        let month = |month| if month == 6 { "Jun" } else { "Dec" };
        let lines = days.map(|it| {
            format!("Leap\t{}\t{}\t{}\t23:59:60\t+\tS\n", it.year, month(it.month), it.day)
        });
        format!("# notes\n{}#expires {} (UTC)\n", lines.collect::<String>(), table.expires.unwrap())
    }

    #[test]
    fn both_kinds_of_file_tell_the_same() {
        let known = Table::built_in();
        for text in [list(&known), leapseconds(&known)] {
            assert_eq!(Table::read(&text, "built in"), Ok(known.clone()), "{text}");
        }
    }

    /// The list of the IERS of July 2025, with its checksum.
    fn of_2025() -> String {
        let expires = Some(3_991_593_600 - NTP_TO_UNIX);
        let data = list(&Table { expires, ..Table::built_in() });
        data + "#\tthe hash\n#h\t49db2447 571e5e1b 2f002a53 9c8da8e4 39b8e49e\n"
    }

    #[test]
    fn a_list_with_its_checksum_is_taken_and_one_without_it_too() {
        let whole = of_2025();
        let told = Table::read(&whole, "list").unwrap();
        assert_eq!(told.expires, Some(3_991_593_600 - NTP_TO_UNIX));
        let (without, _) = whole.split_once("#h").unwrap();
        assert_eq!(Table::read(without, "list"), Ok(told));
    }

    #[test]
    fn leading_zeros_of_words_of_the_checksum_may_be_left_out() {
        // An expiry whose checksum has a zero at the start of two words.
        let expires = Some(4_023_129_615 - NTP_TO_UNIX);
        let data = list(&Table { expires, ..Table::built_in() });
        for words in [
            "a00120b9 00d2f8f2 020b152d 5c8247ba 567dad46",
            "a00120b9 d2f8f2 20b152d 5c8247ba 567dad46",
        ] {
            let read = Table::read(&format!("{data}#h {words}\n"), "list");
            assert!(read.is_ok(), "{words}: {read:?}");
        }
    }

    #[test]
    fn a_digit_that_is_changed_is_found_by_the_checksum() {
        let whole = of_2025();
        let is_data = |line: &str| !line.starts_with("#\t");
        let mut changed = 0;
        for (at, digit) in whole.match_indices(|c: char| c.is_ascii_digit()) {
            let begin = whole[..at].rfind('\n').map_or(0, |end| end + 1);
            if !is_data(&whole[begin..]) {
                continue;
            }
            let other = if digit == "7" { "8" } else { "7" };
            let text = [&whole[..at], other, &whole[at + 1..]].concat();
            let error = Table::read(&text, "list").unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{at}: {error}");
            changed += 1;
        }
        assert!(changed > 356, "{changed}");
    }

    #[test]
    fn a_checksum_line_that_is_none_is_refused() {
        let whole = of_2025();
        let (data, _) = whole.split_once("#h").unwrap();
        for words in ["", "49db2447", "49db2447 571e5e1b 2f002a53 9c8da8e4 39b8e49e 0", "a b c d x"]
        {
            let read = Table::read(&format!("{data}#h {words}\n"), "list");
            assert!(matches!(read, Err(Error::Checksum { .. })), "{words}: {read:?}");
        }
    }

    #[test]
    fn a_newer_table_is_taken_and_an_older_one_is_not() {
        let known = Table::built_in();
        let step = Step { unix: Date { year: 2028, month: 1, day: 1 }.days() * DAY, offset: 38 };
        let expires = known.expires.unwrap() + 365 * DAY;
        let mut newer = Table { expires: Some(expires), ..known.clone() };
        newer.steps.push(step);
        for text in [list(&newer), leapseconds(&newer)] {
            let read = Table::read(&text, "built in").unwrap();
            assert_eq!(known.clone().or_longer(read.clone()), newer);
            assert_eq!(read.or_longer(known.clone()), newer);
        }
        assert_eq!(newer.to_tai(step.unix - 1, 1), Some(step.unix + 37));
        assert_eq!(newer.to_unix(step.unix + 37), (step.unix - 1, 1));
    }

    #[test]
    fn a_second_that_is_left_out_is_no_time() {
        let mut table = Table::built_in();
        let unix = Date { year: 2027, month: 1, day: 1 }.days() * DAY;
        table.steps.push(Step { unix, offset: 36 });
        assert_eq!(table.to_tai(unix - 1, 0), None);
        assert_eq!(table.to_tai(unix - 2, 0), Some(unix + 35));
        assert_eq!(table.to_tai(unix, 0), Some(unix + 36));
        assert_eq!(table.to_unix(unix + 35), (unix - 2, 0));
        assert_eq!(table.to_unix(unix + 36), (unix, 0));
    }

    #[test]
    fn a_file_that_is_damaged_or_cut_short_is_refused() {
        let whole = list(&Table::built_in());
        let without = |what: &str| {
            whole.lines().filter(|line| !line.contains(what)).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(Table::read("", "x"), Err(Error::Empty));
        assert_eq!(Table::read(&without("\t37 "), "x"), Err(Error::Contradicts));
        assert_eq!(Table::read(&without("\t20 "), "x"), Err(Error::Contradicts));
        let error = Table::read("#\n<html>\n", "x").unwrap_err();
        assert_eq!(error, Error::Line { line: 2, text: "<html>".to_owned() });
        let endless = "3692217600 37\n".repeat(MOST_STEPS + 1);
        assert!(matches!(Table::read(&endless, "x"), Err(Error::Line { .. })));
    }

    #[test]
    fn a_table_that_has_ended_is_told_and_takes_leap_seconds_that_it_does_not_know() {
        let table = Table::built_in();
        let expires = table.expires().unwrap();
        assert_eq!(table.warning(expires.plus_ns(-1)), None);
        let warning = table.warning(expires).unwrap();
        assert!(warning.contains("built in") && warning.contains("2027-06-28"), "{warning}");
        let end_of = |year, month| Date { year, month, day: 1 }.days() * DAY - 1;
        assert_eq!(table.to_tai(end_of(2027, 7), 1), Some(end_of(2027, 7) + 38));
        assert_eq!(table.to_tai(end_of(2027, 1), 1), None, "known to have none");
        assert_eq!(table.to_tai(end_of(2027, 7) + DAY, 1), None, "only a month can end so");
    }

    #[test]
    fn what_is_in_force_is_one_line() {
        let text = "TAI-UTC is 37 s since 2017-01-01, known until 2027-06-28 (built in)";
        assert_eq!(Table::built_in().to_string(), text);
    }
}
