//! What a socket dropped, scan by scan: its counter when each began, and when its last frame had been read.

use fullbore_core::account::{Layer, Unread, Witness};
use uuid::Uuid;

/// What the counter said, or why it could not be read.
pub type Said = Result<u64, String>;

/// The counter of one socket, over the scans of which its streams have not told all.
#[derive(Default)]
pub struct Drops {
    scans: Vec<OfScan>,
}

struct OfScan {
    scan: Uuid,
    before: Said,
    /// Nothing yet while the scan is received.
    after: Option<Said>,
}

impl Drops {
    /// A scan begins.
    pub fn begin(&mut self, scan: Uuid, said: Said) {
        self.scans.push(OfScan { scan, before: said, after: None });
    }

    /// The scan that is received ends here.
    pub fn end(&mut self, said: &Said) {
        let received = self.scans.iter_mut().filter(|of| of.after.is_none());
        received.for_each(|of| of.after = Some(said.clone()));
    }

    /// Forgets scans that are over and no longer needed.
    pub fn forget(&mut self, mut is_needed: impl FnMut(Uuid) -> bool) {
        if self.scans.len() > 1 {
            self.scans.retain(|of| of.after.is_none() || is_needed(of.scan));
        }
    }

    /// What the counter says of a scan, or that it could not be read. `own`: to one stream; `coarse`: it
    /// counted messages of several datagrams.
    pub fn witness(
        &self,
        scan: Uuid,
        scope: &str,
        own: bool,
        coarse: bool,
    ) -> (Vec<Witness>, Vec<Unread>) {
        let (mut witnesses, mut unread) = (Vec::new(), Vec::new());
        for of in self.scans.iter().filter(|of| of.scan == scan) {
            let (layer, scope) = (Layer::Socket, scope.to_owned());
            let why = match (&of.before, &of.after) {
                (Ok(before), Some(Ok(after))) => {
                    let (before, after) = (*before, unwrapped(*before, *after));
                    let counter = "drops".to_owned();
                    witnesses.push(Witness { layer, counter, scope, own, coarse, before, after });
                    continue;
                }
                (Err(why), _) | (_, Some(Err(why))) => why.clone(),
                (Ok(_), None) => "it was not asked at the end".to_owned(),
            };
            unread.push(Unread { layer, scope, why });
        }
        (witnesses, unread)
    }

    /// The socket does not say what it had dropped when the newest scan began.
    #[cfg(test)]
    pub(super) fn blind(&mut self) {
        self.scans.last_mut().expect("a scan was begun").before = Err("it was blinded".to_owned());
    }

    /// How many scans are remembered.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.scans.len()
    }
}

/// The counter of 32 bits has gone on from `before`, perhaps past its end.
fn unwrapped(before: u64, after: u64) -> u64 {
    before + u64::from((after as u32).wrapping_sub(before as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_of_dropped_messages_that_passes_its_end_goes_on() {
        assert_eq!(unwrapped(7, 7), 7);
        assert_eq!(unwrapped(7, 19), 19);
        assert_eq!(unwrapped(u64::from(u32::MAX), 2), u64::from(u32::MAX) + 3);
    }

    #[test]
    fn where_one_scan_ends_the_next_begins_and_what_is_told_is_forgotten() {
        let (mut drops, [a, b]) = (Drops::default(), [(); 2].map(|()| Uuid::now_v7()));
        drops.begin(a, Ok(3));
        drops.end(&Ok(8));
        drops.begin(b, Ok(8));
        let moved = |drops: &Drops, scan| {
            let (witnesses, unread) = drops.witness(scan, "127.0.0.1:5000", true, false);
            (witnesses.iter().map(Witness::moved).collect::<Vec<_>>(), unread.len())
        };
        assert_eq!(moved(&drops, a), (vec![5], 0));
        assert_eq!(moved(&drops, b), (vec![], 1), "it has not ended");
        drops.end(&Err("Bad file descriptor".to_owned()));
        assert_eq!(moved(&drops, b), (vec![], 1));
        drops.forget(|scan| scan == b);
        assert_eq!((moved(&drops, a), drops.held()), ((vec![], 0), 1));
    }
}
