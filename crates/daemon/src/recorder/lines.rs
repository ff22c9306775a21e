//! Splits the output of a recorder into lines, however its bytes arrive.

/// The longest line. A recorder's longest is that of a sealed scan, with the accounts of all its streams.
pub const LONGEST_LINE: usize = 16 << 20;

/// Bytes in, lines out. A line that is too long is left out and counted.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    /// True if the rest of a line that was too long is still to come.
    skipping: bool,
    left_out: u64,
}

impl Lines {
    /// Adds bytes, and calls `take` for each whole line, without its end.
    pub fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            self.hold(line);
            if !std::mem::take(&mut self.skipping) {
                take(&self.held);
            }
            self.held.clear();
            bytes = rest;
        }
        self.hold(bytes);
    }

    /// Lines that were too long.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.skipping {
            return;
        }
        if self.held.len() + bytes.len() > LONGEST_LINE {
            (self.skipping, self.left_out) = (true, self.left_out + 1);
            self.held = Vec::new();
            return;
        }
        self.held.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"one\n\ntwo and more\n{\"three\":3}\nnot ended";

    fn lines<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        parts.for_each(|part| {
            lines.feed(part, |line| found.push(String::from_utf8_lossy(line).into_owned()));
        });
        found
    }

    #[test]
    fn every_way_of_splitting_the_stream_gives_the_same_lines() {
        let whole = ["one", "", "two and more", "{\"three\":3}"];
        for size in 1..=STREAM.len() {
            assert_eq!(lines(STREAM.chunks(size)), whole, "split every {size}");
        }
        for at in 0..=STREAM.len() {
            let (first, second) = STREAM.split_at(at);
            assert_eq!(lines([first, second].into_iter()), whole, "split at {at}");
        }
    }

    #[test]
    fn a_line_without_end_takes_no_memory_without_end() {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let much = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            lines.feed(&much, |line| found.push(line.len()));
            assert!(lines.held.len() <= LONGEST_LINE);
        }
        lines.feed(b"rest\nnext\n", |line| found.push(line.len()));
        assert_eq!((found, lines.left_out()), (vec![4], 1));
    }
}
