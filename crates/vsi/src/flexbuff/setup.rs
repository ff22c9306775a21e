//! The set-up of a runtime: mode, ports and protocol, and the endpoints that they become.

use std::net::Ipv4Addr;

use fullbore_core::hint::Hint;
use fullbore_formats::vdif::Mode;

use super::values::{DataStream, Kind, Port, Protocol, digits};
use crate::line::Statement;
use crate::reply::{Code, Reply};

/// The most ports of a runtime: those of one recording.
pub const MOST_PORTS: usize = 64;

/// The smallest block of `net_protocol` that is taken as a wish for the size of chunk files.
const SMALLEST_CHUNK: u64 = 16 << 20;

/// The socket buffer that a source asks for by itself.
const OWN_SOCKET_BUFFER: u64 = 64 << 20;

/// The set-up of a runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub(super) mode: Option<Mode>,
    mtu: u32,
    ports: Vec<Port>,
    protocol: Protocol,
    stream: Option<DataStream>,
    /// The delay between packets, which is kept for clients that save and restore it.
    ipd: String,
    threads: (u32, u32),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mode: None,
            mtu: 1500,
            ports: vec![Port { address: None, port: 2630, suffix: None }],
            protocol: Protocol {
                kind: Kind::Numbered("udps"),
                socket_buffer: 4 << 20,
                block: 128 << 20,
                blocks: 4,
            },
            stream: None,
            ipd: "0".to_owned(),
            threads: (1, 1),
        }
    }
}

impl Setup {
    /// Answers a statement that reads or changes the set-up; `None` if it is of another kind.
    pub fn answer(&mut self, statement: &Statement) -> Option<Reply> {
        let is_command = statement.is_command();
        Some(match (statement.keyword.as_str(), is_command) {
            ("mode", true) => self.set_mode(statement),
            ("mode", false) => self.tell_mode(),
            ("mtu", true) => self.set_mtu(statement),
            ("mtu", false) => Reply::done().with(self.mtu.to_string()),
            ("net_port", true) => self.set_ports(statement),
            ("net_port", false) => Reply::done().with_all(self.ports.iter().map(Port::to_text)),
            ("net_protocol", true) => self.set_protocol(statement),
            ("net_protocol", false) => self.protocol.tell(),
            ("datastream", true) => self.set_stream(statement),
            ("datastream", false) => self.tell_stream(),
            ("ipd", true) => self.set_delay(statement),
            ("ipd", false) => Reply::done().with(self.ipd.clone()),
            _ => return None,
        })
    }

    /// The endpoints of a recording, or why there are none.
    pub(super) fn sources(&self) -> Result<Vec<String>, Reply> {
        let Some(mode) = &self.mode else {
            return Err(Reply::because(Code::Conflict, "no mode is set"));
        };
        let mut parameters = format!("mode={mode}");
        if matches!(self.protocol.kind, Kind::Numbered(_)) {
            parameters += "&psn=true";
        }
        if self.protocol.socket_buffer > OWN_SOCKET_BUFFER {
            let mebibytes = self.protocol.socket_buffer.div_ceil(1 << 20);
            parameters += &format!("&rcvbuf={mebibytes}MiB");
        }
        if let Some(stream) = &self.stream {
            parameters += &stream.parameters();
        }
        let source = |port: &Port| {
            let address = port.address.unwrap_or(Ipv4Addr::UNSPECIFIED);
            let name = port.suffix.as_ref().map(|name| format!("&name={name}"));
            format!("udp://{address}:{}?{parameters}{}", port.port, name.unwrap_or_default())
        };
        Ok(self.ports.iter().map(source).collect())
    }

    /// The wished size of chunk files.
    pub(super) fn chunk_bytes(&self) -> Option<u64> {
        Some(self.protocol.block).filter(|block| *block >= SMALLEST_CHUNK)
    }

    /// The protocol, as `tstat?` names its reader.
    pub(super) fn reader(&self) -> &'static str {
        match self.protocol.kind {
            Kind::Pudp => "PUdpReader",
            Kind::Numbered("udpsnor") => "UdpsNorReader",
            Kind::Numbered(_) => "UdpsReadBH",
        }
    }

    /// Takes `record=nthread:<readers>:<writers>`, which changes nothing: threads are placed by the recorder.
    pub(super) fn set_threads(&mut self, statement: &Statement) -> Reply {
        let number = |text: &str, now| match text {
            "" => Some(now),
            text => {
                digits(text).filter(|it| (1..=1024).contains(it)).and_then(|it| it.try_into().ok())
            }
        };
        let (readers, writers) = self.threads;
        match (number(statement.field(1), readers), number(statement.field(2), writers)) {
            (Some(readers), Some(writers)) => {
                self.threads = (readers, writers);
                Reply::done()
            }
            _ => Reply::because(Code::Parameter, "threads are a number from 1 to 1024"),
        }
    }

    pub(super) fn tell_threads(&self) -> Reply {
        Reply::done().with(self.threads.0.to_string()).with(self.threads.1.to_string())
    }

    fn set_mode(&mut self, statement: &Statement) -> Reply {
        match statement.field(0) {
            "" => return Reply::because(Code::Parameter, "mode needs a value"),
            text if text.eq_ignore_ascii_case("none") => self.mode = None,
            text => match Mode::parse(text) {
                Ok(mode) => self.mode = Some(mode),
                Err(error) => {
                    let advice = error.hint().unwrap_or_default();
                    return Reply::because(Code::Failed, &format!("{error}, {advice}"));
                }
            },
        }
        Reply::done()
    }

    fn tell_mode(&self) -> Reply {
        match &self.mode {
            None => Reply::done().with_all(["", "<unknown>", "0", "0.000"]),
            Some(mode) => {
                let tracks = tracks(mode);
                let rate = f64::from(mode.mbits) * 1e6 / f64::from(tracks);
                let name = if mode.legacy { "VDIF legacy" } else { "VDIF" };
                let told = [mode.to_string(), name.to_owned(), tracks.to_string()];
                Reply::done()
                    .with_all(told)
                    .with(format!("{rate:.3}"))
                    .with(mode.payload.to_string())
            }
        }
    }

    fn set_mtu(&mut self, statement: &Statement) -> Reply {
        match digits(statement.field(0)).filter(|mtu| (64..=65_536).contains(mtu)) {
            Some(mtu) => {
                self.mtu = mtu as u32;
                Reply::done()
            }
            None => Reply::because(Code::Parameter, "mtu is 64 to 65536"),
        }
    }

    fn set_ports(&mut self, statement: &Statement) -> Reply {
        let wrong = |why: &str| Reply::because(Code::Parameter, why);
        let ports: Option<Vec<Port>> = statement.fields.iter().map(|it| Port::parse(it)).collect();
        let Some(ports) = ports.filter(|it| !it.is_empty() && it.len() <= MOST_PORTS) else {
            return wrong("a port is port, ip@port or ip@port=suffix, with an IPv4 address");
        };
        let suffixed = ports.iter().filter(|it| it.suffix.is_some()).count();
        if suffixed != 0 && suffixed != ports.len() {
            return wrong("either all ports have a suffix, or none");
        }
        if suffixed == 0 && ports.len() > 1 {
            return wrong("several ports need a suffix each");
        }
        let twice = |one: &Port, other: &Port| {
            one.suffix == other.suffix || (one.port == other.port && one.address == other.address)
        };
        if (0..ports.len()).any(|at| ports[..at].iter().any(|other| twice(&ports[at], other))) {
            return wrong("each port and each suffix is given once");
        }
        if suffixed > 0 && self.stream.is_some() {
            return Reply::because(
                Code::Conflict,
                "data streams are defined, and ports have no suffix then",
            );
        }
        self.ports = ports;
        Reply::done()
    }

    fn set_protocol(&mut self, statement: &Statement) -> Reply {
        match self.protocol.changed(statement) {
            Ok(protocol) => {
                self.protocol = protocol;
                Reply::done()
            }
            Err(reply) => reply,
        }
    }

    fn set_stream(&mut self, statement: &Statement) -> Reply {
        match statement.field(0).to_ascii_lowercase().as_str() {
            "clear" | "reset" => self.stream = None,
            "remove" => match &self.stream {
                Some(stream) if stream.name == statement.field(1) => self.stream = None,
                _ => return Reply::because(Code::Parameter, "there is no such data stream"),
            },
            "add" => match self.new_stream(statement) {
                Ok(stream) => self.stream = Some(stream),
                Err(reply) => return reply,
            },
            _ => return Reply::because(Code::Parameter, "add, remove, clear or reset"),
        }
        Reply::done()
    }

    fn new_stream(&self, statement: &Statement) -> Result<DataStream, Reply> {
        if statement.fields.len() != 3 {
            return Err(Reply::because(Code::Parameter, "write add, a name and one specification"));
        }
        if self.stream.is_some() || self.ports[0].suffix.is_some() {
            let why = "a port has one data stream, use net_port with a suffix for each port";
            return Err(Reply::because(Code::Conflict, why));
        }
        DataStream::parse(statement.field(1), statement.field(2)).ok_or_else(|| {
            let why =
                "a data stream is NAME with a list of threads such as 0,2-3, or {thread} with *";
            Reply::because(Code::Parameter, why)
        })
    }

    fn tell_stream(&self) -> Reply {
        let told = self.stream.iter().flat_map(|it| [it.name.clone(), it.spec.clone()]);
        Reply::done().with_all(told)
    }

    fn set_delay(&mut self, statement: &Statement) -> Reply {
        let text = statement.field(0);
        let is_plain =
            text.len() <= 20 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        if text.is_empty() || !is_plain {
            return Reply::because(Code::Parameter, "ipd is a time such as 20us");
        }
        self.ipd = text.to_owned();
        Reply::done()
    }
}

/// Bits of all channels of a sample.
pub(super) fn tracks(mode: &Mode) -> u32 {
    mode.channels.saturating_mul(mode.bits).saturating_mul(if mode.complex { 2 } else { 1 }).max(1)
}

#[cfg(test)]
mod tests;
