//! Names that users give to sessions, scans and streams, fit to be parts of directory names.
//!
//! They become `<session>_<scan>[_ds<stream>]`, the layout that FlexBuff's readers know, so a name
//! never holds a dot, a slash or a blank, and a stream's name never begins with `ds`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name of a session, a scan or a stream, in bytes.
pub const LONGEST: usize = 63;

/// A validated part of a directory name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Empty, or longer than [`LONGEST`].
    #[error("a name has 1 to {LONGEST} characters, and `{text}` has {length}")]
    Length {
        /// What was given, or its beginning.
        text: String,
        /// How many bytes were given.
        length: usize,
    },
    /// A character that the layout or a file system would read as something else.
    #[error("`{text}` holds {character:?}; names are made of letters, digits, `-`, `+` and `_`")]
    Character {
        /// What was given.
        text: String,
        /// The first character that may not be there.
        character: char,
    },
    /// `_ds` divides scan and stream, so no name may hold it or make it with its neighbour.
    #[error("`{text}` holds `_ds` or begins with `ds`, which marks a stream in directory names")]
    StreamMark {
        /// What was given.
        text: String,
    },
    /// A session ends at the first `_` of a directory name.
    #[error(
        "the session `{text}` holds `_`, which is not allowed in a session: a directory's name divides \
         session and scan there"
    )]
    SessionUnderscore {
        /// What was given.
        text: String,
    },
    /// The name of a scan as a whole has no `_`.
    #[error("`{text}` is no scan: it is called <session>_<scan>")]
    Undivided {
        /// What was given.
        text: String,
    },
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same name checked as a session: without `_`, so that it can be told from the scan.
    pub fn session(text: &str) -> Result<Self, Error> {
        if text.contains('_') && text.len() <= LONGEST {
            return Err(Error::SessionUnderscore { text: text.to_owned() });
        }
        text.parse()
    }
}

/// As much of a text as fits a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(Error::Length { text: shortened(text), length: text.len() });
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '_');
        if let Some(character) = text.chars().find(|&c| !allowed(c)) {
            return Err(Error::Character { text: text.to_owned(), character });
        }
        if text.starts_with("ds") || text.contains("_ds") {
            return Err(Error::StreamMark { text: text.to_owned() });
        }
        Ok(Name(text.to_owned()))
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A scan by its full name, `<session>_<scan>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ScanName {
    /// The session the scan belongs to.
    pub session: Name,
    /// The scan within its session.
    pub scan: Name,
}

impl ScanName {
    /// The directory that holds a stream of this scan; `None` when the scan has one stream only.
    pub fn directory(&self, stream: Option<&Name>) -> String {
        match stream {
            None => self.to_string(),
            Some(stream) => format!("{self}_ds{stream}"),
        }
    }

    /// Splits a directory name into scan and stream; `None` if it is no such name.
    pub fn of_directory(directory: &str) -> Option<(ScanName, Option<Name>)> {
        let (full, stream) = match directory.split_once("_ds") {
            Some((full, stream)) => (full, Some(stream.parse().ok()?)),
            None => (directory, None),
        };
        Some((full.parse().ok()?, stream))
    }
}

impl FromStr for ScanName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (session, scan) =
            text.split_once('_').ok_or_else(|| Error::Undivided { text: shortened(text) })?;
        Ok(ScanName { session: Name::session(session)?, scan: scan.parse()? })
    }
}

impl fmt::Display for ScanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}_{}", self.session, self.scan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_name_is_told_as_it_is() {
        let long = "x".repeat(500).parse::<Name>().unwrap_err().to_string();
        assert!(long.contains("has 500") && long.contains('…') && long.len() < 200, "{long}");
        let session = Name::session("a_b").unwrap_err().to_string();
        assert!(session.contains("`_`, which is not allowed in a session"), "{session}");
        let scan = "nodivision".parse::<ScanName>().unwrap_err().to_string();
        assert!(scan.contains("<session>_<scan>") && !scan.contains("characters"), "{scan}");
        // A text that is too long is told first, whatever else is wrong with it.
        let both = Name::session(&"a_".repeat(100)).unwrap_err().to_string();
        assert!(both.contains("has 200"), "{both}");
    }

    #[test]
    fn names_that_would_leave_the_store_are_refused() {
        for text in ["", ".", "..", "a/b", "a.b", "a b", "a\0b", "dsx", "a_dsb", "näme"] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
        assert!("x".repeat(64).parse::<Name>().is_err());
        assert!(Name::session("a_b").is_err());
        assert!("No0001-a+b".parse::<Name>().is_ok());
    }

    #[test]
    fn a_directory_name_splits_back_into_its_parts() {
        let scan: ScanName = "r1234_on_no0001".parse().unwrap();
        assert_eq!(scan.scan.as_str(), "no0001".parse::<Name>().map(|_| "on_no0001").unwrap());
        let stream: Name = "46220t3".parse().unwrap();
        for stream in [None, Some(stream)] {
            let directory = scan.directory(stream.as_ref());
            assert_eq!(ScanName::of_directory(&directory), Some((scan.clone(), stream)));
        }
        assert_eq!(ScanName::of_directory("lost+found"), None);
    }
}
