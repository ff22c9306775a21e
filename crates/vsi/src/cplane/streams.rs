//! `input_stream`: what is recorded. A change counts when it is committed.

use std::net::Ipv4Addr;

use fullbore_core::name::Name;

use super::{done, message, refused, refused_by};
use crate::line::Statement;
use crate::reply::{Code, Reply};

/// The most input streams.
pub(super) const MOST_STREAMS: usize = 64;

/// The longest label of a stream.
const LONGEST_LABEL: usize = 16;

/// The longest name of an interface (`IFNAMSIZ`, netdevice(7)).
const LONGEST_INTERFACE: usize = 15;

/// Bytes of the headers of Ethernet, IPv4 and UDP before a datagram.
const HEADERS: u32 = 42;

/// Bytes of a packet number before a frame.
const NUMBER: u32 = 8;

/// The input streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    listed: Vec<Stream>,
    committed: Vec<Stream>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    label: String,
    format: &'static str,
    payload: u32,
    offset: u32,
    number_offset: u32,
    interface: String,
    filter: String,
    address: Ipv4Addr,
    port: u16,
}

impl Streams {
    /// `input_stream=add|delete|commit`.
    pub(super) fn command(&mut self, statement: &Statement) -> Reply {
        match statement.field(0).to_ascii_lowercase().as_str() {
            "add" => match Stream::read(statement) {
                Ok(_) if self.listed.len() >= MOST_STREAMS => {
                    wrong(&format!("there are {MOST_STREAMS} input streams already"))
                }
                Ok(stream) if self.listed.iter().any(|it| it.label == stream.label) => {
                    wrong("there is an input stream with this label")
                }
                Ok(stream) => {
                    self.listed.push(stream);
                    done()
                }
                Err(why) => wrong(&why),
            },
            "delete" => {
                let before = self.listed.len();
                let label = statement.field(1);
                // Without a label: all of them.
                self.listed.retain(|it| !label.is_empty() && it.label != label);
                match self.listed.len() < before {
                    true => done(),
                    false => wrong("there is no such input stream"),
                }
            }
            "commit" if self.listed.is_empty() => {
                refused(Code::Conflict, message::NO_STREAM, "there is no input stream to commit")
            }
            "commit" => {
                self.committed.clone_from(&self.listed);
                done()
            }
            _ => wrong("add, delete or commit"),
        }
    }

    /// `input_stream?`: the fields of `add` of each stream.
    pub(super) fn tell(&self) -> Reply {
        let told = |it: &Stream| {
            let numbers = [it.payload, it.offset, it.number_offset].map(|it| it.to_string());
            let mut fields = vec![it.label.clone(), it.format.to_owned()];
            fields.extend(numbers);
            fields.extend([it.interface.clone(), it.filter.clone(), it.port.to_string()]);
            fields
        };
        done().with_all(self.listed.iter().flat_map(told))
    }

    /// True if there is something to record.
    pub(super) fn is_committed(&self) -> bool {
        !self.committed.is_empty()
    }

    /// The endpoints of the committed streams.
    pub(super) fn sources(&self) -> Result<Vec<String>, Reply> {
        if !self.is_committed() {
            return Err(refused_by(Code::Conflict, message::NO_STREAM));
        }
        Ok(self.committed.iter().map(Stream::source).collect())
    }
}

fn wrong(why: &str) -> Reply {
    refused(Code::Parameter, message::PARAMETER, why)
}

impl Stream {
    /// `add:<label>:<format>:<payload>:<payload offset>:<psn offset>:<interface>:<filter>:<port>`.
    fn read(statement: &Statement) -> Result<Self, String> {
        let label = statement.field(1);
        if label.len() > LONGEST_LABEL || label.parse::<Name>().is_err() {
            return Err(format!(
                "a label has 1 to {LONGEST_LABEL} letters, digits, - and +, and begins with a letter or digit"
            ));
        }
        let format = match statement.field(2).to_ascii_lowercase().as_str() {
            "vdif" => "vdif",
            "m5b" | "mark5b" => "mark5b",
            _ => return Err("the format is vdif or m5b".to_owned()),
        };
        let number = |field: usize| statement.field(field).parse::<u32>().ok();
        let payload = number(3).filter(|it| (65..9000).contains(it));
        let payload = payload.ok_or("the payload is more than 64 and less than 9000 bytes")?;
        let (offset, number_offset) = (number(4), number(5));
        let offset = offset.filter(|it| [HEADERS, HEADERS + NUMBER].contains(it));
        let offset = offset.ok_or(
            "the payload offset is 42, or 50 with a packet number before each frame, of datagrams over IPv4",
        )?;
        let numbers = [0, HEADERS];
        let number_offset =
            number_offset.filter(|it| numbers.contains(it) && (*it == 0 || offset > HEADERS));
        let number_offset = number_offset.ok_or("the offset of the packet number is 0 or 42")?;
        let interface = statement.field(6);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if interface.is_empty()
            || interface.len() > LONGEST_INTERFACE
            || !interface.chars().all(is_plain)
        {
            return Err("the interface has a name such as eth3".to_owned());
        }
        let filter = statement.field(7);
        let address = filter.parse::<Ipv4Addr>();
        let address =
            address.map_err(|_| "the filter is an IPv4 address; this station opens sockets")?;
        let port = statement.field(8).parse::<u16>().ok().filter(|it| *it > 0);
        let port = port.ok_or("the last field is the UDP port, which this station needs")?;
        let (interface, filter) = (interface.to_owned(), filter.to_owned());
        let label = label.to_owned();
        Ok(Self { label, format, payload, offset, number_offset, interface, filter, address, port })
    }

    /// The endpoint. A group is joined on the interface; any other filter is an address of this host, which chooses it.
    fn source(&self) -> String {
        let Self { label, format, interface, address, port, .. } = self;
        let numbered = if self.offset > HEADERS { "&psn=true" } else { "" };
        let joined = match address.is_multicast() {
            true => format!("&interface={interface}"),
            false => String::new(),
        };
        format!("udp://{address}:{port}?format={format}{numbered}{joined}&name={label}")
    }
}
