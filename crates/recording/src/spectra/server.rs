//! The socket of a recorder, at which other processes see live spectra.
//!
//! A thread accepts, and each client has a thread of its own, which runs only when no other thread of the machine wants
//! to (`SCHED_IDLE`). It opens a tap when a client has asked, and closes it when the client is gone. No thread of the
//! recorder waits for any of them: the end of a recording tells them to end, and does not wait.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_core::endpoint::samples_of_source;
use fullbore_core::hint::{Hint, with_causes};
use fullbore_engine::recorder::RecordingConfig;
use fullbore_formats::samples::SampleLayout;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Tap, TapBlock, Taps};
use fullbore_linux::sys::sched;

use super::message::Message;
use super::place;
use super::request::{Checked, LONGEST, Request};
use super::watcher::Watcher;

/// Clients at once.
pub const MOST_CLIENTS: usize = 8;

/// How long a client may take for its request, and for a message.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time between two looks at whether the client is still there.
const LOOK: Duration = Duration::from_millis(200);

/// Serves live spectra until it is dropped.
#[derive(Debug)]
pub struct SpectraServer {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    taps: Taps,
    /// The samples of the streams that are described, by their numbers.
    described: Vec<(u16, SampleLayout)>,
    clients: AtomicUsize,
    ended: AtomicBool,
}

impl SpectraServer {
    /// Serves the streams of a recording, if it has a socket for that.
    ///
    /// # Errors
    ///
    /// The socket cannot be made, or its thread cannot start.
    pub fn of(config: &RecordingConfig) -> io::Result<Option<Self>> {
        let Some(path) = &config.spectra else { return Ok(None) };
        let numbers = config.numbers().into_iter().zip(&config.sources);
        let described = numbers
            .filter_map(|(number, source)| Some((number?, samples_of_source(&source.endpoint())?)));
        Self::start(path, config.taps.clone(), described.collect()).map(Some)
    }

    /// Serves the streams of these taps at a path.
    ///
    /// # Errors
    ///
    /// The socket cannot be made, or its thread cannot start.
    pub fn start(path: &Path, taps: Taps, described: Vec<(u16, SampleLayout)>) -> io::Result<Self> {
        let listener = place::listen(path)?;
        let (clients, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { taps, described, clients, ended });
        let of_thread = shared.clone();
        thread::Builder::new().name("spectra".into()).spawn(move || {
            for client in listener.incoming() {
                if of_thread.ended.load(Ordering::Acquire) {
                    return;
                }
                match client {
                    Ok(client) => accept(&of_thread, client),
                    // Too many open files, for example: later, there may be fewer.
                    Err(_) => thread::sleep(LOOK),
                }
            }
        })?;
        Ok(Self { path: path.to_owned(), shared })
    }
}

impl Drop for SpectraServer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts. If that fails, it ends with the process.
        let _ = place::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Starts the thread of a client, or sends the client away.
fn accept(shared: &Arc<Shared>, client: UnixStream) {
    let place = Place::take(shared);
    let spawned = place.map(|place| {
        thread::Builder::new().name("spectrum".into()).spawn(move || {
            // Without the policy it would be slower for others by its share; the kernel refuses it to nobody.
            if sched::run_last().is_ok() {
                // A client that is gone is no error of the recorder.
                let _ = serve(&place.0, client);
            }
        })
    });
    if let Some(Err(error)) = spawned {
        tracing::warn!(%error, "no thread for a client of live spectra");
    }
}

/// A place among the clients, given back when it is dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let before = shared.clients.fetch_add(1, Ordering::AcqRel);
        let place = Self(shared.clone());
        (before < MOST_CLIENTS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves one client until it is gone, it hangs, or the recording has ended.
fn serve(shared: &Shared, mut client: UnixStream) -> io::Result<()> {
    client.set_write_timeout(Some(PATIENCE))?;
    let asked = match Request::read(&request_line(&mut client)?) {
        Ok(asked) => asked,
        Err(error) => return refuse(&mut client, &with_causes(&error), None),
    };
    // From now on, a read only asks whether the client is there.
    client.set_read_timeout(Some(Duration::from_millis(1)))?;
    let every = Duration::from_secs(1) / asked.rows;
    let tap = shared.taps.open().only(asked.stream.clone());
    let mut blocks = Blocks { tap, shared, asked };
    let clock = Clock::new();
    let mut watcher: Option<Watcher> = None;
    let (mut due, mut looked) = (Instant::now(), Instant::now());
    while !shared.ended.load(Ordering::Acquire) {
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if !is_there(&mut client)? {
                return Ok(());
            }
        }
        thread::sleep(due.saturating_duration_since(Instant::now()).min(LOOK));
        if Instant::now() < due {
            continue;
        }
        let Some(block) = blocks.next(watcher.as_ref()) else { continue };
        due = Instant::now() + every;
        let watcher = watcher.get_or_insert_with(|| blocks.watcher(&block));
        match watcher.take(&block, clock.now()) {
            Ok(messages) => {
                for message in messages {
                    send(&mut client, &message)?;
                }
            }
            Err(error) => {
                let advice = error.hint();
                return refuse(&mut client, &with_causes(&error), advice.as_deref());
            }
        }
    }
    Ok(())
}

/// The blocks of the stream that was asked for.
struct Blocks<'a> {
    tap: Tap,
    shared: &'a Shared,
    asked: Checked,
}

impl Blocks<'_> {
    /// The newest block, as much of it as the watcher needs.
    fn next(&mut self, watcher: Option<&Watcher>) -> Option<TapBlock> {
        let bytes = watcher.map(Watcher::block_bytes);
        self.tap.at_most(bytes.unwrap_or(256 << 10));
        self.tap.next(LOOK)
    }

    fn watcher(&self, block: &TapBlock) -> Watcher {
        let number = block.stream_ref.number;
        let mut described = self.shared.described.iter();
        let described = described.find(|(of, _)| *of == number).map(|(_, layout)| layout.clone());
        Watcher::new(self.asked.clone(), described)
    }
}

/// The request: a line.
fn request_line(client: &mut UnixStream) -> io::Result<Vec<u8>> {
    let (until, mut line) = (Instant::now() + PATIENCE, Vec::new());
    let mut byte = [0];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match client.read(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte[0] == b'\n' => return Ok(line),
            Ok(_) if line.len() == LONGEST || left.is_zero() => {
                return Err(ErrorKind::InvalidData.into());
            }
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// True if the client has not closed the socket. What it sends is read and means nothing.
fn is_there(client: &mut UnixStream) -> io::Result<bool> {
    match client.read(&mut [0; 64]) {
        Ok(0) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(true),
            _ => Err(error),
        },
    }
}

fn refuse(client: &mut UnixStream, error: &str, advice: Option<&str>) -> io::Result<()> {
    let told = serde_json::json!({ "event": "refused", "error": error, "advice": advice });
    send(client, &Message::Text(told.to_string()))
}

/// Sends a message whole, or fails after the time that a client may take.
fn send(client: &mut UnixStream, message: &Message) -> io::Result<()> {
    let bytes = message.encode().ok_or(ErrorKind::InvalidData)?;
    let (until, mut rest) = (Instant::now() + PATIENCE, &bytes[..]);
    while !rest.is_empty() {
        match client.write(rest) {
            // A client that takes a byte now and then hangs too.
            _ if Instant::now() > until => return Err(ErrorKind::TimedOut.into()),
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::message::Decoder;
    use super::*;

    fn server(place: &Path) -> SpectraServer {
        SpectraServer::start(&place.join("spectra"), Taps::default(), Vec::new()).unwrap()
    }

    fn until(mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < end, "it never came");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The first message to a client that sent this.
    fn answer(server: &SpectraServer, request: &[u8]) -> Option<Message> {
        let mut client = place::connect(&server.path).unwrap();
        client.write_all(request).unwrap();
        let (mut decoder, mut buffer) = (Decoder::default(), [0; 1024]);
        loop {
            if let Some(message) = decoder.next_message().unwrap() {
                return Some(message);
            }
            match client.read(&mut buffer).unwrap_or(0) {
                0 => return None,
                bytes => decoder.feed(&buffer[..bytes]),
            }
        }
    }

    #[test]
    fn a_request_that_is_not_understood_is_answered_and_a_long_one_is_not() {
        let place = tempfile::tempdir().unwrap();
        let server = server(place.path());
        let Some(Message::Text(text)) = answer(&server, b"hello\n") else { panic!() };
        assert!(text.contains("refused") && text.contains("not understood"), "{text}");
        assert_eq!(answer(&server, &[b'x'; 2 * LONGEST]), None);
    }

    #[test]
    fn clients_have_a_bound_and_a_tap_is_open_only_while_one_looks() {
        let place = tempfile::tempdir().unwrap();
        let server = server(place.path());
        let shared = server.shared.clone();
        assert!(!shared.taps.are_open());
        let looks = |_| {
            let mut client = place::connect(&server.path).unwrap();
            client.write_all(b"{\"stream\":\"a\"}\n").unwrap();
            client
        };
        let mut clients: Vec<_> = (0..MOST_CLIENTS).map(looks).collect();
        until(|| shared.clients.load(Ordering::Acquire) == MOST_CLIENTS && shared.taps.are_open());
        assert_eq!(answer(&server, b""), None, "one more is sent away");
        clients.truncate(1);
        until(|| shared.clients.load(Ordering::Acquire) == 1);
        assert!(shared.taps.are_open());
        drop(server);
        until(|| shared.clients.load(Ordering::Acquire) == 0);
        assert!(!shared.taps.are_open(), "the recording has ended");
        assert!(!place.path().join("spectra").exists());
        assert_eq!(clients[0].read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up() {
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let row = Message::Row(vec![0; 60_000]);
        let error = loop {
            if let Err(error) = send(&mut ours, &row) {
                break error;
            }
        };
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    }
}
