//! The parameters after the `?` of an endpoint, looked up in a table of known parameters.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::{Endpoint, Error};

/// The description of one parameter, for help and errors.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// A valid value.
    pub example: &'static str,
    /// Its effect, and its default.
    pub meaning: &'static str,
}

pub(crate) const fn parameter(
    name: &'static str,
    example: &'static str,
    meaning: &'static str,
) -> Parameter {
    Parameter { name, example, meaning }
}

/// The parameters of an endpoint, with the table of known parameters.
pub struct Query<'a> {
    endpoint: &'a Endpoint,
    known: &'static [Parameter],
}

impl<'a> Query<'a> {
    /// Refuses parameters that are not in the table.
    pub fn new(endpoint: &'a Endpoint, known: &'static [Parameter]) -> Result<Self, Error> {
        Self::with(endpoint, known, &[])
    }

    /// The parameters of a table, besides `others` that are read apart from it.
    pub(crate) fn with(
        endpoint: &'a Endpoint,
        known: &'static [Parameter],
        others: &'static [Parameter],
    ) -> Result<Self, Error> {
        let all = || known.iter().chain(others).map(|parameter| parameter.name);
        for (name, _) in &endpoint.parameters {
            if !all().any(|known| known == name) {
                let names: Vec<&str> = all().collect();
                return Err(Error::Unknown {
                    name: name.clone(),
                    scheme: endpoint.scheme.clone(),
                    known: if names.is_empty() { "none".into() } else { names.join(", ") },
                });
            }
        }
        Ok(Query { endpoint, known })
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        debug_assert!(self.known.iter().any(|known| known.name == name), "`{name}` has no row");
        let mut parameters = self.endpoint.parameters.iter();
        parameters.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value as parsed by `read`, whose error describes the problem.
    pub fn value<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.text(name) else { return Ok(None) };
        read(value).map(Some).map_err(|why| Error::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            why,
            example: self.known.iter().find(|known| known.name == name).map_or("", |k| k.example),
        })
    }

    /// Returns the value, parsed.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(&self, name: &str) -> Result<Option<T>, Error> {
        self.value(name, |value| value.parse().map_err(|error: T::Err| error.to_string()))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        self.value(name, |value| match value {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err("it is true or false".to_owned()),
        })
    }

    pub(crate) fn number(
        &self,
        name: &str,
        allowed: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Error> {
        self.value(name, |value| {
            let number = value.parse().ok().filter(|number| allowed.contains(number));
            number.ok_or_else(|| {
                format!("it is a whole number from {} to {}", allowed.start(), allowed.end())
            })
        })
    }
}
