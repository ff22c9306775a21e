//! `panda://host`: a PandA, and the options for recording it.
//!
//! ```text
//! panda://172.23.252.201                      its usual ports, raw samples
//! panda://panda1:9888?data=9889&arm=true      other ports; armed by the recorder
//! panda://[fe80::1%25eth0]?process=scaled     scaled by the server
//! ```

use std::fmt;

use fullbore_formats::panda::header::Process;

use crate::endpoint::{Authority, Endpoint, Error, Parameter, Query, parameter};
use crate::name::Name;

/// The port of a PandA for commands.
pub const CONTROL_PORT: u16 = 8888;

/// The port of a PandA for data.
pub const DATA_PORT: u16 = 8889;

/// One PandA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PandaSource {
    /// Address or name of the host.
    pub host: String,
    /// The port for commands.
    pub control_port: u16,
    /// The port for data.
    pub data_port: u16,
    /// The processing that is requested from the server.
    pub process: Process,
    /// True if headers are requested as XML, false for text.
    pub xml: bool,
    /// True if the recorder arms it; `None`: as in the recorder's own options.
    pub arm: Option<bool>,
    /// Name of the stream.
    pub name: Name,
}

impl PandaSource {
    /// The parameters that may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter("data", "8889", "the data port; default 8889, or that after the control port"),
        parameter("scaled", "true", "let the PandA scale: larger, slower, averages only"),
        parameter("process", "raw", "raw (default) or scaled"),
        parameter("xml", "false", "ask for headers in XML (default) or as text"),
        parameter("arm", "true", "arm the PandA when the recorder is ready"),
        parameter("name", "panda1", "the name of the stream; default `panda`"),
    ];

    /// Reads a `panda://` endpoint.
    pub fn parse(text: &str) -> Result<PandaSource, Error> {
        let endpoint = text.parse().map_err(|error| match error {
            // Error texts about addresses are meant for listening sockets.
            Error::Address { .. } => Error::Form { text: text.to_owned() },
            error => error,
        })?;
        Self::read(&endpoint)
    }

    /// Reads the parts of a `panda://` endpoint.
    pub fn read(endpoint: &Endpoint) -> Result<PandaSource, Error> {
        const EXAMPLE: &str = "panda://172.23.252.201";
        if endpoint.scheme != "panda" {
            let scheme = endpoint.scheme.clone();
            return Err(Error::Scheme { scheme, wanted: "PandA", example: EXAMPLE });
        }
        let form = || Error::Form { text: endpoint.to_string() };
        let Authority { host, ports } = endpoint.authority.as_ref().ok_or_else(form)?;
        if !matches!(endpoint.path.as_str(), "" | "/") {
            return Err(form());
        }
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            // The error for an address of this host would be different.
            return Err(form());
        }
        let control_port = match ports {
            None => CONTROL_PORT,
            Some(ports) if ports.start() == ports.end() => *ports.start(),
            Some(_) => return Err(Error::Ports { text: endpoint.to_string() }),
        };
        let query = Query::new(endpoint, Self::PARAMETERS)?;
        let data_port = query.number("data", 1..=65_535)?.map(|port| port as u16);
        let scaled = query.flag("scaled")?;
        let process = query.value("process", |value| match value {
            "raw" => Ok(Process::Raw),
            "scaled" => Ok(Process::Scaled),
            _ => Err("it is raw or scaled".to_owned()),
        })?;
        let process = match (process, scaled) {
            (Some(_), Some(_)) => {
                let what = "`process` and `scaled` have the same meaning; give one".to_owned();
                return Err(Error::Together { what });
            }
            (Some(process), None) => process,
            (None, Some(true)) => Process::Scaled,
            (None, _) => Process::Raw,
        };
        let name = query.parsed::<Name>("name")?;
        Ok(PandaSource {
            host: host.clone(),
            control_port,
            data_port: data_port.unwrap_or(match control_port {
                CONTROL_PORT => DATA_PORT,
                other => other.checked_add(1).unwrap_or(DATA_PORT),
            }),
            process,
            xml: query.flag("xml")?.unwrap_or(true),
            arm: query.flag("arm")?,
            name: match name {
                Some(name) => name,
                None => "panda".parse().map_err(|_| form())?,
            },
        })
    }

    /// Returns the line that requests this kind of stream from the data port, with its line feed.
    pub fn options(&self) -> &'static str {
        match (self.xml, self.process) {
            (true, Process::Raw) => "XML FRAMED RAW\n",
            (true, Process::Scaled) => "XML FRAMED SCALED\n",
            (false, Process::Raw) => "FRAMED RAW\n",
            (false, Process::Scaled) => "FRAMED SCALED\n",
        }
    }
}

impl fmt::Display for PandaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parameters = Vec::new();
        let mut say = |name: &str, value: String| parameters.push((name.to_owned(), value));
        if (self.control_port, self.data_port) != (CONTROL_PORT, DATA_PORT) {
            say("data", self.data_port.to_string());
        }
        if self.process == Process::Scaled {
            say("process", "scaled".to_owned());
        }
        if !self.xml {
            say("xml", "false".to_owned());
        }
        self.arm.into_iter().for_each(|arm| say("arm", arm.to_string()));
        say("name", self.name.to_string());
        let other = self.control_port != CONTROL_PORT;
        let ports = other.then_some(self.control_port..=self.control_port);
        Endpoint {
            scheme: "panda".to_owned(),
            authority: Some(Authority { host: self.host.clone(), ports }),
            path: String::new(),
            parameters,
        }
        .fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::Hint;

    #[test]
    fn a_host_alone_means_raw_samples_from_its_usual_ports() {
        let source = PandaSource::parse("panda://172.23.252.201").unwrap();
        assert_eq!((source.control_port, source.data_port), (8888, 8889));
        assert_eq!((source.process, source.arm), (Process::Raw, None));
        assert_eq!(source.options(), "XML FRAMED RAW\n");
        assert_eq!(source.name.as_str(), "panda");
    }

    #[test]
    fn every_parameter_is_read_and_written_back() {
        for text in [
            "panda://[::1]:9000?data=9007&process=scaled&xml=false&arm=true&name=p1",
            "panda://beam:9888?data=9889&name=panda",
            "panda://[fe80::1%25eth0]?name=panda",
        ] {
            let source = PandaSource::parse(text).unwrap();
            assert_eq!(PandaSource::parse(&source.to_string()).unwrap(), source, "{text}");
        }
        let scaled = PandaSource::parse("panda://h?scaled=true").unwrap();
        assert_eq!(scaled.options(), "XML FRAMED SCALED\n");
        assert_eq!(PandaSource::parse("panda://h:7000").unwrap().data_port, 7001);
    }

    #[test]
    fn what_is_wrong_with_a_panda_is_not_told_of_datagrams() {
        for text in ["panda://", "panda:host", "panda://h/path", "panda://h:1-5", "panda://a b"] {
            let hint = PandaSource::parse(text).unwrap_err().hint().unwrap();
            assert!(hint.contains("panda://") && !hint.contains("udp"), "{text}: {hint}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "panda://",
            "panda:host",
            "panda://h/path",
            "panda://h:1-5",
            "panda://h?data=0",
            "panda://h?process=both",
            "panda://h?process=raw&scaled=true",
            "panda://h?speed=1",
            "udp://h:1",
        ] {
            assert!(PandaSource::parse(text).is_err(), "{text}");
        }
    }
}
