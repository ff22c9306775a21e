//! The rows of a result: payloads are decoded into the columns that are wanted.

use std::ops::Range;

use fullbore_formats::samples::SampleLayout;
use fullbore_formats::samples::decode::{Decoder, DoesNotFit, Output};

use super::Line;

/// Bytes that are decoded before their values go to their columns. The values stay in the cache.
const PIECE_BYTES: usize = 8 << 10;

/// Memory of a result.
pub struct Rows<'a, T> {
    values: &'a mut [T],
    valid: Option<&'a mut [bool]>,
    range: Range<u64>,
    /// Columns of the result.
    width: usize,
    /// Values of a sample: 2 if it is complex.
    parts: usize,
    /// Channels of a thread.
    channels: usize,
    threads: Vec<Thread>,
    decoder: Decoder<T>,
    unit: Unit,
    /// True if the payload of the only thread is the rows as they are wanted.
    dense: bool,
    scratch: Vec<T>,
}

/// The fewest bytes that are whole samples: 3 for samples of 6 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its bytes.
    pub bytes: usize,
    /// The samples in them.
    pub samples: usize,
}

impl Unit {
    /// The unit of samples of this many bits.
    pub fn new(sample_bits: u64) -> Self {
        let bits = sample_bits.max(1);
        let shared = bits.trailing_zeros().min(3);
        Self { bytes: (bits >> shared) as usize, samples: 8 >> shared }
    }
}

/// The columns of a thread.
#[derive(Debug)]
struct Thread {
    number: u16,
    /// Column of the result, channel of the thread.
    columns: Vec<(usize, usize)>,
    /// The next row without a value.
    next: u64,
}

fn absent<T: Output>() -> T {
    if T::INTEGER_BITS.is_none() { T::of_float(f64::NAN) } else { T::default() }
}

impl<'a, T: Output> Rows<'a, T> {
    /// The rows of a range, with a column for each of these lines.
    ///
    /// # Panics
    ///
    /// If the memory has another length.
    pub fn new(
        layout: &SampleLayout,
        lines: &[Line],
        range: Range<u64>,
        values: &'a mut [T],
        valid: Option<&'a mut [bool]>,
    ) -> Result<Self, DoesNotFit> {
        let decoder = Decoder::new(layout.encoding)?;
        let (width, parts) = (lines.len(), layout.encoding.parts() as usize);
        let channels = layout.channels as usize;
        let rows = (range.end - range.start) as usize;
        assert_eq!(values.len(), rows * width * parts, "memory of the rows");
        let of_valid = valid.as_ref().map_or(rows * width, |valid| valid.len());
        assert_eq!(of_valid, rows * width, "memory of the rows");
        let mut threads: Vec<Thread> = Vec::new();
        for (column, line) in lines.iter().enumerate() {
            let known = threads.iter_mut().find(|thread| thread.number == line.thread);
            match known {
                Some(thread) => thread.columns.push((column, line.channel)),
                None => threads.push(Thread {
                    number: line.thread,
                    columns: vec![(column, line.channel)],
                    next: range.start,
                }),
            }
        }
        let in_order = lines.iter().enumerate().all(|(column, line)| column == line.channel);
        let dense = threads.len() == 1 && in_order && width == channels;
        let (scratch, unit) = (Vec::new(), Unit::new(layout.sample_bits()));
        Ok(Self {
            values,
            valid,
            range,
            width,
            parts,
            channels,
            threads,
            decoder,
            unit,
            dense,
            scratch,
        })
    }

    /// Decodes a payload of a thread whose first sample has this number. Bytes that are no whole unit are left out.
    pub fn put(&mut self, thread: u16, sample: u64, payload: &[u8]) {
        let Some(at) = self.threads.iter().position(|it| it.number == thread) else { return };
        let samples = payload.len() / self.unit.bytes * self.unit.samples;
        let from = sample.max(self.range.start);
        let to = sample.saturating_add(samples as u64).min(self.range.end);
        if from >= to {
            return;
        }
        self.fill_to(at, from);
        self.threads[at].next = self.threads[at].next.max(to);
        let mut next = from;
        while next < to {
            let place = (next - sample) as usize;
            let (unit, skip) = (place / self.unit.samples, place % self.unit.samples);
            let bytes = &payload[unit * self.unit.bytes..];
            let row = (next - self.range.start) as usize;
            next += self.decode_some(at, row, bytes, skip, (to - next) as usize) as u64;
        }
        self.mark(at, from..to, true);
    }

    /// Decodes samples of a thread from a row on: the first ones of these bytes, except those to skip. Returns how many.
    fn decode_some(
        &mut self,
        at: usize,
        row: usize,
        bytes: &[u8],
        skip: usize,
        wanted: usize,
    ) -> usize {
        let Unit { bytes: unit_bytes, samples } = self.unit;
        let (of_sample, of_row) = (self.channels * self.parts, self.width * self.parts);
        if self.dense && skip == 0 && wanted >= samples {
            let units = wanted / samples;
            let count = units * samples;
            let values = &mut self.values[row * of_row..(row + count) * of_row];
            self.decoder.decode(&bytes[..units * unit_bytes], values);
            return count;
        }
        let most = if self.dense { 1 } else { (PIECE_BYTES / unit_bytes).max(1) };
        let units = (skip + wanted).div_ceil(samples).min(most);
        let count = (units * samples - skip).min(wanted);
        self.scratch.resize(units * samples * of_sample, T::default());
        self.decoder.decode(&bytes[..units * unit_bytes], &mut self.scratch);
        scatter(
            &self.scratch[skip * of_sample..(skip + count) * of_sample],
            (self.channels, self.parts),
            &self.threads[at].columns,
            &mut self.values[row * of_row..],
            self.width,
        );
        count
    }

    /// Makes the rows of a thread absent from its next one up to another.
    fn fill_to(&mut self, at: usize, to: u64) {
        let next = self.threads[at].next;
        if to <= next {
            return;
        }
        let row = |sample: u64| (sample - self.range.start) as usize * self.width * self.parts;
        let hole = &mut self.values[row(next)..row(to)];
        if self.dense {
            hole.fill(absent());
        } else {
            for row in hole.chunks_exact_mut(self.width * self.parts) {
                for (column, _) in &self.threads[at].columns {
                    row[column * self.parts..(column + 1) * self.parts].fill(absent());
                }
            }
        }
        self.threads[at].next = to;
        self.mark(at, next..to, false);
    }

    fn mark(&mut self, at: usize, samples: Range<u64>, is_valid: bool) {
        let Some(valid) = &mut self.valid else { return };
        let row = |sample: u64| (sample - self.range.start) as usize * self.width;
        let rows = &mut valid[row(samples.start)..row(samples.end)];
        if self.dense {
            rows.fill(is_valid);
            return;
        }
        for row in rows.chunks_exact_mut(self.width) {
            self.threads[at].columns.iter().for_each(|(column, _)| row[*column] = is_valid);
        }
    }

    /// Makes all rows absent that no payload had.
    pub fn finish(mut self) {
        for at in 0..self.threads.len() {
            self.fill_to(at, self.range.end);
        }
    }
}

/// Copies samples of a thread, of `shape` (channels, parts), into columns of rows.
fn scatter<T: Copy>(
    samples: &[T],
    (channels, parts): (usize, usize),
    columns: &[(usize, usize)],
    rows: &mut [T],
    width: usize,
) {
    let (of_sample, of_row) = (channels * parts, width * parts);
    if parts == 1 {
        for (column, channel) in columns {
            let values = samples[*channel..].iter().step_by(of_sample);
            let places = rows[*column..].iter_mut().step_by(of_row);
            places.zip(values).for_each(|(place, value)| *place = *value);
        }
        return;
    }
    for (sample, row) in samples.chunks_exact(of_sample).zip(rows.chunks_exact_mut(of_row)) {
        for (column, channel) in columns {
            row[column * parts..(column + 1) * parts]
                .copy_from_slice(&sample[channel * parts..(channel + 1) * parts]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(encoding: &str, channels: u32) -> SampleLayout {
        SampleLayout::new(encoding.parse().unwrap(), channels)
    }

    fn line(thread: u16, channel: usize) -> Line {
        Line { thread, channel }
    }

    #[test]
    fn columns_are_lines_of_threads_and_absent_rows_are_nan() {
        let (mut values, mut valid) = (vec![7.0f32; 12], vec![true; 12]);
        let lines = [line(1, 1), line(0, 0)];
        let layout = layout("ri8", 2);
        let mut rows = Rows::new(&layout, &lines, 10..16, &mut values, Some(&mut valid)).unwrap();
        rows.put(0, 9, &[1, 2, 3, 4, 5, 6]); // samples 9, 10 and 11
        rows.put(1, 14, &[20, 21, 22, 23, 24, 25]); // samples 14, 15 and 16
        rows.put(5, 10, &[9; 12]);
        rows.finish();
        let shown: Vec<i32> =
            values.iter().map(|it| if it.is_nan() { -1 } else { *it as i32 }).collect();
        assert_eq!(shown, [-1, 3, -1, 5, -1, -1, -1, -1, 21, -1, 23, -1]);
        let expected: Vec<bool> = shown.iter().map(|it| *it >= 0).collect();
        assert_eq!(valid, expected);
    }

    #[test]
    fn rows_in_order_are_decoded_in_place_and_cut_at_both_ends() {
        let layout = layout("ci8", 1);
        let mut values = vec![9i16; 8];
        let mut rows = Rows::new(&layout, &[line(0, 0)], 1..5, &mut values, None).unwrap();
        rows.put(0, 0, &[1, 2, 3, 4]);
        rows.put(0, 3, &[5, 6]);
        rows.finish();
        assert_eq!(values, [3, 4, 0, 0, 5, 6, 0, 0]);
        // Eight samples in a byte: the ends are in the middle of bytes.
        let layout = self::layout("ro1", 1);
        for (from, to) in [(0, 64), (3, 61), (5, 7), (8, 16), (9, 17), (60, 64)] {
            let mut values = vec![9i8; (to - from) as usize];
            let mut rows = Rows::new(&layout, &[line(0, 0)], from..to, &mut values, None).unwrap();
            let payload: Vec<u8> = (0..8).map(|it| 1 << it).collect();
            rows.put(0, 0, &payload);
            rows.finish();
            let expected: Vec<i8> = (from..to).map(|it| if it % 9 == 0 { 1 } else { -1 }).collect();
            assert_eq!(values, expected, "{from} to {to}");
        }
        let refused = Rows::<i8>::new(&self::layout("ri16_le", 1), &[], 0..0, &mut [], None);
        assert!(refused.is_err());
    }
    #[test]
    fn long_payloads_go_to_their_columns_piece_by_piece() {
        let layout = layout("ri8", 3);
        let payload: Vec<u8> = (0..3 * PIECE_BYTES).map(|it| (it % 101) as u8).collect();
        let range = 5..PIECE_BYTES as u64 - 7;
        let count = (range.end - range.start) as usize;
        let (mut values, mut valid) = (vec![0i16; 2 * count], vec![false; 2 * count]);
        let lines = [line(0, 2), line(0, 0)];
        let mut rows = Rows::new(&layout, &lines, range.clone(), &mut values, Some(&mut valid));
        rows.as_mut().unwrap().put(0, 0, &payload);
        rows.unwrap().finish();
        for (row, sample) in range.enumerate() {
            let of = |channel: u64| ((sample * 3 + channel) % 101) as i16;
            assert_eq!(values[row * 2..][..2], [of(2), of(0)], "{sample}");
        }
        assert!(valid.iter().all(|valid| *valid));
    }
}
