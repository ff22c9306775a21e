//! One connection to the data port of a simulated PandA.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use fullbore_core::pattern::mixed;
use fullbore_formats::panda::{EndReason, Header, Process};

use super::acquisition::{Acquisition, Ready};
use super::fault::What;
use super::replay::{Cursor, Replay};
use super::samples::{Indices, Layout, base64, bytes};
use super::{ServerEvent, Shared};

/// The longest line of options.
const LONGEST_LINE: u64 = 1024;

/// Bytes of samples generated at a time, few enough to be sent from the cache.
const PIECE_BYTES: usize = 256 << 10;

/// The most payload of a scaled frame.
const SCALED_BYTES: u64 = 65_528;

/// Bytes of a line of base64.
const BASE64_BYTES: usize = 57;

/// The options that a client requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Options {
    form: Form,
    process: Process,
    xml: bool,
    header: bool,
    status: bool,
    one_shot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Ascii,
    Base64,
    Framed,
    Unframed,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Ascii => "ASCII",
            Form::Base64 => "Base64",
            Form::Framed => "Framed",
            Form::Unframed => "Unframed",
        }
    }
}

impl Options {
    fn read(line: &str) -> Result<Options, &'static str> {
        let default = Options {
            form: Form::Ascii,
            process: Process::Scaled,
            xml: false,
            header: true,
            status: true,
            one_shot: false,
        };
        let mut options = default;
        if line.contains('\r') {
            return Err("Cannot process CR character");
        }
        if line.is_empty() {
            return Ok(options);
        }
        for word in line.split(' ') {
            match word {
                "ASCII" => options.form = Form::Ascii,
                "BASE64" => options.form = Form::Base64,
                "FRAMED" => options.form = Form::Framed,
                "UNFRAMED" => options.form = Form::Unframed,
                "SCALED" => options.process = Process::Scaled,
                "RAW" => options.process = Process::Raw,
                "XML" => options.xml = true,
                "NO_HEADER" => options.header = false,
                "NO_STATUS" => options.status = false,
                "ONE_SHOT" => options.one_shot = true,
                "DEFAULT" => options = default,
                "BARE" => {
                    options = Options {
                        form: Form::Unframed,
                        process: Process::Raw,
                        xml: false,
                        header: false,
                        status: false,
                        one_shot: true,
                    };
                }
                "" => return Err("No name found"),
                _ => return Err("Invalid data capture option"),
            }
        }
        Ok(options)
    }
}

/// The reason of a connection's end.
#[derive(Debug)]
enum Stop {
    /// The other side has closed, or the server is shutting down.
    Gone,
    /// A fault closed the connection.
    Died,
    /// The recording cannot be read.
    Unreadable(String),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Stop::Gone
    }
}

/// Serves one connection until it ends.
pub(super) fn serve(shared: &Arc<Shared>, socket: TcpStream) {
    let mut reader = BufReader::new(match socket.try_clone() {
        Ok(socket) => socket.take(LONGEST_LINE),
        Err(_) => return,
    });
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line).is_err() || line.pop() != Some(b'\n') {
        return;
    }
    let _ = socket.set_nodelay(true);
    let mut sender = Sender { socket, split: shared.plan.split, seed: shared.plan.seed, pieces: 0 };
    let options = match Options::read(&String::from_utf8_lossy(&line)) {
        Ok(options) => options,
        Err(text) => {
            let _ = sender.send(format!("ERR {text}\n").as_bytes());
            let _ = sender.socket.shutdown(Shutdown::Both);
            return;
        }
    };
    let reader = shared.reader();
    let _ = acquisitions(shared, &mut sender, options);
    drop(reader);
    let _ = sender.socket.shutdown(Shutdown::Both);
}

fn acquisitions(shared: &Arc<Shared>, sender: &mut Sender, options: Options) -> Result<(), Stop> {
    let mut last = shared.latest_over();
    if options.status {
        sender.send(b"OK\n")?;
    }
    if let Some(dump) = &shared.plan.dump {
        sender.send(dump.strip_prefix(b"OK\n".as_slice()).unwrap_or(dump))?;
        shared.wait_for_close(&sender.socket);
        return Ok(());
    }
    while let Some(acquisition) = shared.next(last, &sender.socket) {
        last = acquisition.number;
        let layout = acquisition.layout(options.process);
        let mut reader = Reader {
            shared,
            acquisition: &acquisition,
            layout,
            options,
            position: 0,
            sent: 0,
            buffer: Vec::new(),
            cursor: None,
        };
        reader.acquisition(sender)?;
        if options.one_shot {
            break;
        }
    }
    Ok(())
}

/// One connection within one acquisition.
struct Reader<'a> {
    shared: &'a Shared,
    acquisition: &'a Acquisition,
    layout: &'a Layout,
    options: Options,
    /// Index of the next sample.
    position: u64,
    sent: u64,
    buffer: Vec<u32>,
    /// The position in the recording, if one is served.
    cursor: Option<Cursor<'a>>,
}

impl Reader<'_> {
    fn acquisition(&mut self, sender: &mut Sender) -> Result<(), Stop> {
        if self.acquisition.fault(u64::MAX, |what| *what == What::Drop).is_some() {
            return Err(Stop::Died);
        }
        let active = self.shared.active();
        self.position = self.acquisition.join();
        let missed = self.position;
        if self.options.header {
            sender.send(self.header().as_bytes())?;
        }
        let ended = self.frames(sender);
        // Before the END line: a client that has read the line may arm at once.
        drop(active);
        let told = match &ended {
            Ok(reason) => reason.to_string(),
            Err(Stop::Died) => "died".to_owned(),
            Err(Stop::Gone) => "gone".to_owned(),
            Err(Stop::Unreadable(why)) => why.clone(),
        };
        let (number, samples) = (self.acquisition.number, self.sent);
        self.shared.tell(ServerEvent::Reader { number, missed, samples, ending: told });
        let reason = ended?;
        if self.options.status {
            let wrong = self.acquisition.fault(u64::MAX, |what| *what == What::Count);
            let counted =
                self.sent + wrong.map_or(0, |_| 1 + mixed(self.shared.plan.seed, 0) % 1000);
            sender.send(format!("END {counted} {reason}\n").as_bytes())?;
        }
        Ok(())
    }

    fn header(&self) -> String {
        let replayed = self.shared.plan.replay.as_ref().map(|replay| replay.header());
        let (arm_time, start_time, hw_time_offset_ns) = match replayed {
            Some(header) => (header.arm_time, header.start_time, header.hw_time_offset_ns),
            None => (Some(self.acquisition.armed), Some(self.acquisition.started), None),
        };
        let header = Header {
            arm_time,
            start_time,
            hw_time_offset_ns,
            missed: self.position,
            process: self.layout.process,
            sample_bytes: self.layout.sample_bytes,
            fields: self.layout.fields.clone(),
        };
        let form = self.options.form.name();
        if self.options.xml {
            let xml = header.to_xml();
            xml.replace("format=\"Framed\"", &format!("format=\"{form}\"")) + "\n"
        } else {
            header.to_text().replace("format: Framed\n", &format!("format: {form}\n")) + "\n"
        }
    }

    /// Sends frames until the acquisition ends or the writer laps this reader.
    fn frames(&mut self, sender: &mut Sender) -> Result<EndReason, Stop> {
        loop {
            let end = match self.acquisition.wait(self.position) {
                Ready::Upto(end) => end,
                Ready::Over(reason) => return Ok(reason),
                Ready::Closing => return Err(Stop::Gone),
            };
            match self.layout.process {
                Process::Raw => {
                    // The block is sent directly from the ring, and only then checked.
                    let block = self.position;
                    self.frame(sender, end)?;
                    if self.is_lapped(block) {
                        return Ok(EndReason::DataOverrun);
                    }
                }
                Process::Scaled => {
                    let most = (SCALED_BYTES / u64::from(self.layout.sample_bytes)).max(1);
                    while self.position < end {
                        let part = end.min(self.position + most);
                        if self.acquisition.fault(part, |what| *what == What::Overrun).is_some() {
                            self.acquisition.lap(self.position);
                        }
                        if self.is_lapped(self.position) {
                            return Ok(EndReason::DataOverrun);
                        }
                        self.frame(sender, part)?;
                    }
                }
            }
        }
    }

    fn is_lapped(&self, position: u64) -> bool {
        self.acquisition.oldest() > position
    }

    fn stall(&self, end: u64) {
        while let Some(fault) = self.acquisition.fault(end, |what| matches!(what, What::Stall(_))) {
            if let What::Stall(pause) = fault.what {
                self.acquisition.stall(pause);
            }
        }
    }

    /// Sends the samples up to `end` as one frame.
    fn frame(&mut self, sender: &mut Sender, end: u64) -> Result<(), Stop> {
        let sample_bytes = u64::from(self.layout.sample_bytes);
        let samples = end - self.position;
        if self.acquisition.fault(end, |what| *what == What::Empty).is_some()
            && self.options.form == Form::Framed
        {
            sender.send(b"BIN \x08\0\0\0")?;
        }
        if self.options.form == Form::Framed {
            let mut length = (samples * sample_bytes + 8) as u32;
            if self.acquisition.fault(end, |what| *what == What::Length).is_some() {
                length += 3;
            }
            sender.send(&[b"BIN ".as_slice(), &length.to_le_bytes()].concat())?;
        }
        let piece = (PIECE_BYTES as u64 / sample_bytes).max(1);
        while self.position < end {
            let part = end.min(self.position + piece);
            self.piece(sender, part)?;
            self.sent += part - self.position;
            self.position = part;
        }
        if self.acquisition.fault(end, |what| *what == What::Rubbish).is_some() {
            let mut rubbish = [b'?'; 64];
            for (n, byte) in (1..).zip(&mut rubbish[1..]) {
                *byte = mixed(self.shared.plan.seed, n) as u8;
            }
            sender.send(&rubbish)?;
            return Err(Stop::Died);
        }
        Ok(())
    }

    fn piece(&mut self, sender: &mut Sender, end: u64) -> Result<(), Stop> {
        let samples = (end - self.position) as usize;
        self.stall(end);
        if self.acquisition.fault(end, |what| *what == What::Overrun).is_some() {
            self.acquisition.lap(self.position);
        }
        let (ring, oldest) = (self.acquisition.ring(), self.acquisition.oldest());
        let indices = match oldest > self.position && self.layout.process == Process::Raw {
            true => Indices::Lapped { ring, written: oldest + ring },
            false => Indices::True,
        };
        match &self.shared.plan.replay {
            None => self.layout.fill(self.position, indices, &mut self.buffer, samples),
            Some(replay) => self.replay(replay, indices, samples)?,
        }
        let sample_bytes = self.layout.sample_bytes as usize;
        let payload = bytes(&self.buffer);
        if let Some(fault) = self.acquisition.fault(end, |what| *what == What::Die) {
            let whole = fault.at.saturating_sub(self.position) as usize * sample_bytes;
            let _ = sender.send(&payload[..(whole + sample_bytes / 2).min(payload.len())]);
            return Err(Stop::Died);
        }
        match self.options.form {
            Form::Framed | Form::Unframed => sender.send(payload)?,
            Form::Ascii => sender.send(self.layout.ascii(payload).as_bytes())?,
            Form::Base64 => {
                let lines = base64(payload, BASE64_BYTES).map(|line| format!(" {line}\0\n"));
                sender.send(lines.collect::<String>().as_bytes())?;
            }
        }
        Ok(())
    }
}

impl<'a> Reader<'a> {
    /// Reads recorded samples. Lapped samples are replaced by values that were not recorded.
    fn replay(&mut self, replay: &'a Replay, indices: Indices, samples: usize) -> Result<(), Stop> {
        let unreadable = |error: super::ReplayError| Stop::Unreadable(error.to_string());
        let cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => replay.cursor(self.position).map_err(unreadable)?,
        };
        let cursor = self.cursor.insert(cursor);
        cursor.fill(self.layout, &mut self.buffer, samples).map_err(unreadable)?;
        if let Indices::Lapped { .. } = indices {
            self.buffer.fill(u32::MAX);
        }
        Ok(())
    }
}

/// Writes all at once, or in pieces as small as a network can make them.
struct Sender {
    socket: TcpStream,
    split: bool,
    seed: u64,
    pieces: u64,
}

impl Sender {
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.split {
            return self.socket.write_all(bytes);
        }
        while !bytes.is_empty() {
            self.pieces += 1;
            let chance = mixed(self.seed, self.pieces);
            let most = [7, 1460, 1460, 65_536][(chance >> 62) as usize];
            let size = (1 + (chance % most) as usize).min(bytes.len());
            self.socket.write_all(&bytes[..size])?;
            bytes = &bytes[size..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_a_server_reads_them() {
        let raw = Options::read("XML FRAMED RAW").unwrap();
        assert_eq!((raw.form, raw.process, raw.xml), (Form::Framed, Process::Raw, true));
        let default = Options::read("").unwrap();
        assert_eq!((default.form, default.process), (Form::Ascii, Process::Scaled));
        assert!(!Options::read("BARE").unwrap().status);
        assert_eq!(Options::read("XML DEFAULT"), Ok(default));
        for (line, text) in [
            ("XML UNSCALED", "Invalid data capture option"),
            ("xml", "Invalid data capture option"),
            ("XML ", "No name found"),
            ("XML\r", "Cannot process CR character"),
        ] {
            assert_eq!(Options::read(line), Err(text));
        }
    }
}
