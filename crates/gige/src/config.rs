//! The endpoint of a camera: `gvsp://192.0.2.7?packet=8192`.
//!
//! Its other parameters are those of a `udp:` source with `format=gvsp`: `name`, `rcvbuf`, `block`.

use fullbore_core::endpoint::{Endpoint, Error, Parameter, UdpSource};
use fullbore_formats::gvcp;

use crate::genicam::Write;

/// The smallest and the largest size of packets, with the headers of IP and UDP.
const PACKET_BYTES: std::ops::RangeInclusive<u16> = 576..=16_384;

/// Parameters of a `udp:` source that a camera does not have.
const OF_SOCKETS: [&str; 6] = ["interface", "source", "format", "port", "threads", "engine"];

/// A camera, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraConfig {
    /// The address or name.
    pub host: String,
    /// The port of its control.
    pub port: u16,
    /// The size of its packets with the headers of IP and UDP; `None`: as the camera is set.
    pub packet_bytes: Option<u16>,
    /// The port of this host for the images; 0: any.
    pub data_port: u16,
    /// True if packets that do not come are asked for again; `None`: if the camera says that it can send them.
    pub resend: Option<bool>,
    /// What starts the camera; `None`: as its description says.
    pub start: Option<Write>,
    /// What stops the camera; `None`: as its description says.
    pub stop: Option<Write>,
    /// Name, block and buffers, as those of datagrams. Its endpoint names the camera.
    pub udp: UdpSource,
}

impl CameraConfig {
    /// Its own parameters.
    pub const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "packet",
            example: "8192",
            meaning: "bytes of each packet with the headers of IP and UDP; default as the camera is set",
        },
        Parameter {
            name: "listen",
            example: "50000",
            meaning: "the port of this host for the images; default any",
        },
        Parameter {
            name: "resend",
            example: "no",
            meaning: "whether packets that do not come are asked for again; default yes if the camera says that it can",
        },
        Parameter {
            name: "start",
            example: "0x40024:1",
            meaning: "register and value that start the camera; default as its description says",
        },
        Parameter {
            name: "stop",
            example: "0x40024:0",
            meaning: "register and value that stop the camera; default as its description says",
        },
    ];

    /// True if the text names a camera.
    pub fn is_meant(text: &str) -> bool {
        let scheme = text.trim().split_once(':').map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("gvsp"))
    }

    /// Reads one endpoint.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let endpoint: Endpoint = text.parse()?;
        let (host, port) = camera(&endpoint)?;
        let mut own = endpoint.clone();
        let is_own = |name: &str| Self::PARAMETERS.iter().any(|it| it.name == name);
        own.parameters.retain(|(name, _)| is_own(name));
        let query = fullbore_core::endpoint::Query::new(&own, Self::PARAMETERS)?;
        let packet_bytes = query.value("packet", |value| {
            let bytes = value.parse().ok().filter(|bytes| PACKET_BYTES.contains(bytes));
            let (least, most) = (PACKET_BYTES.start(), PACKET_BYTES.end());
            bytes.ok_or_else(|| format!("it is a whole number from {least} to {most}"))
        })?;
        let resend = query.value("resend", |value| match value {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err("it is yes or no".to_owned()),
        })?;
        let data_port: Option<u16> = query.parsed("listen")?;
        let (start, stop) = (query.value("start", write)?, query.value("stop", write)?);
        if start.is_some() != stop.is_some() {
            return Err(together("give `start` and `stop` together, or neither"));
        }
        let mut socket: Endpoint = format!("udp://0.0.0.0:{port}").parse()?;
        let has = |name: &str| endpoint.parameters.iter().any(|(known, _)| known == name);
        if let Some(name) = OF_SOCKETS.into_iter().find(|name| has(name)) {
            return Err(together(format!("`{name}` is for datagrams: leave it out for a camera")));
        }
        let rest = endpoint.parameters.iter().filter(|(name, _)| !is_own(name));
        socket.parameters = rest.cloned().collect();
        socket.parameters.push(("format".into(), "gvsp".into()));
        if !has("name") {
            socket.parameters.push(("name".into(), "camera".into()));
        }
        let mut udp = UdpSource::expand(&socket)?.remove(0);
        udp.endpoint = endpoint;
        Ok(Self {
            host,
            port,
            packet_bytes,
            data_port: data_port.unwrap_or_default(),
            resend,
            start,
            stop,
            udp,
        })
    }

    /// The camera in messages: its address with the port, if that is not the usual one.
    pub fn camera(&self) -> String {
        match self.port {
            gvcp::PORT => self.host.clone(),
            port => format!("{}:{port}", self.host),
        }
    }
}

/// The host and the port of a camera.
fn camera(endpoint: &Endpoint) -> Result<(String, u16), Error> {
    let one = || together("a GVSP source is one camera: gvsp://192.0.2.7");
    let authority = endpoint.authority.as_ref().ok_or_else(one)?;
    let ports = authority.ports.clone().unwrap_or(gvcp::PORT..=gvcp::PORT);
    let is_path = !matches!(endpoint.path.as_str(), "" | "/");
    if authority.host.is_empty() || authority.host == "*" || ports.clone().count() > 1 || is_path {
        return Err(one());
    }
    Ok((authority.host.clone(), *ports.start()))
}

/// Reads a register and its value.
fn write(text: &str) -> Result<Write, String> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let read = || {
        let (address, value) = text.split_once(':')?;
        Some(Write { address: number(address)?, value: number(value)? })
    };
    read().ok_or_else(|| "it is the address of a register and a value".to_owned())
}

fn together(what: impl Into<String>) -> Error {
    Error::Together { what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_camera_is_an_address_with_parameters() {
        let plain = CameraConfig::parse("gvsp://192.0.2.7").unwrap();
        assert_eq!((plain.host.as_str(), plain.port, plain.resend), ("192.0.2.7", 3956, None));
        assert_eq!((plain.udp.name.as_str(), plain.camera().as_str()), ("camera", "192.0.2.7"));
        let text = "gvsp://cam.lab:4000?packet=8192&listen=50000&resend=no&start=0x124:1&stop=292:0&name=left";
        let full = CameraConfig::parse(text).unwrap();
        assert_eq!(
            (full.packet_bytes, full.data_port, full.resend),
            (Some(8192), 50_000, Some(false))
        );
        assert_eq!(full.start, Some(Write { address: 0x124, value: 1 }));
        assert_eq!(full.stop, Some(Write { address: 0x124, value: 0 }));
        assert_eq!((full.udp.name.as_str(), full.camera().as_str()), ("left", "cam.lab:4000"));
        for config in [plain, full] {
            assert_eq!(CameraConfig::parse(&config.udp.endpoint.to_string()), Ok(config));
        }
    }

    #[test]
    fn endpoints_that_are_no_camera_are_refused() {
        for (text, word) in [
            ("gvsp:camera", "one camera"),
            ("gvsp://", "one camera"),
            ("gvsp://a:1-2", "one camera"),
            ("gvsp://a/b", "one camera"),
            ("gvsp://a?packet=100", "from 576 to 16384"),
            ("gvsp://a?packet=x", "from 576 to 16384"),
            ("gvsp://a?start=1:1", "together"),
            ("gvsp://a?start=1&stop=2", "address of a register"),
            ("gvsp://a?resend=maybe", "yes or no"),
            ("gvsp://a?format=vdif", "for datagrams"),
            ("gvsp://a?interface=lo", "for datagrams"),
            ("gvsp://a?fps=9", "GVSP"),
            ("gvsp://a?nothing=1", "nothing"),
        ] {
            let error = CameraConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
