//! The messages of the protocol, as bytes: big-endian, without padding but for one field.

use md5::{Digest, Md5};

/// The revision that both ends must have.
pub const REVISION: u32 = 0x2006_1025;

/// Bytes of the server's challenge.
pub const CHALLENGE_BYTES: usize = 64;

/// The longest name of a file.
pub const LONGEST_NAME: usize = 1024;

/// The request for names and sizes.
pub const DIRECTORY: &str = "!#DIR??";

/// The request for names.
pub const ALL: &str = "*";

/// The largest block that fits a datagram with its head.
pub const LARGEST_BLOCK: u32 = 65_507 - HEAD_BYTES as u32;

/// Bytes before each block.
pub const HEAD_BYTES: usize = 6;

/// A feedback message has this many bytes.
pub const FEEDBACK_BYTES: usize = 12;

/// The server accepts the request or the proof.
pub const GOOD: u8 = 0;

/// The proof is wrong.
pub const BAD_PROOF: u8 = 1;

/// The file does not exist or is not readable.
pub const NOT_READABLE: u8 = 8;

/// The answer to a challenge.
pub fn proof(challenge: &[u8; CHALLENGE_BYTES], secret: &[u8]) -> [u8; 16] {
    let mut mixed = *challenge;
    for (byte, key) in mixed.iter_mut().zip(secret.iter().cycle()) {
        *byte ^= key;
    }
    Md5::digest(mixed).into()
}

/// What the client asks of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Bytes of a block.
    pub block: u32,
    /// Bit/s.
    pub rate: u32,
    /// The share of lost blocks above which the server sends more slowly, in thousandths of a percent.
    pub error_rate: u32,
    /// The factor of the gap between blocks when too many are lost: numerator and denominator.
    pub slower: (u16, u16),
    /// The factor of the gap otherwise.
    pub faster: (u16, u16),
}

impl Parameters {
    /// Bytes of the message.
    pub const BYTES: usize = 20;

    /// The usual ones for this block size and rate.
    pub fn usual(block: u32, rate: u32) -> Self {
        Self { block, rate, error_rate: 7500, slower: (25, 24), faster: (5, 6) }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (at, word) in [self.block, self.rate, self.error_rate].into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_be_bytes());
        }
        let halves = [self.slower.0, self.slower.1, self.faster.0, self.faster.1];
        for (at, half) in halves.into_iter().enumerate() {
            bytes[12 + at * 2..14 + at * 2].copy_from_slice(&half.to_be_bytes());
        }
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let pair = |at| (u16_at(bytes, at), u16_at(bytes, at + 2));
        Self {
            block: u32_at(bytes, 0),
            rate: u32_at(bytes, 4),
            error_rate: u32_at(bytes, 8),
            slower: pair(12),
            faster: pair(16),
        }
    }

    /// Why no transfer is possible with them.
    pub fn fault(&self) -> Option<String> {
        let Self { block, rate, slower, faster, .. } = self;
        if *block == 0 || *block > LARGEST_BLOCK {
            return Some(format!("a block size of {block}, not 1 to {LARGEST_BLOCK}"));
        }
        if *rate == 0 {
            return Some("a rate of 0".to_owned());
        }
        let zero = [slower.0, slower.1, faster.0, faster.1].contains(&0);
        zero.then(|| "a factor of 0".to_owned())
    }
}

/// What the server says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// Its length.
    pub length: u64,
    /// Bytes of a block, as the client asked.
    pub block: u32,
    /// Blocks of it.
    pub blocks: u32,
    /// The time of the server in Unix seconds.
    pub epoch: u32,
}

impl FileHead {
    /// Bytes of the message.
    pub const BYTES: usize = 20;

    /// The head of a file; `None` if it has more blocks than can be counted.
    pub fn of(length: u64, block: u32, epoch: u32) -> Option<Self> {
        let blocks = u32::try_from(length.div_ceil(u64::from(block))).ok()?;
        Some(Self { length, block, blocks, epoch })
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.length.to_be_bytes());
        for (at, word) in [self.block, self.blocks, self.epoch].into_iter().enumerate() {
            bytes[8 + at * 4..12 + at * 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            length: u64::from(u32_at(bytes, 0)) << 32 | u64::from(u32_at(bytes, 4)),
            block: u32_at(bytes, 8),
            blocks: u32_at(bytes, 12),
            epoch: u32_at(bytes, 16),
        }
    }

    /// The place of a block in the file: offset and bytes. `None` if there is no such block.
    pub fn place(&self, number: u32) -> Option<(u64, usize)> {
        let offset = u64::from(number.checked_sub(1)?) * u64::from(self.block);
        let left = self.length.checked_sub(offset).filter(|left| *left > 0)?;
        Some((offset, left.min(self.block.into()) as usize))
    }
}

/// The kind of a block on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For the first time, or after a restart.
    Original,
    /// Because the client asked for it.
    Resent,
    /// The last block, repeated until the client stops the transfer.
    Last,
}

/// The head of a block.
pub fn encode_head(number: u32, kind: Kind) -> [u8; HEAD_BYTES] {
    let letter = match kind {
        Kind::Original => b'O',
        Kind::Resent => b'R',
        Kind::Last => b'X',
    };
    let [a, b, c, d] = number.to_be_bytes();
    [a, b, c, d, 0, letter]
}

/// The number and kind of a block.
pub fn decode_head(datagram: &[u8]) -> Option<(u32, Kind)> {
    let head = datagram.first_chunk::<HEAD_BYTES>()?;
    let kind = match u16_at(head, 4) {
        0x4F => Kind::Original,
        0x52 => Kind::Resent,
        0x58 => Kind::Last,
        _ => return None,
    };
    Some((u32_at(head, 0), kind))
}

/// A message of the client during a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Send this block again.
    Resend(u32),
    /// Go on from this block.
    Restart(u32),
    /// All of it is here.
    Stop,
    /// The share of lost blocks, in thousandths of a percent.
    ErrorRate(u32),
}

impl Feedback {
    /// As bytes.
    pub fn encode(&self) -> [u8; FEEDBACK_BYTES] {
        let (kind, block, rate) = match *self {
            Self::Resend(block) => (0u16, block, 0),
            Self::Restart(block) => (1, block, 0),
            Self::Stop => (2, 0, 0),
            Self::ErrorRate(rate) => (3, 0, rate),
        };
        let mut bytes = [0; FEEDBACK_BYTES];
        bytes[..2].copy_from_slice(&kind.to_be_bytes());
        bytes[4..8].copy_from_slice(&u32::to_be_bytes(block));
        bytes[8..].copy_from_slice(&u32::to_be_bytes(rate));
        bytes
    }

    /// From bytes; `None` for an unknown kind.
    pub fn decode(bytes: &[u8; FEEDBACK_BYTES]) -> Option<Self> {
        Some(match u16_at(bytes, 0) {
            0 => Self::Resend(u32_at(bytes, 4)),
            1 => Self::Restart(u32_at(bytes, 4)),
            2 => Self::Stop,
            3 => Self::ErrorRate(u32_at(bytes, 8)),
            _ => return None,
        })
    }
}

/// Bytes that came and were not taken yet.
#[derive(Debug, Default)]
pub struct Inbox(Vec<u8>);

impl Inbox {
    /// The most bytes that wait.
    pub const MOST: usize = 1 << 16;

    /// Adds bytes. `false` if there are too many.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        self.0.len() <= Self::MOST
    }

    /// The next bytes, once all of them are here.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.0.first_chunk::<N>()?;
        self.0.drain(..N);
        Some(bytes)
    }

    /// The next text up to this byte, once all of it is here, or its length if it is too long.
    pub fn take_text(&mut self, end: u8, most: usize) -> Option<Result<Vec<u8>, usize>> {
        let found = self.0.iter().take(most + 1).position(|byte| *byte == end);
        match found {
            None if self.0.len() > most => Some(Err(self.0.len())),
            None => None,
            Some(length) => {
                let text = self.0[..length].to_vec();
                self.0.drain(..=length);
                Some(Ok(text))
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_proof_is_the_digest_of_challenge_and_secret() {
        // 64 zero bytes leave the secret alone: MD5 of "kitten" repeated to 64 bytes.
        let repeated: Vec<u8> = b"kitten".iter().copied().cycle().take(64).collect();
        assert_eq!(proof(&[0; 64], b"kitten")[..], Md5::digest(repeated)[..]);
        assert_ne!(proof(&[0; 64], b"kitten"), proof(&[0; 64], b"kittens"));
        assert_eq!(proof(&[7; 64], b"")[..], Md5::digest([7; 64])[..]);
    }

    #[test]
    fn places_of_blocks_are_within_the_file() {
        let head = FileHead::of(2500, 1000, 0).unwrap();
        assert_eq!(head.blocks, 3);
        let places = [0, 1, 3, 4, u32::MAX].map(|number| head.place(number));
        assert_eq!(places, [None, Some((0, 1000)), Some((2000, 500)), None, None]);
        assert_eq!(FileHead::of(1 << 40, 1, 0), None, "too many blocks");
    }

    #[test]
    fn impossible_parameters_are_found() {
        let usual = Parameters::usual(1024, 1);
        assert_eq!(usual.fault(), None);
        for block in [0, LARGEST_BLOCK + 1, 65_530, 65_536, u32::MAX] {
            assert!(Parameters { block, ..usual }.fault().is_some(), "{block}");
        }
        assert!(Parameters { rate: 0, ..usual }.fault().is_some());
        assert!(Parameters { slower: (25, 0), ..usual }.fault().is_some());
        assert!(Parameters { faster: (0, 6), ..usual }.fault().is_some());
    }

    proptest! {
        #[test]
        fn messages_come_back(a: u32, b: u32, c: u32, d: u64, halves: (u16, u16, u16, u16)) {
            let slower = (halves.0, halves.1);
            let faster = (halves.2, halves.3);
            let parameters = Parameters { block: a, rate: b, error_rate: c, slower, faster };
            prop_assert_eq!(Parameters::decode(&parameters.encode()), parameters);
            let head = FileHead { length: d, block: a, blocks: b, epoch: c };
            prop_assert_eq!(FileHead::decode(&head.encode()), head);
            for feedback in [Feedback::Resend(a), Feedback::Restart(a), Feedback::Stop, Feedback::ErrorRate(a)] {
                prop_assert_eq!(Feedback::decode(&feedback.encode()), Some(feedback));
            }
            for kind in [Kind::Original, Kind::Resent, Kind::Last] {
                prop_assert_eq!(decode_head(&encode_head(a, kind)), Some((a, kind)));
            }
        }

        #[test]
        fn texts_are_taken_whole_at_every_split(text in "[a-z/]{0,40}", split in 0usize..42) {
            let line = format!("{text}\nrest");
            let split = split.min(line.len());
            let mut inbox = Inbox::default();
            prop_assert!(inbox.push(&line.as_bytes()[..split]));
            let early = inbox.take_text(b'\n', 40);
            prop_assert_eq!(early.is_some(), split > text.len());
            prop_assert!(inbox.push(&line.as_bytes()[split..]));
            let taken = early.or_else(|| inbox.take_text(b'\n', 40));
            prop_assert_eq!(taken, Some(Ok(text.into_bytes())));
            prop_assert_eq!(inbox.take::<4>(), Some(*b"rest"));
        }

        #[test]
        fn any_datagram_is_understood_or_refused(bytes: Vec<u8>) {
            let known = bytes.len() >= 6 && bytes[4] == 0 && b"ORX".contains(&bytes[5]);
            prop_assert_eq!(decode_head(&bytes).is_some(), known);
        }
    }

    #[test]
    fn a_text_without_an_end_is_too_long() {
        let mut inbox = Inbox::default();
        assert!(inbox.push(&[b'a'; 1025]));
        assert_eq!(inbox.take_text(b'\n', 1024), Some(Err(1025)));
        assert!(!inbox.push(&vec![0; Inbox::MOST]), "more than may wait");
    }
}
