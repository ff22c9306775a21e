//! Errors with what to do about them on a line of its own.

use std::error::Error;
use std::fmt;

/// An error as it is told to people.
pub fn hinted<E: Error + Send + Sync + 'static>(error: E, hint: Option<&str>) -> anyhow::Error {
    match hint {
        Some(hint) => anyhow::Error::from(Hinted { hint: hint.to_owned(), error: Box::new(error) }),
        None => error.into(),
    }
}

/// An error and its hint. It stands for the error: its source is the error's source.
#[derive(Debug)]
struct Hinted {
    hint: String,
    error: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.error, self.hint)
    }
}

impl Error for Hinted {}
