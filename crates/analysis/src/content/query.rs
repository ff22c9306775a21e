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

/// A quantity of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The mean power in dB relative to full scale.
    Power,
    /// The highest power of a burst in dB above the median.
    Burst,
    /// The share of absent samples in %.
    Absent,
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
        parse::parse(text)
    }
}

impl Query {
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
        value.is_some_and(|value| match self.comparison {
            Comparison::Above => value > self.number,
            Comparison::AtLeast => value >= self.number,
            Comparison::Below => value < self.number,
            Comparison::AtMost => value <= self.number,
        })
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
            Query::Condition(Condition { quantity, line, comparison, number }) => {
                let (name, unit) = match quantity {
                    Quantity::Power => ("power", "dB"),
                    Quantity::Burst => ("burst", "dB"),
                    Quantity::Absent => ("absent", "%"),
                };
                let line = line.map_or_else(|| "any".to_owned(), |line| format!("ch{line}"));
                let sign = match comparison {
                    Comparison::Above => ">",
                    Comparison::AtLeast => ">=",
                    Comparison::Below => "<",
                    Comparison::AtMost => "<=",
                };
                write!(f, "{name}({line}) {sign} {number} {unit}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
