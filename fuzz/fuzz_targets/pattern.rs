//! Any bytes in the place of any pattern: found wrong exactly where they differ, and named without a panic.
//! The first bytes choose the pattern, the offset and the sizes; the rest lie over what belongs there.
#![no_main]

use fullbore_core::pattern::{Checker, Pattern, Report};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

const NAMES: [&str; 8] =
    ["prbs7", "prbs15", "prbs23", "prbs31", "counter", "random:1", "noise:2", "0x55"];

fn check(bytes: &[u8]) {
    if let Ok(pattern) = String::from_utf8_lossy(bytes).parse::<Pattern>() {
        assert_eq!(pattern.to_string().parse::<Pattern>().unwrap(), pattern);
    }
    let Some((head, over)) = bytes.split_first_chunk::<12>() else { return };
    let pattern: Pattern = NAMES[usize::from(head[0] % 8)].parse().expect("a name of ours");
    let pattern = pattern.with_seed(u64::from(head[1]));
    let offset = u64::from_le_bytes(head[2..10].try_into().expect("eight bytes")) >> 8;
    let mut right = vec![0; over.len() + 700];
    pattern.fill(&mut right, offset);
    let checker = Checker::new(pattern)
        .blocks(1 + u64::from(head[10]) * 16)
        .sectors(1 + u64::from(head[11]))
        .after(&[u64::from(head[1]) + 1]);
    assert_eq!(checker.check(&right, offset), Ok(()));

    let mut found = right.clone();
    found[..over.len()].copy_from_slice(over);
    let differs: Vec<usize> = (0..found.len()).filter(|&at| found[at] != right[at]).collect();
    match (checker.check(&found, offset), differs.first()) {
        (Ok(()), None) => {}
        (Err(wrong), Some(&first)) => {
            assert_eq!(wrong.first, offset + first as u64);
            assert_eq!(wrong.last, offset + differs[differs.len() - 1] as u64);
            assert_eq!(wrong.wrong_bytes, differs.len() as u64);
            let bits = differs.iter().map(|&at| (found[at] ^ right[at]).count_ones());
            assert_eq!(wrong.wrong_bits, u64::from(bits.sum::<u32>()));
        }
        (told, first) => panic!("{told:?} where the first wrong byte is {first:?}"),
    }
    let mut report = Report::default();
    report.take(&checker, &found, offset);
    assert_eq!(report.good(), differs.is_empty());
}
