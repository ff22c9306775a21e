//! Values of options: texts in the notation of the command line, also where a file has a number, a time or a list.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// Parses a length of time: `40s`, `2h 30m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| {
        "it is no length of time; write for example 40s, or `2h 30m`; leave the option out for no limit".to_owned()
    })
}

/// A text, or a scalar as its text.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Text, E> {
        Ok(Text(number.to_string()))
    }

    /// A date and time of TOML comes as a map.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
        let time = toml::value::Datetime::deserialize(MapAccessDeserializer::new(map));
        time.map(|time| Text(time.to_string()))
            .map_err(|_| A::Error::invalid_type(de::Unexpected::Map, &self))
    }
}

/// Several texts, or a single one.
struct Texts(Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Texts, E> {
                Ok(Texts(vec![number.to_string()]))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Texts, E> {
                Ok(Texts(vec![number.to_string()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(Text(text)) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}

/// Reads a value from its text.
pub(super) fn one<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let Text(text) = Text::deserialize(deserializer)?;
    parsed(&text).map(Some).map_err(D::Error::custom)
}

/// Reads a length of time.
pub(super) fn duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let Text(text) = Text::deserialize(deserializer)?;
    parse_duration(&text).map(Some).map_err(|why| D::Error::custom(invalid(&text, why)))
}

/// Reads several values, each from a text.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let Texts(texts) = Texts::deserialize(deserializer)?;
    texts.iter().map(|text| parsed(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// Reads several values. A text may have several, separated by commas.
pub(super) fn commas<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let Texts(texts) = Texts::deserialize(deserializer)?;
    let parts = texts.iter().flat_map(|text| text.split(','));
    parts.map(parsed).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|why| invalid(text, why))
}

/// The message about a text. Most errors quote the text themselves.
fn invalid(text: &str, why: impl Display) -> String {
    let why = why.to_string();
    if why.contains(&format!("`{text}`")) { why } else { format!("`{text}`: {why}") }
}
