//! The answer to a statement: `!record? 0 : on : 1 : r1_wz_1 : 8032 ;`.
//!
//! The Field System finds the code after the first `=` or `?`, and shows the last field of a failure to the operator. m5copy
//! cuts at the first `=` anywhere. So sentences have neither `:` nor `;` nor `=` nor `?`, and stand last.

use crate::line::{Kind, Statement, SyntaxError};

/// The longest answer to one statement in bytes. The Field System reads lines of at most 1023 bytes.
pub const LONGEST_REPLY: usize = 1000;

/// The longest sentence in an answer.
const LONGEST_SENTENCE: usize = 300;

/// What became of a statement, as VSI-S numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It is done.
    Done = 0,
    /// It is started, and not finished.
    Started = 1,
    /// It is not implemented here.
    NotImplemented = 2,
    /// It has the wrong syntax.
    Syntax = 3,
    /// It failed.
    Failed = 4,
    /// The recorder is busy.
    Busy = 5,
    /// It is in conflict with what the recorder does.
    Conflict = 6,
    /// There is no such keyword.
    Unknown = 7,
    /// A parameter is wrong.
    Parameter = 8,
    /// The answer is not determined.
    Indeterminate = 9,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The code.
    pub code: Code,
    /// The fields after it.
    pub fields: Vec<String>,
}

impl Reply {
    /// An answer without fields.
    pub fn new(code: Code) -> Self {
        Self { code, fields: Vec::new() }
    }

    /// It is done.
    pub fn done() -> Self {
        Self::new(Code::Done)
    }

    /// An answer with a sentence for the operator.
    pub fn because(code: Code, why: &str) -> Self {
        Self::new(code).with(sentence(why))
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>) -> Self {
        self.fields.push(field.into());
        self
    }

    /// Adds fields.
    #[must_use]
    pub fn with_all<T: Into<String>>(mut self, fields: impl IntoIterator<Item = T>) -> Self {
        self.fields.extend(fields.into_iter().map(Into::into));
        self
    }

    /// The text of the answer to a statement. Fields that do not fit are left out.
    pub fn to_text(&self, to: &Statement) -> String {
        let sign = match to.kind {
            Kind::Command => '=',
            Kind::Query => '?',
        };
        let mut text = format!("!{}{sign} {}", to.keyword, self.code as u8);
        for field in &self.fields {
            let blank = if field.is_empty() { "" } else { " " };
            if text.len() + 3 + field.len() + 2 > LONGEST_REPLY {
                break;
            }
            text.push_str(" :");
            text.push_str(blank);
            text.push_str(field);
        }
        text.push_str(" ;");
        text
    }
}

/// The code of text that is no statement.
pub fn code_of(error: &SyntaxError) -> Code {
    match error {
        SyntaxError::Keyword => Code::Unknown,
        SyntaxError::Fields | SyntaxError::Control | SyntaxError::Statements => Code::Syntax,
    }
}

/// The text of the answer to what is no statement, and so has no keyword.
pub fn without_keyword(Reply { code, fields }: &Reply) -> String {
    format!("!syntax = {} : {} ;", *code as u8, fields.join(" : "))
}

/// A text as one field of bounded length.
pub fn sentence(text: &str) -> String {
    let plain = |c: char| match c {
        ':' => '.',
        ';' => ',',
        '=' | '?' | '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => ' ',
        c => c,
    };
    let mut plain: String = text.chars().map(plain).collect();
    if plain.len() > LONGEST_SENTENCE {
        let end = (0..=LONGEST_SENTENCE).rev().find(|at| plain.is_char_boundary(*at));
        plain.truncate(end.unwrap_or(0));
    }
    plain.split(' ').filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn statement(text: &str) -> Statement {
        Statement::parse(text).unwrap()
    }

    #[test]
    fn an_answer_has_one_blank_around_each_part() {
        let on = Reply::done().with("on").with("1").with("r1_wz_1");
        assert_eq!(on.to_text(&statement("record?")), "!record? 0 : on : 1 : r1_wz_1 ;");
        assert_eq!(Reply::new(Code::Started).to_text(&statement("RECORD=off")), "!record= 1 ;");
        let none = Reply::done().with_all([""; 5]);
        assert_eq!(none.to_text(&statement("error?")), "!error? 0 : : : : : ;");
        let error = SyntaxError::Keyword;
        let told = without_keyword(&Reply::because(code_of(&error), &error.to_string()));
        assert_eq!(told, "!syntax = 7 : Not a command or query ;");
    }

    #[test]
    fn a_sentence_is_one_field() {
        let text = "udp://0.0.0.0:1?a=b; is\n taken";
        assert_eq!(sentence(text), "udp.//0.0.0.0.1 a b, is taken");
        assert!(sentence(&"ä".repeat(1000)).len() <= 300);
    }

    proptest! {
        #[test]
        fn every_answer_fits_one_line_of_the_field_system(
            fields in prop::collection::vec(".{0,200}", 0..100)
        ) {
            let mut reply = Reply::because(Code::Failed, "a reason");
            reply.fields.extend(fields.iter().map(|it| sentence(it)));
            let text = reply.to_text(&statement("set_disks?"));
            prop_assert!(text.len() <= LONGEST_REPLY && !text.contains('\n'));
            prop_assert!(text.starts_with("!set_disks? 4 : a reason") && text.ends_with(" ;"));
            prop_assert_eq!(text.matches(';').count(), 1);
        }
    }
}
