//! The redundancy of a scan: copies or parity against the loss of members.
//!
//! ```text
//! mirror        chunk │ copy                              any 1 member may be lost
//! parity:3+2    chunk │ chunk │ chunk │ parity │ parity   any 2 members may be lost
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest number of chunks of a stripe, data and parity together.
pub const MOST_SHARDS: usize = 64;

/// A number of parity chunks for a number of data chunks, all on different members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// The largest number of data chunks of a stripe.
    pub data: u16,
    /// Parity chunks of each stripe: this many members may be lost.
    pub parity: u16,
}

/// The error for a text that is not a scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a redundancy scheme: write `mirror` or `parity:K+M`, K, M ≥ 1, K + M ≤ {MOST_SHARDS}"
)]
pub struct Error {
    text: String,
}

impl Scheme {
    /// Returns the number of members of a stripe.
    pub fn members(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }

    /// Returns the largest number of data chunks of a stripe on `members` members: all its chunks are on different
    /// ones.
    pub fn widest(self, members: usize) -> usize {
        usize::from(self.data).min(members.saturating_sub(usize::from(self.parity))).max(1)
    }

    /// Returns the bytes of parity for `bytes` bytes of data, with stripes as wide as `members` members allow.
    pub fn extra(self, bytes: u64, members: usize) -> u64 {
        let extra = u128::from(bytes) * u128::from(self.parity) / self.widest(members) as u128;
        u64::try_from(extra).unwrap_or(u64::MAX)
    }
}

impl FromStr for Scheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            if text == "mirror" {
                return Some(Self { data: 1, parity: 1 });
            }
            let (data, parity) = text.strip_prefix("parity:")?.split_once('+')?;
            let scheme = Self { data: data.parse().ok()?, parity: parity.parse().ok()? };
            let can_be = scheme.data > 0 && scheme.parity > 0 && scheme.members() <= MOST_SHARDS;
            can_be.then_some(scheme)
        };
        parse().ok_or_else(|| Error { text: text.to_owned() })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { data: 1, parity: 1 } => write!(f, "mirror"),
            Self { data, parity } => write!(f, "parity:{data}+{parity}"),
        }
    }
}

/// The redundancy in a scan's manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redundancy {
    /// The largest number of data chunks of a stripe.
    pub data: u16,
    /// Parity chunks of each stripe.
    pub parity: u16,
    /// The result, once it is complete; a recorder that died leaves none.
    #[serde(default)]
    pub followed: Option<Followed>,
    /// The number of rebuilds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rebuilt: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

/// The result of making redundancy during a recording. After a rebuild its sums are the current ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Stripes made.
    pub stripes: u64,
    /// Data chunks in them.
    pub chunks: u64,
    /// Data chunks that are in no stripe.
    pub unprotected: u64,
    /// Stripes with fewer parity chunks than requested.
    #[serde(default, skip_serializing_if = "is_none")]
    pub narrow: u64,
    /// Bytes of parity.
    pub bytes: u64,
    /// The largest number of complete chunks that waited for their parity at one time during the recording.
    pub most_behind: u64,
    /// The time from the durability of the last block to completion, in milliseconds.
    pub after_ms: u64,
}

impl Followed {
    /// Returns the bytes of data and parity for each byte of data.
    pub fn factor(&self, data_bytes: u64) -> f64 {
        1.0 + self.bytes as f64 / data_bytes.max(1) as f64
    }
}

impl Redundancy {
    /// Returns the redundancy of a new scan.
    pub fn of(scheme: Scheme) -> Self {
        Self { data: scheme.data, parity: scheme.parity, followed: None, rebuilt: 0 }
    }

    /// Returns the requested scheme.
    pub fn scheme(&self) -> Scheme {
        Scheme { data: self.data, parity: self.parity }
    }

    /// Checks that the values are valid.
    pub fn check(&self) -> Result<(), String> {
        let scheme = self.scheme();
        match scheme.data > 0 && scheme.parity > 0 && scheme.members() <= MOST_SHARDS {
            true => Ok(()),
            false => Err(format!("a redundancy of {}+{}", self.data, self.parity)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_one_copy_of_each_chunk() {
        assert_eq!("mirror".parse(), Ok(Scheme { data: 1, parity: 1 }));
        assert_eq!("parity:1+1".parse::<Scheme>().unwrap().to_string(), "mirror");
        assert_eq!("parity:8+2".parse::<Scheme>().unwrap().to_string(), "parity:8+2");
        let scheme = Scheme { data: 4, parity: 2 };
        assert_eq!(
            [7, 6, 5, 4, 2].map(|members| scheme.extra(1000, members)),
            [500, 500, 666, 1000, 2000]
        );
    }

    #[test]
    fn what_cannot_be_is_refused_and_told() {
        for text in
            ["", "raid5", "parity", "parity:0+1", "parity:1+0", "parity:60+5", "parity:2+-1"]
        {
            let error = text.parse::<Scheme>().unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{text}`")) && error.contains("parity:K+M"),
                "{error}"
            );
        }
    }
}
