//! A simulated target in memory with one fault, to show that every test finds its faults.

use std::io;

use fullbore_core::device::Direction;
use fullbore_core::pattern::Pattern;
use fullbore_linux::stop_handle::StopHandle;

use super::medium::{Link, Look, Medium, Moved, Transfer};
use super::summary::{Line, Outcome, Summary};
use super::{Settings, TESTS, run};

/// The fault of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// A bit of every n-th read is changed.
    WrongData(u64),
    /// Every n-th write reports success without writing: the old data remains.
    LostWrite(u64),
    /// Every n-th write ends at its middle sector, and reports success.
    TornWrite(u64),
    /// Every n-th write goes sixteen chunks back.
    Misplaced(u64),
    /// Each write is one sector too long.
    BeyondTheRange,
    /// Every n-th read ends early, as if the medium ended there.
    ShortRead(u64),
    /// A sync does nothing, and cached data is lost with the cache.
    LyingSync,
    /// A sync reports success, but does not reach the device.
    SyncNotPassedOn,
    /// The medium has fewer bytes, and larger addresses wrap around to the beginning.
    WrapsAround(u64),
    /// The link runs at half its width.
    SlowLink,
    /// The link does so from a certain time on.
    LinkGoesDown,
    /// The kernel counts errors.
    CountsErrors,
    /// Every n-th write fails.
    WriteError(u64),
}

/// A medium in memory, with a cache.
struct Faulty {
    fault: Fault,
    /// The data that reads return.
    cached: Vec<u8>,
    /// The data that survives a loss of power.
    safe: Vec<u8>,
    under_way: Vec<Transfer>,
    writes: u64,
    reads: u64,
    syncs: u64,
    looks: std::cell::Cell<u64>,
}

const BYTES: u64 = 12 << 20;
const SECTOR: u64 = 512;

impl Faulty {
    fn new(fault: Fault) -> Self {
        let mut bytes = vec![0; BYTES as usize];
        "prbs31:70000".parse::<Pattern>().unwrap().fill(&mut bytes, 0);
        let (cached, safe) = (bytes.clone(), bytes);
        let looks = std::cell::Cell::new(0);
        Self { fault, cached, safe, under_way: vec![], writes: 0, reads: 0, syncs: 0, looks }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<u32> {
        self.writes += 1;
        let nth = |every: u64| self.writes.is_multiple_of(every);
        let requested = bytes.len() as u32;
        let (mut at, mut end) = (offset as usize, offset as usize + bytes.len());
        let mut bytes = bytes.to_vec();
        match self.fault {
            Fault::LostWrite(every) if nth(every) => end = at,
            Fault::TornWrite(every) if nth(every) => {
                end = at + (bytes.len() / 2).next_multiple_of(SECTOR as usize);
            }
            Fault::Misplaced(every) if nth(every) && at >= 32 << 17 => {
                (at, end) = (at - (16 << 17), end - (16 << 17));
            }
            Fault::BeyondTheRange => {
                let last = bytes[bytes.len() - SECTOR as usize..].to_vec();
                bytes.extend(last);
                end += SECTOR as usize;
            }
            Fault::WrapsAround(size) => {
                for (n, byte) in bytes.iter().enumerate() {
                    self.cached[(at + n) % size as usize] = *byte;
                }
                return Ok(bytes.len() as u32);
            }
            Fault::WriteError(every) if nth(every) => return Err(io::Error::from_raw_os_error(5)),
            _ => {}
        }
        let end = end.min(self.cached.len());
        let length = end.saturating_sub(at);
        self.cached[at..end].copy_from_slice(&bytes[..length]);
        Ok(requested)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> u32 {
        self.reads += 1;
        let nth = |every: u64| self.reads.is_multiple_of(every);
        if let Fault::WrapsAround(size) = self.fault {
            for (n, byte) in into.iter_mut().enumerate() {
                *byte = self.cached[(offset as usize + n) % size as usize];
            }
            return into.len() as u32;
        }
        let from = (offset as usize).min(self.cached.len());
        let mut length = into.len().min(self.cached.len() - from);
        into[..length].copy_from_slice(&self.cached[from..from + length]);
        match self.fault {
            Fault::WrongData(every) if nth(every) && length > 5000 => into[5000] ^= 0x20,
            Fault::ShortRead(every) if nth(every) => length = length.min(700),
            _ => {}
        }
        length as u32
    }
}

impl Medium for Faulty {
    fn bytes(&self) -> u64 {
        BYTES
    }

    fn sector_bytes(&self) -> u64 {
        SECTOR
    }

    fn submit(&mut self, transfer: Transfer) {
        let aligned = transfer.offset.is_multiple_of(SECTOR)
            && u64::from(transfer.part.1).is_multiple_of(SECTOR);
        assert!(aligned, "direct I/O takes sectors only: {transfer:?}");
        self.under_way.push(transfer);
    }

    /// Completes the last one first, because the order is not guaranteed.
    fn wait(&mut self, into: &mut Vec<Moved>) -> io::Result<()> {
        let Some(mut transfer) = self.under_way.pop() else { return Ok(()) };
        let (from, bytes) = transfer.part;
        let part = from as usize..(from + bytes) as usize;
        let result = match transfer.direction {
            Direction::Write => self.write(transfer.offset, &transfer.block[part]),
            Direction::Read => Ok(self.read(transfer.offset, &mut transfer.block[part])),
        };
        into.push(Moved { token: transfer.token, result, block: transfer.block });
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.fault != Fault::LyingSync {
            self.safe.clone_from(&self.cached);
            self.syncs += u64::from(self.fault != Fault::SyncNotPassedOn);
        }
        Ok(())
    }

    fn syncs_done(&self) -> Option<u64> {
        // The syncs of a target with this fault are not counted, so that the lost data must reveal it.
        (self.fault != Fault::LyingSync).then_some(self.syncs)
    }

    fn forget(&mut self) -> io::Result<()> {
        self.cached.clone_from(&self.safe);
        Ok(())
    }

    fn look(&self) -> Look {
        self.looks.set(self.looks.get() + 1);
        let late = self.looks.get() > 2;
        let half = self.fault == Fault::SlowLink || self.fault == Fault::LinkGoesDown && late;
        let speed = "8.0 GT/s PCIe".to_owned();
        let link = Link {
            best_speed: speed.clone(),
            speed,
            width: if half { 2 } else { 4 },
            best_width: 4,
            port_speed: None,
            port_width: None,
        };
        let errors = u64::from(self.fault == Fault::CountsErrors && late);
        Look { bytes: BYTES, lines: vec![], link: Some(link), errors: Some(errors) }
    }
}

fn tested(medium: &mut dyn Medium, only: &[u8]) -> Summary {
    let settings = Settings {
        limit: None,
        quick: true,
        runs: Some(2),
        passes: 2,
        link: None,
        pattern: "prbs31:70000".parse::<Pattern>().unwrap(),
        only: only.to_vec(),
    };
    run(medium, &settings, &StopHandle::default(), &mut |_| ()).unwrap()
}

/// The tests that fail on a target with this fault, and their reasons.
fn failing(fault: Fault) -> Vec<(u8, String)> {
    let summary = tested(&mut Faulty::new(fault), &[]);
    assert_eq!(summary.tests.len(), TESTS.len());
    assert_eq!(summary.failed > 0, !summary.passed);
    let failed = summary.tests.into_iter().filter(|test| test.outcome == Outcome::Fail);
    failed.map(|test| (test.number, test.why.unwrap())).collect()
}

/// True if all of these tests fail, with a reason that contains this text.
fn fails(fault: Fault, numbers: &[u8], because: &str) {
    let failing = failing(fault);
    for number in numbers {
        let why = failing.iter().find(|(failed, _)| failed == number);
        let why = why.unwrap_or_else(|| panic!("{fault:?} passes test {number:02}: {failing:#?}"));
        assert!(why.1.contains(because), "{fault:?}, test {number:02}: {}", why.1);
    }
}

#[test]
fn a_target_without_a_fault_passes_all_of_them() {
    let failing = failing(Fault::None);
    assert!(failing.is_empty(), "{failing:#?}");
}

#[test]
fn wrong_data_fails_whatever_reads() {
    fails(Fault::WrongData(3), &[5, 6, 8, 10], "damage");
    fails(Fault::WrongData(1), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "");
}

#[test]
fn stale_blocks_are_named_with_the_seed_that_wrote_them() {
    fails(Fault::LostWrite(5), &[5, 6], "stale");
    fails(Fault::LostWrite(2), &[1, 3, 4, 7], "stale");
    fails(Fault::LostWrite(3), &[10], "wrong data");
}

#[test]
fn torn_and_misplaced_writes_are_told_apart() {
    fails(Fault::TornWrite(7), &[5, 6, 10], "a torn write");
    fails(Fault::Misplaced(5), &[8, 10], "wrong data");
    let why = failing(Fault::Misplaced(5));
    assert!(
        why.iter().any(|(_, why)| why.contains("missing: this is the data of 2097152")),
        "{why:#?}"
    );
}

#[test]
fn a_write_beyond_the_range_fails_the_tests_of_what_is_around() {
    // An extra sector within a session is overwritten by its next block; the one at the end stays wrong.
    fails(Fault::BeyondTheRange, &[1, 4, 5, 6, 7], "");
}

#[test]
fn a_short_read_is_told_with_the_place() {
    fails(Fault::ShortRead(2), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 10], "short read");
}

#[test]
fn a_flush_that_lies_is_found_by_reading_from_the_medium() {
    fails(Fault::LyingSync, &[3, 8, 10], "wrong data");
    fails(Fault::SyncNotPassedOn, &[3], "was never told to write it");
    let failing = failing(Fault::LyingSync);
    assert!(failing.iter().all(|(number, _)| [3, 8, 10].contains(number)), "{failing:#?}");
}

#[test]
fn a_size_that_is_a_lie_is_found_behind_the_end_and_by_writing_all_of_it() {
    fails(Fault::WrapsAround(5 << 20), &[9], "its size is false");
    fails(Fault::WrapsAround(5 << 20), &[10], "missing: this is the data of");
}

#[test]
fn a_bad_link_and_errors_of_the_kernel_fail_the_looks() {
    fails(Fault::SlowLink, &[0, 11], "x2");
    fails(Fault::LinkGoesDown, &[11], "x2");
    fails(Fault::CountsErrors, &[11], "1 errors");
    assert_eq!(failing(Fault::LinkGoesDown).len(), 1);
    assert_eq!(failing(Fault::CountsErrors).len(), 1);
}

#[test]
fn errors_of_the_target_fail_a_test_and_not_those_after_it() {
    let failing = failing(Fault::WriteError(97));
    assert!(failing.iter().any(|(_, why)| why.contains("Input/output error")), "{failing:#?}");
    assert!(failing.len() < 6, "{failing:#?}");
}

#[test]
fn each_test_is_made_to_fail_by_one_fault_or_another() {
    let faults = [
        Fault::WrongData(1),
        Fault::LostWrite(2),
        Fault::BeyondTheRange,
        Fault::ShortRead(2),
        Fault::LyingSync,
        Fault::WrapsAround(5 << 20),
        Fault::SlowLink,
    ];
    let mut failed: Vec<u8> =
        faults.into_iter().flat_map(failing).map(|(number, _)| number).collect();
    failed.sort_unstable();
    failed.dedup();
    assert_eq!(failed, (0..12).collect::<Vec<u8>>());
}

#[test]
fn chosen_tests_run_alone_and_an_interrupted_run_says_so() {
    let summary = tested(&mut Faulty::new(Fault::None), &[7, 2]);
    assert_eq!(summary.tests.iter().map(|test| test.number).collect::<Vec<_>>(), [2, 7]);
    assert!(summary.passed && summary.peaks.is_empty());

    let stop = StopHandle::default();
    let settings = Settings {
        limit: None,
        quick: true,
        runs: None,
        passes: 2,
        link: None,
        pattern: "random:1".parse().unwrap(),
        only: vec![],
    };
    let mut ends = 0;
    let mut say = |line| {
        if let Line::End(_) = line {
            ends += 1;
            if ends == 3 {
                stop.stop();
            }
        }
    };
    let summary = run(&mut Faulty::new(Fault::None), &settings, &stop, &mut say).unwrap();
    assert_eq!((summary.tests.len(), summary.failed), (3, 0));
    assert!(summary.interrupted && !summary.passed);
}

#[test]
fn what_cannot_be_tested_is_told_beforehand() {
    let quick = |pattern: &str, limit, only: &[u8]| Settings {
        limit,
        quick: true,
        runs: None,
        passes: 2,
        link: None,
        pattern: pattern.parse().unwrap(),
        only: only.to_vec(),
    };
    let refused = |settings: Settings| {
        let stop = StopHandle::default();
        run(&mut Faulty::new(Fault::None), &settings, &stop, &mut |_| ()).unwrap_err().to_string()
    };
    assert!(refused(quick("counter", None, &[])).contains("has no seed"));
    assert!(refused(quick("prbs31", Some(1 << 20), &[])).contains("the tests need"));
    assert!(refused(quick("prbs31", None, &[12])).contains("no test 12"));
}

#[test]
fn the_tables_hold_what_was_measured() {
    let summary = tested(&mut Faulty::new(Fault::None), &[8, 10]);
    let chunks: Vec<u64> = summary.peaks.iter().map(|peak| peak.chunks).collect();
    assert_eq!(chunks, [1, 2, 4, 8, 16, 32], "each lies behind as many, in 96");
    assert!(summary.peaks.iter().all(|peak| peak.write.runs == 2 && peak.read.mean > 0.0));
    let continuous = summary.continuous.unwrap();
    assert_eq!((continuous.bytes, continuous.passes.len(), continuous.write.runs), (BYTES, 2, 2));
    assert!(continuous.read.mean > 0.0);
}
