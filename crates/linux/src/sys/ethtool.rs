//! Settings of network cards by the ioctl of `ethtool`: rings, coalescing, pause frames, GRO, LRO and channels.
//!
//! Every request is a command word and words after it, and the kernel answers in place (`linux/ethtool.h`). A card or a
//! driver that lacks a setting answers EOPNOTSUPP.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

/// The ioctl (`linux/sockios.h`).
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// Room for every struct below: the largest one, of coalescing, has 23 words.
const WORDS: usize = 32;

/// The bit of LRO among the flags of a card (`ETH_FLAG_LRO`).
const LRO: u32 = 1 << 15;

/// A socket that carries the requests.
#[derive(Debug)]
pub struct Cards(OwnedFd);

/// Descriptors of a card's receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The number now.
    pub now: u32,
    /// The most that the card can have.
    pub most: u32,
}

/// When a card interrupts for received packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Microseconds that a packet waits at most.
    pub rx_usecs: u32,
    /// True if the driver changes that by itself.
    pub adaptive: bool,
}

/// Pause frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// True if pause frames of the other end stop this one.
    pub rx: bool,
    /// True if this end sends them.
    pub tx: bool,
}

/// Queues of a card, each with an interrupt of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Queues that receive.
    pub now: u32,
    /// The most of them.
    pub most: u32,
}

impl Cards {
    /// Opens the socket.
    pub fn open() -> io::Result<Self> {
        Ok(Self(socket(AddressFamily::INET, SocketType::DGRAM, None)?))
    }

    /// The receive ring.
    pub fn ring(&self, card: &str) -> io::Result<Ring> {
        let words = self.ask(card, 0x10, &[])?;
        Ok(Ring { most: words[1], now: words[5] })
    }

    /// Sets the number of receive descriptors. Some drivers drop packets for a moment.
    pub fn set_ring(&self, card: &str, descriptors: u32) -> io::Result<()> {
        let mut words = self.ask(card, 0x10, &[])?;
        words[5] = descriptors;
        self.ask(card, 0x11, &words[1..9]).map(drop)
    }

    /// The coalescing of interrupts.
    pub fn coalescing(&self, card: &str) -> io::Result<Coalescing> {
        let words = self.ask(card, 0x0e, &[])?;
        Ok(Coalescing { rx_usecs: words[1], adaptive: words[10] != 0 })
    }

    /// Sets the coalescing of interrupts for received packets.
    pub fn set_coalescing(&self, card: &str, wanted: Coalescing) -> io::Result<()> {
        let mut words = self.ask(card, 0x0e, &[])?;
        (words[1], words[10]) = (wanted.rx_usecs, u32::from(wanted.adaptive));
        self.ask(card, 0x0f, &words[1..23]).map(drop)
    }

    /// Pause frames.
    pub fn pause(&self, card: &str) -> io::Result<Pause> {
        let words = self.ask(card, 0x12, &[])?;
        Ok(Pause { rx: words[2] != 0, tx: words[3] != 0 })
    }

    /// True if the kernel merges received packets (GRO).
    pub fn gro(&self, card: &str) -> io::Result<bool> {
        Ok(self.ask(card, 0x2b, &[])?[1] != 0)
    }

    /// Switches GRO.
    pub fn set_gro(&self, card: &str, on: bool) -> io::Result<()> {
        self.ask(card, 0x2c, &[u32::from(on)]).map(drop)
    }

    /// True if the card merges received packets (LRO).
    pub fn lro(&self, card: &str) -> io::Result<bool> {
        Ok(self.ask(card, 0x25, &[])?[1] & LRO != 0)
    }

    /// Switches LRO.
    pub fn set_lro(&self, card: &str, on: bool) -> io::Result<()> {
        let flags = self.ask(card, 0x25, &[])?[1] & !LRO;
        self.ask(card, 0x26, &[flags | if on { LRO } else { 0 }]).map(drop)
    }

    /// The queues.
    pub fn channels(&self, card: &str) -> io::Result<Channels> {
        let words = self.ask(card, 0x3c, &[])?;
        Ok(Channels { now: words[5] + words[8], most: words[1].max(words[4]) })
    }

    /// Sends a command with the words after it, and returns the answer.
    fn ask(&self, card: &str, command: u32, after: &[u32]) -> io::Result<[u32; WORDS]> {
        let mut words = [0; WORDS];
        words[0] = command;
        words[1..=after.len()].copy_from_slice(after);
        // SAFETY: `ifreq` is a struct of integers, arrays of them and a pointer, for which all bits zero are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = card.as_bytes();
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = from.cast_signed() as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut words).cast();
        // SAFETY: for every command that a method above sends, the kernel reads and writes a struct of at most 23 words
        // at `ifru_data`, which points to 32 words that outlive the call and are borrowed exclusively.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        match done {
            0 => Ok(words),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_gro_and_no_ring() {
        let cards = Cards::open().unwrap();
        assert!(cards.gro("lo").is_ok());
        assert_eq!(cards.ring("lo").unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        assert_eq!(cards.gro("no-such-card").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn names_that_are_no_interface_are_refused() {
        let cards = Cards::open().unwrap();
        for name in ["", "a-name-of-16-byte", "a\0b"] {
            assert_eq!(
                cards.gro(name).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{name:?}"
            );
        }
    }
}
