//! The client: sends streams of scans to a server, lists its files, and fetches them.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::files::ServedFile;
use fullbore_transfer::governor::Governor;

use crate::carry::Carrier;
use crate::codec::{DataAddress, Header, Lines, Mode, is_id};
use crate::error::EtransferError;
use crate::part::{Part, fetched_name};
use crate::wire::Wire;
use crate::{DEFAULT_PORT, SILENCE};

/// The longest line of a server: a path has at most half of it.
const LONGEST_REPLY: usize = 8192;

/// A server answers a request within this time.
const ANSWER: Duration = Duration::from_secs(60);

/// The most files in a listing.
const MOST_FILES: usize = 65_536;

/// A transfer that is done.
#[derive(Clone, Debug)]
pub struct Done {
    /// The file, here if it was fetched, there if it was sent.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Those of them that were carried now.
    pub carried: u64,
    /// The time it took.
    pub seconds: f64,
}

/// Receives the bytes that are done, and all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// A connection to a server.
pub struct Client {
    stream: TcpStream,
    address: SocketAddr,
    peer: String,
    lines: Lines,
    stop: Arc<StopHandle>,
    patience: Duration,
}

impl Client {
    /// Connects to `HOST[:PORT]`. The server may pause for `patience` in a transfer.
    pub fn connect(
        host: &str,
        patience: Duration,
        stop: Arc<StopHandle>,
    ) -> Result<Self, EtransferError> {
        let lost = |source| EtransferError::Connection { peer: host.to_owned(), source };
        let addresses = match host.to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(_) => {
                (host.trim_matches(['[', ']']), DEFAULT_PORT).to_socket_addrs().map_err(lost)?
            }
        };
        let (stream, address) = first_that_answers(addresses).map_err(lost)?;
        let (peer, lines) = (host.to_owned(), Lines::new(LONGEST_REPLY));
        let mut client = Self { stream, address, peer, lines, stop, patience };
        client.ask("protocol-version")?;
        match client.answer()?.trim().parse::<u32>() {
            Ok(1..) => Ok(client),
            _ => Err(client.protocol("it has no version 1 of the protocol")),
        }
    }

    /// The files that match a pattern of the shell. Directories end with a slash.
    pub fn list(&mut self, pattern: &str) -> Result<Vec<String>, EtransferError> {
        self.ask(&format!("list {pattern}"))?;
        self.answers()
    }

    /// Sends a stream of a scan as a file. A file that is there in part is resumed, unless it is to be overwritten.
    pub fn send(
        &mut self,
        file: &mut ServedFile,
        path: &str,
        overwrite: bool,
        governor: &Governor,
        progress: Progress<'_>,
    ) -> Result<Done, EtransferError> {
        let begun = Instant::now();
        let mode = if overwrite { Mode::OverWrite } else { Mode::Resume };
        self.ask(&format!("write-file-{} {path}", mode.word()))?;
        let (id, there) = self.opened("AlreadyHave")?;
        let bytes = file.length();
        // The length of a file that is to be replaced does not count, and its server reports 0.
        let Some(carried) = bytes.checked_sub(there) else {
            let (peer, name) = (self.peer.clone(), file.name().to_owned());
            return Err(EtransferError::Longer { peer, name, there, here: bytes });
        };
        let stream = self.connect_for_data()?;
        let sent = self.with(&stream, governor, |carrier| {
            let header = Header { id: id.clone(), bytes: carried, push: false };
            carrier.say(header.to_string().as_bytes())?;
            let mut done = there;
            carrier.give(file, there, carried, &mut |more| {
                done += more;
                progress(done, bytes);
            })
        });
        self.or_stopped(sent)?;
        self.close(&id)?;
        Ok(Done { path: path.into(), bytes, carried, seconds: begun.elapsed().as_secs_f64() })
    }

    /// Fetches a file into a directory. It has its name once all of it is there, and `.part` after it until then; a
    /// part that is there is resumed.
    pub fn fetch(
        &mut self,
        name: &str,
        directory: &Path,
        governor: &Governor,
        progress: Progress<'_>,
    ) -> Result<Done, EtransferError> {
        let begun = Instant::now();
        let mut part = Part::open(directory, &fetched_name(name)?, true)?;
        let here = part.bytes();
        self.ask(&format!("read-file {here} {name}"))?;
        let (id, carried) = self.opened("Remain")?;
        let bytes =
            here.checked_add(carried).ok_or_else(|| self.protocol("an impossible length"))?;
        part.check_room(carried)?;
        if carried > 0 {
            let stream = self.connect_for_data()?;
            let fetched = self.with(&stream, governor, |carrier| {
                let header = Header { id: id.clone(), bytes: carried, push: true };
                carrier.say(header.to_string().as_bytes())?;
                let mut done = here;
                carrier.take(&mut part, &mut Vec::new(), carried, &mut |more| {
                    done += more;
                    progress(done, bytes);
                })?;
                part.finish()?;
                carrier.say(b"y")
            });
            self.or_stopped(fetched)?;
        } else {
            part.finish()?;
        }
        self.close(&id)?;
        let (path, seconds) = (part.path().to_owned(), begun.elapsed().as_secs_f64());
        Ok(Done { path, bytes, carried, seconds })
    }

    /// Lets the server close a file. All of it is there, so a failure does no harm.
    fn close(&mut self, id: &str) -> Result<(), EtransferError> {
        self.ask(&format!("remove-uuid {id}"))?;
        match self.answer() {
            Err(EtransferError::Refused { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn connect_for_data(&mut self) -> Result<TcpStream, EtransferError> {
        self.ask("data-channel-addr-ext")?;
        let answers = self.answers()?;
        let tcp =
            answers.iter().filter_map(|it| DataAddress::parse(it)).filter(DataAddress::is_tcp);
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for DataAddress { host, port, .. } in tcp {
            let found = (host.as_str(), port).to_socket_addrs().into_iter().flatten();
            addresses.extend(found.filter(|it| !it.ip().is_unspecified()));
            // It may listen at every address, or name one that only its own network knows.
            addresses.push(SocketAddr::new(self.address.ip(), port));
        }
        if addresses.is_empty() {
            return Err(EtransferError::NoTcp { peer: self.peer.clone() });
        }
        let connected = first_that_answers(addresses.into_iter());
        connected.map(|(stream, _)| stream).map_err(|source| self.lost(source))
    }

    /// Uses a data connection.
    fn with<T>(
        &self,
        stream: &TcpStream,
        governor: &Governor,
        work: impl FnOnce(&Carrier<'_>) -> Result<T, EtransferError>,
    ) -> Result<T, EtransferError> {
        let is_over = || self.stop.is_requested();
        let wire = Wire::new(stream, &is_over).map_err(|source| self.lost(source))?;
        work(&Carrier { wire, governor, peer: &self.peer, patience: self.patience })
    }

    fn or_stopped<T>(&self, result: Result<T, EtransferError>) -> Result<T, EtransferError> {
        match result {
            Err(EtransferError::Connection { .. }) if self.stop.is_requested() => {
                Err(EtransferError::Stopped)
            }
            other => other,
        }
    }

    fn lost(&self, source: io::Error) -> EtransferError {
        EtransferError::Connection { peer: self.peer.clone(), source }
    }

    fn protocol(&self, why: &str) -> EtransferError {
        EtransferError::Protocol { peer: self.peer.clone(), why: why.to_owned() }
    }

    fn ask(&mut self, request: &str) -> Result<(), EtransferError> {
        if request.contains(char::is_control) {
            return Err(EtransferError::Name(request.escape_debug().take(80).collect()));
        }
        let is_over = || self.stop.is_requested();
        let wire = Wire::new(&self.stream, &is_over).map_err(|source| self.lost(source))?;
        let said = wire.write_all(format!("{request}\n").as_bytes(), SILENCE);
        self.or_stopped(said.map_err(|source| self.lost(source)))
    }

    fn line(&mut self) -> Result<String, EtransferError> {
        let mut bytes = [0; 4096];
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => return Ok(line),
                Ok(None) => {}
                Err(error) => return Err(self.protocol(&error.to_string())),
            }
            let is_over = || self.stop.is_requested();
            let wire = Wire::new(&self.stream, &is_over).map_err(|source| self.lost(source))?;
            let read = wire
                .read(&mut bytes, ANSWER.min(self.patience))
                .map_err(|source| self.lost(source));
            match self.or_stopped(read)? {
                0 => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                count => self.lines.push(&bytes[..count]),
            }
        }
    }

    /// What follows `OK` on a line.
    fn good(&self, line: &str) -> Result<String, EtransferError> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim().chars().map(|it| if it.is_control() { '?' } else { it }).collect();
        match word.to_ascii_uppercase().as_str() {
            "OK" => Ok(rest),
            "ERR" => Err(EtransferError::Refused { peer: self.peer.clone(), why: rest }),
            _ => Err(self.protocol("an answer that is neither OK nor ERR")),
        }
    }

    /// The answer of one line.
    fn answer(&mut self) -> Result<String, EtransferError> {
        let line = self.line()?;
        self.good(&line)
    }

    /// The answer of many lines, up to an `OK` alone.
    fn answers(&mut self) -> Result<Vec<String>, EtransferError> {
        let mut all = Vec::new();
        loop {
            match self.answer()? {
                last if last.is_empty() => return Ok(all),
                _ if all.len() >= MOST_FILES => return Err(self.protocol("too many answers")),
                one => all.push(one),
            }
        }
    }

    /// The id of a file that was opened, and the number with this name.
    fn opened(&mut self, field: &str) -> Result<(String, u64), EtransferError> {
        let (mut id, mut number) = (None, None);
        loop {
            let line = self.line()?;
            match line.split_once(':') {
                Some((key, value)) if key.eq_ignore_ascii_case("uuid") => {
                    id = is_id(value).then(|| value.to_owned());
                }
                Some((key, value)) if key.eq_ignore_ascii_case(field) => {
                    number = value.trim().parse::<u64>().ok();
                }
                _ => {
                    self.good(&line)?;
                    let opened = id.zip(number);
                    return opened.ok_or_else(|| self.protocol("no id, or no length"));
                }
            }
        }
    }
}

/// Connects to the first address that answers.
fn first_that_answers(
    addresses: impl Iterator<Item = SocketAddr>,
) -> io::Result<(TcpStream, SocketAddr)> {
    let mut why = io::ErrorKind::NotFound.into();
    for address in addresses {
        match TcpStream::connect_timeout(&address, SILENCE) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => why = error,
        }
    }
    Err(why)
}
