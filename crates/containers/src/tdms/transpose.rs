//! Rows into columns and back: values of all channels one after the other, or all values of a channel.
//!
//! Rows go through in tiles that stay in the first cache. A tile writes whole cache lines of each column, because
//! columns lie at equal distances and so compete for the same places of a cache.

/// Bytes of the rows of a tile.
const TILE: usize = 16 << 10;

/// The shortest run of a column in a tile, in bytes.
const RUN: usize = 128;

/// The columns of a raw chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Bytes of a value.
    pub size: usize,
    /// Columns.
    pub count: usize,
    /// Values of a column.
    pub values: usize,
}

impl Columns {
    /// Bytes of a row.
    pub fn row_bytes(self) -> usize {
        self.size * self.count
    }

    /// Bytes of all columns.
    pub fn bytes(self) -> usize {
        self.row_bytes() * self.values
    }

    /// Moves whole rows into the columns, from this value of each on.
    ///
    /// # Panics
    ///
    /// If the columns are shorter, or a value has another size than 1, 2, 4, 8 or 16 bytes.
    pub fn put(self, rows: &[u8], columns: &mut [u8], at: usize) {
        match self.size {
            1 => self.put_values::<1>(rows, columns, at),
            2 => self.put_values::<2>(rows, columns, at),
            4 => self.put_values::<4>(rows, columns, at),
            8 => self.put_values::<8>(rows, columns, at),
            16 => self.put_values::<16>(rows, columns, at),
            size => unreachable!("no value has {size} bytes"),
        }
    }

    fn put_values<const N: usize>(self, rows: &[u8], columns: &mut [u8], at: usize) {
        let (rows, columns) = (rows.as_chunks::<N>().0, columns.as_chunks_mut::<N>().0);
        match self.count {
            1 => columns[at..at + rows.len()].copy_from_slice(rows),
            2 => self.put_tiles::<N>(rows, columns, at, column::<N, 2>),
            3 => self.put_tiles::<N>(rows, columns, at, column::<N, 3>),
            4 => self.put_tiles::<N>(rows, columns, at, column::<N, 4>),
            8 => self.put_tiles::<N>(rows, columns, at, column::<N, 8>),
            16 => self.put_tiles::<N>(rows, columns, at, column::<N, 16>),
            count => self.put_tiles::<N>(rows, columns, at, |rows, column, out| {
                for (value, row) in out.iter_mut().zip(rows.chunks_exact(count)) {
                    *value = row[column];
                }
            }),
        }
    }

    #[inline(always)]
    fn put_tiles<const N: usize>(
        self,
        rows: &[[u8; N]],
        columns: &mut [[u8; N]],
        at: usize,
        column: impl Fn(&[[u8; N]], usize, &mut [[u8; N]]),
    ) {
        let in_tile = (TILE / self.row_bytes()).max(RUN / N);
        for (number, rows) in rows.chunks(in_tile * self.count).enumerate() {
            let (first, here) = (at + number * in_tile, rows.len() / self.count);
            for (number, out) in columns.chunks_exact_mut(self.values).enumerate() {
                column(rows, number, &mut out[first..first + here]);
            }
        }
    }

    /// Moves all columns into rows.
    ///
    /// # Panics
    ///
    /// As [`put`](Self::put).
    pub fn take(self, columns: &[u8], rows: &mut [u8]) {
        match self.size {
            1 => self.take_values::<1>(columns, rows),
            2 => self.take_values::<2>(columns, rows),
            4 => self.take_values::<4>(columns, rows),
            8 => self.take_values::<8>(columns, rows),
            16 => self.take_values::<16>(columns, rows),
            size => unreachable!("no value has {size} bytes"),
        }
    }

    fn take_values<const N: usize>(self, columns: &[u8], rows: &mut [u8]) {
        let (columns, rows) = (columns.as_chunks::<N>().0, rows.as_chunks_mut::<N>().0);
        let in_tile = (TILE / self.row_bytes()).max(RUN / N);
        for (number, rows) in rows.chunks_mut(in_tile * self.count).enumerate() {
            let first = number * in_tile;
            for (number, column) in columns.chunks_exact(self.values).enumerate() {
                for (row, value) in rows.chunks_exact_mut(self.count).zip(&column[first..]) {
                    row[number] = *value;
                }
            }
        }
    }
}

/// One column of rows of `C` values, whose distances are known so that the compiler uses vector instructions.
#[inline(always)]
fn column<const N: usize, const C: usize>(rows: &[[u8; N]], column: usize, out: &mut [[u8; N]]) {
    let column = column.min(C - 1);
    for (value, row) in out.iter_mut().zip(rows.as_chunks::<C>().0) {
        *value = row[column];
    }
}

/// Reverses the bytes of values, or of the parts of complex ones.
pub fn swap(bytes: &mut [u8], part_bytes: usize) {
    match part_bytes {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|it| it.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|it| it.reverse()),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|it| it.reverse()),
        16 => bytes.as_chunks_mut::<16>().0.iter_mut().for_each(|it| it.reverse()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns_and_rows_again() {
        for size in [1, 2, 4, 8, 16] {
            for count in [1, 2, 3, 4, 5, 8, 16, 300] {
                let columns = Columns { size, count, values: 1000 };
                let rows: Vec<u8> = (0..columns.bytes()).map(|it| ((it * 31) >> 3) as u8).collect();
                let mut out = vec![0; columns.bytes()];
                let cut = 333 * columns.row_bytes();
                columns.put(&rows[..cut], &mut out, 0);
                columns.put(&rows[cut..], &mut out, 333);
                let value =
                    |row: usize, column: usize| &rows[(row * count + column) * size..][..size];
                for (row, column) in
                    [(0, 0), (332, count - 1), (333, 0), (999, count - 1), (511, count / 2)]
                {
                    let at = (column * 1000 + row) * size;
                    assert_eq!(&out[at..at + size], value(row, column), "{size} × {count}");
                }
                let mut again = vec![0; columns.bytes()];
                columns.take(&out, &mut again);
                assert_eq!(again, rows, "{size} × {count}");
            }
        }
    }

    #[test]
    fn bytes_of_each_part_are_reversed() {
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        swap(&mut bytes, 4);
        assert_eq!(bytes, [4, 3, 2, 1, 8, 7, 6, 5]);
        swap(&mut bytes, 1);
        assert_eq!(bytes[0], 4);
    }
}
