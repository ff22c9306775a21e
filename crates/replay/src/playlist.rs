//! A playlist: what is played one after the other, how often, and between which times.
//!
//! ```toml
//! [[segment]]
//! play = "r1234_no0001"
//! times = 3
//!
//! [[segment]]
//! play = ["file:tone.vdif", "file:noise.vdif"]   # in step
//! from = "+1s"
//! until = "+2.5s"
//! ```
//!
//! On the command line, `r1234_no0001*3 file:tone.vdif*1` are two segments.

use std::io::{self, Read};
use std::path::Path;

use fullbore_linux::regular_file;
use serde::Deserialize;

/// The most segments of a playlist.
pub const MOST_SEGMENTS: usize = 1000;

/// The most bytes of a playlist file.
const MOST_BYTES: u64 = 1 << 20;

/// A playlist that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaylistError {
    /// It cannot be read.
    #[error("reading the playlist")]
    Read(#[from] io::Error),
    /// It is too long a file.
    #[error("it has more than {MOST_BYTES} bytes, which is no playlist")]
    Large,
    /// It is no TOML, or has unknown keys.
    #[error("it is no playlist")]
    Form(#[from] toml::de::Error),
    /// It has no segments.
    #[error("it has no [[segment]]")]
    Empty,
    /// It has too many segments.
    #[error("it has {segments} segments; the limit is {MOST_SEGMENTS}")]
    Long {
        /// Its segments.
        segments: usize,
    },
    /// A segment that plays nothing.
    #[error("segment {number} {what}")]
    Segment {
        /// The segment, counted from 1.
        number: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An argument that is no count.
    #[error("`{text}`: write SCAN*N, with a number of turns of at least 1")]
    Count {
        /// The argument.
        text: String,
    },
    /// Only some arguments have a count.
    #[error("`{text}` has no number of turns; scans in turn are all written SCAN*N, also SCAN*1")]
    Mixed {
        /// The argument.
        text: String,
    },
}

/// A segment of a playlist.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The scans, streams or files that are played in step, as on the command line.
    #[serde(deserialize_with = "one_or_several")]
    pub play: Vec<String>,
    /// The number of turns.
    #[serde(default = "once")]
    pub times: u64,
    /// The first frame: a time, an offset or an index.
    pub from: Option<String>,
    /// The frame before which it ends.
    pub until: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Playlist {
    #[serde(default)]
    segment: Vec<Entry>,
}

fn once() -> u64 {
    1
}

fn one_or_several<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Either::deserialize(from)? {
        Either::One(one) => vec![one],
        Either::Several(several) => several,
    })
}

/// Reads a playlist from a file.
pub fn load(path: &Path) -> Result<Vec<Entry>, PlaylistError> {
    let mut text = String::new();
    regular_file::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(PlaylistError::Large);
    }
    parse(&text)
}

/// Reads a playlist in TOML.
pub fn parse(text: &str) -> Result<Vec<Entry>, PlaylistError> {
    let Playlist { segment: entries } = toml::from_str(text)?;
    match entries.len() {
        0 => return Err(PlaylistError::Empty),
        1..=MOST_SEGMENTS => {}
        segments => return Err(PlaylistError::Long { segments }),
    }
    for (n, entry) in entries.iter().enumerate() {
        let error = |what| PlaylistError::Segment { number: n + 1, what };
        if entry.play.is_empty() {
            return Err(error("plays nothing"));
        }
        if entry.times == 0 {
            return Err(error("has `times = 0`; leave it out, or play it at least once"));
        }
    }
    Ok(entries)
}

/// Reads arguments of the form `SCAN*N`; `None` if no argument has a count.
pub fn of_arguments(arguments: &[String]) -> Result<Option<Vec<Entry>>, PlaylistError> {
    if !arguments.iter().any(|text| text.contains('*')) {
        return Ok(None);
    }
    if arguments.len() > MOST_SEGMENTS {
        return Err(PlaylistError::Long { segments: arguments.len() });
    }
    let entry = |text: &String| {
        let Some((play, times)) = text.rsplit_once('*') else {
            return Err(PlaylistError::Mixed { text: text.clone() });
        };
        match times.parse() {
            Ok(times @ 1..) if !play.is_empty() => {
                Ok(Entry { play: vec![play.to_owned()], times, from: None, until: None })
            }
            _ => Err(PlaylistError::Count { text: text.clone() }),
        }
    };
    arguments.iter().map(entry).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_with_their_defaults() {
        let text = r#"
            [[segment]]
            play = "a_1"
            times = 3
            [[segment]]
            play = ["file:x.vdif", "file:y.vdif"]
            from = "+1s"
            until = "+2.5s"
        "#;
        let entries = parse(text).unwrap();
        assert_eq!(
            (entries[0].play.as_slice(), entries[0].times),
            (["a_1".to_owned()].as_slice(), 3)
        );
        assert_eq!((entries[1].play.len(), entries[1].times), (2, 1));
        assert_eq!(entries[1].until.as_deref(), Some("+2.5s"));
    }

    #[test]
    fn a_file_that_is_too_long_or_no_text_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "#".repeat(MOST_BYTES as usize + 1)).unwrap();
        assert!(matches!(load(file.path()), Err(PlaylistError::Large)));
        std::fs::write(file.path(), [0xFF]).unwrap();
        assert!(matches!(load(file.path()), Err(PlaylistError::Read(_))));
        assert!(matches!(load(Path::new("/dev/zero")), Err(PlaylistError::Read(_))));
        std::fs::write(file.path(), "[[segment]]\nplay = 'a'").unwrap();
        assert_eq!(load(file.path()).unwrap().len(), 1);
    }

    #[test]
    fn playlists_that_play_nothing_or_say_something_unknown_are_refused() {
        for (text, says) in [
            ("", "no [[segment]]"),
            ("[[segment]]\ntimes = 3", "no playlist"),
            ("[[segment]]\nplay = []", "segment 1 plays nothing"),
            ("[[segment]]\nplay = 'a'\ntimes = 0", "times = 0"),
            ("[[segment]]\nplay = 'a'\nrepeat = 3", "no playlist"),
            ("[[segment]]\nplay = 'a'\ntimes = -1", "no playlist"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
        let many = "[[segment]]\nplay = 'a'\n".repeat(MOST_SEGMENTS + 1);
        assert!(matches!(parse(&many), Err(PlaylistError::Long { segments: 1001 })));
    }

    #[test]
    fn arguments_with_a_count_are_segments() {
        let of = |texts: &[&str]| {
            of_arguments(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["a_1", "b_2"]).unwrap(), None);
        let entries = of(&["a_1*3", "file:x*y.vdif*1"]).unwrap().unwrap();
        let told: Vec<_> = entries.iter().map(|it| (it.play[0].as_str(), it.times)).collect();
        assert_eq!(told, [("a_1", 3), ("file:x*y.vdif", 1)]);
        assert!(matches!(of(&["a_1*3", "b_2"]), Err(PlaylistError::Mixed { .. })));
        for text in ["a*0", "a*x", "*3", "a*-1", "a*"] {
            assert!(matches!(of(&[text]), Err(PlaylistError::Count { .. })), "{text}");
        }
    }
}
