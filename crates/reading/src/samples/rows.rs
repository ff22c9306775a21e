//! The rows of a result: payloads are decoded into the columns that are wanted.

use std::ops::Range;

use fullbore_formats::samples::SampleLayout;
use fullbore_formats::samples::decode::{Decoder, DoesNotFit, Output};

use super::Line;

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
    /// True if the payload of the only thread is the rows as they are wanted.
    dense: bool,
    scratch: Vec<T>,
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
        let scratch = Vec::new();
        Ok(Self { values, valid, range, width, parts, channels, threads, decoder, dense, scratch })
    }

    /// Decodes a payload of a thread whose first sample has this number.
    pub fn put(&mut self, thread: u16, sample: u64, payload: &[u8]) {
        let Some(at) = self.threads.iter().position(|it| it.number == thread) else { return };
        let of_sample = self.channels * self.parts;
        let samples = self.decoder.values_in(payload.len()) / of_sample.max(1);
        let from = sample.max(self.range.start);
        let to = sample.saturating_add(samples as u64).min(self.range.end);
        if from >= to {
            return;
        }
        self.fill_to(at, from);
        self.threads[at].next = self.threads[at].next.max(to);
        let row = (from - self.range.start) as usize;
        let (skip, count) = ((from - sample) as usize, (to - from) as usize);
        if self.dense && count == samples {
            let values = &mut self.values[row * of_sample..(row + count) * of_sample];
            self.decoder.decode(payload, values);
        } else {
            let values = self.decoder.values_in(payload.len());
            self.scratch.resize(values, T::default());
            self.decoder.decode(payload, &mut self.scratch);
            let part = skip * of_sample..(skip + count) * of_sample;
            scatter(
                &self.scratch[part],
                (self.channels, self.parts),
                &self.threads[at].columns,
                &mut self.values[row * self.width * self.parts..],
                self.width,
            );
        }
        self.mark(at, from..to, true);
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
        let refused = Rows::<i8>::new(&self::layout("ri16_le", 1), &[], 0..0, &mut [], None);
        assert!(refused.is_err());
    }
}
