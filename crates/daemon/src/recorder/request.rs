//! What a client may ask a recorder to record, and the command line that it becomes.
//!
//! The keys are those of `[record]` in a configuration file. They are a part of them: no key names a path of this host,
//! removes a scan of another recording, or sends data elsewhere. The recorder checks the values itself.

use fullbore_core::name::{self, Name};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most sources of one recording.
pub const MOST_SOURCES: usize = 64;

/// The longest text of a value.
pub const LONGEST_VALUE: usize = 1000;

/// Kinds of sources that a client may name. The others read files and devices of this host.
const SCHEMES: &[&str] = &[INPUT, "udp://", "tcp://", "panda://", "pattern:"];

/// The beginning of a source that names an input of the station.
pub const INPUT: &str = "input:";

/// What is to be recorded. Values are texts in the notation of the command line (`"40s"`, `"10GB"`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schema(rename_all = "kebab-case", example = json!({
    "source": ["udp://0.0.0.0:46220-46227?format=vdif"], "session": "r1234", "scan": "no0001", "duration": "40s"
}))]
pub struct StartRequest {
    /// The inputs of the station (`input:NAME`), or endpoints: `udp://`, `tcp://`, `panda://` or `pattern:`.
    pub source: Vec<String>,
    /// The session: letters, digits, `-` and `+`.
    pub session: String,
    /// The scan: letters, digits, `-`, `+` and `_`.
    pub scan: String,
    /// The number of scans that follow one another without a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scans: Option<u32>,
    /// The planned start, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The planned end, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The length of each scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The bytes after which a scan ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// The time or the size of the newest data that stays: older pieces of this recording are removed while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circular: Option<String>,
    /// Block memory of all sources together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<String>,
    /// The size of chunk files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<String>,
    /// `mirror`, or `parity:K+M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<String>,
    /// For a PandA: arm it when all is ready.
    #[serde(default)]
    pub arm: bool,
    /// The name of its schedule. Only `PUT /api/v1/schedules/NAME` starts such a recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// For a VEX schedule: the station.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub station: Option<String>,
    /// For a schedule: the time before its start at which a scan is armed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<String>,
}

/// A request that no recorder is started for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The number of sources is wrong.
    #[error("source: {count} sources are given, and a recording has 1 to {MOST_SOURCES}")]
    Sources {
        /// The number given.
        count: usize,
    },
    /// The source is of a kind that reads this host.
    #[error("source: `{shown}` is not one of {}", SCHEMES.join(", "))]
    Source {
        /// The beginning of the source.
        shown: String,
    },
    /// A value is too long, or has a control character.
    #[error("{key}: the value is longer than {LONGEST_VALUE} bytes, or has a control character")]
    Value {
        /// The key.
        key: &'static str,
    },
    /// A name is not one.
    #[error("{key}: {source}")]
    Name {
        /// The key.
        key: &'static str,
        /// The reason.
        source: name::Error,
    },
    /// A schedule is not started like a recording.
    #[error("{key}: it is for PUT /api/v1/schedules/NAME")]
    Schedule {
        /// The key.
        key: &'static str,
    },
}

impl StartRequest {
    /// Checks a request of a client for a recording, which is not that of a schedule.
    pub fn check_of_client(&self) -> Result<(), RequestError> {
        let Self { schedule, station, lead, .. } = self;
        for (key, value) in [("schedule", schedule), ("station", station), ("lead", lead)] {
            if value.is_some() {
                return Err(RequestError::Schedule { key });
            }
        }
        self.check()
    }

    /// Checks the request.
    pub fn check(&self) -> Result<(), RequestError> {
        let count = self.source.len();
        if !(1..=MOST_SOURCES).contains(&count) {
            return Err(RequestError::Sources { count });
        }
        for source in &self.source {
            plain("source", source)?;
            if !SCHEMES.iter().any(|scheme| source.starts_with(scheme)) {
                let shown = source.chars().take(40).collect();
                return Err(RequestError::Source { shown });
            }
        }
        let named = |key| move |source| RequestError::Name { key, source };
        Name::session(&self.session).map_err(named("session"))?;
        if self.schedule.is_none() {
            self.scan.parse::<Name>().map_err(named("scan"))?;
        }
        self.texts().into_iter().try_for_each(|(key, value)| plain(key, value))
    }

    /// The arguments of `fullbore` for it, with these endpoints. `schedule` is the file of its scans. Each value is one
    /// word with its option, so no value is taken for an option.
    pub fn words(&self, store: &str, endpoints: &[String], schedule: Option<&str>) -> Vec<String> {
        let mut words = vec!["record".to_owned(), "--json".to_owned()];
        words.push(format!("--store={store}"));
        words.push(format!("--session={}", self.session));
        words.push(match schedule {
            Some(file) => format!("--schedule={file}"),
            None => format!("--scan={}", self.scan),
        });
        words.extend(self.scans.map(|scans| format!("--scans={scans}")));
        words.extend(self.texts().into_iter().map(|(key, value)| format!("--{key}={value}")));
        words.extend(self.arm.then(|| "--arm".to_owned()));
        words.push("--".to_owned());
        words.extend(endpoints.iter().cloned());
        words
    }

    /// The options that are texts.
    fn texts(&self) -> Vec<(&'static str, &str)> {
        let Self { start, until, duration, bytes, circular, .. } = self;
        let Self { buffer, chunk, redundancy, station, lead, .. } = self;
        let all = [
            ("start", start),
            ("until", until),
            ("duration", duration),
            ("bytes", bytes),
            ("circular", circular),
            ("buffer", buffer),
            ("chunk", chunk),
            ("redundancy", redundancy),
            ("station", station),
            ("lead", lead),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?))).collect()
    }
}

fn plain(key: &'static str, value: &str) -> Result<(), RequestError> {
    match value.len() > LONGEST_VALUE || value.chars().any(char::is_control) {
        true => Err(RequestError::Value { key }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> Result<StartRequest, String> {
        let request: StartRequest =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        request.check_of_client().map_err(|error| error.to_string())?;
        Ok(request)
    }

    #[test]
    fn a_request_becomes_the_words_of_a_command() {
        let told = r#"{"source":["udp://:1","udp://:2"],"session":"s","scan":"a","duration":"40s","scans":2,"arm":true}"#;
        let asked = request(told).unwrap();
        let words = asked.words("/m0,/m1", &asked.source, None).join(" ");
        let expected = "record --json --store=/m0,/m1 --session=s --scan=a --scans=2 --duration=40s --arm -- udp://:1 udp://:2";
        assert_eq!(words, expected);
        let of_schedule = StartRequest {
            session: "s".into(),
            schedule: Some("vgos".into()),
            lead: Some("2s".into()),
            ..StartRequest::default()
        };
        let words = of_schedule.words("/m0", &["udp://:1".to_owned()], Some("/x/scans")).join(" ");
        let expected =
            "record --json --store=/m0 --session=s --schedule=/x/scans --lead=2s -- udp://:1";
        assert_eq!(words, expected);
    }

    #[test]
    fn what_reaches_beyond_the_store_is_refused() {
        for (wrong, why) in [
            (r#"{"source":[],"session":"s","scan":"a"}"#, "0 sources"),
            (r#"{"source":["udp://:1"],"session":"s","scan":"a","schedule":"x"}"#, "schedule: "),
            (
                r#"{"source":["file:/etc/shadow"],"session":"s","scan":"a"}"#,
                "is not one of input:, udp://",
            ),
            (r#"{"source":["device:/dev/sda"],"session":"s","scan":"a"}"#, "is not one of"),
            (r#"{"source":["-"],"session":"s","scan":"a"}"#, "is not one of"),
            (r#"{"source":["--to=x"],"session":"s","scan":"a"}"#, "is not one of"),
            (r#"{"source":["udp://:1"],"session":"../s","scan":"a"}"#, "session: "),
            (r#"{"source":["udp://:1"],"session":"s","scan":"a/b"}"#, "scan: "),
            (r#"{"source":["udp://:1"],"session":"s","scan":"a","duration":"1\n2"}"#, "duration: "),
            (
                r#"{"source":["udp://:1"],"session":"s","scan":"a","to":"file:/x"}"#,
                "unknown field `to`",
            ),
            (r#"{"source":["udp://:1"],"session":"s","scan":"a","store":"/x"}"#, "unknown field"),
            (r#"{"source":["udp://:1"],"session":"s","scan":"a","keep":"1s"}"#, "unknown field"),
        ] {
            let error = request(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let long = "x".repeat(LONGEST_VALUE);
        let long = format!(r#"{{"source":["udp://{long}"],"session":"s","scan":"a"}}"#);
        assert!(request(&long).is_err());
    }
}
