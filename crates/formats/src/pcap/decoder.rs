//! The decoder of capture files: it takes bytes from the front of a buffer, and says what they are.

use std::ops::Range;

use super::classic::Classic;
use super::ng::Sections;
use super::{Error, LinkType, Order};

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The form of its first bytes.
    pub link: LinkType,
    /// Nanoseconds of Unix time of its capture; `None` for a pcapng Simple Packet Block, which has none.
    pub unix_ns: Option<i128>,
    /// The interface in its section; 0 in pcap.
    pub interface: u32,
    /// Its captured bytes, as a range of the buffer.
    pub data: Range<usize>,
    /// The length on the network, in bytes. More than the captured bytes if a snapshot length cut it.
    pub original: u32,
    /// Packets lost between this packet and the preceding one of its interface, if the file says so (the obsolete Packet
    /// Block, and `epb_dropcount`).
    pub dropped: Option<u64>,
}

/// The contents of the bytes at the front of the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A packet.
    Packet(Packet),
    /// Packets dropped on an interface since the capture began (`isb_ifdrop` + `isb_osdrop`).
    Drops {
        /// The number of the section, from 0.
        section: u32,
        /// The number of the interface in its section.
        interface: u32,
        /// By the interface, if told.
        by_interface: Option<u64>,
        /// By the operating system, if told.
        by_system: Option<u64>,
    },
    /// Anything else: headers, names, unknown blocks.
    Other,
}

/// The next step of whoever holds the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first `bytes` of the buffer are this item. They may be more than the buffer holds: the rest is skipped in
    /// the file.
    Item {
        /// What it is.
        item: Item,
        /// Its length in the file.
        bytes: u64,
    },
    /// The item at the front has more bytes than the buffer holds: at least so many.
    More(usize),
}

/// The state of decoding: nothing but the header, and the interfaces of the section.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    form: Form,
}

#[derive(Clone, Debug, Default)]
enum Form {
    #[default]
    Unknown,
    Classic(Classic),
    Ng(Sections),
}

impl Decoder {
    /// A decoder at the start of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if the first four bytes are those of a capture.
    pub fn knows(first: [u8; 4]) -> bool {
        Classic::order(first).is_some() || first == Sections::FIRST
    }

    /// True if the file is pcapng, as far as known.
    pub fn is_ng(&self) -> bool {
        matches!(self.form, Form::Ng(_))
    }

    /// Decodes the item at the front of the buffer. After an item, call it with the bytes behind it.
    pub fn next(&mut self, buffer: &[u8]) -> Result<Step, Error> {
        match &mut self.form {
            Form::Unknown => {
                let Some(first) = buffer.first_chunk::<4>() else { return Ok(Step::More(4)) };
                if *first == Sections::FIRST {
                    self.form = Form::Ng(Sections::default());
                    return self.next(buffer);
                }
                let Some((order, nanoseconds)) = Classic::order(*first) else {
                    return Err(Error::Magic { magic: u32::from_be_bytes(*first) });
                };
                let Some(header) = buffer.first_chunk::<{ Classic::HEADER }>() else {
                    return Ok(Step::More(Classic::HEADER));
                };
                self.form = Form::Classic(Classic::new(order, nanoseconds, header)?);
                Ok(Step::Item { item: Item::Other, bytes: Classic::HEADER as u64 })
            }
            Form::Classic(classic) => classic.next(buffer),
            Form::Ng(sections) => sections.next(buffer),
        }
    }
}

/// Reads a 16-bit version, which must be `major` in its first half.
pub(super) fn version(order: Order, bytes: &[u8], at: usize, known: u16) -> Result<(), Error> {
    let (major, minor) = (order.u16(bytes, at).unwrap_or(0), order.u16(bytes, at + 2).unwrap_or(0));
    if major == known { Ok(()) } else { Err(Error::Version { major, minor }) }
}
