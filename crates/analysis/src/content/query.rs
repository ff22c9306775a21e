//! Queries of an index by content.
//!
//! ```text
//! query     = all { "or" all }
//! all       = part { "and" part }
//! part      = ( "not" part | "(" query ")" | condition ) [ "for" duration ]
//! condition = quantity ( ">" | ">=" | "<" | "<=" ) number [ unit ]
//! quantity  = "power" "(" channel ")"      dB relative to full scale
//!           | "burst" "(" channel ")"      dB above the median, in seconds that a burst touches
//!           | "absent" "(" channel ")"     % of the samples
//! channel   = "any" | "ch" [ thread ":" ] channel
//! duration  = number ( "ms" | "s" | "min" | "h" )
//! ```
//!
//! Each second fulfils a condition or does not. `for 5s` drops runs of fewer than five seconds. Seconds without samples
//! fulfil no condition but those of `absent`.
//!
//! Conditions on samples that arrive ([`Query::of_samples`], [`trigger`](crate::trigger)) have other quantities:
//!
//! ```text
//! quantity  = "power" "(" channel [ "," frequency ".." frequency ] ")"    dB relative to full scale, in the band
//!           | "level" "(" channel ")"      the largest absolute value of a sample, in levels of its encoding
//! frequency = number [ "Hz" | "kHz" | "MHz" | "GHz" ]
//! ```

mod parse;

use std::fmt;
use std::str::FromStr;

use fullbore_time::Tai;
use serde::Serialize;

use super::{Content, ContentLine};
use crate::plan::LineId;

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// One of them is fulfilled.
    Or(Vec<Query>),
    /// All are fulfilled.
    And(Vec<Query>),
    /// It is not fulfilled.
    Not(Box<Query>),
    /// It is fulfilled for this many seconds in a row.
    For(Box<Query>, f64),
    /// A condition.
    Condition(Condition),
}

/// A comparison of a quantity with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// The quantity.
    pub quantity: Quantity,
    /// The channel; `None`: any.
    pub line: Option<LineId>,
    /// The comparison.
    pub comparison: Comparison,
    /// The number, in dB or %.
    pub number: f64,
}

/// A quantity of a second, or of a shorter time while samples arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// The mean power in dB relative to full scale.
    Power,
    /// The mean power within a band in dB relative to full scale. An index does not have it.
    BandPower(Band),
    /// The largest absolute value of a sample, or of a part of a complex one. An index does not have it.
    Level,
    /// The highest power of a burst in dB above the median.
    Burst,
    /// The share of absent samples in %.
    Absent,
}

/// A part of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Its lower edge in Hz.
    pub from_hz: f64,
    /// Its upper edge in Hz, which is higher.
    pub to_hz: f64,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

/// A text is not a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected} is expected here\n  {text}\n  {mark}")]
pub struct QueryError {
    /// The text.
    text: String,
    /// The line below the text that points at the place.
    mark: String,
    /// The column of the first wrong letter, from 1.
    pub column: usize,
    /// What belongs there.
    pub expected: &'static str,
}

/// A channel of a query is not in the stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stream} has no channel ch{line}; it has {known}")]
pub struct NoLine {
    line: LineId,
    stream: String,
    known: String,
}

/// A part of a stream that fulfils a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    /// The stream.
    pub stream: String,
    /// The time of its start, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Tai>,
    /// Seconds from the start of the stream.
    pub begins_s: f64,
    /// The length in seconds.
    pub seconds: f64,
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, time, begins_s, seconds } = self;
        let time = time.map_or_else(String::new, |time| format!("{time:.3}, "));
        write!(f, "{stream}: {time}{begins_s} s after the start, for {seconds} s")
    }
}

impl FromStr for Query {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Self, QueryError> {
        parse::parse(text, parse::Vocabulary::Index)
    }
}

impl Query {
    /// Reads a condition on samples that arrive.
    ///
    /// # Errors
    ///
    /// The text is none. `burst` and `absent` are known of an index only.
    pub fn of_samples(text: &str) -> Result<Self, QueryError> {
        parse::parse(text, parse::Vocabulary::Samples)
    }

    /// The parts of a stream that fulfil the query.
    pub fn find(&self, content: &Content) -> Result<Vec<Match>, NoLine> {
        let fulfilled = self.rows(content)?;
        let mut row = 0;
        let mut matches = Vec::new();
        for run in fulfilled.chunk_by(|one, other| one == other) {
            if run[0] {
                let ns = i64::try_from(row).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
                matches.push(Match {
                    stream: content.stream.clone(),
                    time: content.start.map(|start| start.plus_ns(ns)),
                    begins_s: row as f64,
                    seconds: run.len() as f64,
                });
            }
            row += run.len();
        }
        Ok(matches)
    }

    /// Whether each second fulfils the query.
    fn rows(&self, content: &Content) -> Result<Vec<bool>, NoLine> {
        let combined = |parts: &[Query], with: fn(bool, bool) -> bool| {
            let mut parts = parts.iter();
            let mut all = parts.next().map_or(Ok(Vec::new()), |part| part.rows(content))?;
            for part in parts {
                let rows = part.rows(content)?;
                all.iter_mut().zip(rows).for_each(|(one, other)| *one = with(*one, other));
            }
            Ok(all)
        };
        match self {
            Query::Or(parts) => combined(parts, |one, other| one || other),
            Query::And(parts) => combined(parts, |one, other| one && other),
            Query::Not(part) => Ok(part.rows(content)?.into_iter().map(|row| !row).collect()),
            Query::For(part, seconds) => {
                let rows = part.rows(content)?;
                let runs = rows.chunk_by(|one, other| one == other);
                let kept = runs.flat_map(|run| {
                    let is_long = run.len() as f64 >= *seconds;
                    run.iter().map(move |row| *row && is_long)
                });
                Ok(kept.collect())
            }
            Query::Condition(condition) => condition.rows(content),
        }
    }
}

impl Condition {
    fn rows(&self, content: &Content) -> Result<Vec<bool>, NoLine> {
        let first = content.lines.first().map(|line| line.thread);
        let is_meant = |line: &&ContentLine| match self.line {
            None => true,
            Some(LineId { thread, channel }) => {
                thread.or(first) == Some(line.thread) && channel == line.channel
            }
        };
        let lines: Vec<&ContentLine> = content.lines.iter().filter(is_meant).collect();
        if let (Some(line), true) = (self.line, lines.is_empty()) {
            let name = |line: &ContentLine| format!("ch{}:{}", line.thread, line.channel);
            let known: Vec<String> = content.lines.iter().take(20).map(name).collect();
            let (stream, known) = (content.stream.clone(), known.join(", "));
            return Err(NoLine { line, stream, known });
        }
        let row = |row: usize| lines.iter().any(|line| self.is_fulfilled(content, line, row));
        Ok((0..content.rows).map(row).collect())
    }

    fn is_fulfilled(&self, content: &Content, line: &ContentLine, row: usize) -> bool {
        let value = match self.quantity {
            Quantity::Power => {
                let power = line.power[row].map(f64::from);
                power.map(|power| 10.0 * (power / content.full_scale).log10())
            }
            Quantity::Absent => Some(f64::from(line.absent[row]) * 100.0),
            Quantity::BandPower(_) | Quantity::Level => None,
            Quantity::Burst => {
                let (begin, end) = (row as f64, row as f64 + 1.0);
                let here = content.bursts.iter().filter(|burst| {
                    (burst.thread, burst.channel) == (line.thread, line.channel)
                        && burst.begins_s < end
                        && burst.begins_s + burst.seconds > begin
                });
                let highest = here.map(|burst| burst.ratio).max_by(f64::total_cmp);
                highest.map(|ratio| 10.0 * ratio.log10())
            }
        };
        value.is_some_and(|value| self.comparison.holds(value, self.number))
    }
}

impl Comparison {
    /// True if a value compares so with a number.
    pub fn holds(self, value: f64, number: f64) -> bool {
        match self {
            Comparison::Above => value > number,
            Comparison::AtLeast => value >= number,
            Comparison::Below => value < number,
            Comparison::AtMost => value <= number,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quantity, line, comparison, number } = self;
        let line = line.map_or_else(|| "any".to_owned(), |line| format!("ch{line}"));
        let sign = match comparison {
            Comparison::Above => ">",
            Comparison::AtLeast => ">=",
            Comparison::Below => "<",
            Comparison::AtMost => "<=",
        };
        match quantity {
            Quantity::Power => write!(f, "power({line}) {sign} {number} dB"),
            Quantity::BandPower(Band { from_hz, to_hz }) => {
                write!(f, "power({line}, {from_hz}Hz..{to_hz}Hz) {sign} {number} dB")
            }
            Quantity::Level => write!(f, "level({line}) {sign} {number}"),
            Quantity::Burst => write!(f, "burst({line}) {sign} {number} dB"),
            Quantity::Absent => write!(f, "absent({line}) {sign} {number} %"),
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Query], word: &str| {
            for (number, part) in parts.iter().enumerate() {
                let word = if number > 0 { word } else { "" };
                write!(f, "{word}({part})")?;
            }
            Ok(())
        };
        match self {
            Query::Or(parts) => joined(f, parts, " or "),
            Query::And(parts) => joined(f, parts, " and "),
            Query::Not(part) => write!(f, "not ({part})"),
            Query::For(part, seconds) => write!(f, "({part}) for {seconds}s"),
            Query::Condition(condition) => condition.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
