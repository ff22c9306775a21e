//! Sources of triggers: a datagram to a port, a marker that a user sets on the recording, or a condition on its samples.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use fullbore_analysis::content::query::{Query, QueryError};
use fullbore_analysis::trigger::evaluate::longest_delay;
use fullbore_analysis::trigger::hold::HoldTimes;
use fullbore_core::endpoint::{self, Endpoint};
use fullbore_core::hint::Hint;
use fullbore_core::marker::Text;
use fullbore_time::Tai;

use super::RingName;
use super::lookout::{Condition, Found};
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

/// The time without its condition after which another trigger can begin, if none is given.
pub const HOLD_OFF: Duration = Duration::from_secs(1);

/// Triggers of conditions that wait for the keeper. The thread that finds them waits for room.
const MOST_FOUND: usize = 1000;

/// A source of triggers: `udp://HOST:PORT` or `marker:` with `before` and `after`, or a condition on samples.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerSource {
    text: String,
    kind: Kind,
    before: Duration,
    after: Duration,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// Each datagram to this address triggers.
    Udp { host: String, port: u16 },
    /// Each marker that is set on a piece triggers.
    Marker,
    /// Samples that fulfil a condition trigger.
    Samples { query: Query, hold: HoldTimes },
}

/// Times of triggers that do not have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerTimes {
    /// The time before a trigger that is kept.
    pub before: Duration,
    /// The time after it.
    pub after: Duration,
}

impl Default for TriggerTimes {
    fn default() -> Self {
        Self { before: BEFORE, after: AFTER }
    }
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
    /// The text is no condition on samples.
    #[error(transparent)]
    Condition(#[from] QueryError),
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
            Self::Condition(_) => Some(
                "write for example 'power(ch3) > -20 dB for 10 ms', or 'level(any) > 12000'".into(),
            ),
            Self::Open { .. } => {
                Some("is the port in use, or the address not of this host?".into())
            }
        }
    }
}

impl FromStr for TriggerSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        Self::endpoint(text, TriggerTimes::default())
    }
}

impl TriggerSource {
    /// A port or markers. `times` are those that the text does not state.
    ///
    /// # Errors
    ///
    /// The text is no source of triggers.
    pub fn endpoint(text: &str, times: TriggerTimes) -> Result<Self, SourceError> {
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
        let TriggerTimes { before, after } = times;
        let mut source = Self { text: text.to_owned(), kind, before, after };
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

    /// A condition on samples. A trigger lasts while the condition is fulfilled, at most this long, and another one begins
    /// when it was not fulfilled for the time `hold_off`. The time before it is kept counts from the begin of the event: a
    /// duration in the condition comes on top.
    ///
    /// # Errors
    ///
    /// The text is no condition.
    pub fn samples(
        text: &str,
        times: TriggerTimes,
        hold_off: Duration,
        longest: Duration,
    ) -> Result<Self, SourceError> {
        let query = Query::of_samples(text)?;
        let hold = HoldTimes { off_ns: ns(hold_off), longest_ns: ns(longest) };
        let TriggerTimes { before, after } = times;
        let delay = Duration::try_from_secs_f64(longest_delay(&query)).unwrap_or(Duration::MAX);
        let before = before.saturating_add(delay);
        let kind = Kind::Samples { query, hold };
        Ok(Self { text: text.to_owned(), kind, before, after })
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
    /// The conditions, and the latest trigger of each.
    conditions: Vec<(TriggerSource, Option<Trigger>)>,
    found: Receiver<Found>,
    /// Where the thread that looks at samples puts what it finds, until it has started.
    finds: Option<SyncSender<Found>>,
}

/// A port, and the trigger of its latest datagram.
#[derive(Debug)]
struct Port {
    source: TriggerSource,
    socket: UdpSocket,
    latest: Option<Trigger>,
}

/// A moment that triggers.
struct Moment {
    at: Tai,
    note: String,
    /// False if it extends a trigger whatever its end is.
    begins: bool,
}

impl Listeners {
    /// Opens all ports.
    ///
    /// # Errors
    ///
    /// A port cannot be opened.
    pub fn open(sources: &[TriggerSource]) -> Result<Self, SourceError> {
        let (finds, found) = sync_channel(MOST_FOUND);
        let (ports, conditions, finds) = (Vec::new(), Vec::new(), Some(finds));
        let mut listeners = Self { ports, marker: None, conditions, found, finds };
        for source in sources {
            let (host, port) = match &source.kind {
                Kind::Udp { host, port } => (host, port),
                Kind::Marker => {
                    listeners.marker = Some(source.clone());
                    continue;
                }
                Kind::Samples { .. } => {
                    listeners.conditions.push((source.clone(), None));
                    continue;
                }
            };
            // Other hosts can trigger only if an address of this host is named.
            let host = if host.is_empty() { "127.0.0.1" } else { host.as_str() };
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

    /// The conditions, and where to put what fulfils them; empty if there are none, and at the second call.
    pub fn conditions(&mut self) -> Option<(Vec<Condition>, SyncSender<Found>)> {
        let of = |(source, _): &(TriggerSource, _)| match &source.kind {
            Kind::Samples { query, hold } => {
                Some(Condition { text: source.text.clone(), query: query.clone(), hold: *hold })
            }
            Kind::Udp { .. } | Kind::Marker => None,
        };
        let conditions: Vec<Condition> = self.conditions.iter().filter_map(of).collect();
        let finds = self.finds.take()?;
        (!conditions.is_empty()).then_some((conditions, finds))
    }

    /// Reads what has arrived by `now`. New triggers, and those before with a later end, if they still wait. None if the
    /// one before keeps enough.
    pub fn read(
        &mut self,
        ring: &RingName,
        now: Tai,
        waits: &dyn Fn(&Trigger) -> bool,
    ) -> Vec<Trigger> {
        let of_ports = self.ports.iter_mut().filter_map(|port| port.read(ring, now, waits));
        let mut triggers: Vec<Trigger> = of_ports.collect();
        for Found { condition, begins, at, note } in self.found.try_iter() {
            let Some((source, latest)) = self.conditions.get_mut(condition) else { continue };
            let moment = Moment { at, note, begins };
            // A trigger of this call is not on the disks yet.
            let waits = |it: &Trigger| triggers.iter().any(|new| new.uuid == it.uuid) || waits(it);
            if let Some(trigger) = source.trigger(ring, moment, latest, &waits) {
                triggers.retain(|earlier| earlier.uuid != trigger.uuid);
                triggers.push(trigger);
            }
        }
        triggers
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
    fn read(
        &mut self,
        ring: &RingName,
        now: Tai,
        waits: &dyn Fn(&Trigger) -> bool,
    ) -> Option<Trigger> {
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
        let moment = Moment { at: now, note: first?, begins: true };
        self.source.trigger(ring, moment, &mut self.latest, waits)
    }
}

impl TriggerSource {
    /// The trigger of a moment: a new one, or the latest with more time, if it still waits. `None` if that keeps enough.
    /// Moments of several streams are not in order.
    fn trigger(
        &self,
        ring: &RingName,
        moment: Moment,
        latest: &mut Option<Trigger>,
        waits: &dyn Fn(&Trigger) -> bool,
    ) -> Option<Trigger> {
        let Moment { at, note, begins } = moment;
        let (from, to) = self.window(at);
        let is_of_it = |latest: &Trigger| at <= latest.to && to >= latest.from || !begins;
        let trigger = match latest.take().filter(|latest| is_of_it(latest)) {
            Some(before) if before.from <= from && to <= before.to => {
                *latest = Some(before);
                return None;
            }
            Some(before) if waits(&before) => {
                let end = if to <= before.to { before.to } else { to.plus_ns(SPARE_NS) };
                Trigger { from: before.from.min(from), to: end, ..before }
            }
            _ => {
                let text = Text::from(note.trim().to_owned());
                Trigger::new(ring, at, (from, to), ring.kept(at).ok()?, text)
            }
        };
        *latest = Some(trigger.clone());
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
        let other = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let other = source(&format!("udp://:{other}")).unwrap();
        let of_this_host = Listeners::open(&[other]).unwrap();
        assert!(of_this_host.ports[0].socket.local_addr().unwrap().ip().is_loopback());
        let ring = RingName("s_a".parse().unwrap());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let second = 1_000_000_000;
        let at = |seconds: i64| Tai(1_000_000 * second + seconds * second);
        let mut read_any = |seconds| {
            sender.send_to(b"burst\n", to).unwrap();
            listeners.read(&ring, at(seconds), &|_| true).pop()
        };
        let first = read_any(0).unwrap();
        assert_eq!((first.from, first.to), (at(-1), at(2)));
        assert!(first.text.to_string().ends_with("burst"), "{}", first.text);
        let second = read_any(1).unwrap();
        assert_eq!((second.uuid, second.from, second.to), (first.uuid, at(-1), at(4)));
        assert_eq!(read_any(2), None, "it keeps enough");
        let third = read_any(10).unwrap();
        assert_ne!(third.uuid, first.uuid);
        assert!(listeners.read(&ring, at(11), &|_| true).is_empty(), "nothing arrived");
    }

    #[test]
    fn the_time_before_a_condition_counts_from_the_begin_of_its_event() {
        let times = TriggerTimes { before: Duration::from_secs(1), after: Duration::ZERO };
        let text = "level(any) > 1 for 3s or power(ch0) > -20 for 2s";
        let source = TriggerSource::samples(text, times, HOLD_OFF, HOLD_OFF).unwrap();
        assert_eq!(source.before(), Duration::from_secs(4));
        let endless = "level(any) > 1 for 99999999999999999999999999h";
        let source = TriggerSource::samples(endless, times, HOLD_OFF, HOLD_OFF).unwrap();
        assert_eq!(source.before(), Duration::MAX);
    }

    #[test]
    fn a_condition_that_lasts_extends_its_trigger_while_that_waits() {
        let times = TriggerTimes { before: Duration::from_secs(1), after: Duration::ZERO };
        let (off, longest) = (Duration::from_secs(1), Duration::from_secs(60));
        let source = TriggerSource::samples("level(any) > 1", times, off, longest).unwrap();
        assert!(TriggerSource::samples("burst(any) > 1", times, off, longest).is_err());
        let mut listeners = Listeners::open(&[source]).unwrap();
        let (conditions, finds) = listeners.conditions().unwrap();
        assert_eq!(conditions[0].text, "level(any) > 1");
        assert!(listeners.conditions().is_none());
        let ring = RingName("s_a".parse().unwrap());
        let at = |ms: i64| Tai(1_000_000_000_000_000 + ms * 1_000_000);
        let mut read = |begins, ms, waits| {
            let note = "loud".to_owned();
            finds.send(Found { condition: 0, begins, at: at(ms), note }).unwrap();
            listeners.read(&ring, at(0), &|_| waits).pop()
        };
        let first = read(true, 0, true).unwrap();
        assert_eq!((first.from, first.to, first.at), (at(-1000), at(0), at(0)));
        let second = read(false, 10, true).unwrap();
        assert_eq!((second.uuid, second.to), (first.uuid, at(1010)));
        assert_eq!(read(false, 1000, true), None);
        let third = read(false, 1500, false).unwrap();
        assert_ne!(third.uuid, first.uuid, "the one before is complete");
        assert_eq!((third.from, third.to), (at(500), at(1500)));
        assert_ne!(read(true, 3000, true).unwrap().uuid, third.uuid);
        // A stream that is behind another one shows an earlier event.
        let first = read(true, 6000, true).unwrap();
        let earlier = read(true, 5500, true).unwrap();
        assert_eq!((earlier.uuid, earlier.from, earlier.to), (first.uuid, at(4500), first.to));
        assert_eq!(read(true, 5700, true), None);
        assert_ne!(read(true, 2000, true).unwrap().uuid, first.uuid, "it is another event");
        // What begins and lasts in one call is one trigger.
        for (begins, ms) in [(true, 9000), (false, 9010), (false, 9020)] {
            let note = "loud".to_owned();
            finds.send(Found { condition: 0, begins, at: at(ms), note }).unwrap();
        }
        let together = listeners.read(&ring, at(0), &|_| false);
        assert_eq!(together.len(), 1);
        assert_eq!((together[0].from, together[0].to), (at(8000), at(10_010)));
    }
}
