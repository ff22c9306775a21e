//! Fields of metadata, one after the other.

use super::TdmsError;

/// Metadata that is being read.
pub(super) struct Fields<'a> {
    left: &'a [u8],
    /// The segment's offset in the file, for errors.
    pub at: u64,
    pub big_endian: bool,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8], at: u64, big_endian: bool) -> Self {
        Self { left: bytes, at, big_endian }
    }

    /// Bytes after the fields that were read.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    pub fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], TdmsError> {
        let cut = TdmsError::Cut { at: self.at, what };
        let (taken, left) = self.left.split_at_checked(count).ok_or(cut)?;
        self.left = left;
        Ok(taken)
    }

    /// A number's bytes, the lowest first.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], TdmsError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N, what)?);
        if self.big_endian {
            array.reverse();
        }
        Ok(array)
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, TdmsError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, TdmsError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, TdmsError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length of 32 bits, and that many bytes.
    pub fn text(&mut self, what: &'static str) -> Result<&'a [u8], TdmsError> {
        let length = self.u32(what)?;
        self.bytes(length as usize, what)
    }

    /// A count of things that take at least `least` bytes each, so that a false count reserves no memory.
    pub fn count(&mut self, least: usize, what: &'static str) -> Result<usize, TdmsError> {
        let count = self.u32(what)? as usize;
        match count.checked_mul(least).is_some_and(|bytes| bytes <= self.left()) {
            true => Ok(count),
            false => Err(TdmsError::Cut { at: self.at, what }),
        }
    }
}

/// Appends a length of 32 bits, and the bytes.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text);
}
