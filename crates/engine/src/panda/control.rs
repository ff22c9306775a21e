//! The control port of a PandA, one command after the other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fullbore_core::format::panda::control::{
    self as lines, Answer, Answers, Captured, Client, Identity, MOST_SETTINGS_BYTES, Request,
    Settings, Status,
};
use fullbore_core::format::panda::{MOST_SAMPLES, PandaSource};

use super::{Error, Patience, connect, is_timeout, left};

/// How often a busy PandA is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Tables, and words of bits, that are asked for at most.
const MOST_NAMED: usize = 64;

/// A connection to the control port.
#[derive(Debug)]
pub struct Control {
    host: String,
    socket: TcpStream,
    answers: Answers,
    patience: Duration,
}

impl Control {
    /// Connects.
    pub fn connect(source: &PandaSource, patience: Patience) -> Result<Self, Error> {
        let socket = connect(&source.host, source.control_port, patience.connect)?;
        let (host, answers) = (source.host.clone(), Answers::default());
        Ok(Control { host, socket, answers, patience: patience.answer })
    }

    /// `*IDN?`
    pub fn identify(&mut self) -> Result<Identity, Error> {
        let text = self.value("*IDN")?;
        Identity::read(&text).ok_or_else(|| unexpected("*IDN?", &text))
    }

    /// What is captured now: `*CAPTURE?`
    pub fn captured_fields(&mut self) -> Result<Vec<Captured>, Error> {
        self.fields("*CAPTURE")
    }

    /// The name of everything that could be captured: `*CAPTURE.*?`
    pub fn capturable(&mut self) -> Result<Vec<String>, Error> {
        Ok(self.fields("*CAPTURE.*")?.into_iter().map(|captured| captured.field).collect())
    }

    /// What can be captured of a position: `*CAPTURE.OPTIONS?`
    #[cfg(test)]
    pub(super) fn capture_options(&mut self) -> Result<Vec<String>, Error> {
        self.lines("*CAPTURE.OPTIONS")
    }

    /// Captures these fields and no others.
    #[cfg(test)]
    pub(super) fn set_capture(&mut self, fields: &[Captured]) -> Result<(), Error> {
        self.set("*CAPTURE", "")?;
        for field in fields {
            self.set(&format!("{}.CAPTURE", field.field), &field.options.join(" "))?;
        }
        Ok(())
    }

    /// Arms. Data connections should be made before.
    pub fn arm(&mut self) -> Result<(), Error> {
        self.set("*PCAP.ARM", "")
    }

    /// Arms, and waits for it while readers still drain the last acquisition. One that is still armed
    /// is not waited for.
    pub fn arm_when_drained(&mut self, patience: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let refused = match self.arm() {
                Err(error @ Error::Refused { .. }) => error,
                other => return other,
            };
            let status = self.status()?;
            if status.busy || status.active == 0 || left(patience, begun).is_none() {
                return Err(refused);
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// Ends the acquisition, if there is one.
    pub fn disarm(&mut self) -> Result<(), Error> {
        self.set("*PCAP.DISARM", "")
    }

    /// `*PCAP.STATUS?`
    pub fn status(&mut self) -> Result<Status, Error> {
        let text = self.value("*PCAP.STATUS")?;
        Status::read(&text).ok_or_else(|| unexpected("*PCAP.STATUS?", &text))
    }

    /// `*PCAP.COMPLETION?`: `Busy`, `Ok`, or why the hardware ended it.
    pub fn completion(&mut self) -> Result<String, Error> {
        self.value("*PCAP.COMPLETION")
    }

    /// Samples taken in this acquisition or the latest: `*PCAP.CAPTURED?`
    pub fn captured(&mut self) -> Result<u64, Error> {
        let text = self.value("*PCAP.CAPTURED")?;
        let samples = text.trim().parse().ok().filter(|&samples| samples <= MOST_SAMPLES);
        samples.ok_or_else(|| unexpected("*PCAP.CAPTURED?", &text))
    }

    /// Samples of the acquisition once it is over, or nothing if it is not over in time. To be asked
    /// before anything arms again.
    pub fn captured_at_end(&mut self, patience: Duration) -> Result<Option<u64>, Error> {
        let begun = Instant::now();
        while self.completion()? == "Busy" {
            if left(patience, begun).is_none() {
                return Ok(None);
            }
            std::thread::sleep(ASK_AGAIN);
        }
        self.captured().map(Some)
    }

    /// Who is connected, this connection among them, if the server tells: `*WHO?`
    pub fn clients(&mut self) -> Result<Option<Vec<Client>>, Error> {
        match self.lines("*WHO") {
            Ok(lines) => Ok(Some(lines.iter().filter_map(|line| Client::read(line)).collect())),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The address of this host that the connection was made from.
    pub fn made_from(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// The clock that time stamps count, if the server tells: `*CLOCK_FREQ?`
    pub fn clock_hz(&mut self) -> Result<Option<f64>, Error> {
        match self.value("*CLOCK_FREQ") {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Everything that tells later how the PandA was set. What an older server does not know is left
    /// out, and so is what would be too long to be kept. Asks for what has changed since this connection last
    /// asked, so give it one of its own.
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

    /// The value of anything.
    pub fn value(&mut self, what: &str) -> Result<String, Error> {
        let request = Request::ask(what);
        match self.ask(&request)? {
            Answer::Value(value) => Ok(value),
            other => Err(not_so(&request, other)),
        }
    }

    /// The lines of anything.
    pub fn lines(&mut self, what: &str) -> Result<Vec<String>, Error> {
        let request = Request::ask(what);
        match self.ask(&request)? {
            Answer::Lines(lines) => Ok(lines),
            other => Err(not_so(&request, other)),
        }
    }

    /// Sets anything.
    pub fn set(&mut self, what: &str, value: &str) -> Result<(), Error> {
        let request = Request::set(what, value);
        match self.ask(&request)? {
            Answer::Ok => Ok(()),
            other => Err(not_so(&request, other)),
        }
    }

    /// Asks one thing and waits for its answer. After an error the connection is out of step.
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
            let Some(left) = left(self.patience, begun) else {
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
        let (host, patience) = (self.host.clone(), self.patience);
        Error::Silent { host, request: name(request), patience }
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
