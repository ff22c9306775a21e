//! The second that a VDIF header tells, whatever epoch it counts from.

use std::sync::LazyLock;

use crate::time::Tai;

/// An absolute SI second, counted as TAI from 1970. The same instant is the same `Second` from
/// whatever reference epoch it was counted, so a change of epoch is seamless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Second(pub i64);

/// Where the half-years that 6 bits can tell begin.
static EPOCHS: LazyLock<[i64; 64]> = LazyLock::new(|| {
    std::array::from_fn(|epoch| Tai::of_half_year(epoch as u32).0 / 1_000_000_000)
});

impl Second {
    /// The second so many SI seconds after a reference epoch, of which the lower 6 bits count.
    #[inline]
    pub fn of(epoch: u32, seconds: u32) -> Self {
        Second(EPOCHS[(epoch & 63) as usize] + i64::from(seconds))
    }

    /// Reference epoch and seconds of this second, counted from `epoch` if it does not lie before
    /// it, else from the half-year it lies in. What a header cannot tell becomes the nearest it can.
    pub fn since_epoch(self, epoch: u32) -> (u32, u32) {
        let mut epoch = (epoch & 63) as usize;
        if self.0 < EPOCHS[epoch] {
            epoch = EPOCHS.partition_point(|&start| start <= self.0).saturating_sub(1);
        }
        let seconds = self.0.saturating_sub(EPOCHS[epoch]).clamp(0, 0x3FFF_FFFF);
        (epoch as u32, seconds as u32)
    }

    /// The instant at which it begins.
    pub fn start(self) -> Tai {
        Tai(self.0.saturating_mul(1_000_000_000))
    }

    /// Seconds from `earlier` to this one.
    pub(super) fn after(self, earlier: Second) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
