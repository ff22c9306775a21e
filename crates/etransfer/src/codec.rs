//! The text of the protocol: lines, requests, addresses of data channels, and headers of data.

use std::net::IpAddr;

/// The longest line of a client.
pub const LONGEST_LINE: usize = 2048;

/// The longest header on a data connection.
pub const LONGEST_HEADER: usize = 4096;

/// Text that is not of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A line without an end.
    #[error("a line is longer than {0} bytes")]
    LongLine(usize),
    /// A header without an end, without an id or a size, or not a header at all.
    #[error("the data has no valid header")]
    Header,
}

/// Bytes of a connection, cut into lines. Any number of CR and LF ends a line, and empty lines do not count.
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    longest: usize,
}

impl Lines {
    /// Lines of at most this many bytes.
    pub fn new(longest: usize) -> Self {
        Self { bytes: Vec::new(), longest }
    }

    /// Takes bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line.
    pub fn next_line(&mut self) -> Result<Option<String>, CodecError> {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let blank = self.bytes.iter().take_while(|byte| is_end(byte)).count();
        self.bytes.drain(..blank);
        let length = self.bytes.iter().take(self.longest + 1).position(is_end);
        match length {
            None if self.bytes.len() > self.longest => Err(CodecError::LongLine(self.longest)),
            None => Ok(None),
            Some(length) => {
                let line: Vec<u8> = self.bytes.drain(..=length).take(length).collect();
                Ok(Some(String::from_utf8_lossy(&line).into_owned()))
            }
        }
    }
}

/// What a client wants with a file that exists at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It must not exist.
    New,
    /// It is replaced.
    OverWrite,
    /// The rest of it follows.
    Resume,
    /// It stays as it is, and nothing follows.
    SkipExisting,
}

impl Mode {
    const ALL: [(Self, &str); 4] = [
        (Self::New, "New"),
        (Self::OverWrite, "OverWrite"),
        (Self::Resume, "Resume"),
        (Self::SkipExisting, "SkipExisting"),
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(mode, _)| *mode == self).map_or("", |(_, word)| word)
    }
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which version does the server speak?
    Version,
    /// The files that match a pattern.
    List(String),
    /// The addresses for data.
    DataAddresses,
    /// Open this file for writing.
    Write(Mode, String),
    /// Open this file for reading, from this offset on.
    Read(u64, String),
    /// Connect to one of the addresses, and push this many bytes of the open file there.
    Send {
        /// The id of the open file here.
        from: String,
        /// The id of the file there.
        to: String,
        /// The bytes.
        bytes: u64,
        /// Where to connect to.
        addresses: Vec<DataAddress>,
    },
    /// Close the file with this id.
    Remove(String),
    /// Interrupt the transfer with this id. There is no answer.
    Cancel(String),
}

impl Request {
    /// Parses a line.
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (word, rest) = (word.to_ascii_lowercase(), rest.trim_start());
        let text = |make: fn(String) -> Self| (!rest.is_empty()).then(|| make(rest.to_owned()));
        let one = |make| text(make).filter(|_| !rest.contains(char::is_whitespace));
        match word.as_str() {
            "protocol-version" => {
                let known = rest.bytes().all(|it| it.is_ascii_digit());
                known.then_some(Self::Version)
            }
            "data-channel-addr" | "data-channel-addr-ext" if rest.is_empty() => {
                Some(Self::DataAddresses)
            }
            "list" => text(Self::List),
            "remove-uuid" => one(Self::Remove),
            "cancel" => one(Self::Cancel),
            "read-file" => {
                let (have, path) = rest.split_once(char::is_whitespace)?;
                let path = path.trim_start();
                (!path.is_empty()).then_some(Self::Read(number(have)?, path.to_owned()))
            }
            "send-file" => {
                let mut words = rest.split_whitespace();
                let mut next = || words.next();
                let (from, to) = (next()?.to_owned(), next()?.to_owned());
                let (bytes, addresses) = (number(next()?)?, DataAddress::parse_all(next()?));
                next().is_none().then_some(Self::Send { from, to, bytes, addresses })
            }
            _ => {
                let wanted = word.strip_prefix("write-file-")?;
                let mut modes = Mode::ALL.into_iter();
                let (mode, _) = modes.find(|(_, known)| wanted.eq_ignore_ascii_case(known))?;
                (!rest.is_empty()).then(|| Self::Write(mode, rest.to_owned()))
            }
        }
    }
}

/// Ids are letters and digits.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric())
}

/// A number without a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Where data goes: `<tcp/192.0.2.1:8008>`, perhaps with options of UDT behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataAddress {
    /// `tcp`, `tcp6`, `udt` or `udt6`.
    pub protocol: String,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl DataAddress {
    /// An address for TCP.
    pub fn tcp(ip: IpAddr, port: u16) -> Self {
        let protocol = if ip.is_ipv6() { "tcp6" } else { "tcp" };
        Self { protocol: protocol.to_owned(), host: ip.to_string(), port }
    }

    /// True if it is reached over TCP.
    pub fn is_tcp(&self) -> bool {
        matches!(self.protocol.as_str(), "tcp" | "tcp6")
    }

    /// Parses one with its angle brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (protocol, rest) = text.strip_prefix('<')?.strip_suffix('>')?.split_once('/')?;
        let address = rest.split('/').next()?;
        let (host, port) = address.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
        let right = !host.is_empty()
            && host.len() <= 255
            && host.bytes().all(|it| it.is_ascii_alphanumeric() || b".:-_%".contains(&it));
        let (protocol, host) = (protocol.to_ascii_lowercase(), host.to_owned());
        right.then_some(Self { protocol, host, port: port.parse().ok()? })
    }

    /// Parses a list. What is no address is left out.
    pub fn parse_all(text: &str) -> Vec<Self> {
        text.split_inclusive('>').filter_map(|it| Self::parse(it.trim_start_matches(','))).collect()
    }
}

impl std::fmt::Display for DataAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { protocol, host, port } = self;
        match host.contains(':') {
            true => write!(f, "<{protocol}/[{host}]:{port}>"),
            false => write!(f, "<{protocol}/{host}:{port}>"),
        }
    }
}

/// What opens the data of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The id of the open file.
    pub id: String,
    /// The bytes that follow, or that are wanted.
    pub bytes: u64,
    /// True if the server sends.
    pub push: bool,
}

impl std::fmt::Display for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let push = if self.push { " push:1," } else { "" };
        write!(f, "{{ uuid:{},{push} sz:{}}}", self.id, self.bytes)
    }
}

impl Header {
    /// Parses the header at the beginning of these bytes, and returns its length too; `None` if more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, CodecError> {
        if bytes.first().is_some_and(|first| *first != b'{') {
            return Err(CodecError::Header);
        }
        let Some(end) = bytes.iter().take(LONGEST_HEADER).position(|it| *it == b'}') else {
            return if bytes.len() < LONGEST_HEADER { Ok(None) } else { Err(CodecError::Header) };
        };
        let text = std::str::from_utf8(&bytes[1..end]).map_err(|_| CodecError::Header)?;
        let header = Self::from_fields(text).ok_or(CodecError::Header)?;
        Ok(Some((header, end + 1)))
    }

    fn from_fields(text: &str) -> Option<Self> {
        let (mut id, mut bytes, mut push) = (None, None, false);
        for field in text.split(',') {
            let (key, value) = field.split_once(':')?;
            let value = value.trim().trim_matches('"');
            match key.trim().to_ascii_lowercase().as_str() {
                "uuid" => id = Some(value.to_owned()).filter(|it| is_id(it)),
                "sz" => bytes = Some(number(value)?),
                "push" => push = value == "1" || return None,
                _ => {}
            }
        }
        Some(Self { id: id?, bytes: bytes?, push })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All lines, and whether a line was too long.
    fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
        let (mut lines, mut all) = (Lines::new(LONGEST_LINE), Vec::new());
        for piece in pieces {
            lines.push(piece);
            loop {
                match lines.next_line() {
                    Ok(Some(line)) => all.push(line),
                    Ok(None) => break,
                    Err(_) => return (all, true),
                }
            }
        }
        (all, false)
    }

    #[test]
    fn requests_are_those_of_the_table() {
        let (id, path) = (|| "aB3".to_owned(), || "/a b/c.vdif".to_owned());
        let addresses = DataAddress::parse_all("<tcp/192.0.2.1:8008>,<udt6/[::1]:1/mss=1500>");
        assert_eq!(addresses.iter().map(DataAddress::is_tcp).collect::<Vec<_>>(), [true, false]);
        assert_eq!(addresses[1].to_string(), "<udt6/[::1]:1>");
        let sent = Request::Send { from: id(), to: "x".to_owned(), bytes: 7, addresses };
        for (line, request) in [
            ("protocol-version", Request::Version),
            ("Protocol-Version 3", Request::Version),
            ("list /a b/c.vdif", Request::List(path())),
            ("DATA-channel-addr-ext", Request::DataAddresses),
            ("write-file-skipexisting  /a b/c.vdif", Request::Write(Mode::SkipExisting, path())),
            ("read-file 0 /a b/c.vdif", Request::Read(0, path())),
            ("send-file aB3 x 7 <tcp/192.0.2.1:8008>,<udt6/[::1]:1/mss=1500>", sent),
            ("remove-uuid aB3", Request::Remove(id())),
            ("cancel aB3", Request::Cancel(id())),
        ] {
            assert_eq!(Request::parse(line), Some(request), "{line}");
        }
        let unknown = ["", "help", "list", "list ", "read-file x", "read-file -1 x", "cancel a b"];
        let more = ["write-file-Append x", "write-file-New", "read-file 99999999999999999999 x"];
        for line in unknown.into_iter().chain(more) {
            assert_eq!(Request::parse(line), None, "{line}");
        }
    }

    #[test]
    fn headers_are_those_of_the_table_and_bounded() {
        let header = |push| Header { id: "aB3".to_owned(), bytes: 7, push };
        for (text, push) in [
            ("{ uuid:aB3, sz:7}", false),
            ("{ uuid:aB3, push:1, sz:7}", true),
            ("{SZ : 7,\tother:1,UUID:\"aB3\"}", false),
        ] {
            let more = [text.as_bytes(), b"data}"].concat();
            assert_eq!(Header::parse(&more), Ok(Some((header(push), text.len()))), "{text}");
            for cut in 0..text.len() {
                assert_eq!(Header::parse(&text.as_bytes()[..cut]), Ok(None), "{text} to {cut}");
            }
        }
        assert_eq!(header(true).to_string(), "{ uuid:aB3, push:1, sz:7}");
        let endless = [b'{'; LONGEST_HEADER];
        assert_eq!(Header::parse(&endless[1..]), Ok(None));
        let wrong = [
            "x",
            "{}",
            "{uuid:a}",
            "{sz:1}",
            "{uuid:a,sz:-1}",
            "{uuid:a,sz:1,push:2}",
            "{uuid:a b,sz:1}",
        ];
        for text in wrong.into_iter().map(str::as_bytes).chain([&endless[..], b"{\xff:1}"]) {
            assert_eq!(Header::parse(text), Err(CodecError::Header), "{text:?}");
        }
    }

    #[test]
    fn every_way_of_splitting_the_lines_gives_the_same() {
        let long = "x".repeat(LONGEST_LINE);
        let text = format!("list a\r\n\r\n\n{long}\ncancel \u{e9}\r{long}y\nlist b\n");
        let once = lines([text.as_bytes()]);
        assert_eq!(once.0, ["list a", &long, "cancel \u{e9}"]);
        assert!(once.1, "the last line is too long");
        for cut in 0..text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(lines([a, b]), once, "split at {cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same_lines(bytes in prop::collection::vec(prop::sample::select(&b"a{} \r\n\xff"[..]), 0..200), size in 1_usize..50) {
            prop_assert_eq!(lines(bytes.chunks(size)), lines([&bytes[..]]));
            for line in lines([&bytes[..]]).0 {
                prop_assert!(!line.is_empty() && !line.contains(['\r', '\n']));
            }
        }

        #[test]
        fn what_is_written_is_read(id in "[a-zA-Z0-9]{15,20}", bytes: u64, push: bool, ip: IpAddr, port: u16) {
            let header = Header { id, bytes, push };
            let text = header.to_string();
            let length = text.len();
            prop_assert_eq!(Header::parse(text.as_bytes()), Ok(Some((header, length))));
            let address = DataAddress::tcp(ip, port);
            prop_assert_eq!(DataAddress::parse(&address.to_string()), Some(address));
        }
    }
}
