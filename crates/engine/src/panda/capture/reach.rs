//! The first connections to PandAs: one that is not there is told before anything is begun.

use std::time::Duration;

use fullbore_core::format::panda::PandaSource;

use super::device::Panda;
use crate::panda::{Error, Patience};

/// How long a connection, an answer, and a look at the data port may take.
pub const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    answer: Duration::from_secs(5),
    quiet: Duration::from_millis(20),
};

/// Connects to each PandA, and to its control port if it is to be armed. One PandA given twice is refused.
pub fn reach(pandas: &[(PandaSource, bool)]) -> Result<Vec<Panda>, Error> {
    let place = |source: &PandaSource| (source.host.to_ascii_lowercase(), source.data_port);
    refuse_twins(pandas, |at| Some(place(&pandas[at].0)))?;
    let mut devices = Vec::with_capacity(pandas.len());
    for (source, arm) in pandas {
        let mut device = Panda::new(source.clone(), PATIENCE);
        device.reach(*arm)?;
        devices.push(device);
    }
    // Two names may be of one host.
    refuse_twins(pandas, |at| devices[at].reached_at())?;
    Ok(devices)
}

/// Refuses two PandAs that have the same identity.
fn refuse_twins<T: PartialEq>(
    pandas: &[(PandaSource, bool)],
    identity: impl Fn(usize) -> Option<T>,
) -> Result<(), Error> {
    for second in 1..pandas.len() {
        let twin =
            |&first: &usize| identity(first).is_some() && identity(first) == identity(second);
        if let Some(first) = (0..second).find(twin) {
            let named = |at: usize| pandas[at].0.to_string();
            return Err(Error::Same { first: named(first), second: named(second) });
        }
    }
    Ok(())
}
