//! Where the values of a channel are in the file, one run after the other.

use super::{Contents, ObjectId};

/// Values of a channel at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The offset of the row of the first value in the file.
    pub at: u64,
    /// Bytes from one value to the next.
    pub row_bytes: u64,
    /// Bytes before a value in its row.
    pub in_row: u64,
    /// The number of values.
    pub values: u64,
    /// The bit of each byte that is the value, of digital lines.
    pub bit: Option<u8>,
    /// True if the highest byte of a value comes first.
    pub big_endian: bool,
}

/// A place between two values of a channel.
#[derive(Clone, Debug)]
pub struct ChannelCursor {
    channel: ObjectId,
    segment: usize,
    /// Values of the segment before the place.
    value: u64,
}

impl ChannelCursor {
    /// The place before the first value.
    pub fn new(channel: ObjectId) -> Self {
        Self { channel, segment: 0, value: 0 }
    }

    /// The next run, of at most this many values, and at most this many bytes of rows unless a single row has more.
    /// `None` after the last value; text has no runs.
    pub fn next(&mut self, contents: &Contents, most: u64, most_bytes: u64) -> Option<Run> {
        loop {
            let segment = contents.segments.get(self.segment)?;
            let place = segment.shape.place(self.channel).filter(|it| it.row_bytes > 0);
            let left = place.map_or(0, |it| segment.values(it)).saturating_sub(self.value);
            let (Some(place), true) = (place, left > 0) else {
                self.segment += 1;
                self.value = 0;
                continue;
            };
            let in_chunk = place.values * segment.scale;
            let (chunk_at, before, here) = match segment.shape.row_bytes {
                Some(_) => (0, self.value, left),
                None => {
                    let before = self.value % in_chunk;
                    let chunk = self.value / in_chunk;
                    (chunk * segment.chunk_bytes(), before, left.min(in_chunk - before))
                }
            };
            let values = here.min(most).min((most_bytes / place.row_bytes).max(1));
            self.value += values;
            return Some(Run {
                at: segment.raw_at + chunk_at + place.at * segment.scale + before * place.row_bytes,
                row_bytes: place.row_bytes,
                in_row: place.in_row,
                values,
                bit: place.bit,
                big_endian: segment.shape.big_endian,
            });
        }
    }
}
