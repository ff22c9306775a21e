//! Packet captures as sources: `file:x.pcapng?port=46220&format=vdif`.
//!
//! The parameters are those of a `udp:` source, without those of sockets. `port` selects UDP ports of the destination;
//! without it, each port with such frames is a stream. `pcap:` names a capture whose file has another ending.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use fullbore_core::endpoint::{Endpoint, Error, SourceFormat, Threads, UdpSource};
use fullbore_engine::recorder::PacketFileSource;
use fullbore_engine::recorder::packet_file::{Content, Flow, flows};

/// The most streams that a capture makes without a choice of ports.
const MOST_STREAMS: usize = 32;

/// Ports that an error lists.
const MOST_LISTED: usize = 16;

/// Parameters of a `udp:` source that only a socket has.
const OF_SOCKETS: [&str; 3] = ["interface", "rcvbuf", "gro"];

/// True if the text names a packet capture.
pub fn is_meant(text: &str) -> bool {
    let Some((scheme, rest)) = text.trim().split_once(':') else { return false };
    let path = rest.split_once('?').map_or(rest, |(path, _)| path).to_ascii_lowercase();
    let ending = [".pcap", ".pcapng", ".cap"].iter().any(|ending| path.ends_with(ending));
    scheme.eq_ignore_ascii_case("pcap") || scheme.eq_ignore_ascii_case("file") && ending
}

/// The path of a capture.
pub fn path_of(endpoint: &Endpoint) -> Result<PathBuf, Error> {
    if endpoint.path.is_empty() || endpoint.authority.is_some() {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    Ok(PathBuf::from(&endpoint.path))
}

/// Reads one endpoint and makes a source of each of its ports. Without `port`, it reads the capture.
pub fn parse(text: &str) -> Result<Vec<PacketFileSource>, Error> {
    let endpoint: Endpoint = text.parse()?;
    let path = path_of(&endpoint)?;
    if let Some(name) = OF_SOCKETS.iter().find(|it| has(&endpoint, it)) {
        let what = format!("`{name}` is for sockets: leave it out for a packet capture");
        return Err(Error::Together { what });
    }
    let mut udp = endpoint.clone();
    let given = udp.parameters.iter().position(|(name, _)| name == "port");
    let ports = match given {
        Some(place) => ports(&udp.parameters.remove(place).1)?,
        None => ports_with_frames(&path, &sample(&udp)?)?,
    };
    let named = has(&udp, "name") && ports.len() > 1;
    ports.iter().map(|&port| of_port(&udp, &path, port, named)).collect()
}

fn has(endpoint: &Endpoint, name: &str) -> bool {
    endpoint.parameters.iter().any(|(known, _)| known == name)
}

/// A source with these parameters, to check them.
fn sample(endpoint: &Endpoint) -> Result<UdpSource, Error> {
    Ok(as_udp(endpoint, 1)?.remove(0))
}

fn as_udp(endpoint: &Endpoint, port: u16) -> Result<Vec<UdpSource>, Error> {
    let mut socket: Endpoint = format!("udp://[::]:{port}").parse()?;
    socket.parameters.clone_from(&endpoint.parameters);
    UdpSource::expand(&socket)
}

fn of_port(
    endpoint: &Endpoint,
    path: &Path,
    port: u16,
    several: bool,
) -> Result<PacketFileSource, Error> {
    let mut endpoint = endpoint.clone();
    if several {
        let names = endpoint.parameters.iter_mut().filter(|(name, _)| name == "name");
        names.for_each(|(_, value)| value.push_str(&port.to_string()));
    }
    let mut udp = as_udp(&endpoint, port)?.remove(0);
    if udp.threads == Threads::Split {
        let what = "`threads=split` is for sockets; for a packet capture leave it out, or list the threads";
        return Err(Error::Together { what: what.into() });
    }
    if matches!(udp.format, SourceFormat::Vita49 { .. }) {
        let what = "packets of VITA-49 are recorded from sockets, not from a packet capture: replay it with a tool such \
                    as tcpreplay";
        return Err(Error::Together { what: what.into() });
    }
    endpoint.scheme = "pcap".into();
    endpoint.parameters.insert(0, ("port".into(), port.to_string()));
    udp.endpoint = endpoint;
    Ok(PacketFileSource { path: path.to_owned(), udp, content: Content::Packets })
}

/// Reads `46220`, `46220-46235`, or a list of these.
fn ports(text: &str) -> Result<Vec<u16>, Error> {
    let bad = |why: &str| Error::Value {
        name: "port".into(),
        value: text.to_owned(),
        why: why.to_owned(),
        example: "46220-46235",
    };
    let mut ports = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let range: Option<RangeInclusive<u16>> =
            number(first).zip(number(last)).map(|(a, b)| a..=b);
        let range = range.filter(|range| !range.is_empty());
        ports.extend(
            range.ok_or_else(|| bad("it is a port, a range of ports, or a list of these"))?,
        );
        if ports.len() > 1024 {
            return Err(bad("these are more than 1024 ports"));
        }
    }
    ports.sort_unstable();
    match ports.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(bad("a port is named twice")),
        false => Ok(ports),
    }
}

/// The ports of a capture whose datagrams are of the format of this source.
fn ports_with_frames(path: &Path, source: &UdpSource) -> Result<Vec<u16>, Error> {
    let read = flows(path).map_err(|error| Error::Together {
        what: format!("{} cannot be read: {error}", path.display()),
    })?;
    let carries = |flow: &Flow| match source.format {
        SourceFormat::Raw | SourceFormat::Vita49 { .. } => true,
        SourceFormat::Frames(kind) => {
            flow.format().is_some_and(|(found, numbered)| {
                // Bytes that are stripped, and packets before segmentation, are left to the detection.
                found == kind && (numbered == source.packet_number || source.strip > 0)
            }) || source.strip > 0
                || kind.fixed_frame_bytes().is_none() && source.frame_bytes.is_some()
        }
    };
    let wanted: Vec<u16> =
        read.0.iter().filter(|(_, flow)| carries(flow)).map(|(port, _)| *port).collect();
    if (1..=MOST_STREAMS).contains(&wanted.len()) {
        return Ok(wanted);
    }
    let what = match wanted.len() {
        0 => format!(
            "{}: no UDP port has frames of this format. {}. Name ports with port=, and their format with format=",
            path.display(),
            listed(&read.0)
        ),
        count => format!(
            "{}: {count} UDP ports have such datagrams, more than {MOST_STREAMS}. {}. Name ports with port=",
            path.display(),
            listed(&read.0)
        ),
    };
    Err(Error::Together { what })
}

fn listed(flows: &BTreeMap<u16, Flow>) -> String {
    if flows.is_empty() {
        return "There are no UDP datagrams in it".into();
    }
    let mut most: Vec<_> = flows.iter().collect();
    most.sort_by_key(|(port, flow)| (std::cmp::Reverse(flow.packets), **port));
    let named = most.iter().take(MOST_LISTED);
    let named: Vec<String> =
        named.map(|(port, flow)| format!("{port} ({} datagrams)", flow.packets)).collect();
    let more = flows.len().saturating_sub(MOST_LISTED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("The ports are {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_told_from_other_files_by_their_ending() {
        for text in ["file:x.pcap", "FILE:/a/b.PcapNg?port=5", "pcap:dump", "file:x.cap"] {
            assert!(is_meant(text), "{text}");
        }
        for text in ["file:x.vdif", "udp://:5000", "-", "file:x?name=a.pcap"] {
            assert!(!is_meant(text), "{text}");
        }
    }

    #[test]
    fn each_port_is_a_source_whose_endpoint_reads_back() {
        let sources = parse("file:x.pcapng?port=5000-5001,7&format=vtp&name=sky").unwrap();
        let names: Vec<String> = sources.iter().map(|it| it.udp.name.to_string()).collect();
        assert_eq!(names, ["sky7", "sky5000", "sky5001"]);
        assert!(sources.iter().all(|it| it.udp.packet_number && it.path == Path::new("x.pcapng")));
        for source in sources {
            assert_eq!(parse(&source.udp.endpoint.to_string()), Ok(vec![source]));
        }
    }

    #[test]
    fn parameters_without_a_meaning_are_refused() {
        for (text, word) in [
            ("file:x.pcap?port=5&rcvbuf=1MiB", "rcvbuf"),
            ("file:x.pcap?port=5&threads=split", "split"),
            ("file:x.pcap?port=0", "port"),
            ("file:x.pcap?port=5,5", "twice"),
            ("file:x.pcap?port=1-2000", "1024"),
            ("file:x.pcap?port=5&speed=7", "speed"),
            ("file:/nonexistent/x.pcap", "cannot be read"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
