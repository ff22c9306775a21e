//! The second in a VDIF header, independent of the reference epoch.

use std::sync::LazyLock;

use fullbore_time::Tai;

/// An absolute SI second, counted as TAI from 1970. One instant is the same `Second` for every reference epoch, so a
/// change of epoch is seamless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Second(pub i64);

/// The starts of the half-years that 6 bits can express.
static EPOCHS: LazyLock<[i64; 64]> = LazyLock::new(|| {
    std::array::from_fn(|epoch| Tai::of_half_year(epoch as u32).0 / 1_000_000_000)
});

impl Second {
    /// Returns the second that is `seconds` SI seconds after a reference epoch, of which the lower 6 bits count.
    #[inline]
    pub fn of(epoch: u32, seconds: u32) -> Self {
        Second(EPOCHS[(epoch & 63) as usize] + i64::from(seconds))
    }

    /// Returns the reference epoch and the seconds of this second. They are counted from `epoch` if it is not before
    /// the epoch, otherwise from its own half-year. Values beyond the range of a header become the nearest valid ones.
    pub fn since_epoch(self, epoch: u32) -> (u32, u32) {
        let mut epoch = (epoch & 63) as usize;
        if self.0 < EPOCHS[epoch] {
            epoch = EPOCHS.partition_point(|&start| start <= self.0).saturating_sub(1);
        }
        let seconds = self.0.saturating_sub(EPOCHS[epoch]).clamp(0, 0x3FFF_FFFF);
        (epoch as u32, seconds as u32)
    }

    /// Returns the instant of its start.
    pub fn start(self) -> Tai {
        Tai(self.0.saturating_mul(1_000_000_000))
    }

    /// Returns the seconds from `earlier` to this one.
    pub(super) fn after(self, earlier: Second) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
