//! Whether the disks hold what a circular recording is to keep.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::retention::Retention;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::recorder::{Event, RecordError, RecordingConfig, free_bytes, planned_rate};
use fullbore_store::catalogue;

use super::{PIECES, RingName, piece_limit};

/// The room of a circular recording: free space, and its pieces, which go.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub roots: Vec<PathBuf>,
    pub ring: RingName,
    pub limit: Retention,
}

impl Room {
    /// Refuses a size that does not fit, and warns of a time that does not fit at the planned rate: a source may pause.
    ///
    /// # Errors
    ///
    /// The size is larger than the room.
    pub fn check(&self, config: &RecordingConfig) -> Result<Option<Event>, RecordError> {
        let bytes = self.bytes();
        match self.limit {
            Retention::Size(size) => {
                // The piece that is being recorded comes on top.
                let needed = size.0.saturating_add(size.0 / u64::from(PIECES));
                if needed <= bytes {
                    return Ok(None);
                }
                let (members, free) = (self.roots.clone(), ByteSize(bytes));
                Err(RecordError::NoRoom { members, free, needed: ByteSize(needed) })
            }
            Retention::Age(length) => {
                let rate = planned_rate(config).unwrap_or(0);
                Ok(lacks(length, rate, bytes).map(|text| Event::Warning { text }))
            }
        }
    }

    /// The free bytes of all members, and those of earlier pieces.
    fn bytes(&self) -> u64 {
        let entries = catalogue::list(&self.roots).map(|it| it.entries).unwrap_or_default();
        let is_piece = |name: &str| {
            name.parse().is_ok_and(|it| RingName::of_piece(&it).as_ref() == Some(&self.ring))
        };
        let pieces = entries.iter().filter(|it| is_piece(&it.name)).map(|it| it.bytes);
        free_bytes(&self.roots).saturating_add(pieces.sum())
    }
}

/// A warning, if data of this length at this rate is more than the room. The piece that is being recorded comes on top.
pub(super) fn lacks(length: Duration, rate: u64, room: u64) -> Option<String> {
    let piece = piece_limit(Retention::Age(length)).0.unwrap_or_default();
    let ms = (length + piece).as_millis();
    let needed = u64::try_from(u128::from(rate).saturating_mul(ms) / 1000).unwrap_or(u64::MAX);
    (needed > room).then(|| {
        let full = Duration::from_secs(room / rate.max(1));
        format!(
            "--circular {} at {} is {} with the piece that is being recorded, and the disk set has {} for it: it is full \
             after {}",
            humantime::format_duration(length),
            ByteRate(rate),
            ByteSize(needed),
            ByteSize(room),
            humantime::format_duration(full)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_does_not_fit_at_a_rate_is_told() {
        let hour = Duration::from_secs(3600);
        assert_eq!(lacks(hour, 1_000_000, 3_660_000_000), None);
        let text = lacks(hour, 1_000_000, 3_600_000_000).unwrap();
        assert!(text.contains("3.66 GB") && text.contains("full after 1h"), "{text}");
        assert_eq!(lacks(hour, 0, 0), None, "nothing is known of the rate");
        assert!(lacks(Duration::MAX / 2, u64::MAX, u64::MAX - 1).is_some());
    }
}
