//! The names of streams.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The names of all streams of a recording, which its sources share.
#[derive(Debug, Default)]
pub struct StreamNames(Mutex<BTreeSet<String>>);

impl StreamNames {
    /// Reserves a name. Returns `false` if another stream has it.
    pub fn claim(&self, name: &str) -> bool {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(name.to_owned())
    }
}
