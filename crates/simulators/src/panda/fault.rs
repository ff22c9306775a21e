//! The deliberate faults of a simulated PandA.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fullbore_formats::panda::EndReason;

/// A fault that occurs once in every acquisition.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The kind of fault.
    pub what: What,
    /// The sample at which it occurs.
    pub at: u64,
}

/// The kind of fault.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The writer laps the reader: raw samples are overwritten while they are sent.
    Overrun,
    /// The server stops in mid-frame for a while; the writer goes on.
    Stall(Duration),
    /// A frame without samples precedes, which is legal.
    Empty,
    /// The connection dies between ARM and the header.
    Drop,
    /// The connection dies in the middle of the frame.
    Die,
    /// Bytes that are no frame follow the frame.
    Rubbish,
    /// The frame states a wrong length.
    Length,
    /// The end counts samples that were not sent.
    Count,
    /// The acquisition ends here, for this reason.
    End(EndReason),
}

/// A text that names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a fault: write overrun@N, stall@N:MILLISECONDS, empty@N, die@N, rubbish@N, length@N, drop, count or end@N:REASON, where N is a sample"
)]
pub struct FaultError {
    text: String,
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let bad = || FaultError { text: text.to_owned() };
        match text {
            "count" => return Ok(Fault { what: What::Count, at: 0 }),
            "drop" => return Ok(Fault { what: What::Drop, at: 0 }),
            _ => {}
        }
        let (name, place) = text.split_once('@').ok_or_else(bad)?;
        let (at, more) = match place.split_once(':') {
            Some((at, more)) => (at, Some(more)),
            None => (place, None),
        };
        let what = match (name, more) {
            ("overrun", None) => What::Overrun,
            ("stall", Some(ms)) => {
                What::Stall(Duration::from_millis(ms.parse().map_err(|_| bad())?))
            }
            ("empty", None) => What::Empty,
            ("die", None) => What::Die,
            ("rubbish", None) => What::Rubbish,
            ("length", None) => What::Length,
            ("end", Some(reason)) if reason.len() < 64 => What::End(EndReason::from(reason)),
            _ => return Err(bad()),
        };
        Ok(Fault { what, at: at.parse().map_err(|_| bad())? })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match &self.what {
            What::Overrun => write!(f, "overrun@{at}"),
            What::Stall(pause) => write!(f, "stall@{at}:{}", pause.as_millis()),
            What::Empty => write!(f, "empty@{at}"),
            What::Drop => f.write_str("drop"),
            What::Die => write!(f, "die@{at}"),
            What::Rubbish => write!(f, "rubbish@{at}"),
            What::Length => write!(f, "length@{at}"),
            What::Count => f.write_str("count"),
            What::End(reason) => write!(f, "end@{at}:{reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in [
            "overrun@1000",
            "stall@5:250",
            "empty@3",
            "drop",
            "die@77",
            "rubbish@0",
            "length@9",
            "count",
            "end@100:DMA data error",
            "end@100:Cosmic rays",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        for text in ["", "die", "die@", "die@x", "stall@5", "overrun@5:6", "melt@5", "end@5"] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
