//! Options from a table of a TOML file. Every error names the line.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::RecordingOptions;

/// Options from a file, with their lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptionsFile {
    /// The options.
    pub options: RecordingOptions,
    /// The key of each option in the file, and its line, from 1.
    pub lines: Vec<(String, usize)>,
}

/// A text is not a table of options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {}{what}", key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// The key in that line, if the text is TOML.
    pub key: Option<String>,
    /// The reason.
    pub what: String,
}

impl FileError {
    fn of(error: &toml::de::Error, text: &str, key: Option<String>) -> Self {
        let at = error.span().map_or(0, |span| span.start);
        Self { line: line_of(text, at), key, what: error.message().replace('\n', "; ") }
    }
}

impl RecordingOptions {
    /// Reads the options in a table of a TOML file, such as `record`; none: the file has no such table. Keys in
    /// `of_others` are left to the program.
    pub fn from_toml(
        text: &str,
        table: &str,
        of_others: &[&str],
    ) -> Result<Option<OptionsFile>, FileError> {
        let document = DeTable::parse(text).map_err(|error| FileError::of(&error, text, None))?;
        let named = document.into_inner().into_iter().find(|(key, _)| key.get_ref() == table);
        let Some((name, value)) = named else { return Ok(None) };
        let span = value.span();
        let DeValue::Table(keys) = value.into_inner() else {
            let line = line_of(text, name.span().start);
            let what = "it is not a table".to_owned();
            return Err(FileError { line, key: Some(table.to_owned()), what });
        };
        Self::of_keys(text, span, keys, of_others).map(Some)
    }

    fn of_keys(
        text: &str,
        span: Range<usize>,
        keys: DeTable<'_>,
        of_others: &[&str],
    ) -> Result<OptionsFile, FileError> {
        let is_own = |key: &str| !of_others.contains(&key);
        let keys: DeTable<'_> =
            keys.into_iter().filter(|(key, _)| is_own(key.get_ref().as_ref())).collect();
        let spans: Vec<(String, Range<usize>, Range<usize>)> = keys
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), key.span(), value.span()))
            .collect();
        let line = |at: &Range<usize>| line_of(text, at.start);
        if let Some((key, at, _)) =
            spans.iter().find(|(key, ..)| !Self::KEYS.contains(&key.as_str()))
        {
            let known: Vec<&str> = Self::KEYS.iter().chain(of_others).copied().collect();
            let what = format!("no such option is known; there are {}", known.join(", "));
            return Err(FileError { line: line(at), key: Some(key.clone()), what });
        }
        let lines = spans.iter().map(|(key, at, _)| (key.clone(), line(at))).collect();
        match Self::deserialize(Deserializer::from(Spanned::new(span, keys))) {
            Ok(options) => Ok(OptionsFile { options, lines }),
            Err(error) => {
                let at = error.span().unwrap_or_default();
                let has = |value: &Range<usize>| value.start <= at.start && at.end <= value.end;
                let named = spans.into_iter().find(|(.., value)| has(value));
                Err(FileError::of(&error, text, named.map(|(key, ..)| key)))
            }
        }
    }
}

/// The line of a position, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fullbore_core::units::ByteSize;

    use super::*;

    fn read(text: &str) -> Result<OptionsFile, FileError> {
        RecordingOptions::from_toml(text, "record", &["quiet"]).map(Option::unwrap)
    }

    #[test]
    fn options_come_with_their_lines() {
        let text = "# one\n[ls]\nstore = '/x'\n\n[record]\nquiet = true\nduration = '40s'\n\nsource = 'a'\n";
        let file = read(text).unwrap();
        assert_eq!(file.options.duration, Some(Duration::from_secs(40)));
        assert_eq!(file.lines, [("duration".to_owned(), 7), ("source".to_owned(), 9)]);
        assert_eq!(RecordingOptions::from_toml("[ls]\n", "record", &[]), Ok(None));
    }

    #[test]
    fn values_are_texts_numbers_times_and_lists_of_them() {
        let text = "[record]\nstore = '/a,/b'\ncpus = [2, 3]\nnew-member = ['/a', '/b']\nscans = 3\nbytes = 4096\n\
                    clock-drift = 50\nstart = 2026-11-21T18:00:00\nsource = 'udp://:1'\nto = ['a,b', 'c']\nsession = 7\n";
        let options = read(text).unwrap().options;
        assert_eq!(options.store, ["/a", "/b"].map(std::path::PathBuf::from));
        assert_eq!((options.cpus, options.scans), (vec![2, 3], Some(3)));
        assert_eq!(options.bytes, Some(ByteSize(4096)));
        assert_eq!(options.start, Some("2026-11-21T18:00:00".parse().unwrap()));
        assert_eq!(options.to, ["a,b", "c"]);
        assert_eq!(options.session.as_deref(), Some("7"));
    }

    #[test]
    fn every_error_names_the_key_and_its_line() {
        for (text, line, key, word) in [
            ("[record]\nquiet = true\nduration = 1\n", 3, Some("duration"), "for example 40s"),
            ("[record]\nbytes = 'lots'\n", 2, Some("bytes"), "lots"),
            ("[record]\n\nsource = [\n  'a',\n  {},\n]\n", 5, Some("source"), "a text or a number"),
            ("[record]\nkeep = 'all'\n", 2, Some("keep"), "500GB"),
            ("[record]\nplace = 'on'\n", 2, Some("place"), "auto"),
            ("[record]\nscans = -1\n", 2, Some("scans"), "-1"),
            ("[record]\narm = 'yes'\n", 2, Some("arm"), "boolean"),
            ("[record]\nstart = 1979-05-27\n", 2, Some("start"), "UTC"),
            ("[record]\n\ndurration = '1s'\n", 3, Some("durration"), "duration"),
            ("record = 3\n", 1, Some("record"), "table"),
            ("[record]\nduration = \n", 2, None, ""),
            ("[record]\nscans = 1\nscans = 2\n", 3, None, "duplicate"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.line, error.key.as_deref()), (line, key), "{text}: {error}");
            assert!(error.to_string().contains(word), "{text}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
