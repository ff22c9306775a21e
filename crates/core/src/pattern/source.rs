//! `pattern:`: a stream of known bytes as a source.
//!
//! ```text
//! pattern:prbs31                               as fast as it is taken
//! pattern:prbs31?rate=2Gbit/s&seed=7           at a rate, begun elsewhere in the sequence
//! pattern:counter?bytes=10GB                   an end to it
//! pattern:0x11223344?name=c                    a word, over and over, as the stream `c`
//! ```

use std::fmt;

use super::Pattern;
use crate::endpoint::{
    Endpoint, Error, Parameter, Query, SAMPLE_PARAMETERS, parameter, sample_layout,
};
use crate::name::Name;
use crate::units::{ByteRate, ByteSize};

/// A pattern as a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternSource {
    /// The pattern of its bytes.
    pub pattern: Pattern,
    /// Bytes per second; `None`: as fast as they are read.
    pub rate: Option<ByteRate>,
    /// Total bytes; `None`: without end.
    pub bytes: Option<u64>,
    /// Name of the stream.
    pub name: Name,
}

impl PatternSource {
    /// The parameters that may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter("rate", "2Gbit/s", "rate; default: as fast as it is read"),
        parameter("seed", "7", "another seed gives other bytes; default 0"),
        parameter("bytes", "10GB", "total bytes; default: without end"),
        parameter("name", "test", "the name of the stream; default `pattern`"),
    ];

    /// Reads a `pattern:` endpoint.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::read(&text.parse()?)
    }

    /// Reads the parts of a `pattern:` endpoint.
    pub fn read(endpoint: &Endpoint) -> Result<Self, Error> {
        const EXAMPLE: &str = "pattern:prbs31?rate=2Gbit/s";
        if endpoint.scheme != "pattern" {
            let scheme = endpoint.scheme.clone();
            return Err(Error::Scheme { scheme, wanted: "pattern", example: EXAMPLE });
        }
        let form = || Error::Form { text: endpoint.to_string() };
        if endpoint.authority.is_some() {
            return Err(form());
        }
        let named = endpoint.path.parse::<Pattern>().map_err(|error| Error::Value {
            name: "pattern:".into(),
            value: endpoint.path.clone(),
            why: error.to_string(),
            example: "prbs31",
        })?;
        let query = Query::with(endpoint, Self::PARAMETERS, SAMPLE_PARAMETERS)?;
        sample_layout(endpoint)?;
        let rate = query.parsed::<ByteRate>("rate")?;
        if rate == Some(ByteRate(0)) {
            let what = "a rate of zero never ends; omit `rate` for the maximum rate";
            return Err(Error::Together { what: what.into() });
        }
        let name = query.parsed::<Name>("name")?;
        Ok(Self {
            pattern: seeded(named, query.number("seed", 0..=u64::MAX)?, &endpoint.path)?,
            rate,
            bytes: query.parsed::<ByteSize>("bytes")?.map(|size| size.0),
            name: match name {
                Some(name) => name,
                None => "pattern".parse().map_err(|_| form())?,
            },
        })
    }
}

fn seeded(pattern: Pattern, seed: Option<u64>, path: &str) -> Result<Pattern, Error> {
    let together = |what: String| Err(Error::Together { what });
    match seed {
        None => Ok(pattern),
        Some(_) if pattern.seed().is_none() => together(format!("`{path}` has no seed")),
        Some(_) if path.contains(':') => {
            together(format!("both `{path}` and `seed` give a seed; give one"))
        }
        Some(seed) => Ok(pattern.with_seed(seed)),
    }
}

impl fmt::Display for PatternSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parameters = Vec::new();
        let mut say = |name: &str, value: String| parameters.push((name.to_owned(), value));
        self.rate.into_iter().for_each(|rate| say("rate", format!("{}B/s", rate.0)));
        if let Some(seed) = self.pattern.seed().filter(|&seed| seed != 0) {
            say("seed", seed.to_string());
        }
        self.bytes.into_iter().for_each(|bytes| say("bytes", bytes.to_string()));
        say("name", self.name.to_string());
        let named = match self.pattern {
            Pattern::Random { .. } => "random".to_owned(),
            Pattern::Noise { .. } => "noise".to_owned(),
            pattern => pattern.with_seed(0).to_string(),
        };
        let scheme = "pattern".to_owned();
        Endpoint { scheme, authority: None, path: named, parameters }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Prbs;

    #[test]
    fn a_pattern_is_a_source_with_a_rate_and_a_seed() {
        let source = PatternSource::parse("pattern:prbs31?rate=2Gbit/s&seed=7").unwrap();
        assert_eq!(source.pattern, Pattern::Prbs(Prbs::PRBS31.with_seed(7)));
        assert_eq!(source.rate, Some(ByteRate(250_000_000)));
        assert_eq!((source.bytes, source.name.as_str()), (None, "pattern"));
        let plain = PatternSource::parse("pattern:0x11223344?bytes=1MiB").unwrap();
        assert_eq!((plain.pattern, plain.bytes), (Pattern::Constant(0x1122_3344), Some(1 << 20)));
    }

    #[test]
    fn what_is_read_is_written_back() {
        for text in [
            "pattern:prbs31?rate=250000001B/s&seed=7&name=a",
            "pattern:prbs7?name=pattern",
            "pattern:random?seed=18446744073709551615&bytes=10&name=pattern",
            "pattern:counter?name=pattern",
            "pattern:0xffffffff?name=pattern",
        ] {
            assert_eq!(PatternSource::parse(text).unwrap().to_string(), text);
        }
        let short = PatternSource::parse("pattern:noise:3").unwrap();
        assert_eq!(short.to_string(), "pattern:noise?seed=3&name=pattern");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "pattern:",
            "pattern:prbs9",
            "pattern://prbs31",
            "pattern:counter?seed=1",
            "pattern:prbs31:3?seed=1",
            "pattern:prbs31?rate=0",
            "pattern:prbs31?rate=fast",
            "pattern:prbs31?speed=1",
            "pattern:prbs31?seed=-1",
            "udp://h:1",
        ] {
            assert!(PatternSource::parse(text).is_err(), "{text}");
        }
        let hint = PatternSource::parse("pattern:prbs9").unwrap_err().to_string();
        assert!(hint.contains("prbs31"), "{hint}");
    }
}
