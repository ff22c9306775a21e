//! Names that users give to sessions, scans and streams, valid as parts of directory names.
//!
//! They become `<session>_<scan>[_ds<stream>]`, the layout that FlexBuff's readers expect. So a name never contains a
//! dot, a slash or a blank, and a stream's name never begins with `ds`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name of a session, a scan or a stream, in bytes.
pub const LONGEST: usize = 63;

/// A validated part of a directory name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// The reason why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty, or longer than [`LONGEST`].
    #[error("a name has 1 to {LONGEST} characters, but `{text}` has {length}")]
    Length {
        /// The given text, or its start.
        text: String,
        /// The length of the text in bytes.
        length: usize,
    },
    /// The text contains a character with a meaning in the layout or in a file system.
    #[error("`{text}` contains {character:?}; names are made of letters, digits, `-`, `+` and `_`")]
    Character {
        /// The given text.
        text: String,
        /// The first invalid character.
        character: char,
    },
    /// The same for the name of a session, which permits one character less.
    #[error(
        "`{text}` contains {character:?}; the name of a session is made of letters, digits, `-` and `+`"
    )]
    SessionCharacter {
        /// The given text.
        text: String,
        /// The first invalid character.
        character: char,
    },
    /// `_ds` separates scan and stream, so no name may contain it or form it with its neighbour.
    #[error("`{text}` contains `_ds` or begins with `ds`, which marks a stream in directory names")]
    StreamMark {
        /// The given text.
        text: String,
    },
    /// A session ends at the first `_` of a directory name.
    #[error(
        "the session `{text}` holds `_`, which is not allowed in a session: a directory's name divides \
         session and scan there"
    )]
    SessionUnderscore {
        /// The given text.
        text: String,
    },
    /// The full name of a scan has no `_`.
    #[error("`{text}` is not a scan name: write <session>_<scan>")]
    Undivided {
        /// The given text.
        text: String,
    },
}

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks a name as a session: without `_`, which separates it from the scan.
    pub fn session(text: &str) -> Result<Self, Error> {
        if text.contains('_') && text.len() <= LONGEST {
            return Err(Error::SessionUnderscore { text: text.to_owned() });
        }
        text.parse().map_err(|error| match error {
            Error::Character { text, character } => Error::SessionCharacter { text, character },
            error => error,
        })
    }
}

/// Returns the part of a text that fits a message.
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
    /// Returns the directory of a stream of this scan; `stream` is `None` if the scan has one stream only.
    pub fn directory(&self, stream: Option<&Name>) -> String {
        match stream {
            None => self.to_string(),
            Some(stream) => format!("{self}_ds{stream}"),
        }
    }

    /// Splits a directory name into scan and stream; `None` if it is not such a name.
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
        let session = Name::session("s x").unwrap_err().to_string();
        assert!(session.contains("' '") && !session.contains("`_`"), "{session}");
        let scan = "nodivision".parse::<ScanName>().unwrap_err().to_string();
        assert!(scan.contains("<session>_<scan>") && !scan.contains("characters"), "{scan}");
        // Excessive length is reported first, before other errors.
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
