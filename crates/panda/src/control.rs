//! The control port of a PandA: commands and answers in sequence.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fullbore_core::panda::PandaSource;
use fullbore_formats::panda::MOST_SAMPLES;
use fullbore_formats::panda::control::{
    self as lines, Answer, Answers, Captured, Client, Identity, MOST_SETTINGS_BYTES, Request,
    Settings, Status,
};

use super::{Error, Timeouts, connect, is_timeout, left};

/// Time between two queries of a busy PandA, which only answers and tells nothing by itself.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The most tables, and bit words, that are queried.
const MOST_NAMED: usize = 64;

/// A connection to the control port.
#[derive(Debug)]
pub struct ControlPort {
    host: String,
    socket: TcpStream,
    answers: Answers,
    timeouts: Duration,
}

impl ControlPort {
    /// Connects.
    pub fn connect(source: &PandaSource, timeouts: Timeouts) -> Result<Self, Error> {
        let socket = connect(&source.host, source.control_port, timeouts.connect)?;
        let (host, answers) = (source.host.clone(), Answers::default());
        Ok(ControlPort { host, socket, answers, timeouts: timeouts.answer })
    }

    /// `*IDN?`
    pub fn identify(&mut self) -> Result<Identity, Error> {
        let text = self.value("*IDN")?;
        Identity::read(&text).ok_or_else(|| unexpected("*IDN?", &text))
    }

    /// The fields that are captured now: `*CAPTURE?`
    pub fn captured_fields(&mut self) -> Result<Vec<Captured>, Error> {
        self.fields("*CAPTURE")
    }

    /// The names of all fields that can be captured: `*CAPTURE.*?`
    pub fn capturable(&mut self) -> Result<Vec<String>, Error> {
        Ok(self.fields("*CAPTURE.*")?.into_iter().map(|captured| captured.field).collect())
    }

    /// The capture options of a position: `*CAPTURE.OPTIONS?`
    pub fn capture_options(&mut self) -> Result<Vec<String>, Error> {
        self.lines("*CAPTURE.OPTIONS")
    }

    /// Captures these fields and no others.
    pub fn set_capture(&mut self, fields: &[Captured]) -> Result<(), Error> {
        self.set("*CAPTURE", "")?;
        for field in fields {
            self.set(&format!("{}.CAPTURE", field.field), &field.options.join(" "))?;
        }
        Ok(())
    }

    /// Arms. Open data connections first.
    pub fn arm(&mut self) -> Result<(), Error> {
        self.set("*PCAP.ARM", "")
    }

    /// Arms, and retries while readers still drain the last acquisition. Does not wait for an acquisition that is still
    /// armed.
    pub fn arm_when_drained(&mut self, timeouts: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let refused = match self.arm() {
                Err(error @ Error::Refused { .. }) => error,
                other => return other,
            };
            let status = self.status()?;
            if status.busy || status.active == 0 || left(timeouts, begun).is_none() {
                return Err(refused);
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Ends the acquisition if one is running.
    pub fn disarm(&mut self) -> Result<(), Error> {
        self.set("*PCAP.DISARM", "")
    }

    /// `*PCAP.STATUS?`
    pub fn status(&mut self) -> Result<Status, Error> {
        let text = self.value("*PCAP.STATUS")?;
        Status::read(&text).ok_or_else(|| unexpected("*PCAP.STATUS?", &text))
    }

    /// `*PCAP.COMPLETION?`: `Busy`, `Ok`, or the reason why the hardware ended it.
    pub fn completion(&mut self) -> Result<String, Error> {
        self.value("*PCAP.COMPLETION")
    }

    /// Samples in the current acquisition or the latest: `*PCAP.CAPTURED?`
    pub fn captured(&mut self) -> Result<u64, Error> {
        let text = self.value("*PCAP.CAPTURED")?;
        let samples = text.trim().parse().ok().filter(|&samples| samples <= MOST_SAMPLES);
        samples.ok_or_else(|| unexpected("*PCAP.CAPTURED?", &text))
    }

    /// The number of samples of the acquisition once it is over; `None` if it is not over in time. Call before another
    /// ARM.
    pub fn captured_at_end(&mut self, timeouts: Duration) -> Result<Option<u64>, Error> {
        let begun = Instant::now();
        while self.completion()? == "Busy" {
            if left(timeouts, begun).is_none() {
                return Ok(None);
            }
            std::thread::sleep(ASK_AGAIN);
        }
        self.captured().map(Some)
    }

    /// The connected clients, including this connection, if the server supports it: `*WHO?`
    pub fn clients(&mut self) -> Result<Option<Vec<Client>>, Error> {
        match self.lines("*WHO") {
            Ok(lines) => Ok(Some(lines.iter().filter_map(|line| Client::read(line)).collect())),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The local address of the connection.
    pub fn made_from(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// The clock rate of time stamps, if the server reports it: `*CLOCK_FREQ?`
    pub fn clock_hz(&mut self) -> Result<Option<f64>, Error> {
        match self.value("*CLOCK_FREQ") {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All settings that document the configuration of the PandA. Leaves out settings that an older server does not
    /// know, and values that are too long to keep. The query returns changes since the last query on this connection,
    /// so use a separate connection.
    pub fn settings(&mut self) -> Result<Settings, Error> {
        let capture = self.lines("*CAPTURE")?;
        let mut settings = Settings {
            identity: self.identify()?.text,
            config: self.lines_if_known("*CHANGES.CONFIG")?,
            attributes: self.lines_if_known("*CHANGES.ATTR")?,
            ..Settings::default()
        };
        let captured = capture.iter().filter_map(|line| Captured::read(line));
        let words = captured.filter(|captured| captured.field.starts_with("PCAP.BITS"));
        for field in words.map(|captured| captured.field).take(MOST_NAMED) {
            let bits = self.lines_if_known(&format!("{field}.BITS"))?;
            settings.bits.push((field, bits));
        }
        settings.capture = capture;
        for line in self.lines_if_known("*CHANGES.TABLE")?.into_iter().take(MOST_NAMED) {
            let name = line.trim_end_matches('<').to_owned();
            let rows = self.lines_if_known(&format!("{name}.B"))?;
            settings.tables.push((name, rows));
            settings = settings.bounded(MOST_SETTINGS_BYTES);
        }
        Ok(settings.bounded(MOST_SETTINGS_BYTES))
    }

    /// The value of any setting.
    pub fn value(&mut self, what: &str) -> Result<String, Error> {
        let request = Request::ask(what);
        match self.ask(&request)? {
            Answer::Value(value) => Ok(value),
            other => Err(not_so(&request, other)),
        }
    }

    /// The lines of any setting.
    pub fn lines(&mut self, what: &str) -> Result<Vec<String>, Error> {
        let request = Request::ask(what);
        match self.ask(&request)? {
            Answer::Lines(lines) => Ok(lines),
            other => Err(not_so(&request, other)),
        }
    }

    /// Sets any setting.
    pub fn set(&mut self, what: &str, value: &str) -> Result<(), Error> {
        let request = Request::set(what, value);
        match self.ask(&request)? {
            Answer::Ok => Ok(()),
            other => Err(not_so(&request, other)),
        }
    }

    /// Sends one request and waits for its answer. After an error, requests and answers no longer match on this
    /// connection.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, Error> {
        let lost = |host: &str, doing| {
            let host = host.to_owned();
            move |source| Error::Connection { doing, host, source }
        };
        self.socket.write_all(&request.bytes()?).map_err(lost(&self.host, "asking"))?;
        let begun = Instant::now();
        let mut bytes = [0; 16 << 10];
        loop {
            if let Some(answer) = self.answers.next_answer() {
                return Ok(answer);
            }
            let Some(left) = left(self.timeouts, begun) else {
                return Err(self.silent(request));
            };
            self.socket.set_read_timeout(Some(left)).map_err(lost(&self.host, "asking"))?;
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(Error::Closed { host: self.host.clone() }),
                Ok(n) => self.answers.feed(&bytes[..n])?,
                Err(error) if is_timeout(&error) => return Err(self.silent(request)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&self.host, "listening to")(error)),
            }
        }
    }

    fn fields(&mut self, what: &str) -> Result<Vec<Captured>, Error> {
        let lines = self.lines(what)?;
        Ok(lines.iter().filter_map(|line| Captured::read(line)).collect())
    }

    fn lines_if_known(&mut self, what: &str) -> Result<Vec<String>, Error> {
        match self.lines(what) {
            Err(Error::Refused { .. }) => Ok(Vec::new()),
            other => other,
        }
    }

    fn silent(&self, request: &Request) -> Error {
        let (host, timeouts) = (self.host.clone(), self.timeouts);
        Error::Silent { host, request: name(request), timeouts }
    }
}

fn name(request: &Request) -> String {
    match request {
        Request::Ask(what) => format!("{what}?"),
        Request::Set(what, value) => format!("{what}={value}"),
        Request::Table(what, _) => format!("{what}<"),
    }
}

fn not_so(request: &Request, answer: Answer) -> Error {
    match answer {
        Answer::Err(text) => Error::Refused { request: name(request), text },
        Answer::Ok => unexpected(&name(request), "OK"),
        Answer::Value(value) => unexpected(&name(request), &format!("`{value}`")),
        Answer::Lines(lines) => unexpected(&name(request), &format!("{} lines", lines.len())),
    }
}

fn unexpected(request: &str, answer: &str) -> Error {
    let answer = answer.chars().filter(|c| !c.is_control()).take(80).collect();
    lines::Error::Unexpected { request: request.to_owned(), answer }.into()
}
