//! The bytes of a client, cut into lines, and lines cut into statements.
//!
//! ```text
//! record=on:r1_wz_1; record?\r\n     a line of two statements
//! mode ? ; \n\r                      m5copy ends lines so; the \r opens its next line
//! record?\n                          the last semicolon may be absent
//! ```

/// The longest line of a client in bytes, without its end.
pub const LONGEST_LINE: usize = 4096;

/// The most statements of a line.
pub const MOST_STATEMENTS: usize = 32;

/// The most fields of a statement.
pub const MOST_FIELDS: usize = 64;

/// The longest keyword.
const LONGEST_KEYWORD: usize = 32;

/// A line without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The text. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// True if it ended with `\r\n`; the answer then does too.
    pub has_return: bool,
}

/// A line that is too long. Nothing after it can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {LONGEST_LINE} bytes")]
pub struct LongLine;

/// Bytes in, lines out. Blank lines are left out.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    /// Bytes at the start of `held` that hold no end of a line.
    searched: usize,
}

impl Lines {
    /// Takes bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next whole line; `None` until more bytes arrive.
    pub fn next_line(&mut self) -> Result<Option<Line>, LongLine> {
        loop {
            let end = self.held[self.searched..].iter().position(|byte| *byte == b'\n');
            let end = end.map(|at| at + self.searched);
            self.searched = self.held.len();
            // The end of a line may have a `\r` on each side, which does not count as part of it.
            if end.unwrap_or(self.held.len()) > LONGEST_LINE + 2 {
                self.searched = 0;
                return Err(LongLine);
            }
            let Some(end) = end else { return Ok(None) };
            let line: Vec<u8> = self.held.drain(..=end).take(end).collect();
            self.searched = 0;
            let has_return = line.last() == Some(&b'\r');
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_matches(['\r', ' ', '\t', '\0']);
            if !text.is_empty() {
                return Ok(Some(Line { text: text.to_owned(), has_return }));
            }
        }
    }
}

/// What a statement wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To change something: `=`.
    Command,
    /// To know something: `?`.
    Query,
}

/// A command or a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The keyword in lower case.
    pub keyword: String,
    /// What it wants.
    pub kind: Kind,
    /// The fields, without blanks around them.
    pub fields: Vec<String>,
}

/// Text that is no statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// It has no keyword with `=` or `?`.
    #[error("Not a command or query")]
    Keyword,
    /// It has too many fields.
    #[error("more than {MOST_FIELDS} fields")]
    Fields,
    /// It has a control character.
    #[error("a control character")]
    Control,
    /// The line has too many statements.
    #[error("more than {MOST_STATEMENTS} statements on a line")]
    Statements,
}

impl Statement {
    /// Reads one statement, without its semicolon.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let at = text.find(['=', '?']).ok_or(SyntaxError::Keyword)?;
        let keyword = text[..at].trim().to_ascii_lowercase();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if keyword.is_empty() || keyword.len() > LONGEST_KEYWORD || !keyword.chars().all(is_plain) {
            return Err(SyntaxError::Keyword);
        }
        let kind = if text[at..].starts_with('=') { Kind::Command } else { Kind::Query };
        let rest = text[at + 1..].trim();
        if rest.chars().any(|c| c.is_control() && c != '\t') {
            return Err(SyntaxError::Control);
        }
        let fields = match rest {
            "" => Vec::new(),
            rest => rest.split(':').take(MOST_FIELDS + 1).map(|it| it.trim().to_owned()).collect(),
        };
        match fields.len() > MOST_FIELDS {
            true => Err(SyntaxError::Fields),
            false => Ok(Self { keyword, kind, fields }),
        }
    }

    /// A field, counted from 0; empty if it is absent.
    pub fn field(&self, number: usize) -> &str {
        self.fields.get(number).map_or("", String::as_str)
    }

    /// True if it is a command.
    pub fn is_command(&self) -> bool {
        self.kind == Kind::Command
    }
}

/// The statements of a line, in order. An error stands in the place of each that is none.
pub fn statements(line: &str) -> Vec<Result<Statement, SyntaxError>> {
    let texts = line.split(';').filter(|text| !text.trim().is_empty());
    let mut all: Vec<_> = texts.take(MOST_STATEMENTS + 1).map(Statement::parse).collect();
    if all.len() > MOST_STATEMENTS {
        // None of them is carried out, because the line is not what its author meant.
        all = vec![Err(SyntaxError::Statements)];
    }
    if all.is_empty() {
        all.push(Err(SyntaxError::Keyword));
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &[u8] =
        b"record?\n\r\n  mode = VDIF_8000-2048-16-2 ; mtu=9000;\r\nversion?;\n\rdts_id?;\n\r\n;\nunfinished";

    fn lines<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<(String, bool)> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for part in parts {
            lines.feed(part);
            while let Some(line) = lines.next_line().unwrap() {
                found.push((line.text, line.has_return));
            }
        }
        found
    }

    #[test]
    fn every_way_of_splitting_the_stream_gives_the_same_lines() {
        let whole = lines([STREAM].into_iter());
        let texts: Vec<&str> = whole.iter().map(|(text, _)| text.as_str()).collect();
        let expected =
            ["record?", "mode = VDIF_8000-2048-16-2 ; mtu=9000;", "version?;", "dts_id?;", ";"];
        assert_eq!(texts, expected);
        assert_eq!(
            whole.iter().map(|it| it.1).collect::<Vec<_>>(),
            [false, true, false, false, false]
        );
        for size in 1..=STREAM.len() {
            assert_eq!(lines(STREAM.chunks(size)), whole, "split every {size}");
        }
        for at in 0..=STREAM.len() {
            let (first, second) = STREAM.split_at(at);
            assert_eq!(lines([first, second].into_iter()), whole, "split at {at}");
        }
    }

    #[test]
    fn a_long_line_is_refused_with_and_without_its_end() {
        let longest = "x".repeat(LONGEST_LINE);
        for (text, fits) in [
            (format!("\r{longest}\r\n"), true),
            (format!("{longest}xxx\n"), false),
            (format!("{longest}xxx"), false),
        ] {
            let mut lines = Lines::default();
            lines.feed(text.as_bytes());
            assert_eq!(lines.next_line().is_ok(), fits);
        }
    }

    #[test]
    fn statements_have_keyword_kind_and_fields() {
        let all = statements("Record = ON : r1_wz_1 : ;record?nthread; scan_check ? : : /a/b ;x");
        let read: Vec<_> = all.iter().map(|it| it.as_ref().ok()).collect();
        let expect = |keyword: &str, kind, fields: &[&str]| Statement {
            keyword: keyword.into(),
            kind,
            fields: fields.iter().map(|it| (*it).to_owned()).collect(),
        };
        assert_eq!(read[0], Some(&expect("record", Kind::Command, &["ON", "r1_wz_1", ""])));
        assert_eq!(read[1], Some(&expect("record", Kind::Query, &["nthread"])));
        assert_eq!(read[2], Some(&expect("scan_check", Kind::Query, &["", "", "/a/b"])));
        assert_eq!(all[3], Err(SyntaxError::Keyword));
        assert_eq!(read[0].map(|it| it.field(7)), Some(""));
    }

    #[test]
    fn what_is_no_statement_is_told_apart() {
        for (text, error) in [
            ("=on", SyntaxError::Keyword),
            ("rec ord=on", SyntaxError::Keyword),
            ("réc=on", SyntaxError::Keyword),
            ("record=\u{7}", SyntaxError::Control),
        ] {
            assert_eq!(Statement::parse(text), Err(error), "{text}");
        }
        assert_eq!(Statement::parse(&format!("a={}", ":".repeat(64))), Err(SyntaxError::Fields));
        assert!(Statement::parse(&format!("a={}", ":".repeat(63))).is_ok());
        assert_eq!(statements(&"a?;".repeat(33)), [Err(SyntaxError::Statements)]);
        assert_eq!(statements(&"a?;".repeat(32)).len(), 32);
        assert_eq!(statements(";;"), [Err(SyntaxError::Keyword)]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_the_same_lines_however_they_are_split(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r')], 0..400),
            size in 1_usize..50,
        ) {
            prop_assert_eq!(lines(bytes.chunks(size)), lines([bytes.as_slice()].into_iter()));
        }

        #[test]
        fn any_line_gives_bounded_statements(line in ".{0,300}") {
            let all = statements(&line);
            prop_assert!((1..=MOST_STATEMENTS).contains(&all.len()));
            for statement in all.into_iter().flatten() {
                prop_assert!(statement.fields.len() <= MOST_FIELDS);
                prop_assert!(statement.fields.iter().all(|it| !it.contains([':', ';', '\n'])));
                prop_assert!(statement.keyword.chars().all(|c| !c.is_ascii_uppercase()));
            }
        }
    }
}
