//! TCP servers as sources: `tcp://rp-f0a1b2:8900?frame=1024&seq=0:8:le`.
//!
//! The parameters are those of a `udp:` source, without those of sockets. The format is `raw` if none is given. `frame`
//! is the length of each frame, behind the bytes that are stripped; `prefix=4:le` says that a length precedes each frame
//! instead. The length is not kept.

use fullbore_core::endpoint::{Endpoint, Error, SourceFormat, Threads, UdpSource};
use fullbore_core::hint::Hint;
use fullbore_engine::recorder::{WaitingInput, WaitingSource};
use fullbore_formats::framing::Framing;

/// Parameters of a `udp:` source that a connection does not have.
const OF_DATAGRAMS: [&str; 5] = ["interface", "rcvbuf", "gro", "source", "port"];

/// True if the text names a TCP server.
pub(super) fn is_meant(text: &str) -> bool {
    text.trim().split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("tcp"))
}

/// Reads one endpoint.
pub(super) fn parse(text: &str) -> Result<WaitingSource, Error> {
    let endpoint: Endpoint = text.parse()?;
    let has = |name: &str| endpoint.parameters.iter().any(|(known, _)| known == name);
    if let Some(name) = OF_DATAGRAMS.iter().find(|name| has(name)) {
        return Err(together(format!("`{name}` is for datagrams: leave it out for a TCP server")));
    }
    let (host, port) = server(&endpoint)?;
    let mut socket: Endpoint = format!("udp://[::]:{port}").parse()?;
    socket.parameters.clone_from(&endpoint.parameters);
    if !has("format") {
        socket.parameters.push(("format".into(), "raw".into()));
    }
    let given = socket.parameters.iter().position(|(name, _)| name == "prefix");
    let prefix = given.map(|place| socket.parameters.remove(place).1);
    let prefix = prefix.map(|text| read_prefix(&text)).transpose()?;
    let is_raw = socket.parameters.contains(&("format".into(), "raw".into()));
    // Frames behind their lengths may differ.
    if prefix.is_some() && is_raw && !has("frame") {
        socket.parameters.push(("frame".into(), "varying".into()));
    }
    let mut udp = UdpSource::expand(&socket)?.remove(0);
    if matches!(udp.format, SourceFormat::Packets { .. }) || udp.threads == Threads::Split {
        return Err(together(
            "a TCP connection is one stream: record packets of several streams from UDP, and leave out `threads=split`",
        ));
    }
    let framing = match (prefix, udp.frame_bytes) {
        (Some(prefix), _) => prefix,
        (None, Some(bytes)) => Framing::Fixed((bytes + udp.strip) as usize),
        (None, None) => {
            return Err(together(
                "give the length of each frame (`frame=1024`), or of the length before each frame (`prefix=4:le`)",
            ));
        }
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    udp.endpoint = endpoint;
    Ok(WaitingSource {
        input: WaitingInput::Tcp { server: format!("{host}:{port}"), framing },
        udp,
    })
}

/// The host and the port of a server.
fn server(endpoint: &Endpoint) -> Result<(String, u16), Error> {
    let form = || Error::Form { text: endpoint.to_string() };
    let authority = endpoint.authority.as_ref().ok_or_else(form)?;
    let ports = authority.ports.clone().ok_or_else(form)?;
    if authority.host.is_empty() || authority.host == "*" || ports.clone().count() > 1 {
        return Err(together(
            "a TCP source is one server and one port: tcp://192.0.2.7:8900?frame=1024",
        ));
    }
    Ok((authority.host.clone(), *ports.start()))
}

fn read_prefix(value: &str) -> Result<Framing, Error> {
    Framing::prefixed(value).map_err(|error| Error::Value {
        name: "prefix".into(),
        value: value.to_owned(),
        why: format!("{error}: {}", error.hint().unwrap_or_default()),
        example: "4:le",
    })
}

fn together(what: impl Into<String>) -> Error {
    Error::Together { what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_one_length_or_follow_their_length() {
        let fixed = parse("tcp://rp.lab:8900?frame=1024&strip=8&seq=0:8:le&name=rp").unwrap();
        let server = "rp.lab:8900".to_owned();
        let framing = Framing::Fixed(1032);
        assert_eq!(fixed.input, WaitingInput::Tcp { server, framing });
        assert_eq!((fixed.udp.frame_bytes, fixed.udp.strip), (Some(1024), 8));
        assert_eq!(fixed.udp.name.as_str(), "rp");
        let prefixed = parse("tcp://[::1]:8900?prefix=4:be&seq=0:4:be").unwrap();
        let framing = Framing::Prefixed { width: 4, big_endian: true };
        assert_eq!(prefixed.input, WaitingInput::Tcp { server: "[::1]:8900".into(), framing });
        assert!(prefixed.udp.varying);
        let vdif = parse("tcp://[::1]:8900?format=vdif&frame=8032").unwrap();
        assert!(matches!(vdif.udp.format, SourceFormat::Frames(_)));
        for source in [fixed, prefixed, vdif] {
            assert_eq!(parse(&source.udp.endpoint.to_string()), Ok(source));
        }
    }

    #[test]
    fn parameters_without_a_meaning_are_refused() {
        for (text, word) in [
            ("tcp://a:1", "prefix=4:le"),
            ("tcp://a:1?frame=varying", "prefix=4:le"),
            ("tcp://a:1?prefix=3:le", "4:le"),
            ("tcp://a:1-2?frame=8", "one port"),
            ("tcp://:1?frame=8", "one server"),
            ("tcp://a?frame=8", "tcp://a"),
            ("tcp://a:1?frame=8&rcvbuf=1MiB", "rcvbuf"),
            ("tcp://a:1?prefix=4:le&format=spead", "one stream"),
            ("tcp://a:1?frame=70000", "65507"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
