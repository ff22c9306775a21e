//! Markers: notes that users set on a moment of a scan.
//!
//! During a recording, markers are in a file of their own beside the scan, one line of JSON each, so that the recorder
//! and the writers of markers do not wait for each other. Sealing copies them to the manifest. A line with the same
//! `uuid` as an earlier one replaces it: the positions may be known only after the marked data is on disk.

use std::collections::BTreeMap;
use std::fmt;

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::name::Name;

/// The file's name in [`SIDE_DIRECTORY`](crate::manifest::SIDE_DIRECTORY), in the directory of a scan's first stream.
pub const MARKERS_FILE: &str = "markers";

/// The longest text, in bytes.
pub const LONGEST_TEXT: usize = 500;

/// A marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// UUID of the marker.
    pub uuid: Uuid,
    /// The marked moment, by the clock of the host that recorded the scan.
    pub time: Tai,
    /// Time when it was set.
    pub set: Tai,
    /// The note.
    pub text: Text,
    /// The positions of the streams at that moment, except those that are unknown, or not known yet.
    pub positions: Vec<Position>,
}

/// The position of a stream at a moment: the end of the data received by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The stream.
    pub stream: Name,
    /// The next frame, in the stream's own count, as in gaps.
    pub frame: i64,
    /// Its start, in bytes from the start of the stream, as in the output of `cat`.
    pub byte: u64,
}

/// The text of a marker: one line without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(String);

/// The reason why a text cannot be a marker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty.
    #[error("the text of the marker is empty")]
    Empty,
    /// The text is too long.
    #[error("the text has {bytes} bytes; the maximum is {LONGEST_TEXT}")]
    Long {
        /// The length of the text.
        bytes: usize,
    },
    /// The text contains a control character.
    #[error("the text contains a control character (U+{:04X}); it must be one line", *.sign as u32)]
    Control {
        /// The character.
        sign: char,
    },
}

impl Text {
    /// Checks a text that a user typed.
    pub fn typed(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        match text.chars().find(|sign| moves_the_cursor(*sign)) {
            Some(sign) => Err(Error::Control { sign }),
            None if text.is_empty() => Err(Error::Empty),
            None if text.len() > LONGEST_TEXT => Err(Error::Long { bytes: text.len() }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// True for control characters, and for those that change the text direction.
pub fn moves_the_cursor(sign: char) -> bool {
    sign.is_control() || matches!(sign, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

impl From<String> for Text {
    /// Converts a text from any file: characters that must not be printed are removed, the rest is kept.
    fn from(text: String) -> Self {
        let mut kept = String::new();
        for sign in text.chars().filter(|sign| !moves_the_cursor(*sign)) {
            if kept.len() + sign.len_utf8() > LONGEST_TEXT {
                break;
            }
            kept.push(sign);
        }
        Self(kept)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Marker {
    /// Returns the line that is stored.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a marker has only plain fields");
        line.push(b'\n');
        line
    }
}

/// Returns the markers of a file. Incomplete lines are skipped: a writer may be active, or may have died.
pub fn of_lines(file: &[u8]) -> impl Iterator<Item = Marker> {
    let whole = file.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let lines = file[..whole].split(|&byte| byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

/// Returns all markers of all copies, each once and with the most positions, in the order of their times.
pub fn joined(markers: impl IntoIterator<Item = Marker>) -> Vec<Marker> {
    let mut all: BTreeMap<Uuid, Marker> = BTreeMap::new();
    for marker in markers {
        match all.get_mut(&marker.uuid) {
            Some(known) if known.positions.len() >= marker.positions.len() => {}
            Some(known) => *known = marker,
            None => drop(all.insert(marker.uuid, marker)),
        }
    }
    let mut all: Vec<Marker> = all.into_values().collect();
    all.sort_by_key(|marker| (marker.time, marker.set, marker.uuid));
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marker(number: u128, time: i64, positions: usize) -> Marker {
        let position = |n: usize| Position {
            stream: format!("s{n}").parse().unwrap(),
            frame: n as i64,
            byte: n as u64 * 100,
        };
        Marker {
            uuid: Uuid::from_u128(number),
            time: Tai(time),
            set: Tai(time + 1),
            text: Text::typed("the wind rises").unwrap(),
            positions: (0..positions).map(position).collect(),
        }
    }

    #[test]
    fn a_text_is_a_line_of_bounded_length() {
        assert_eq!(Text::typed(" on source ").unwrap().to_string(), "on source");
        assert_eq!(Text::typed("Wärme: 40 °C").unwrap().to_string(), "Wärme: 40 °C");
        assert_eq!(Text::typed("  "), Err(Error::Empty));
        assert_eq!(Text::typed("a\nb"), Err(Error::Control { sign: '\n' }));
        assert_eq!(Text::typed("\u{1b}[2J"), Err(Error::Control { sign: '\u{1b}' }));
        assert!(matches!(Text::typed("a\u{202E}b"), Err(Error::Control { .. })));
        assert!(Text::typed(&"x".repeat(LONGEST_TEXT)).is_ok());
        let long = Text::typed(&"ä".repeat(LONGEST_TEXT)).unwrap_err();
        assert_eq!(long, Error::Long { bytes: 2 * LONGEST_TEXT });
    }

    #[test]
    fn what_a_file_says_moves_no_cursor_and_has_a_bound() {
        let read: Text = serde_json::from_str(r#""a\u001b[2Jb\nc""#).unwrap();
        assert_eq!(read.to_string(), "a[2Jbc");
        let long: Text = serde_json::from_value("ä".repeat(LONGEST_TEXT).into()).unwrap();
        assert!(long.to_string().len() <= LONGEST_TEXT);
    }

    #[test]
    fn a_line_that_was_cut_short_takes_no_other_with_it() {
        let (first, second) = (marker(1, 10, 2), marker(2, 20, 0));
        let mut file = first.to_line();
        file.extend(&second.to_line()[..20]);
        assert_eq!(of_lines(&file).collect::<Vec<_>>(), std::slice::from_ref(&first));
        // The next writer begins a new line.
        file.push(b'\n');
        file.extend(second.to_line());
        assert_eq!(of_lines(&file).collect::<Vec<_>>(), [first, second]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd_to_be_read(file in prop::collection::vec(any::<u8>(), 0..200)) {
            of_lines(&file).count();
        }

        #[test]
        fn copies_that_know_different_markers_make_the_same_list(
            copies in prop::collection::vec((0u128..6, 0i64..4, 0usize..3), 0..20),
        ) {
            let all: Vec<Marker> = copies.iter().map(|&(n, time, at)| marker(n, time, at)).collect();
            let list = joined(all.clone());
            let mut uuids: Vec<Uuid> = all.iter().map(|marker| marker.uuid).collect();
            uuids.sort_unstable();
            uuids.dedup();
            prop_assert_eq!(list.len(), uuids.len());
            prop_assert!(list.is_sorted_by_key(|marker| marker.time));
            for marker in &all {
                let kept = list.iter().find(|it| it.uuid == marker.uuid).unwrap();
                prop_assert!(kept.positions.len() >= marker.positions.len());
            }
            prop_assert_eq!(joined(list.clone()), list);
        }
    }
}
