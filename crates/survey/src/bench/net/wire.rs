//! The protocol between two hosts of a network benchmark: lines of JSON over TCP.
//!
//! ```text
//! hello ──► hello          host name and version
//! arm   ──► armed          ports to send to
//!           … datagrams …
//! finish ──► caught        frames received, and counters that moved
//! ```

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_linux::stop_handle::StopHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::receive::{self, Caught, Receiving, Wanted};

/// The protocol version; both sides must use the same.
pub const VERSION: u32 = 1;

/// The default port of a serving host.
pub const PORT: u16 = 46_300;

/// The longest line.
const LONGEST_LINE: u64 = 1 << 20;

/// Time without a message after which a host counts as gone.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time between two checks of stop requests while waiting for a host: a request wakes no wait for a socket.
const GLANCE: Duration = Duration::from_millis(100);

/// The most streams and block memory that a serving host grants.
const MOST_STREAMS: u16 = 64;
const MOST_POOL_BYTES: u64 = 8 << 30;

/// A request of the sending host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum Ask {
    /// Exchange versions.
    Hello {
        /// [`VERSION`].
        version: u32,
    },
    /// Start listening.
    Arm(Wanted),
    /// All packets were sent.
    Finish,
}

/// An answer of the receiving host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum Answer {
    /// Its version and name.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// `fullbore 0.1.0`.
        software: String,
        /// The host name.
        host: String,
    },
    /// The host is listening.
    Armed {
        /// The ports, one for each stream.
        ports: Vec<u16>,
        /// Bytes of receive buffer that the kernel granted each port.
        buffer_bytes: u64,
    },
    /// The result.
    Caught(Caught),
    /// The host refuses the request.
    Refused {
        /// The reason.
        why: String,
    },
}

/// An error of the protocol.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host does not accept the connection.
    #[error("{host}: no `fullbore bench net --serve` answers: {source}")]
    Connect {
        /// The host.
        host: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{host}: the connection broke: {source}")]
    Broken {
        /// The other host.
        host: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The other side uses another protocol.
    #[error("{host} answers `{line}`, which is not from `fullbore bench net --serve`")]
    Foreign {
        /// The host.
        host: String,
        /// The beginning of its message.
        line: String,
    },
    /// The other side has another version.
    #[error("{host} uses version {theirs} of the benchmark, and this program version {VERSION}")]
    Version {
        /// The host.
        host: String,
        /// Its version.
        theirs: u32,
    },
    /// The other side refuses the request.
    #[error("{host} refuses: {why}")]
    Refused {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// This host cannot listen.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Connect { .. } => {
                "start `fullbore bench net --serve` there, and let TCP and UDP ports from 46300 on through its firewall"
            }
            Self::Foreign { .. } | Self::Version { .. } => {
                "run the same version of fullbore on both hosts"
            }
            Self::Listen { .. } => "another program listens there: choose another --listen",
            Self::Broken { .. } | Self::Refused { .. } => return None,
        }))
    }
}

fn is_nothing_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// One end of a connection.
struct Line {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Line {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { writer: stream.try_clone()?, reader: BufReader::new(stream) })
    }

    /// Waits until the other side has sent data. `false`: a stop was requested.
    fn wait(&self, stop: &StopHandle) -> io::Result<bool> {
        let since = Instant::now();
        if !self.reader.buffer().is_empty() {
            return Ok(true);
        }
        // Both halves are one socket, so this sets both timeouts.
        self.writer.set_read_timeout(Some(GLANCE))?;
        let awaited = loop {
            match self.writer.peek(&mut [0]) {
                Ok(_) => break true,
                Err(_) if stop.is_requested() => break false,
                Err(error) if is_nothing_yet(&error) && since.elapsed() < PATIENCE => {}
                Err(error) => return Err(error),
            }
        };
        self.writer.set_read_timeout(Some(PATIENCE))?;
        Ok(awaited)
    }

    fn say<T: Serialize>(&mut self, what: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.writer.write_all(&line)
    }

    /// The next line; `None` at the end. A line that is no `T` is returned as text.
    fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<Result<T, String>>> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        let heard = serde_json::from_slice(&line);
        Ok(Some(heard.map_err(|_| {
            let beginning = &line[..line.len().min(60)];
            String::from_utf8_lossy(beginning).trim_end().replace(char::is_control, "�")
        })))
    }
}

/// A receiving host, from the sender's side.
pub struct Remote {
    line: Line,
    name: String,
    address: IpAddr,
}

impl Remote {
    /// Calls `host`, `host:port` or `[address]:port`.
    pub fn call(host: &str) -> Result<(Self, String), Error> {
        let failed = |source| Error::Connect { host: host.to_owned(), source };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses(host).map_err(failed)? {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(stream) => {
                    let line = Line::new(stream).map_err(failed)?;
                    let mut remote = Self { line, name: host.to_owned(), address: address.ip() };
                    let who = remote.greet()?;
                    return Ok((remote, who));
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    fn greet(&mut self) -> Result<String, Error> {
        match self.ask(&Ask::Hello { version: VERSION })? {
            Answer::Hello { version: VERSION, software, host } => {
                Ok(format!("{host} ({software})"))
            }
            Answer::Hello { version, .. } => {
                Err(Error::Version { host: self.name.clone(), theirs: version })
            }
            other => Err(self.foreign(&other)),
        }
    }

    /// The destination address of datagrams.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Starts its receiver. Returns its ports, and the receive buffer of each.
    pub fn arm(&mut self, wanted: Wanted) -> Result<(Vec<u16>, u64), Error> {
        match self.ask(&Ask::Arm(wanted))? {
            Answer::Armed { ports, buffer_bytes } if ports.len() == usize::from(wanted.streams) => {
                Ok((ports, buffer_bytes))
            }
            other => Err(self.foreign(&other)),
        }
    }

    /// Requests the result.
    pub fn finish(&mut self) -> Result<Caught, Error> {
        match self.ask(&Ask::Finish)? {
            Answer::Caught(caught) => Ok(caught),
            other => Err(self.foreign(&other)),
        }
    }

    fn ask(&mut self, what: &Ask) -> Result<Answer, Error> {
        let host = self.name.clone();
        let broken = |source| Error::Broken { host: host.clone(), source };
        self.line.say(what).map_err(broken)?;
        match self.line.hear::<Answer>().map_err(broken)? {
            None => Err(broken(io::ErrorKind::UnexpectedEof.into())),
            Some(Err(line)) => Err(Error::Foreign { host: host.clone(), line }),
            Some(Ok(Answer::Refused { why })) => Err(Error::Refused { host: host.clone(), why }),
            Some(Ok(answer)) => Ok(answer),
        }
    }

    fn foreign(&self, answer: &Answer) -> Error {
        let line = serde_json::to_string(answer).unwrap_or_default();
        Error::Foreign { host: self.name.clone(), line: line.chars().take(60).collect() }
    }
}

/// The addresses of a host as typed, with the default port if there is none.
fn addresses(host: &str) -> io::Result<Vec<SocketAddr>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![(address, PORT).into()]);
    }
    match host.rsplit_once(':') {
        Some(_) => Ok(host.to_socket_addrs()?.collect()),
        None => Ok((host, PORT).to_socket_addrs()?.collect()),
    }
}

/// Listens, and serves one sender after the other until `stop`, or with `once` until the first has gone. `tell` gets
/// the address and events.
pub fn serve(
    address: SocketAddr,
    once: bool,
    stop: &StopHandle,
    mut tell: impl FnMut(String),
) -> Result<(), Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    tell(format!("listening on {address}"));
    while !stop.is_requested() {
        let glance = Timespec { tv_sec: 0, tv_nsec: GLANCE.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&glance));
        // No connection, or one that closed before it was accepted.
        let Ok((stream, from)) = listener.accept() else { continue };
        tell(format!("{from} measures"));
        let local = stream.local_addr().map_or(address.ip(), |local| local.ip());
        let ended = stream
            .set_nonblocking(false)
            .and_then(|()| Line::new(stream))
            .and_then(|line| converse(line, local, address.port(), stop));
        tell(match ended {
            Ok(()) => format!("{from} is done"),
            Err(error) => format!("{from} has gone: {error}"),
        });
        if once {
            break;
        }
    }
    Ok(())
}

fn converse(mut line: Line, address: IpAddr, port: u16, stop: &StopHandle) -> io::Result<()> {
    let mut receiving: Option<Receiving> = None;
    while line.wait(stop)? {
        let answer = match line.hear::<Ask>()? {
            None => break,
            Some(Err(text)) => Answer::Refused { why: format!("`{text}` is no question") },
            Some(Ok(Ask::Hello { .. })) => Answer::Hello {
                version: VERSION,
                software: concat!("fullbore ", env!("CARGO_PKG_VERSION")).into(),
                host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            },
            Some(Ok(Ask::Arm(wanted))) => {
                // A receiver that was armed before and never finished is ended.
                drop(receiving.take().map(Receiving::finish));
                match arm(&wanted, address, port) {
                    Ok(armed) => {
                        let (ports, buffer_bytes) = (armed.ports().to_vec(), armed.buffer_bytes());
                        receiving = Some(armed);
                        Answer::Armed { ports, buffer_bytes }
                    }
                    Err(why) => Answer::Refused { why },
                }
            }
            Some(Ok(Ask::Finish)) => match receiving.take().map(Receiving::finish) {
                None => Answer::Refused { why: "nothing was armed".into() },
                Some(Ok(caught)) => Answer::Caught(caught),
                Some(Err(error)) => Answer::Refused { why: error.to_string() },
            },
        };
        line.say(&answer)?;
    }
    drop(receiving.take().map(Receiving::finish));
    Ok(())
}

fn arm(wanted: &Wanted, address: IpAddr, port: u16) -> Result<Receiving, String> {
    if !(1..=MOST_STREAMS).contains(&wanted.streams) {
        return Err(format!("{} streams: there are 1 to {MOST_STREAMS}", wanted.streams));
    }
    if wanted.pool_bytes > MOST_POOL_BYTES {
        return Err(format!("{} bytes of block memory are too many", wanted.pool_bytes));
    }
    let first = port.saturating_add(1);
    Receiving::arm(wanted, address, first).map_err(|error: receive::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_with_and_without_a_port() {
        assert_eq!(addresses("127.0.0.1").unwrap(), ["127.0.0.1:46300".parse().unwrap()]);
        assert_eq!(addresses("127.0.0.1:7").unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(addresses("[::1]").unwrap(), ["[::1]:46300".parse().unwrap()]);
        assert_eq!(addresses("[::1]:9").unwrap(), ["[::1]:9".parse().unwrap()]);
    }

    #[test]
    fn another_program_that_answers_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(200));
        });
        let error = Remote::call(&address.to_string()).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("SSH-2.0"), "{error}");
        other.join().unwrap();
    }

    #[test]
    fn questions_that_make_no_sense_are_refused_and_the_conversation_goes_on() {
        let stop = StopHandle::default();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                serve("127.0.0.1:0".parse().unwrap(), true, &stop, |text| drop(tell.send(text)))
            });
            let told = told.recv().unwrap();
            let address = told.strip_prefix("listening on ").unwrap();
            let (mut remote, who) = Remote::call(address).unwrap();
            assert!(who.contains("fullbore"), "{who}");
            let wanted = Wanted {
                streams: 0,
                frame_bytes: 8032,
                frames_per_second: 10,
                pool_bytes: 1 << 25,
            };
            assert!(matches!(remote.arm(wanted), Err(Error::Refused { .. })));
            assert!(matches!(remote.finish(), Err(Error::Refused { .. })));
            let (ports, _) = remote.arm(Wanted { streams: 2, ..wanted }).unwrap();
            assert_eq!(ports.len(), 2);
            assert_eq!(remote.finish().unwrap().frames, 0);
            drop(remote);
            server.join().unwrap().unwrap();
        });
    }
}
