//! What several targets have in common: texts that are nearly right, so that more is reached than a parser's first error.

/// A sample with pieces of it cut out and others put in, as the bytes say: where, how much goes, how much comes, and that.
pub fn edited(sample: &str, mut bytes: &[u8]) -> Vec<u8> {
    let mut text = sample.as_bytes().to_vec();
    while let Some((&[low, high, goes, comes], rest)) = bytes.split_first_chunk() {
        let at = usize::from(u16::from_le_bytes([low, high])) % (text.len() + 1);
        let end = (at + usize::from(goes % 32)).min(text.len());
        let (new, rest) = rest.split_at(usize::from(comes % 32).min(rest.len()));
        text.splice(at..end, new.iter().copied());
        bytes = rest;
    }
    text
}
