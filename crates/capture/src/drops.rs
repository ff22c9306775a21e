//! The drop counters of an input for each scan: their values when the scan began, and after its last frame was read.

use fullbore_core::account::{DropCounter, UnavailableCounter};
use uuid::Uuid;

use crate::input::CounterName;

/// The counter's value, or the reason why it could not be read.
pub type DropReading = Result<u64, String>;

/// The counters of one input, for the scans whose streams have not all sent their accounts.
#[derive(Default)]
pub struct Drops {
    scans: Vec<OfScan>,
}

struct OfScan {
    scan: Uuid,
    before: Vec<DropReading>,
    /// `None` while the scan is received.
    after: Option<Vec<DropReading>>,
}

impl Drops {
    /// A scan begins.
    pub fn begin(&mut self, scan: Uuid, said: Vec<DropReading>) {
        self.scans.push(OfScan { scan, before: said, after: None });
    }

    /// Ends the scan that is received.
    pub fn end(&mut self, said: &[DropReading]) {
        let received = self.scans.iter_mut().filter(|of| of.after.is_none());
        received.for_each(|of| of.after = Some(said.to_vec()));
    }

    /// Forgets finished scans that are no longer needed.
    pub fn forget(&mut self, mut is_needed: impl FnMut(Uuid) -> bool) {
        if self.scans.len() > 1 {
            self.scans.retain(|of| of.after.is_none() || is_needed(of.scan));
        }
    }

    /// Returns the drop counters of a scan, or the reasons why they could not be read. The names are in the order of the
    /// readings.
    pub fn of_scan(
        &self,
        scan: Uuid,
        names: &[CounterName],
    ) -> (Vec<DropCounter>, Vec<UnavailableCounter>) {
        let (mut drop_counters, mut unavailable) = (Vec::new(), Vec::new());
        for of in self.scans.iter().filter(|of| of.scan == scan) {
            for (number, name) in names.iter().enumerate() {
                let CounterName { layer, counter, scope, own, coarse } = name.clone();
                let after = of.after.as_ref().map(|after| after.get(number));
                let why = match (of.before.get(number), after) {
                    (Some(Ok(before)), Some(Some(Ok(after)))) => {
                        let (before, after) = (*before, unwrapped(*before, *after));
                        let counter = counter.to_owned();
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
                    (Some(Err(why)), _) | (_, Some(Some(Err(why)))) => why.clone(),
                    (Some(Ok(_)) | None, _) => "it was not read at both ends".to_owned(),
                };
                unavailable.push(UnavailableCounter { layer, scope, why });
            }
        }
        (drop_counters, unavailable)
    }

    /// For tests: makes the counter unreadable at the begin of the newest scan.
    #[cfg(test)]
    pub(super) fn blind(&mut self) {
        let before = &mut self.scans.last_mut().expect("a scan was begun").before;
        before.iter_mut().for_each(|it| *it = Err("it was blinded".to_owned()));
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
    use fullbore_core::account::Layer;

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
        let name = |layer, counter| {
            let scope = "127.0.0.1:5000".to_owned();
            CounterName { layer, counter, scope, own: true, coarse: false }
        };
        let names = [name(Layer::Xdp, "rx_dropped"), name(Layer::Socket, "drops")];
        drops.begin(a, vec![Ok(3), Ok(0)]);
        drops.end(&[Ok(8), Ok(1)]);
        drops.begin(b, vec![Ok(8), Ok(1)]);
        let moved = |drops: &Drops, scan| {
            let (drop_counters, unavailable) = drops.of_scan(scan, &names);
            let moved = drop_counters.iter().map(|it| (it.layer, it.moved())).collect::<Vec<_>>();
            (moved, unavailable.len())
        };
        assert_eq!(moved(&drops, a), (vec![(Layer::Xdp, 5), (Layer::Socket, 1)], 0));
        assert_eq!(moved(&drops, b), (vec![], 2), "it has not ended");
        drops.end(&[Ok(9), Err("Bad file descriptor".to_owned())]);
        assert_eq!(moved(&drops, b), (vec![(Layer::Xdp, 1)], 1));
        drops.forget(|scan| scan == b);
        assert_eq!((moved(&drops, a), drops.held()), ((vec![], 0), 1));
    }
}
