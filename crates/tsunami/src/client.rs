//! The client: lists the files of a server, and fetches them one after the other.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::receive::{Listen, Received, Receiver};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::codec::{
    self, CHALLENGE_BYTES, DIRECTORY, Feedback, FileHead, GOOD, HEAD_BYTES, LARGEST_BLOCK,
    LONGEST_NAME, Parameters, REVISION, decode_head,
};
use crate::error::TsunamiError;
use crate::fetching::{Fetching, MOST_BLOCKS, State};
use crate::{DEFAULT_PORT, SILENCE};
use fullbore_transfer::files::Listed;

/// The usual receive buffer of the protocol.
const BUFFER_BYTES: usize = 20 << 20;

/// Messages that are received with one call, and the bytes of each.
const MESSAGES: usize = 16;
const MESSAGE_BYTES: usize = 1 << 16;

/// The most files in a listing.
const MOST_FILES: usize = 65_536;

/// The longest name here.
const LONGEST_LOCAL: usize = 200;

/// Time between two looks at the clock while nothing arrives.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// A connection to a server.
pub struct Client {
    stream: TcpStream,
    address: SocketAddr,
    peer: String,
    round_trip: Duration,
    /// Bit/s.
    rate: u32,
}

/// A fetched file.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The file here.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Blocks that were asked for again.
    pub resends: u64,
    /// The time it took.
    pub seconds: f64,
}

impl Client {
    /// Connects to `HOST[:PORT]` and proves to know the secret.
    pub fn connect(host: &str, secret: &[u8], rate: u32) -> Result<Self, TsunamiError> {
        let lost = |source| TsunamiError::Connection { peer: host.to_owned(), source };
        let mut addresses = match host.to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(_) => {
                (host.trim_matches(['[', ']']), DEFAULT_PORT).to_socket_addrs().map_err(lost)?
            }
        };
        let address = addresses.next().ok_or_else(|| lost(io::ErrorKind::NotFound.into()))?;
        let begun = Instant::now();
        let stream = TcpStream::connect_timeout(&address, SILENCE).map_err(lost)?;
        let round_trip = begun.elapsed();
        let settings = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(SILENCE)))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE)));
        settings.map_err(lost)?;
        let mut client = Self { stream, address, peer: host.to_owned(), round_trip, rate };
        client.greet(secret)?;
        Ok(client)
    }

    fn greet(&mut self, secret: &[u8]) -> Result<(), TsunamiError> {
        self.send(&REVISION.to_be_bytes())?;
        let revision = u32::from_be_bytes(self.receive()?);
        if revision != REVISION {
            return Err(TsunamiError::Revision { peer: self.peer.clone(), revision });
        }
        let challenge: [u8; CHALLENGE_BYTES] = self.receive()?;
        self.send(&codec::proof(&challenge, secret))?;
        match self.receive()? {
            [GOOD] => Ok(()),
            _ => Err(TsunamiError::Secret { peer: self.peer.clone() }),
        }
    }

    /// The files that the server offers. A server may offer none and still have files.
    pub fn list(&mut self) -> Result<Vec<Listed>, TsunamiError> {
        self.send(format!("{DIRECTORY}\n").as_bytes())?;
        let text = self.text()?;
        let count: usize = text.parse().map_err(|_| self.protocol("no number of files"))?;
        if count > MOST_FILES {
            return Err(self.protocol("too many files"));
        }
        let mut listed = Vec::new();
        for _ in 0..count {
            let name = self.text()?;
            let bytes = self.text()?.parse().map_err(|_| self.protocol("no size"))?;
            listed.push(Listed { name, bytes });
        }
        self.send(b"1")?;
        Ok(listed)
    }

    /// Fetches a file into a directory. It has its name once all of it is there, and `.part` after it until then.
    pub fn fetch(
        &mut self,
        name: &str,
        directory: &Path,
        stop: &StopHandle,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Fetched, TsunamiError> {
        let path = directory.join(local_name(name)?);
        if path.symlink_metadata().is_ok() {
            return Err(TsunamiError::Exists(path));
        }
        let head = self.request(name)?;
        check_room(directory, name, head.length)?;
        let part = Part::create(&path)?;
        let begun = Instant::now();
        let fetching = self.receive_file(&head, &part, stop, progress)?;
        let seconds = begun.elapsed().as_secs_f64();
        part.finish(&path)?;
        Ok(Fetched { path, bytes: head.length, resends: fetching.resends(), seconds })
    }

    /// Asks for a file.
    fn request(&mut self, name: &str) -> Result<FileHead, TsunamiError> {
        self.send(format!("{name}\n").as_bytes())?;
        if self.receive::<1>()? != [GOOD] {
            let (peer, name) = (self.peer.clone(), name.to_owned());
            return Err(TsunamiError::NotReadable { peer, name });
        }
        let block = self.block_bytes();
        self.send(&Parameters::usual(block, self.rate).encode())?;
        let head = FileHead::decode(&self.receive()?);
        match FileHead::of(head.length, block, head.epoch) {
            Some(right) if right == head && (1..=MOST_BLOCKS).contains(&head.blocks) => Ok(head),
            _ => Err(self.protocol("sizes that do not fit each other, or no blocks, or too many")),
        }
    }

    /// A block that fits a packet on this path.
    fn block_bytes(&self) -> u32 {
        let mss = socket2::SockRef::from(&self.stream).tcp_mss().unwrap_or(1448);
        // The segment has its headers and perhaps a time stamp aside; the datagram has less, and a head of its own.
        (mss.saturating_sub(8) & !7).clamp(1024, 32_768).min(LARGEST_BLOCK)
    }

    fn receive_file(
        &mut self,
        head: &FileHead,
        part: &Part,
        stop: &StopHandle,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Fetching, TsunamiError> {
        let local = self.stream.local_addr().map_err(|source| self.lost(source))?;
        let address = SocketAddr::new(local.ip(), 0);
        let listen =
            Listen { address, interface: None, buffer_bytes: BUFFER_BYTES, holds_only: false };
        let mut receiver = Receiver::listen(&listen, true)?;
        receiver.merge(true);
        let port = receiver.address().map_or(0, |it| it.port());
        self.send(&port.to_be_bytes())?;
        let mut arriving = Arriving {
            head,
            file: &part.file,
            server: self.address,
            fetching: Fetching::new(head.blocks, self.round_trip),
            memory: vec![0; MESSAGES * MESSAGE_BYTES],
            begun: Instant::now(),
        };
        loop {
            let full = arriving.take(&mut receiver).map_err(|source| part.error(source))?;
            let at = arriving.begun.elapsed();
            let left = arriving.fetching.left();
            match arriving.fetching.state(at) {
                State::Whole => break,
                State::Silent => {
                    return Err(TsunamiError::Silent { peer: self.peer.clone(), left });
                }
                State::Going if stop.is_requested() => return Err(TsunamiError::Stopped),
                State::Going => {}
            }
            let told = arriving.fetching.report(at, if full { 0.05 } else { 0.0 });
            if !told.is_empty() {
                let bytes: Vec<u8> = told.iter().flat_map(|it| it.encode()).collect();
                self.send(&bytes)?;
                let done = u64::from(head.blocks - left) * u64::from(head.block);
                progress(done.min(head.length), head.length);
            }
            if !full {
                let mut socket = [PollFd::new(&receiver, PollFlags::IN)];
                // A failed wait is only shorter.
                let _ = poll(&mut socket, Some(&LOOK));
            }
        }
        self.send(&Feedback::Stop.encode())?;
        Ok(arriving.fetching)
    }

    fn lost(&self, source: io::Error) -> TsunamiError {
        TsunamiError::Connection { peer: self.peer.clone(), source }
    }

    fn protocol(&self, why: &str) -> TsunamiError {
        TsunamiError::Protocol { peer: self.peer.clone(), why: why.to_owned() }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), TsunamiError> {
        self.stream.write_all(bytes).map_err(|source| self.lost(source))
    }

    fn receive<const N: usize>(&mut self) -> Result<[u8; N], TsunamiError> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(|source| self.lost(source))?;
        Ok(bytes)
    }

    /// Text up to a zero byte.
    fn text(&mut self) -> Result<String, TsunamiError> {
        let mut text = Vec::new();
        loop {
            match self.receive()? {
                [0] => break,
                [byte] if text.len() < LONGEST_NAME => text.push(byte),
                _ => return Err(self.protocol("a name without an end")),
            }
        }
        let text = String::from_utf8_lossy(&text);
        Ok(text.chars().map(|it| if it.is_control() { '?' } else { it }).collect())
    }
}

/// A file that arrives.
struct Arriving<'a> {
    head: &'a FileHead,
    file: &'a File,
    server: SocketAddr,
    fetching: Fetching,
    memory: Vec<u8>,
    begun: Instant,
}

impl Arriving<'_> {
    /// Takes the datagrams that have come. True if there may be more.
    fn take(&mut self, receiver: &mut Receiver) -> io::Result<bool> {
        let mut slices: Vec<IoSliceMut<'_>> =
            self.memory.chunks_mut(MESSAGE_BYTES).map(IoSliceMut::new).collect();
        let mut received = [Received::default(); MESSAGES];
        let count = receiver.receive(&mut slices, 1, &mut received)?;
        let at = self.begun.elapsed();
        let server = self.server.ip().to_canonical();
        for (message, memory) in received[..count].iter().zip(self.memory.chunks(MESSAGE_BYTES)) {
            if message.sender.is_some_and(|sender| sender.to_canonical() != server) {
                continue;
            }
            let bytes = &memory[..message.bytes.min(MESSAGE_BYTES)];
            for datagram in bytes.chunks(message.segment.unwrap_or(MESSAGE_BYTES)) {
                let right = datagram.len() == HEAD_BYTES + self.head.block as usize;
                let Some((number, kind)) = decode_head(datagram).filter(|_| right) else {
                    continue;
                };
                if let Some((offset, count)) = self.head.place(number)
                    && self.fetching.take(at, number, kind)
                {
                    self.file.write_all_at(&datagram[HEAD_BYTES..HEAD_BYTES + count], offset)?;
                }
            }
        }
        Ok(!receiver.emptied())
    }
}

/// A file that is not whole yet, under a name that goes when it does.
struct Part {
    path: PathBuf,
    file: File,
}

impl Part {
    fn create(path: &Path) -> Result<Self, TsunamiError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let opened = OpenOptions::new().write(true).create_new(true).open(&path);
        match opened {
            Ok(file) => Ok(Self { path, file }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(TsunamiError::Exists(path))
            }
            Err(source) => Err(TsunamiError::File { path, source }),
        }
    }

    fn error(&self, source: io::Error) -> TsunamiError {
        TsunamiError::File { path: self.path.clone(), source }
    }

    /// Gives the file its name, once it is on the disk.
    fn finish(self, path: &Path) -> Result<(), TsunamiError> {
        self.file.sync_all().map_err(|source| self.error(source))?;
        // Unlike a rename, a link never replaces a file that has appeared in the meantime.
        std::fs::hard_link(&self.path, path).map_err(|source| self.error(source))?;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // A whole file has another name by now. What cannot be removed is seen by its name.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The name here of a file there: `SCAN/STREAM.vdif` becomes `SCAN_STREAM.vdif`, and of any other path the last part
/// counts.
pub fn local_name(name: &str) -> Result<String, TsunamiError> {
    let parts: Vec<&str> = name.split('/').collect();
    let local = match parts[..] {
        [scan, stream] if !scan.is_empty() && !scan.starts_with('.') => format!("{scan}_{stream}"),
        _ => parts.last().map_or_else(String::new, ToString::to_string),
    };
    let fault = name.len() > LONGEST_NAME
        || name.contains(char::is_control)
        || local.len() > LONGEST_LOCAL
        || local.is_empty()
        || parts.last().is_none_or(|part| part.is_empty() || part.starts_with('.'));
    if fault { Err(TsunamiError::Name(name.to_owned())) } else { Ok(local) }
}

fn check_room(directory: &Path, name: &str, wanted: u64) -> Result<(), TsunamiError> {
    let room = rustix::fs::statvfs(directory)
        .map_err(|error| TsunamiError::File { path: directory.to_owned(), source: error.into() })?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    if wanted > free {
        let (directory, name) = (directory.to_owned(), name.to_owned());
        return Err(TsunamiError::NoRoom { directory, free, name, wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_here_are_never_paths() {
        for (there, here) in [
            ("r1_a/46220.vdif", "r1_a_46220.vdif"),
            ("/data/x.m5b", "x.m5b"),
            ("x", "x"),
            ("../../etc/passwd", "passwd"),
            ("a/b/c", "c"),
            ("../x", "x"),
        ] {
            assert_eq!(local_name(there).unwrap(), here);
        }
        let long = "a".repeat(300);
        for wrong in ["", "/", "a/", "..", ".", "a/..", "a/b/..", ".bashrc", "a\nb", "a\0", &long] {
            assert!(matches!(local_name(wrong), Err(TsunamiError::Name(_))), "{wrong}");
        }
    }
}
