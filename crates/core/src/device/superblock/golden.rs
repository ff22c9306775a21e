//! The start of an index of version 1, as a program of that version wrote it: the head and three scans, the second and
//! third with an extract of their account.

use super::{COPY_BYTES, ENTRY_BYTES, HEAD_BYTES};

/// Bytes that are not zero, each with their place in the head or the scan.
type Runs = &'static [(usize, &'static [u8])];

const HEAD: Runs = &[
    (0, b"FBDEVICE\x01\0\0\0T81\xe1\x03"),
    (39, b"\x07\0\0\0\0\x02\0\0\0\0\0\x02\0\x03\0\0\0\0\0\x10"),
    (66, b"@"),
    (74, b"P"),
    (82, b"\xfa\xff\x01\0\0\0\x01"),
];
const FIRST: Runs = &[
    (6, b"@"),
    (26, b"P"),
    (34, b"R\0\0\0\0\0\xd0\xfb\x01\0\0\0\0\0\x01"),
    (56, b"\x05"),
    (64, b"\x06"),
    (72, b"`\x1f"),
    (81, b"}\0\0\0\0\0\0\x10"),
    (96, b"\x0f"),
    (104, b"\x01"),
    (136, b"r1_no0"),
    (264, b"udp://0.0.0.0:46220?format=vdif"),
];
const SECOND: Runs = &[
    (0, b"\x01\x01\x01\x01\0\0@"),
    (23, b"\x01\0\0\xd0"),
    (34, b"\xd2\0\0\0\0\0\xd0\xfb\x01\0\0\0\0\0\x01"),
    (56, b"\x05"),
    (71, b"\x80`\x1f"),
    (88, b"\x10"),
    (96, b"\x0f"),
    (104, b"\x01"),
    (136, b"r1_no1"),
    (264, b"udp://0.0.0.0:46220?format=vdif"),
    (456, b"\x01\x01\x03\x01\x01\0\0\0\x01"),
    (472, b"\x02"),
    (480, b"\x03"),
    (488, b"\x01"),
];
const THIRD: Runs = &[
    (0, b"\x02\0\x02\x02\0\0@"),
    (23, b"\x02\0\0P\x01\0\0\0\0\0\0R\x01\0\0\0\0\xd0\xfb\x01\0\0\0\0\0\x01"),
    (56, b"\x05"),
    (64, b"\x06"),
    (72, b"`\x1f"),
    (88, b"\x10"),
    (96, b"\x0f"),
    (104, b"\x01"),
    (136, b"r1_no2"),
    (264, b"udp://0.0.0.0:46220?format=vdif"),
    (456, b"\x01\x02\x02\x02\x02\0\0\0\x02"),
    (472, b"\x03"),
    (480, b"\x04"),
    (488, b"\x02"),
    (496, b"\x02"),
];

/// Returns the copy.
pub(super) fn version_1() -> Vec<u8> {
    let mut copy = vec![0; COPY_BYTES];
    let scan = |number: usize| HEAD_BYTES + number * ENTRY_BYTES;
    for (begin, runs) in [(0, HEAD), (scan(0), FIRST), (scan(1), SECOND), (scan(2), THIRD)] {
        for (place, bytes) in runs {
            copy[begin + place..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    copy
}
