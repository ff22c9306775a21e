//! Triggers from outside: a datagram to a port, or a marker that a user sets on the recording.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::str::FromStr;
use std::time::Duration;

use fullbore_core::endpoint::{self, Endpoint};
use fullbore_core::hint::Hint;
use fullbore_core::marker::Text;
use fullbore_time::Tai;

use super::RingName;
use super::trigger::Trigger;
use crate::options::value::parse_duration;

/// The time before a trigger that is kept, if none is given.
pub const BEFORE: Duration = Duration::from_secs(10);

/// The time after a trigger that is kept, if none is given.
pub const AFTER: Duration = Duration::from_secs(5);

/// The most datagrams that are read at a time.
const MOST_DATAGRAMS: usize = 1000;

/// The time by which an end that is put off is later than asked for, so that a source that repeats itself does not write
/// a file each time.
const SPARE_NS: i64 = 1_000_000_000;

/// A source of triggers: `udp://HOST:PORT`, or `marker:`, with `before` and `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerSource {
    text: String,
    kind: Kind,
    before: Duration,
    after: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Each datagram to this address triggers.
    Udp { host: String, port: u16 },
    /// Each marker that is set on a piece triggers.
    Marker,
}

/// A text that is no source of triggers, or a source that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The text is no endpoint.
    #[error(transparent)]
    Endpoint(#[from] endpoint::Error),
    /// The endpoint is none of triggers.
    #[error("`{text}` is no source of triggers")]
    Kind {
        /// The text.
        text: String,
    },
    /// A parameter is unknown or invalid.
    #[error("`{text}`: {name}: {why}")]
    Parameter {
        /// The text.
        text: String,
        /// The parameter.
        name: String,
        /// The reason.
        why: String,
    },
    /// The port cannot be opened.
    #[error("{text}: opening the port: {source}")]
    Open {
        /// The text.
        text: String,
        /// The cause.
        source: io::Error,
    },
}

impl Hint for SourceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Endpoint(error) => error.hint(),
            Self::Kind { .. } => {
                Some("write udp://127.0.0.1:5000?before=10s&after=5s, or marker:?before=10s".into())
            }
            Self::Parameter { .. } => Some("parameters are before and after".into()),
            Self::Open { .. } => {
                Some("is the port in use, or the address not of this host?".into())
            }
        }
    }
}

impl FromStr for TriggerSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let Endpoint { scheme, authority, path, parameters } = text.parse()?;
        let kind = || SourceError::Kind { text: text.to_owned() };
        let place = authority.map(|it| (it.host, it.ports));
        let kind = match (scheme.as_str(), place, path.as_str()) {
            ("marker", None, "") => Kind::Marker,
            ("udp", Some((host, Some(ports))), "") if ports.start() == ports.end() => {
                Kind::Udp { host, port: *ports.start() }
            }
            _ => return Err(kind()),
        };
        let mut source = Self { text: text.to_owned(), kind, before: BEFORE, after: AFTER };
        for (name, value) in parameters {
            let bad = |why: String| {
                let (text, name) = (text.to_owned(), name.clone());
                SourceError::Parameter { text, name, why }
            };
            let time = || parse_duration(&value).map_err(bad);
            match name.as_str() {
                "before" => source.before = time()?,
                "after" => source.after = time()?,
                _ => return Err(bad("there is no such parameter".to_owned())),
            }
        }
        Ok(source)
    }
}

impl fmt::Display for TriggerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TriggerSource {
    /// The time before a trigger that it keeps.
    pub fn before(&self) -> Duration {
        self.before
    }

    /// The window of a trigger at this time.
    fn window(&self, at: Tai) -> (Tai, Tai) {
        (at.plus_ns(-ns(self.before)), at.plus_ns(ns(self.after)))
    }
}

/// A duration in nanoseconds, at most a hundred years.
pub(super) fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).min(100 * 365 * 86_400 * 1_000_000_000)
}

/// The open sources of a recording.
#[derive(Debug)]
pub(crate) struct Listeners {
    ports: Vec<Port>,
    marker: Option<TriggerSource>,
}

/// A port, and the trigger of its latest datagram.
#[derive(Debug)]
struct Port {
    source: TriggerSource,
    socket: UdpSocket,
    latest: Option<Trigger>,
}

impl Listeners {
    /// Opens all ports.
    ///
    /// # Errors
    ///
    /// A port cannot be opened.
    pub fn open(sources: &[TriggerSource]) -> Result<Self, SourceError> {
        let mut listeners = Self { ports: Vec::new(), marker: None };
        for source in sources {
            let Kind::Udp { host, port } = &source.kind else {
                listeners.marker = Some(source.clone());
                continue;
            };
            let host = if host.is_empty() { "0.0.0.0" } else { host.as_str() };
            let open = || -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind((host, *port))?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            };
            let failed = |cause| SourceError::Open { text: source.text.clone(), source: cause };
            let (source, socket) = (source.clone(), open().map_err(failed)?);
            listeners.ports.push(Port { source, socket, latest: None });
        }
        Ok(listeners)
    }

    /// True if markers trigger.
    pub fn listen_to_markers(&self) -> bool {
        self.marker.is_some()
    }

    /// Reads what has arrived by `now`. A trigger for each port with datagrams: a new one, or the one before with a later
    /// end, if that has not passed. None if the one before keeps enough.
    pub fn read(&mut self, ring: &RingName, now: Tai) -> Vec<Trigger> {
        self.ports.iter_mut().filter_map(|port| port.read(ring, now)).collect()
    }

    /// The trigger of a marker. Its identity is that of the marker, so a marker triggers once.
    pub fn of_marker(
        &self,
        ring: &RingName,
        marker: &fullbore_core::marker::Marker,
    ) -> Option<Trigger> {
        let source = self.marker.as_ref()?;
        let keep_as = ring.kept(marker.time).ok()?;
        let window = source.window(marker.time);
        let trigger = Trigger::new(ring, marker.time, window, keep_as, marker.text.clone());
        Some(Trigger { uuid: marker.uuid, ..trigger })
    }
}

impl Port {
    fn read(&mut self, ring: &RingName, now: Tai) -> Option<Trigger> {
        let mut buffer = [0; 512];
        let mut first: Option<String> = None;
        for _ in 0..MOST_DATAGRAMS {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let sent = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    first.get_or_insert_with(|| format!("trigger from {from} {sent}"));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing more has arrived; an error is of an earlier datagram of this host.
                Err(_) => break,
            }
        }
        let note = first?;
        let (from, to) = self.source.window(now);
        let trigger = match self.latest.take().filter(|latest| now <= latest.to) {
            Some(latest) if to <= latest.to => {
                self.latest = Some(latest);
                return None;
            }
            Some(latest) => Trigger { to: to.plus_ns(SPARE_NS), ..latest },
            None => {
                let text = Text::from(note.trim().to_owned());
                Trigger::new(ring, now, (from, to), ring.kept(now).ok()?, text)
            }
        };
        self.latest = Some(trigger.clone());
        Some(trigger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Result<TriggerSource, String> {
        text.parse().map_err(|error: SourceError| error.to_string())
    }

    #[test]
    fn source_is_a_port_or_markers_with_times() {
        let port = source("udp://127.0.0.1:5000?before=2s&after=500ms").unwrap();
        assert_eq!(port.kind, Kind::Udp { host: "127.0.0.1".into(), port: 5000 });
        assert_eq!((port.before, port.after), (Duration::from_secs(2), Duration::from_millis(500)));
        let marker = source("marker:").unwrap();
        assert_eq!((marker.before, marker.after), (BEFORE, AFTER));
        for wrong in
            ["udp://127.0.0.1", "udp://127.0.0.1:1-2", "tcp://127.0.0.1:1", "marker:x", "x"]
        {
            assert!(source(wrong).is_err(), "{wrong}");
        }
        assert!(source("marker:?before=soon").unwrap_err().contains("before"));
        assert!(source("marker:?name=a").unwrap_err().contains("no such parameter"));
    }

    #[test]
    fn datagrams_within_one_window_are_one_trigger_with_a_later_end() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let one = source(&format!("udp://127.0.0.1:{free}?before=1s&after=2s")).unwrap();
        let mut listeners = Listeners::open(&[one]).unwrap();
        let to = listeners.ports[0].socket.local_addr().unwrap();
        let ring = RingName("s_a".parse().unwrap());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let second = 1_000_000_000;
        let at = |seconds: i64| Tai(1_000_000 * second + seconds * second);
        let mut read_any = |seconds| {
            sender.send_to(b"burst\n", to).unwrap();
            listeners.read(&ring, at(seconds)).pop()
        };
        let first = read_any(0).unwrap();
        assert_eq!((first.from, first.to), (at(-1), at(2)));
        assert!(first.text.to_string().ends_with("burst"), "{}", first.text);
        let second = read_any(1).unwrap();
        assert_eq!((second.uuid, second.from, second.to), (first.uuid, at(-1), at(4)));
        assert_eq!(read_any(2), None, "it keeps enough");
        let third = read_any(10).unwrap();
        assert_ne!(third.uuid, first.uuid);
        assert!(listeners.read(&ring, at(11)).is_empty(), "nothing arrived");
    }
}
