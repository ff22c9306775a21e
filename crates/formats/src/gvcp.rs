//! The GigE Vision control protocol (GVCP): commands to a camera over UDP, and its answers.
//!
//! ```text
//! command  0 key 0x42 · 1 flags · 2 command · 4 bytes that follow · 6 request id
//! answer   0 status · 2 answer · 4 bytes that follow · 6 request id
//! ──────────────────────────────────────────────────────────────────► big-endian
//! ```
//!
//! A camera has registers of 32 bits in one address space. Those below 0xA000 are the *bootstrap registers*, which all
//! cameras have. Its own registers are described by an XML file in its memory.
//!
//! Source: the layouts that Wireshark's dissector `gvcp` and the aravis library read.

use std::net::Ipv4Addr;

/// The UDP port of cameras.
pub const PORT: u16 = 3956;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 8;

/// The largest part of memory in one answer, in bytes.
pub const MOST_MEMORY: u16 = 512;

/// The first byte of commands.
const KEY: u8 = 0x42;

/// The flag that asks for an answer.
const ANSWER_WANTED: u8 = 0x01;

/// The flag of a request for packets with extended ids.
const EXTENDED_IDS: u8 = 0x10;

/// Bytes of a description in the answer to a discovery.
const DESCRIPTION_BYTES: usize = 0xF8;

/// Bootstrap registers.
pub mod register {
    /// The description of the camera, as in the answer to a discovery.
    pub const DESCRIPTION: u32 = 0x0000;
    /// The address of the XML file, as text of 512 bytes.
    pub const XML_ADDRESS: u32 = 0x0200;
    /// The second address of it.
    pub const SECOND_XML_ADDRESS: u32 = 0x0400;
    /// What the camera can do: bit 2 sends packets again.
    pub const CAPABILITY: u32 = 0x0934;
    /// Milliseconds without a command after which the camera is free.
    pub const HEARTBEAT_TIMEOUT: u32 = 0x0938;
    /// Control of the camera: bit 1 is set by the program that has it.
    pub const CONTROL: u32 = 0x0A00;
    /// The port to which stream 0 is sent; 0: it is not sent.
    pub const STREAM_PORT: u32 = 0x0D00;
    /// The size of its packets with the headers of IP and UDP, in the lower 16 bits.
    pub const PACKET_SIZE: u32 = 0x0D04;
    /// The address to which it is sent.
    pub const STREAM_ADDRESS: u32 = 0x0D18;
}

/// The bit of control in [`register::CONTROL`].
pub const CONTROL_BIT: u32 = 0x2;

/// The bit in [`register::CAPABILITY`] of a camera that sends packets again.
pub const RESEND_BIT: u32 = 0x4;

/// The bit in [`register::PACKET_SIZE`] that forbids routers to divide packets.
pub const DO_NOT_FRAGMENT: u32 = 0x4000_0000;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Asks all cameras for their description.
    Discover,
    /// Reads a register.
    ReadRegister {
        /// Its address.
        address: u32,
    },
    /// Writes a register.
    WriteRegister {
        /// Its address.
        address: u32,
        /// The value.
        value: u32,
    },
    /// Reads memory.
    ReadMemory {
        /// Its address, a multiple of 4.
        address: u32,
        /// Bytes, a multiple of 4 up to [`MOST_MEMORY`].
        bytes: u16,
    },
    /// Asks for packets again. A camera sends them instead of an answer.
    Resend {
        /// The stream channel.
        channel: u16,
        /// The block id.
        block: u64,
        /// The first packet.
        first: u32,
        /// The last packet.
        last: u32,
        /// True if ids are extended.
        extended: bool,
    },
}

impl Command {
    /// The number of the command.
    fn number(self) -> u16 {
        match self {
            Self::Discover => 0x0002,
            Self::Resend { .. } => 0x0040,
            Self::ReadRegister { .. } => 0x0080,
            Self::WriteRegister { .. } => 0x0082,
            Self::ReadMemory { .. } => 0x0084,
        }
    }

    /// Returns the datagram with a request id, which is not 0.
    pub fn datagram(self, id: u16) -> Vec<u8> {
        let mut words: Vec<u32> = Vec::with_capacity(5);
        let mut flags = ANSWER_WANTED;
        match self {
            Self::Discover => {}
            Self::ReadRegister { address } => words.push(address),
            Self::WriteRegister { address, value } => words.extend([address, value]),
            Self::ReadMemory { address, bytes } => words.extend([address, bytes.into()]),
            Self::Resend { channel, block, first, last, extended } => {
                let channel = u32::from(channel) << 16;
                flags = 0;
                if extended {
                    flags = EXTENDED_IDS;
                    words.extend([channel, first, last, (block >> 32) as u32, block as u32]);
                } else {
                    words.extend([channel | block as u32 & 0xFFFF, first, last]);
                }
            }
        }
        let mut datagram = vec![KEY, flags];
        datagram.extend(self.number().to_be_bytes());
        datagram.extend((4 * words.len() as u16).to_be_bytes());
        datagram.extend(id.to_be_bytes());
        words.iter().for_each(|word| datagram.extend(word.to_be_bytes()));
        datagram
    }
}

/// The reason why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GvcpError {
    /// The bytes end within the header, or within what it announces.
    #[error("{is} bytes are fewer than the {needs} bytes of the answer")]
    TooShort {
        /// Bytes needed.
        needs: usize,
        /// Bytes there.
        is: usize,
    },
    /// An answer that is to no command of ours.
    #[error("answer {0:#06x} is not known")]
    Unknown(u16),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request id of the command.
    pub id: u16,
    /// The content, or the reason of the camera for a refusal.
    pub content: Result<Content, Refusal>,
}

/// The content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The description of a camera.
    Description(Box<Description>),
    /// The value of a register.
    Register(u32),
    /// A register was written.
    Written,
    /// Memory, from its address on.
    Memory {
        /// The address.
        address: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The answer follows within this time.
    Pending {
        /// Milliseconds.
        milliseconds: u16,
    },
}

/// The status of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = match self.0 {
            0x8001 => "it does not have the command",
            0x8002 => "a parameter is wrong",
            0x8003 => "there is no such address",
            0x8004 => "the register cannot be written",
            0x8005 => "the address is not a multiple of 4",
            0x8006 => "another program has control of the camera",
            0x8007 => "it is busy",
            _ => return write!(f, "status {:#06x}", self.0),
        };
        write!(f, "{words} (status {:#06x})", self.0)
    }
}

/// A camera, by its own words. Texts have no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The address.
    pub address: Ipv4Addr,
    /// The manufacturer.
    pub manufacturer: String,
    /// The model.
    pub model: String,
    /// The version of the device.
    pub version: String,
    /// The serial number.
    pub serial: String,
    /// The name that a user gave.
    pub user_name: String,
}

impl Description {
    /// Reads the description, or `None` if there are too few bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..DESCRIPTION_BYTES)?;
        let address: [u8; 4] = bytes[0x24..0x28].try_into().expect("four bytes");
        let of = |from: usize, length: usize| text(&bytes[from..from + length]);
        Some(Self {
            address: address.into(),
            manufacturer: of(0x48, 32),
            model: of(0x68, 32),
            version: of(0x88, 32),
            serial: of(0xD8, 16),
            user_name: of(0xE8, 16),
        })
    }
}

/// Returns text up to the first zero.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().filter(|letter| !letter.is_control()).collect::<String>().trim().to_owned()
}

impl Answer {
    /// Reads an answer. Bytes behind it are ignored.
    pub fn read(bytes: &[u8]) -> Result<Self, GvcpError> {
        let is = bytes.len();
        let short = |needs| GvcpError::TooShort { needs, is };
        let head: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(short(HEADER_BYTES))?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (status, answer, length, id) = (half(0), half(2), usize::from(half(4)), half(6));
        if status & 0x8000 != 0 {
            return Ok(Self { id, content: Err(Refusal(status)) });
        }
        let body = bytes.get(HEADER_BYTES..HEADER_BYTES + length);
        let body = body.ok_or(short(HEADER_BYTES + length))?;
        let word = |at: usize| {
            let word = body.get(at..at + 4).ok_or(short(HEADER_BYTES + at + 4))?;
            Ok(u32::from_be_bytes(word.try_into().expect("four bytes")))
        };
        let content = match answer {
            0x0003 => {
                let needs = short(HEADER_BYTES + DESCRIPTION_BYTES);
                Content::Description(Box::new(Description::read(body).ok_or(needs)?))
            }
            0x0081 => Content::Register(word(0)?),
            0x0083 | 0x0087 => Content::Written,
            0x0085 => Content::Memory { address: word(0)?, bytes: body[4..].to_vec() },
            0x0089 => Content::Pending { milliseconds: word(0)? as u16 },
            other => return Err(GvcpError::Unknown(other)),
        };
        Ok(Self { id, content: Ok(content) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with this content.
    fn answer(status: u16, number: u16, body: &[u8]) -> Vec<u8> {
        let head = [status, number, body.len() as u16, 77].map(u16::to_be_bytes);
        [head.as_flattened(), body].concat()
    }

    #[test]
    fn commands_have_the_bytes_of_the_protocol() {
        let bytes = |command: Command| command.datagram(0x1234);
        assert_eq!(bytes(Command::Discover), [0x42, 1, 0, 2, 0, 0, 0x12, 0x34]);
        let write = Command::WriteRegister { address: 0xA00, value: 2 };
        let expected = [0x42, 1, 0, 0x82, 0, 8, 0x12, 0x34, 0, 0, 0xA, 0, 0, 0, 0, 2];
        assert_eq!(bytes(write), expected);
        let (block, first, last) = (0xABCD, 3, 0x01_0203);
        let resend = Command::Resend { channel: 0, block, first, last, extended: false };
        let expected =
            [0x42, 0, 0, 0x40, 0, 12, 0x12, 0x34, 0, 0, 0xAB, 0xCD, 0, 0, 0, 3, 0, 1, 2, 3];
        assert_eq!(bytes(resend), expected);
        let resend =
            Command::Resend { channel: 1, block: 5 << 32 | 7, first, last, extended: true };
        assert_eq!(bytes(resend)[..12], [0x42, 0x10, 0, 0x40, 0, 20, 0x12, 0x34, 0, 1, 0, 0]);
        assert_eq!(bytes(resend)[20..], [0, 0, 0, 5, 0, 0, 0, 7]);
    }

    #[test]
    fn answers_are_read_and_each_missing_byte_is_noticed() {
        let memory = [&[0, 0, 2, 0][..], b"Local:"].concat();
        let content = Content::Memory { address: 0x200, bytes: b"Local:".to_vec() };
        let mut description = [0; DESCRIPTION_BYTES];
        description[0x24..0x28].copy_from_slice(&[192, 0, 2, 7]);
        description[0x68..0x6C].copy_from_slice(b"Fa\x07k");
        description[0xD8..0xE8].copy_from_slice(b"0123456789abcdef");
        for (number, body, content) in [
            (0x81, &[0, 0, 0, 9][..], Some(Content::Register(9))),
            (0x83, &[0, 0, 0, 1], Some(Content::Written)),
            (0x89, &[0, 0, 1, 0], Some(Content::Pending { milliseconds: 256 })),
            (0x85, &memory, Some(content)),
            (0x03, &description, None),
        ] {
            let bytes = answer(0, number, body);
            let read = Answer::read(&bytes).unwrap();
            assert_eq!(read.id, 77);
            match (read.content.unwrap(), content) {
                (Content::Description(it), None) => {
                    assert_eq!((it.model.as_str(), it.address), ("Fak", [192, 0, 2, 7].into()));
                    assert_eq!(it.serial, "0123456789abcdef");
                }
                (read, content) => assert_eq!(Some(read), content),
            }
            for length in 0..bytes.len() {
                let needs = if length < 8 { 8 } else { bytes.len() };
                let error = Err(GvcpError::TooShort { needs, is: length });
                assert_eq!(Answer::read(&bytes[..length]), error);
            }
        }
        assert_eq!(Answer::read(&answer(0, 0x99, &[])), Err(GvcpError::Unknown(0x99)));
        assert!(matches!(Answer::read(&answer(0, 0x81, &[])), Err(GvcpError::TooShort { .. })));
        assert!(matches!(Answer::read(&answer(0, 0x85, &[])), Err(GvcpError::TooShort { .. })));
    }

    #[test]
    fn a_refusal_is_told_in_words() {
        let refused = Answer::read(&answer(0x8006, 0x83, &[])).unwrap().content.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "another program has control of the camera (status 0x8006)"
        );
        assert_eq!(Refusal(0x8123).to_string(), "status 0x8123");
    }
}
