//! Publishes the use of memory, so that transfers on this host give way in time.

use std::sync::atomic::Ordering::Relaxed;

use fullbore_core::manifest::Stream;

use super::Supervisor;
use super::high_water::FEW_BLOCKS;

impl Supervisor {
    /// Writes the load file, if that is due. Sources that can wait lose nothing, and do not count.
    pub(super) fn publish_load(&mut self) {
        let Some(load) = self.load.as_mut().filter(|load| load.is_due()) else { return };
        let sources = &self.plan.sources;
        let waits = |stream: &Stream| {
            sources.iter().any(|source| source.can_wait() && source.endpoint() == stream.source)
        };
        let (mut permille, mut overrun) = (0, 0);
        // The newest scan is being recorded; older ones share its memory.
        let newest = self.scans.back().into_iter().flat_map(|scan| {
            let of = |number: &u16| scan.manifest.streams.get(usize::from(*number));
            scan.metrics.iter().filter_map(move |(number, metrics)| Some((of(number)?, metrics)))
        });
        for (_, metrics) in newest.filter(|(stream, _)| !waits(stream)) {
            let (used, all) =
                (metrics.used_blocks.load(Relaxed), metrics.pool_blocks.load(Relaxed));
            permille = permille.max(permille_of(used, all));
            overrun += metrics.overrun.load(Relaxed);
        }
        load.put(permille, overrun);
    }
}

/// Returns the part of the blocks in use, in thousandths. Of few blocks some are always in use.
fn permille_of(used: u64, all: u64) -> u32 {
    match all {
        0..FEW_BLOCKS => 0,
        _ => (used.min(all) * 1000 / all) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_large_ring_is_told_in_thousandths() {
        assert_eq!(
            [(0, 64), (16, 64), (64, 64), (70, 64)].map(|(a, b)| permille_of(a, b)),
            [0, 250, 1000, 1000]
        );
        assert_eq!(permille_of(4, 4), 0);
        assert_eq!(permille_of(0, 0), 0);
    }
}
