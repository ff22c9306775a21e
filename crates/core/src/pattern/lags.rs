//! Bytes that follow from earlier ones, made and checked many at a time.
//!
//! A pseudo-random binary sequence obeys `b[n] = b[n − long] ^ b[n − short]`. Squaring a polynomial over GF(2) squares
//! each of its terms, so the same holds with both lags doubled any number of times: for bytes as for bits, and for
//! bytes that are kilobytes apart. Wide lags make it fast:
//!
//! ```text
//! made so far                                      │ made at once, in vectors
//! ……………………[ far: count bytes ]…[ near: count bytes ]│[ far ^ near: count bytes ]
//!         ◄──────────────── long ─────────────────►│
//!                              ◄───── short ──────►│
//! ```
//!
//! The loops are plain loops over words, which the compiler vectorises. No lag is wider than [`FARTHEST`], so the
//! source bytes are in the first-level cache, and the stores to them are complete.

/// The widest lag, in bytes.
const FARTHEST: usize = 4096;

/// Pieces end at multiples of this, so that vectors do not straddle cache lines.
const LINE: usize = 64;

/// Two lags in bytes; the longer one comes first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lags {
    pub(super) long: usize,
    pub(super) short: usize,
}

impl Lags {
    /// Makes all of `bytes` from the earlier bytes within the longer lag.
    pub(super) fn extend(mut self, bytes: &mut [u8]) {
        let mut made = self.long;
        while made < bytes.len() {
            let count = self.next(made, bytes.len());
            let (before, after) = bytes.split_at_mut(made);
            let (far, near) = self.earlier(before, count);
            combine(&mut after[..count], far, near);
            made += count;
        }
    }

    /// Returns the first byte that does not follow from earlier ones. The bytes within the first longer lag have no
    /// earlier ones; the caller checks them.
    pub(super) fn first_break(mut self, bytes: &[u8]) -> Option<usize> {
        let mut seen = self.long;
        while seen < bytes.len() {
            let count = self.next(seen, bytes.len());
            let (before, after) = bytes.split_at(seen);
            let (far, near) = self.earlier(before, count);
            let found = &after[..count];
            if breaks(found, far, near) {
                let mut triples = found.iter().zip(far.iter().zip(near));
                return triples.position(|(&is, (&a, &b))| is != a ^ b).map(|at| seen + at);
            }
            seen += count;
        }
        None
    }

    /// Widens the lags as far as `made` bytes allow, and returns the number of bytes that can follow at once.
    fn next(&mut self, made: usize, end: usize) -> usize {
        while 2 * self.long <= made.min(FARTHEST) {
            self.long *= 2;
            self.short *= 2;
        }
        let count = self.short.min(end - made);
        let over = (made + count) % LINE;
        if made + count < end && over < count { count - over } else { count }
    }

    fn earlier(self, before: &[u8], count: usize) -> (&[u8], &[u8]) {
        let end = before.len();
        (&before[end - self.long..][..count], &before[end - self.short..][..count])
    }
}

/// Combines three pieces of one length. Never inlined: only arguments are known not to overlap.
#[inline(never)]
fn combine(to: &mut [u8], far: &[u8], near: &[u8]) {
    let (to, to_rest) = to.as_chunks_mut::<8>();
    let (far, far_rest) = far.as_chunks::<8>();
    let (near, near_rest) = near.as_chunks::<8>();
    for ((to, far), near) in to.iter_mut().zip(far).zip(near) {
        *to = (u64::from_ne_bytes(*far) ^ u64::from_ne_bytes(*near)).to_ne_bytes();
    }
    for ((to, far), near) in to_rest.iter_mut().zip(far_rest).zip(near_rest) {
        *to = far ^ near;
    }
}

/// True if any byte differs from the combination of the two earlier ones.
#[inline(never)]
fn breaks(bytes: &[u8], far: &[u8], near: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let (far, far_rest) = far.as_chunks::<8>();
    let (near, near_rest) = near.as_chunks::<8>();
    let mut odd = 0;
    for ((word, far), near) in words.iter().zip(far).zip(near) {
        odd |= u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(*far) ^ u64::from_ne_bytes(*near);
    }
    for ((byte, far), near) in rest.iter().zip(far_rest).zip(near_rest) {
        odd |= u64::from(byte ^ far ^ near);
    }
    odd != 0
}
