//! Replays the bytes of a data port from a file as if a PandA sent them now.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use fullbore_formats::panda::{Decoder, Event, Want};

use super::device::{Captured, Data, Device};
use crate::{Error, Step};

/// Room for text between frames.
const STAGING_BYTES: usize = 4096;

/// The first line of every stream: the server accepts the options.
const GREETING: &[u8] = b"OK\n";

/// First words of a stream that was stored without the greeting.
const HEADERS: [&[u8]; 5] = [b"<header>", b"arm_time:", b"start_time:", b"missed:", b"process:"];

/// A stored stream. It has one connection, from its first byte to its last, and no control port.
#[derive(Debug)]
pub struct Dump {
    path: PathBuf,
    taken: bool,
}

impl Dump {
    /// The stream in the file at `path`.
    pub fn new(path: PathBuf) -> Self {
        Dump { path, taken: false }
    }

    /// The number of acquisitions that begin in the file, as far as it can be read. Without any, the reason is returned.
    pub fn acquisitions(&self) -> Result<u64, Error> {
        let mut data = Dump::new(self.path.clone()).connect()?;
        let mut begun = 0;
        loop {
            match data.skip() {
                Ok(Step::Event(Event::Start { .. })) => begun += 1,
                Ok(Step::Closed) | Err(Error::Data(_)) if begun > 0 => return Ok(begun),
                Ok(Step::Closed) => return Err(Error::Closed { host: data.path }),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn lost(&self, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        let host = self.path.display().to_string();
        move |source| Error::Connection { doing, host, source }
    }
}

/// An open dump file.
#[derive(Debug)]
pub struct DumpData {
    path: String,
    file: File,
    decoder: Decoder,
    staging: Vec<u8>,
    from: usize,
    pending: Option<Event>,
}

impl Device for Dump {
    type Data = DumpData;

    fn connect(&mut self) -> Result<DumpData, Error> {
        let path = self.path.display().to_string();
        if std::mem::replace(&mut self.taken, true) {
            return Err(Error::Closed { host: path });
        }
        let mut file = File::open(&self.path).map_err(self.lost("opening"))?;
        let mut staging = vec![0; STAGING_BYTES];
        let read = file.read(&mut staging).map_err(self.lost("reading"))?;
        staging.truncate(read);
        // A stored stream begins with the answer to the options or with the first header.
        if HEADERS.iter().any(|first| staging.starts_with(first)) {
            staging.splice(0..0, GREETING.iter().copied());
        }
        let decoder = Decoder::new();
        Ok(DumpData { path, file, decoder, staging, from: 0, pending: None })
    }

    fn arm(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn disarm(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn captured(&mut self) -> Captured {
        Captured::Unknown
    }

    fn is_alive(&mut self) -> bool {
        true
    }
}

impl DumpData {
    fn read(&self, room: &mut [u8]) -> Result<usize, Error> {
        loop {
            match (&self.file).read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let host = self.path.clone();
                    return Err(Error::Connection { doing: "reading", host, source });
                }
                Ok(bytes) => return Ok(bytes),
            }
        }
    }

    /// Waits for the next event, and skips the payload.
    fn skip(&mut self) -> Result<Step, Error> {
        let wanted = self.wants_payload();
        let staged = (self.staging.len() - self.from) as u64;
        if wanted <= staged {
            let mut room = [0; STAGING_BYTES];
            return self.next(&mut room);
        }
        // The next read detects a file that ends within the frame.
        let beyond = i64::try_from(wanted - staged).unwrap_or(i64::MAX);
        let host = self.path.clone();
        self.file.seek(SeekFrom::Current(beyond)).map_err(|source| Error::Connection {
            doing: "reading",
            host,
            source,
        })?;
        self.from = self.staging.len();
        self.pending = self.decoder.payload_taken(wanted);
        Ok(Step::Payload(0))
    }

    fn payload(&mut self, wanted: u64, room: &mut [u8]) -> Result<Step, Error> {
        let most = room.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
        let staged = &self.staging[self.from..];
        let bytes = match staged.len().min(most) {
            0 => self.read(&mut room[..most])?,
            bytes => {
                room[..bytes].copy_from_slice(&staged[..bytes]);
                self.from += bytes;
                bytes
            }
        };
        if bytes == 0 {
            return Ok(Step::Closed);
        }
        self.pending = self.decoder.payload_taken(bytes as u64);
        Ok(Step::Payload(bytes))
    }
}

impl Data for DumpData {
    fn wants_payload(&self) -> u64 {
        match self.decoder.want() {
            Want::Payload { bytes } if self.pending.is_none() => bytes,
            _ => 0,
        }
    }

    fn next(&mut self, room: &mut [u8]) -> Result<Step, Error> {
        loop {
            if let Some(event) = self.pending.take() {
                return Ok(Step::Event(event));
            }
            if let Want::Payload { bytes } = self.decoder.want() {
                return self.payload(bytes, room);
            }
            let (taken, event) = self.decoder.feed(&self.staging[self.from..])?;
            self.from += taken;
            if let Some(event) = event {
                return Ok(Step::Event(event));
            }
            if let Want::Text { at_most } = self.decoder.want() {
                let mut staging = std::mem::take(&mut self.staging);
                staging.resize(at_most.clamp(1, STAGING_BYTES), 0);
                let read = self.read(&mut staging)?;
                staging.truncate(read);
                (self.staging, self.from) = (staging, 0);
                if read == 0 {
                    return Ok(Step::Closed);
                }
            }
        }
    }
}
