//! Reads the text of a query.

use super::{Band, Comparison, Condition, Quantity, Query, QueryError};
use crate::plan::LineId;

/// The longest text, in bytes.
const LONGEST: usize = 4096;
/// The most parts within one another.
const DEEPEST: usize = 64;

/// The quantities of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// Those of an index by content.
    Index,
    /// Those of samples that arrive.
    Samples,
}

/// A text, read up to a byte.
struct Reader<'a> {
    vocabulary: Vocabulary,
    text: &'a str,
    at: usize,
    depth: usize,
}

/// Reads a whole query.
pub fn parse(text: &str, vocabulary: Vocabulary) -> Result<Query, QueryError> {
    let mut reader = Reader { vocabulary, text, at: 0, depth: 0 };
    if text.len() > LONGEST {
        reader.text = "";
        return Err(reader.expected("a query of at most 4096 bytes"));
    }
    let query = reader.query()?;
    match reader.rest().is_empty() {
        true => Ok(query),
        false => Err(reader.expected("`and`, `or`, `for` or the end")),
    }
}

impl<'a> Reader<'a> {
    /// The text behind blanks.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let blanks = rest.len() - rest.trim_start().len();
        self.at += blanks;
        &self.text[self.at..]
    }

    fn expected(&mut self, expected: &'static str) -> QueryError {
        self.rest();
        let column = self.text[..self.at].chars().count() + 1;
        // A line of text, under which the column can be shown.
        let text = self.text.replace(char::is_control, " ");
        QueryError { text, mark: format!("{:>column$}", "^"), column, expected }
    }

    /// Takes this text if it comes next.
    fn takes(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len() } else { 0 };
        found
    }

    /// Takes this word if it comes next, and no letter or digit follows.
    fn takes_word(&mut self, word: &str) -> bool {
        let behind = self.rest().strip_prefix(word);
        let found = behind.is_some_and(|behind| !behind.starts_with(|c: char| c.is_alphanumeric()));
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn needs(&mut self, sign: &str, expected: &'static str) -> Result<(), QueryError> {
        if self.takes(sign) { Ok(()) } else { Err(self.expected(expected)) }
    }

    fn query(&mut self) -> Result<Query, QueryError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.expected("a query with fewer parentheses"));
        }
        let mut parts = vec![self.all()?];
        while self.takes_word("or") {
            parts.push(self.all()?);
        }
        self.depth -= 1;
        Ok(single(parts, Query::Or))
    }

    fn all(&mut self) -> Result<Query, QueryError> {
        let mut parts = vec![self.part()?];
        while self.takes_word("and") {
            parts.push(self.part()?);
        }
        Ok(single(parts, Query::And))
    }

    fn part(&mut self) -> Result<Query, QueryError> {
        let mut part = if self.takes_word("not") {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(self.expected("a query with fewer `not`"));
            }
            let part = self.part()?;
            self.depth -= 1;
            Query::Not(Box::new(part))
        } else if self.takes("(") {
            let query = self.query()?;
            self.needs(")", "`)`, `and`, `or` or `for`")?;
            query
        } else {
            Query::Condition(self.condition()?)
        };
        if self.takes_word("for") {
            part = Query::For(Box::new(part), self.duration()?);
        }
        Ok(part)
    }

    fn condition(&mut self) -> Result<Condition, QueryError> {
        let index = self.vocabulary == Vocabulary::Index;
        let mut quantity = match () {
            () if self.takes_word("power") => Quantity::Power,
            () if !index && self.takes_word("level") => Quantity::Level,
            () if index && self.takes_word("burst") => Quantity::Burst,
            () if index && self.takes_word("absent") => Quantity::Absent,
            () if index => {
                return Err(self.expected("`power(…)`, `burst(…)`, `absent(…)`, `not` or `(`"));
            }
            () => return Err(self.expected("`power(…)`, `level(…)`, `not` or `(`")),
        };
        self.needs("(", "`(` and a channel")?;
        let line = if self.takes_word("any") { None } else { Some(self.line()?) };
        if !index && quantity == Quantity::Power && self.takes(",") {
            quantity = Quantity::BandPower(self.band()?);
        }
        self.needs(")", "`)`")?;
        let comparison = match () {
            () if self.takes(">=") => Comparison::AtLeast,
            () if self.takes("<=") => Comparison::AtMost,
            () if self.takes(">") => Comparison::Above,
            () if self.takes("<") => Comparison::Below,
            () => return Err(self.expected("`>`, `>=`, `<` or `<=`")),
        };
        let number = self.number()?;
        match quantity {
            Quantity::Power | Quantity::BandPower(_) | Quantity::Burst => {
                _ = self.takes_word("dB");
            }
            Quantity::Absent => _ = self.takes("%"),
            Quantity::Level => {}
        }
        Ok(Condition { quantity, line, comparison, number })
    }

    fn line(&mut self) -> Result<LineId, QueryError> {
        const EXPECTED: &str = "`any`, `chCHANNEL` or `chTHREAD:CHANNEL`";
        let Some(behind) = self.rest().strip_prefix("ch") else {
            return Err(self.expected(EXPECTED));
        };
        let length = behind.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(behind.len());
        match behind[..length].parse() {
            Ok(line) => {
                self.at += 2 + length;
                Ok(line)
            }
            Err(_) => Err(self.expected(EXPECTED)),
        }
    }

    fn band(&mut self) -> Result<Band, QueryError> {
        let from_hz = self.frequency()?;
        self.needs("..", "`..` and the upper frequency of the band")?;
        self.rest();
        let place = self.at;
        let to_hz = self.frequency()?;
        if to_hz <= from_hz {
            self.at = place;
            return Err(self.expected("a frequency above that before it"));
        }
        Ok(Band { from_hz, to_hz })
    }

    fn frequency(&mut self) -> Result<f64, QueryError> {
        let number = self.number()?;
        let units = [("Hz", 1.0), ("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];
        let unit = units.into_iter().find(|(unit, _)| self.takes_word(unit));
        Ok(number * unit.map_or(1.0, |(_, hertz)| hertz))
    }

    fn number(&mut self) -> Result<f64, QueryError> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with(['+', '-']));
        // Two dots are between two numbers.
        let number = rest.find("..").map_or(rest, |dots| &rest[..dots]);
        let digits = number.get(sign..).unwrap_or_default();
        let digits = digits.find(|c: char| !c.is_ascii_digit() && c != '.');
        let length = digits.map_or(number.len(), |digits| sign + digits);
        match rest[..length].parse::<f64>().ok().filter(|number| number.is_finite()) {
            Some(number) => {
                self.at += length;
                Ok(number)
            }
            None => Err(self.expected("a number")),
        }
    }

    fn duration(&mut self) -> Result<f64, QueryError> {
        let number = self.number()?;
        let units = [("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
        match units.into_iter().find(|(unit, _)| self.takes_word(unit)) {
            Some((_, seconds)) if number >= 0.0 => Ok(number * seconds),
            Some(_) => Err(self.expected("a duration that is not negative before this")),
            None => Err(self.expected("`ms`, `s`, `min` or `h`")),
        }
    }
}

/// The only part, or all of them.
fn single(mut parts: Vec<Query>, several: fn(Vec<Query>) -> Query) -> Query {
    if parts.len() == 1 { parts.remove(0) } else { several(parts) }
}
