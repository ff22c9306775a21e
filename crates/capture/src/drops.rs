//! The drop counter of a socket for each scan: its value when the scan began, and after its last frame was read.

use fullbore_core::account::{DropCounter, Layer, UnavailableCounter};
use uuid::Uuid;

/// The counter's value, or the reason why it could not be read.
pub type DropReading = Result<u64, String>;

/// The counter of one socket, for the scans whose streams have not all sent their accounts.
#[derive(Default)]
pub struct Drops {
    scans: Vec<OfScan>,
}

struct OfScan {
    scan: Uuid,
    before: DropReading,
    /// `None` while the scan is received.
    after: Option<DropReading>,
}

impl Drops {
    /// A scan begins.
    pub fn begin(&mut self, scan: Uuid, said: DropReading) {
        self.scans.push(OfScan { scan, before: said, after: None });
    }

    /// Ends the scan that is received.
    pub fn end(&mut self, said: &DropReading) {
        let received = self.scans.iter_mut().filter(|of| of.after.is_none());
        received.for_each(|of| of.after = Some(said.clone()));
    }

    /// Forgets finished scans that are no longer needed.
    pub fn forget(&mut self, mut is_needed: impl FnMut(Uuid) -> bool) {
        if self.scans.len() > 1 {
            self.scans.retain(|of| of.after.is_none() || is_needed(of.scan));
        }
    }

    /// Returns the drop counter of a scan, or the reason why it could not be read. `own`: it belongs to one stream;
    /// `coarse`: it counted messages of several datagrams.
    pub fn of_scan(
        &self,
        scan: Uuid,
        scope: &str,
        own: bool,
        coarse: bool,
    ) -> (Vec<DropCounter>, Vec<UnavailableCounter>) {
        let (mut drop_counters, mut unavailable) = (Vec::new(), Vec::new());
        for of in self.scans.iter().filter(|of| of.scan == scan) {
            let (layer, scope) = (Layer::Socket, scope.to_owned());
            let why = match (&of.before, &of.after) {
                (Ok(before), Some(Ok(after))) => {
                    let (before, after) = (*before, unwrapped(*before, *after));
                    let counter = "drops".to_owned();
                    drop_counters.push(DropCounter {
                        layer,
                        counter,
                        scope,
                        own,
                        coarse,
                        before,
                        after,
                    });
                    continue;
                }
                (Err(why), _) | (_, Some(Err(why))) => why.clone(),
                (Ok(_), None) => "it was not read at the end".to_owned(),
            };
            unavailable.push(UnavailableCounter { layer, scope, why });
        }
        (drop_counters, unavailable)
    }

    /// For tests: makes the counter unreadable at the begin of the newest scan.
    #[cfg(test)]
    pub(super) fn blind(&mut self) {
        self.scans.last_mut().expect("a scan was begun").before = Err("it was blinded".to_owned());
    }

    /// Returns the number of remembered scans.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.scans.len()
    }
}

/// Returns the increase of a 32-bit counter since `before`, including a wrap-around.
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
            let (drop_counters, unavailable) = drops.of_scan(scan, "127.0.0.1:5000", true, false);
            (drop_counters.iter().map(DropCounter::moved).collect::<Vec<_>>(), unavailable.len())
        };
        assert_eq!(moved(&drops, a), (vec![5], 0));
        assert_eq!(moved(&drops, b), (vec![], 1), "it has not ended");
        drops.end(&Err("Bad file descriptor".to_owned()));
        assert_eq!(moved(&drops, b), (vec![], 1));
        drops.forget(|scan| scan == b);
        assert_eq!((moved(&drops, a), drops.held()), ((vec![], 0), 1));
    }
}
