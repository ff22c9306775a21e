//! The control port: requests as lines, and the answers to them.
//!
//! ```text
//! T?             ──►  OK =value  |  ERR text  |  !line !line … .
//! T=value        ──►  OK         |  ERR text
//! T< lines ""    ──►  OK         |  ERR text
//! ```
//!
//! Answers arrive in the order of the requests, so several requests may be outstanding.

use std::collections::VecDeque;

/// The longest line that a server reads, without its line feed.
pub const LONGEST_REQUEST: usize = 1022;

/// The longest line of an answer.
const LONGEST_LINE: usize = 64 << 10;

/// The largest number of lines of an answer, and of their bytes together: the largest table is far smaller.
const MOST_LINES: usize = 1 << 20;
const MOST_BYTES: usize = 64 << 20;

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `what?`
    Ask(String),
    /// `what=value`
    Set(String, String),
    /// `what<`, the lines, and an empty one.
    Table(String, Vec<String>),
}

impl Request {
    /// `what?`
    pub fn ask(what: impl Into<String>) -> Self {
        Request::Ask(what.into())
    }

    /// `what=value`
    pub fn set(what: impl Into<String>, value: impl Into<String>) -> Self {
        Request::Set(what.into(), value.into())
    }

    /// Returns the bytes of the request.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        let lines: Vec<String> = match self {
            Request::Ask(what) => vec![format!("{what}?")],
            Request::Set(what, value) => vec![format!("{what}={value}")],
            Request::Table(what, rows) => {
                let empty = rows.iter().any(String::is_empty);
                if empty {
                    return Err(Error::Request { text: format!("{what}<") });
                }
                [format!("{what}<")]
                    .into_iter()
                    .chain(rows.iter().cloned())
                    .chain([String::new()])
                    .collect()
            }
        };
        let mut bytes = Vec::new();
        for line in &lines {
            if line.len() > LONGEST_REQUEST || line.contains(['\n', '\r', '\0']) {
                return Err(Error::Request { text: line.escape_debug().take(80).collect() });
            }
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        Ok(bytes)
    }
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request succeeded.
    Ok,
    /// One value.
    Value(String),
    /// Several values.
    Lines(Vec<String>),
    /// The request failed.
    Err(String),
}

/// An answer that no PandA server gives, or an impossible request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request line is too long, or contains line feeds.
    #[error("`{text}` cannot be sent to a PandA: a line has at most {LONGEST_REQUEST} bytes")]
    Request {
        /// The text of the request.
        text: String,
    },
    /// The line is not an answer of a PandA.
    #[error("`{line}` is not an answer of a PandA")]
    Answer {
        /// The received line.
        line: String,
    },
    /// The answer is longer than any valid answer.
    #[error("an answer is longer than {limit} {what}")]
    TooLong {
        /// The limit.
        limit: usize,
        /// The unit of the limit.
        what: &'static str,
    },
    /// The answer has another kind than the request requires.
    #[error("the PandA answered {request} with {answer}")]
    Unexpected {
        /// The request.
        request: String,
        /// The server's answer.
        answer: String,
    },
}

/// Parses answers from the bytes of a control connection.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    line: Vec<u8>,
    lines: Vec<String>,
    bytes: usize,
    ready: VecDeque<Answer>,
}

impl Answers {
    /// Takes all bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.line.len() + piece.len() > LONGEST_LINE {
                return Err(Error::TooLong { limit: LONGEST_LINE, what: "bytes in a line" });
            }
            self.line.extend_from_slice(piece);
            if let Some(line) = self.line.strip_suffix(b"\n") {
                let line = String::from_utf8_lossy(line).into_owned();
                self.line.clear();
                self.whole_line(&line)?;
            }
        }
        Ok(())
    }

    /// Returns the next answer, if it is whole.
    pub fn next_answer(&mut self) -> Option<Answer> {
        self.ready.pop_front()
    }

    fn whole_line(&mut self, line: &str) -> Result<(), Error> {
        let answer = match line.strip_prefix('!') {
            Some(text) => {
                self.bytes += line.len();
                if self.lines.len() >= MOST_LINES {
                    return Err(Error::TooLong { limit: MOST_LINES, what: "lines" });
                }
                if self.bytes > MOST_BYTES {
                    return Err(Error::TooLong { limit: MOST_BYTES, what: "bytes" });
                }
                self.lines.push(text.to_owned());
                return Ok(());
            }
            None if line == "." => {
                self.bytes = 0;
                Answer::Lines(std::mem::take(&mut self.lines))
            }
            None if !self.lines.is_empty() => return Err(no_answer(line)),
            None if line == "OK" => Answer::Ok,
            None => match (line.strip_prefix("OK ="), line.strip_prefix("ERR")) {
                (Some(value), _) => Answer::Value(value.to_owned()),
                (None, Some(text)) => Answer::Err(text.trim().to_owned()),
                (None, None) => return Err(no_answer(line)),
            },
        };
        self.ready.push_back(answer);
        Ok(())
    }
}

fn no_answer(line: &str) -> Error {
    Error::Answer { line: line.chars().filter(|c| !c.is_control()).take(80).collect() }
}

/// `*PCAP.STATUS?`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Status {
    /// True if an acquisition is armed.
    pub busy: bool,
    /// Number of data connections.
    pub readers: u32,
    /// Number of those that still take data of the latest acquisition.
    pub active: u32,
}

impl Status {
    /// Reads `Busy 1 1`.
    pub fn read(text: &str) -> Option<Status> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[state, readers, active] = words.as_slice() else { return None };
        let busy = match state {
            "Busy" => true,
            "Idle" => false,
            _ => return None,
        };
        Some(Status { busy, readers: readers.parse().ok()?, active: active.parse().ok()? })
    }
}

/// `*IDN?`
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Identity {
    /// The whole text.
    pub text: String,
    /// The server's version: two numbers, unless it is a development build.
    pub version: Option<(u32, u32)>,
}

impl Identity {
    /// Reads `PandA SW: 4.1 FPGA: 4.1.0 816147d6 00000000 rootfs: PandA 4.1`.
    pub fn read(text: &str) -> Option<Identity> {
        let software = text.strip_prefix("PandA SW: ")?.split_whitespace().next()?;
        let mut numbers = software.split(['.', '-']).map(|part| {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            part[..digits].parse::<u32>().ok()
        });
        let version = numbers.next().flatten().zip(numbers.next().flatten());
        Some(Identity { text: text.to_owned(), version })
    }
}

/// A connection to the server, a line of `*WHO?`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Client {
    /// True for a client of the data port, which takes samples; false for the control port.
    pub takes_data: bool,
    /// Its address, as seen by the PandA.
    pub address: String,
}

impl Client {
    /// Reads `2026-11-21T20:30:53.935Z config 172.23.252.1:51122`, with or without the time.
    pub fn read(line: &str) -> Option<Client> {
        let mut words = line.split_whitespace().rev();
        let (address, port) = (words.next()?, words.next()?);
        let takes_data = match port {
            "data" => true,
            "config" => false,
            _ => return None,
        };
        Some(Client { takes_data, address: address.to_owned() })
    }

    /// True if it runs on the PandA itself, as its web server does.
    pub fn is_on_the_panda(&self) -> bool {
        let address = self.address.parse::<std::net::SocketAddr>();
        address.is_ok_and(|address| address.ip().to_canonical().is_loopback())
    }
}

/// One line of `*CAPTURE?`: a field and its capture options.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Captured {
    /// `COUNTER1.OUT`
    pub field: String,
    /// `Min`, `Max`, `Mean`; empty if the server does not report them.
    pub options: Vec<String>,
}

impl Captured {
    /// Reads `COUNTER1.OUT Min Max Mean`.
    pub fn read(line: &str) -> Option<Captured> {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some(Captured { field: words.next()?, options: words.collect() })
    }
}

/// The settings of a PandA that are stored with a scan. The data alone does not show the trigger configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// `*IDN?`
    pub identity: String,
    /// Lines of `*CAPTURE?`.
    pub capture: Vec<String>,
    /// Names of the bits in each captured word: `PCAP.BITS0` and its names, low bit first.
    pub bits: Vec<(String, Vec<String>)>,
    /// Lines `FIELD=value` of `*CHANGES.CONFIG?`.
    pub config: Vec<String>,
    /// Lines `FIELD=value` of `*CHANGES.ATTR?`.
    pub attributes: Vec<String>,
    /// Tables and their lines in base64.
    pub tables: Vec<(String, Vec<String>)>,
    /// The names of settings that were too long to store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// The largest size of settings that is stored with a scan.
pub const MOST_SETTINGS_BYTES: usize = 1 << 20;

impl Settings {
    /// Returns the bytes of all its text.
    pub fn bytes(&self) -> usize {
        let lines = [&self.capture, &self.config, &self.attributes];
        let named = self.bits.iter().chain(&self.tables);
        self.identity.len()
            + lines.into_iter().map(|lines| text_of(lines)).sum::<usize>()
            + named.map(|(name, lines)| name.len() + text_of(lines)).sum::<usize>()
    }

    /// Returns as many settings as fit into `most` bytes, the most important first. The rest is listed by name.
    pub fn bounded(mut self, most: usize) -> Settings {
        let mut room = most;
        let mut left_out = std::mem::take(&mut self.left_out);
        let mut fits = |name: &str, bytes: usize| {
            let fits = bytes <= room;
            if fits {
                room -= bytes;
            } else {
                left_out.push(name.to_owned());
            }
            fits
        };
        if !fits("*IDN", self.identity.len()) {
            self.identity.clear();
        }
        for (name, lines) in [
            ("*CAPTURE", &mut self.capture),
            ("*CHANGES.CONFIG", &mut self.config),
            ("*CHANGES.ATTR", &mut self.attributes),
        ] {
            if !fits(name, text_of(lines)) {
                lines.clear();
            }
        }
        for named in [&mut self.bits, &mut self.tables] {
            named.retain(|(name, lines)| fits(name, name.len() + text_of(lines)));
        }
        Settings { left_out, ..self }
    }
}

fn text_of(lines: &[String]) -> usize {
    lines.iter().map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &[u8] = b"OK =PandA SW: 4.1 FPGA: 4.1.0\n!A Value\n!B.C Min Max\n.\nOK\nERR Unknown star field\n.\nOK =\n";

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Answer> {
        let mut answers = Answers::default();
        for piece in pieces {
            answers.feed(piece).unwrap();
        }
        std::iter::from_fn(|| answers.next_answer()).collect()
    }

    #[test]
    fn answers_come_alike_in_pieces_of_any_size() {
        let all = read([SESSION]);
        assert_eq!(all.len(), 6);
        assert_eq!(all[1], Answer::Lines(vec!["A Value".to_owned(), "B.C Min Max".to_owned()]));
        assert_eq!(all[2], Answer::Ok);
        assert_eq!(all[3], Answer::Err("Unknown star field".to_owned()));
        assert_eq!(all[4], Answer::Lines(Vec::new()));
        assert_eq!(all[5], Answer::Value(String::new()));
        for size in 1..SESSION.len() {
            assert_eq!(read(SESSION.chunks(size)), all, "pieces of {size}");
        }
    }

    #[test]
    fn settings_that_are_too_long_lose_their_largest_parts_and_say_which() {
        let lines = |count: usize| vec!["x".repeat(10); count];
        let settings = Settings {
            identity: "PandA SW: 4.1".to_owned(),
            capture: lines(2),
            bits: vec![("PCAP.BITS0".to_owned(), lines(3))],
            config: lines(10),
            attributes: lines(500),
            tables: vec![
                ("SEQ1.TABLE".to_owned(), lines(900)),
                ("SEQ2.TABLE".to_owned(), lines(1)),
            ],
            left_out: Vec::new(),
        };
        assert_eq!(settings.clone().bounded(MOST_SETTINGS_BYTES), settings);
        assert_eq!(settings.bytes(), 13 + 20 + 40 + 100 + 5000 + 9010 + 20);
        let bounded = settings.clone().bounded(300);
        assert_eq!(bounded.left_out, ["*CHANGES.ATTR", "SEQ1.TABLE"]);
        assert_eq!((bounded.config.len(), bounded.tables.len()), (10, 1));
        assert!(bounded.bytes() <= 300);
        assert_eq!(settings.bounded(5).bytes(), 0);
    }

    #[test]
    fn what_no_panda_answers_is_an_error() {
        for bytes in ["SSH-2.0\n", "!a\nOK\n", "OKAY\n"] {
            assert!(Answers::default().feed(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
        let error = Answers::default().feed(&[b'x'; 70_000]).unwrap_err();
        assert!(matches!(error, Error::TooLong { .. }), "{error}");
    }

    #[test]
    fn requests_are_lines_that_a_server_can_read() {
        let bytes =
            |request: Request| request.bytes().map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(bytes(Request::ask("*IDN")).unwrap(), "*IDN?\n");
        assert_eq!(bytes(Request::set("*PCAP.ARM", "")).unwrap(), "*PCAP.ARM=\n");
        let table = Request::Table("SEQ1.TABLE".to_owned(), vec!["1".to_owned(), "2".to_owned()]);
        assert_eq!(bytes(table).unwrap(), "SEQ1.TABLE<\n1\n2\n\n");
        for bad in ["a\nb", "a\r", &"x".repeat(1023)] {
            assert!(Request::set("A.B", bad).bytes().is_err());
        }
        assert!(Request::Table("T".to_owned(), vec![String::new()]).bytes().is_err());
    }

    #[test]
    fn clients_are_told_apart_by_what_they_are_connected_to() {
        let read = |line| Client::read(line).map(|client| (client.takes_data, client.address));
        let line = "2026-11-21T20:30:53.935Z config 172.23.252.1:51122 ";
        assert_eq!(read(line), Some((false, "172.23.252.1:51122".to_owned())));
        assert_eq!(read("data 10.0.0.1:9"), Some((true, "10.0.0.1:9".to_owned())));
        assert_eq!((read("config"), read("web 10.0.0.1:9"), read("")), (None, None, None));
        let local = |address: &str| Client { takes_data: false, address: address.to_owned() };
        assert!(local("127.0.0.1:80").is_on_the_panda() && local("[::1]:80").is_on_the_panda());
        assert!(!local("10.0.0.1:80").is_on_the_panda() && !local("").is_on_the_panda());
    }

    #[test]
    fn values_are_read_as_servers_write_them() {
        let status = Status::read("Busy 2 1").unwrap();
        assert_eq!((status.busy, status.readers, status.active), (true, 2, 1));
        assert_eq!(Status::read("Idle 0"), None);
        let text = "PandA SW: 4.1 FPGA: 4.1.0 816147d6 00000000 rootfs: PandA 4.1";
        assert_eq!(Identity::read(text).unwrap().version, Some((4, 1)));
        let built = Identity::read("PandA SW: 3.0a3-12-gdeadbeef FPGA: 1").unwrap();
        assert_eq!(built.version, Some((3, 0)));
        assert_eq!(Identity::read("PandA SW: 816147d FPGA: 1").unwrap().version, None);
        let captured = Captured::read("COUNTER1.OUT Min Max Mean").unwrap();
        assert_eq!((captured.field.as_str(), captured.options.len()), ("COUNTER1.OUT", 3));
    }
}
