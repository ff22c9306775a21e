//! The pages of block memory, as the kernel reports them.
//!
//! The recorder requests huge pages and locking, and reads back from `/proc/self/smaps` how much of each it got. If
//! that file cannot be read, the result is unknown.

use std::fs;
use std::ops::Range;

use fullbore_core::manifest::Pages;

use crate::sys::memory::Region;

/// Returns the kinds of pages of several regions.
pub fn pages_of<'a>(regions: impl IntoIterator<Item = &'a Region>) -> Option<Pages> {
    let map = fs::read_to_string("/proc/self/smaps").ok()?;
    Some(read(&map, &regions.into_iter().map(Region::addresses).collect::<Vec<_>>()))
}

/// Sums the entries of a process's memory map for these addresses. An entry may cover several regions and other memory
/// too; then at most the size of the regions counts.
fn read(map: &str, regions: &[Range<usize>]) -> Pages {
    let bytes = regions.iter().map(|region| region.len() as u64).sum();
    let mut pages = Pages { bytes, ..Pages::default() };
    let mut ours = 0;
    for line in map.lines() {
        if let Some(span) = span_of(line) {
            ours = regions.iter().map(|region| common(region, &span)).sum();
        } else if ours > 0
            && let Some((name, value)) = kilobytes(line)
        {
            let value = value.saturating_mul(1024).min(ours);
            match name {
                "AnonHugePages" => pages.transparent_bytes += value,
                "Private_Hugetlb" => pages.reserved_bytes += value,
                "Locked" => pages.locked_bytes += value,
                _ => {}
            }
        }
    }
    pages.locked_bytes += pages.reserved_bytes;
    pages
}

/// Parses the first and last address of an entry: `7f0000000000-7f0000200000 rw-p …`.
fn span_of(line: &str) -> Option<Range<usize>> {
    let (first, last) = line.split_once(' ')?.0.split_once('-')?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    Some(address(first)?..address(last)?)
}

/// Parses a line such as `AnonHugePages:    2048 kB`.
fn kilobytes(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.split_once(':')?;
    Some((name, value.trim().strip_suffix(" kB")?.parse().ok()?))
}

fn common(one: &Range<usize>, other: &Range<usize>) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      4096 kB
Private_Hugetlb:       0 kB
Locked:             2048 kB
VmFlags: rd wr mr mw me ac hg
7f0000400000-7f0000800000 rw-p 00000000 00:0f 1234     /anon_hugepage (deleted)
AnonHugePages:         0 kB
Private_Hugetlb:    4096 kB
Locked:                0 kB
7f0000800000-7f0000a00000 rw-p 00000000 00:00 0        [heap]
AnonHugePages:      2048 kB
Locked:             2048 kB
";

    #[test]
    fn pages_are_counted_of_our_regions_alone() {
        let first = 0x7f0000000000..0x7f0000400000;
        let second = 0x7f0000400000..0x7f0000800000;
        let (mib, both) = (1 << 20, read(MAP, &[first.clone(), second]));
        assert_eq!((both.bytes, both.transparent_bytes), (8 * mib, 4 * mib));
        assert_eq!((both.reserved_bytes, both.locked_bytes), (4 * mib, 6 * mib));
        // A region that shares its entry with others counts at most with its own size.
        let part = 0x7f0000000000..0x7f0000100000;
        let half = read(MAP, &[part]);
        assert_eq!((half.bytes, half.transparent_bytes, half.locked_bytes), (mib, mib, mib));
        assert_eq!(read(MAP, &[]), Pages::default());
        assert_eq!(read("what is this", &[first]).huge_bytes(), 0);
    }

    #[test]
    fn the_kernel_tells_of_a_region_that_is_there() {
        let region = Region::new(4 << 20).unwrap();
        let pages = pages_of([&region]).unwrap();
        assert_eq!(pages.bytes, 4 << 20);
        assert_eq!(pages.locked_bytes > 0, region.locked(), "{pages:?}");
        assert!(pages.huge_bytes() <= pages.bytes && pages.reserved_bytes == 0);
    }
}
