//! The sealed scans of a store as plain files with names, for protocols that know nothing but files.
//!
//! A stream is the file `SCAN/STREAM.vdif`, with the bytes that `fullbore cat` writes (`.m5b` for Mark 5B, `.raw` for
//! anything else). A name is compared with the scans of the store, and is never a path. A scan that is still being
//! recorded or copied is not among them, and neither is a stream with blocks missing: its bytes would not be those of
//! the recording.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use fullbore_core::hint::Hint;
use fullbore_core::manifest::{Format, Stream};
use fullbore_core::name::{Name, ScanName};
use fullbore_linux::ring::Block;
use fullbore_store::catalogue::{self, ScanState};
use fullbore_store::follow::FollowState;
use fullbore_store::read;
use ipnet::IpNet;

use crate::outgoing::Outgoing;
use crate::schedule::BlockId;

/// Blocks of a file that stay in memory: the one that is being sent, and those that are asked for again.
const HELD_BLOCKS: usize = 3;

/// The most files in a listing.
const MOST_FILES: usize = 65_536;

/// The longest name that is looked up.
const LONGEST_NAME: usize = 512;

/// The files of a store.
#[derive(Clone, Debug)]
pub struct ServedFiles {
    members: Vec<PathBuf>,
}

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// `SCAN/STREAM.vdif`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// No sealed and complete stream has this name.
    #[error("no such file: \"{0}\"")]
    NoSuchFile(String),
    /// A block of it is damaged or missing.
    #[error("{name} cannot be read: {why}")]
    Unreadable {
        /// The file.
        name: String,
        /// The reason.
        why: String,
    },
    /// The bytes are not within the file.
    #[error("{name} has {length} bytes: there are none at {offset}")]
    Outside {
        /// The file.
        name: String,
        /// Its length.
        length: u64,
        /// The end of what was asked for.
        offset: u64,
    },
    /// The store cannot be listed.
    #[error("the scans cannot be listed: {0}")]
    Store(String),
}

impl Hint for FilesError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NoSuchFile(_) => {
                "names are SCAN/STREAM.vdif of sealed scans: `fullbore ls` lists the scans"
            }
            Self::Unreadable { .. } => "`fullbore verify SCAN` says which blocks are damaged",
            Self::Outside { .. } => return None,
            Self::Store(_) => "check the directories of --store",
        }))
    }
}

impl ServedFiles {
    /// The files of the store on these members.
    pub fn of(members: Vec<PathBuf>) -> Self {
        Self { members }
    }

    /// All files, by name.
    pub fn list(&self) -> Result<Vec<Listed>, FilesError> {
        let catalogue =
            catalogue::list(&self.members).map_err(|error| FilesError::Store(error.to_string()))?;
        let over =
            |state| matches!(state, ScanState::Sealed | ScanState::Aborted | ScanState::Recovered);
        let scans = catalogue.entries.iter().filter(|it| over(it.state));
        let mut listed = Vec::new();
        for scan in scans.filter_map(|it| it.name.parse::<ScanName>().ok()) {
            let Some(opened) = self.sealed(&scan) else { continue };
            let streams = opened.manifest().streams;
            let names = streams.iter().enumerate();
            listed.extend(names.filter_map(|(number, stream)| {
                let bytes = Blocks::of(&opened, number)?.length;
                Some(Listed { name: file_name(&scan, stream), bytes })
            }));
            if listed.len() >= MOST_FILES {
                listed.truncate(MOST_FILES);
                break;
            }
        }
        Ok(listed)
    }

    /// All streams of a scan as files. A stream with blocks missing is an error.
    pub fn of_scan(&self, scan: &ScanName) -> Result<Vec<Listed>, FilesError> {
        let opened = self.sealed(scan).ok_or_else(|| FilesError::NoSuchFile(scan.to_string()))?;
        let streams = opened.manifest().streams;
        let file = |(number, stream)| {
            let name = file_name(scan, stream);
            match Blocks::of(&opened, number) {
                Some(blocks) => Ok(Listed { name, bytes: blocks.length }),
                None => Err(FilesError::Unreadable { name, why: "blocks are missing".to_owned() }),
            }
        };
        streams.iter().enumerate().map(file).collect()
    }

    /// Opens a file.
    pub fn open(&self, name: &str) -> Result<ServedFile, FilesError> {
        let found = self.find(name);
        found.ok_or_else(|| FilesError::NoSuchFile(harmless(name)))?
    }

    fn find(&self, name: &str) -> Option<Result<ServedFile, FilesError>> {
        if name.len() > LONGEST_NAME {
            return None;
        }
        let (scan, rest) = name.split_once('/')?;
        let (stream, _) = rest.rsplit_once('.')?;
        let (scan, stream) = (scan.parse::<ScanName>().ok()?, stream.parse::<Name>().ok()?);
        let opened = self.sealed(&scan)?;
        let streams = opened.manifest().streams;
        let number = streams.iter().position(|it| it.name == stream)?;
        if file_name(&scan, &streams[number]) != name {
            return None;
        }
        let blocks = Blocks::of(&opened, number)?;
        Some(ServedFile::new(name, opened, blocks))
    }

    /// Opens a scan that is sealed and, if it is a copy, complete.
    fn sealed(&self, scan: &ScanName) -> Option<Opened> {
        let outgoing = Outgoing::open(&self.members, scan).ok()?;
        let news = outgoing.look().ok()?;
        (news.state == FollowState::Sealed).then_some(Opened { outgoing, blocks: news.blocks })
    }
}

/// A scan, and its blocks with their lengths.
struct Opened {
    outgoing: Outgoing,
    blocks: Vec<(BlockId, u32)>,
}

impl Opened {
    fn manifest(&self) -> fullbore_core::manifest::Manifest {
        self.outgoing.manifest()
    }
}

/// The blocks of a stream.
struct Blocks {
    /// Each with the offset of its first byte.
    at: Vec<(u64, BlockId)>,
    length: u64,
}

impl Blocks {
    /// `None` if blocks of it are in no index.
    fn of(opened: &Opened, number: usize) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        if opened.outgoing.absent().iter().any(|it| it.stream == number) {
            return None;
        }
        let mut blocks = Self { at: Vec::new(), length: 0 };
        for (block, bytes) in opened.blocks.iter().filter(|(block, _)| block.0 == number) {
            blocks.at.push((blocks.length, *block));
            blocks.length += u64::from(*bytes);
        }
        Some(blocks)
    }
}

fn file_name(scan: &ScanName, stream: &Stream) -> String {
    let kind = match &stream.format {
        Format::Frames { kind, .. } if kind.name() == "mark5b" => "m5b",
        Format::Frames { kind, .. } => kind.name(),
        Format::Packets { kind } => kind.name(),
        _ => "raw",
    };
    format!("{scan}/{}.{kind}", stream.name)
}

/// Text from a peer, for messages.
fn harmless(text: &str) -> String {
    let shown = text.chars().take(80).map(|it| if it.is_control() { '?' } else { it });
    shown.collect()
}

/// An open file with random access. Blocks are read whole and checked, and a few stay in memory.
pub struct ServedFile {
    name: String,
    outgoing: Outgoing,
    blocks: Vec<(u64, BlockId)>,
    length: u64,
    free: Vec<Block>,
    /// Positions and blocks, the one used last at the end.
    held: Vec<(usize, Block)>,
}

impl ServedFile {
    fn new(name: &str, opened: Opened, blocks: Blocks) -> Result<Self, FilesError> {
        let outgoing = opened.outgoing;
        let unreadable = |why: String| FilesError::Unreadable { name: name.to_owned(), why };
        let mut pool = read::pool(HELD_BLOCKS, outgoing.block_bytes())
            .map_err(|error| unreadable(error.to_string()))?;
        let free = std::iter::from_fn(|| pool.take()).collect();
        let (blocks, length) = (blocks.at, blocks.length);
        let held = Vec::new();
        Ok(Self { name: name.to_owned(), outgoing, blocks, length, free, held })
    }

    /// Its length.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Fills `into` with the bytes from `offset` on, all of which must be within the file.
    pub fn read_at(&mut self, mut offset: u64, mut into: &mut [u8]) -> Result<(), FilesError> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.length);
        if end.is_none() {
            let (name, length) = (self.name.clone(), self.length);
            return Err(FilesError::Outside { name, length, offset });
        }
        while !into.is_empty() {
            let position = self.blocks.partition_point(|(start, _)| *start <= offset) - 1;
            let (start, _) = self.blocks[position];
            let next = self.blocks.get(position + 1).map_or(self.length, |(start, _)| *start);
            let count = into.len().min((next - offset) as usize);
            let from = (offset - start) as usize;
            let bytes = self.block(position)?;
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&bytes[from..from + count]);
            (into, offset) = (later, offset + count as u64);
        }
        Ok(())
    }

    /// The bytes of a block, from memory if they are there.
    fn block(&mut self, position: usize) -> Result<&[u8], FilesError> {
        match self.held.iter().position(|(held, _)| *held == position) {
            Some(found) if found + 1 == self.held.len() => {}
            Some(found) => self.held[found..].rotate_left(1),
            None => {
                let memory = self.free.pop().or_else(|| Some(self.held.remove(0).1));
                let mut memory = memory.expect("a block is free or held");
                let read = self.outgoing.fetch(self.blocks[position].1, &mut memory);
                if let Err(why) = read {
                    self.free.push(memory);
                    let (name, why) = (self.name.clone(), why.to_string());
                    return Err(FilesError::Unreadable { name, why });
                }
                self.held.push((position, memory));
            }
        }
        Ok(&self.held.last().expect("just put there").1)
    }
}

/// The addresses that a protocol without any proof of identity is open to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<IpNet>);

/// Text that is no list of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address or network: write 192.0.2.7 or 192.0.2.0/24 or 2001:db8::/32")]
pub struct AllowError(String);

impl FromStr for AllowList {
    type Err = AllowError;

    /// `192.0.2.0/24,2001:db8::7`: networks, or single addresses.
    fn from_str(text: &str) -> Result<Self, AllowError> {
        let one = |part: &str| {
            let alone = || part.parse::<IpAddr>().ok().map(IpNet::from);
            part.parse().ok().or_else(alone).ok_or_else(|| AllowError(harmless(part)))
        };
        text.split(',').map(|part| one(part.trim())).collect::<Result<_, _>>().map(Self)
    }
}

impl AllowList {
    /// This host alone.
    pub fn this_host() -> Self {
        Self(vec![
            IpAddr::from([127, 0, 0, 1]).into(),
            IpAddr::from(std::net::Ipv6Addr::LOCALHOST).into(),
        ])
    }

    /// True if the address is in it. An IPv4 address in its IPv6 form counts as the IPv4 address.
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::gap::Cause;
    use fullbore_store::testing::{Store, StreamPlan};

    use super::*;

    #[test]
    fn networks_and_single_addresses_are_allowed() {
        let list: AllowList = "192.0.2.0/24, 2001:db8::7,198.51.100.1".parse().unwrap();
        for inside in ["192.0.2.200", "2001:db8::7", "198.51.100.1", "::ffff:192.0.2.1"] {
            assert!(list.allows(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["192.0.3.1", "2001:db8::8", "198.51.100.2", "::1", "127.0.0.1"] {
            assert!(!list.allows(outside.parse().unwrap()), "{outside}");
        }
        assert!(AllowList::this_host().allows("::ffff:127.0.0.1".parse().unwrap()));
        for wrong in ["", "host", "192.0.2.0/33", "192.0.2.1,,", "/24", "192.0.2.1 192.0.2.2"] {
            assert!(wrong.parse::<AllowList>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_that_are_paths_are_no_files() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("secret.vdif"), b"secret").unwrap();
        let files = ServedFiles::of(vec![root.path().to_owned()]);
        let long = "a".repeat(10_000);
        let absolute = root.path().join("secret.vdif").display().to_string();
        let names =
            ["", "/", ".", "secret.vdif", "../secret.vdif", "../../etc/passwd", "a_b/../c.vdif"];
        for name in
            names.into_iter().chain([absolute.as_str(), "/etc/passwd", &long, "a_b/c\0.vdif"])
        {
            assert!(matches!(files.open(name), Err(FilesError::NoSuchFile(_))), "{name}");
        }
    }

    #[test]
    fn a_file_has_the_bytes_of_the_stream_at_any_offset() {
        let store = Store::new(2);
        let plans = [StreamPlan::vdif("a").gap(40, 3, Cause::Missing), StreamPlan::varying("b")];
        let laid = store.lay_down("r1_a", &plans);
        let files = ServedFiles::of(store.roots());
        let listed = files.list().unwrap();
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[0].name, "r1_a/a.vdif");
        assert_eq!(files.of_scan(&"r1_a".parse().unwrap()).unwrap(), listed);
        assert!(files.of_scan(&"r1_b".parse().unwrap()).is_err());
        for (listed, bytes) in listed.iter().zip(&laid.bytes) {
            let mut file = files.open(&listed.name).unwrap();
            assert_eq!((file.length(), listed.bytes), (bytes.len() as u64, bytes.len() as u64));
            for step in [1000, 65_536, bytes.len()] {
                let mut read = vec![0; bytes.len()];
                // Backwards, so that blocks come more than once.
                for (number, part) in
                    read.chunks_mut(step).enumerate().collect::<Vec<_>>().into_iter().rev()
                {
                    file.read_at((number * step) as u64, part).unwrap();
                }
                assert!(read == *bytes, "{} in steps of {step}", listed.name);
            }
            for (offset, count) in [(bytes.len() as u64, 1), (u64::MAX, 2), (0, bytes.len() + 1)] {
                let outside = file.read_at(offset, &mut vec![0; count]);
                assert!(matches!(outside, Err(FilesError::Outside { .. })), "{outside:?}");
            }
            file.read_at(bytes.len() as u64, &mut []).unwrap();
        }
        for wrong in ["r1_a/a.raw", "r1_a/c.vdif", "r1_a/a", "r1_a", "r1_A/a.vdif", "r1_a/./a.vdif"]
        {
            assert!(files.open(wrong).is_err(), "{wrong}");
        }
    }
}
