//! The affinity policy that a user selects: `--place`, `--cpus`.

use std::str::FromStr;

use super::cpu_list;

/// The affinity policy for threads: `--place`, `--cpus`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AffinityPolicy {
    /// Placement by the machine's topology.
    #[default]
    Auto,
    /// No pinning: the scheduler chooses.
    Off,
    /// A list of cores: the first for the first capture thread, and so on; the rest for the writers, in turn.
    InTurn(Vec<usize>),
    /// Capture threads on the first list, one core each, in turn; every writer on the whole second list. An empty list
    /// leaves those threads unpinned.
    Given {
        /// Cores for capture threads.
        captures: Vec<usize>,
        /// Cores for writers.
        writers: Vec<usize>,
    },
}

impl AffinityPolicy {
    /// Returns every core that the policy names.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        let (first, second): (&[usize], &[usize]) = match self {
            Self::Auto | Self::Off => (&[], &[]),
            Self::InTurn(cpus) => (cpus, &[]),
            Self::Given { captures, writers } => (captures, writers),
        };
        first.iter().chain(second).copied()
    }
}

/// The error text for an invalid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}`: write auto, off, or lists of cores such as capture=2-3,writers=4-7 (either may be left out)"
)]
pub struct InvalidAffinity {
    part: String,
}

impl FromStr for AffinityPolicy {
    type Err = InvalidAffinity;

    fn from_str(text: &str) -> Result<Self, InvalidAffinity> {
        match text.trim() {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let (mut captures, mut writers): (Option<Vec<usize>>, Option<Vec<usize>>) = (None, None);
        let mut of_writers = None;
        // A comma separates both the two lists and the items of each.
        for word in text.split(',') {
            let bad = || InvalidAffinity { part: word.trim().to_owned() };
            let spans = match word.split_once('=') {
                Some((kind, spans)) => {
                    let list = match kind.trim() {
                        "capture" | "captures" => (&mut captures, false),
                        "writer" | "writers" => (&mut writers, true),
                        _ => return Err(bad()),
                    };
                    if list.0.replace(Vec::new()).is_some() {
                        return Err(bad());
                    }
                    of_writers = Some(list.1);
                    spans
                }
                None => word,
            };
            let cpus = cpu_list::parse(spans).filter(|cpus| !cpus.is_empty()).ok_or_else(bad)?;
            let list = match of_writers {
                None => return Err(bad()),
                Some(false) => &mut captures,
                Some(true) => &mut writers,
            };
            list.as_mut().expect("a list was begun").extend(cpus);
        }
        Ok(Self::Given {
            captures: captures.unwrap_or_default(),
            writers: writers.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(captures: &[usize], writers: &[usize]) -> AffinityPolicy {
        AffinityPolicy::Given { captures: captures.to_vec(), writers: writers.to_vec() }
    }

    #[test]
    fn a_wish_is_a_word_or_one_or_two_lists() {
        assert_eq!("auto".parse(), Ok(AffinityPolicy::Auto));
        assert_eq!("off".parse(), Ok(AffinityPolicy::Off));
        assert_eq!("capture=2,writers=4-5".parse(), Ok(given(&[2], &[4, 5])));
        assert_eq!("writers=4,6-7,capture=2,3".parse(), Ok(given(&[2, 3], &[4, 6, 7])));
        assert_eq!("writers=9".parse(), Ok(given(&[], &[9])));
        for bad in ["", "2,3", "capture=", "capture=2,capture=3", "disks=1", "capture=x", "on"] {
            let error = bad.parse::<AffinityPolicy>().unwrap_err();
            assert!(error.to_string().contains("capture=2-3,writers=4-7"), "{bad}: {error}");
        }
    }
}
