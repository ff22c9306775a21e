//! Tests of a recorder that died together with a disk: data in finished stripes is restored before the scan is
//! recovered.

use fullbore_core::hint::Hint;

use super::*;
use crate::recover;

/// Returns a scan that was being recorded when its recorder died, with the stripes made by then.
fn died(members: usize, scheme: Scheme) -> Made {
    let store = Store::in_memory(members);
    let mut laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unmarked(1)]);
    laid.manifest.redundancy = Some(Redundancy::of(scheme));
    let path = |member: usize| laid.manifest_path(0, member);
    for member in 0..members {
        let json = std::fs::read(path(member)).unwrap();
        let mut manifest = fullbore_core::manifest::Manifest::from_json(&json).unwrap();
        manifest.redundancy = laid.manifest.redundancy;
        std::fs::write(path(member), manifest.to_json()).unwrap();
    }
    let mut builder = StripeBuilder::new(laid.manifest.uuid, scheme, store.roots());
    builder.add(0, "r1_a", BTreeSet::new(), 0, None);
    builder.look(false);
    builder.compose(false, &mut |_| true);
    let (followed, told) = builder.end();
    Made { store, laid, followed, told }
}

fn recovered(
    roots: &[PathBuf],
    laid: &Laid,
    without: bool,
) -> Result<recover::Outcome, recover::Error> {
    let options =
        recover::Options { without_absent_members: without, ..recover::Options::default() };
    recover::recover(roots, &laid.name, options, &|_| {})
}

/// Counts the bytes of the stream in the files of a scan, block by block; the files may contain nothing else.
fn blocks_of(bytes: &[u8], whole: &[u8]) -> usize {
    let block = (fullbore_store::testing::FRAME_BYTES * 32) as usize;
    let own: BTreeSet<&[u8]> = whole.chunks(block).collect();
    bytes.chunks(block).filter(|it| own.contains(it)).count()
}

#[test]
fn a_scan_whose_recorder_died_with_a_disk_is_rebuilt_then_recovered_then_given_its_parity() {
    for lost in 0..4 {
        let Made { store, laid, followed, .. } = died(4, Scheme { data: 2, parity: 1 });
        assert!(followed.stripes > 0 && followed.unprotected > 0, "{followed:?}");
        let all = store.roots();
        let left: Vec<PathBuf> = all.iter().filter(|it| **it != all[lost]).cloned().collect();
        lose(&all[lost]);
        // `recover` refuses to seal it: data that parity can restore would be counted as lost.
        let error = recovered(&left, &laid, false).unwrap_err();
        assert!(matches!(error, recover::Error::MembersAbsent { .. }), "{error}");
        assert!(error.hint().unwrap().contains("fullbore rebuild"));
        let before = read(&left, &laid).remove(0);

        let done = restored(&left, &laid, &[]);
        assert!(!done.is_whole() && done.gone.is_empty(), "{done:?}");
        assert!(done.restored > 0, "{done:?}");
        let told = done.left.join("\n");
        assert!(told.contains("recover"), "it says what comes next: {told}");
        assert_eq!(read(&left, &laid).remove(0), before, "nothing got lost by that");

        let outcome = recovered(&left, &laid, true).unwrap();
        let recover::Outcome::Recovered(recovery) = outcome else { panic!("{outcome:?}") };
        let [stream] = &recovery.streams[..] else { panic!("{recovery:?}") };
        let (bytes, none) = read(&left, &laid).remove(0);
        assert_eq!(none, 0, "what is lost is in the books, and not in the index");
        assert_eq!(stream.blocks as usize, blocks_of(&bytes, &laid.bytes[0]), "{stream:?}");
        assert!(bytes.len() >= before.0.len() - 4 * 16384, "{} of {}", bytes.len(), before.0.len());

        let (_others, onto) = fresh(1);
        let now: Vec<PathBuf> = left.iter().chain(&onto).cloned().collect();
        let done = restored(&left, &laid, &onto);
        assert!(done.is_whole() && done.stripes > 0, "{done:?}");
        assert_eq!(done.gone, [all[lost].clone()]);
        let after = verified(&now, &laid);
        assert!(after.good, "{:?}", after.findings);
        assert_eq!(after.redundancy.unwrap().may_lose, 1);
        // The disk comes back with its unsealed files: they are not part of the scan, and do not make it unsealed.
        find(&all[lost]);
        let with: Vec<PathBuf> = now.iter().chain([&all[lost]]).cloned().collect();
        let found = verified(&with, &laid);
        let named = |it: &fullbore_store::diagnostics::Diagnostic| {
            matches!(it.what, DiagnosticKind::LeftOver { .. })
        };
        assert!(found.findings.iter().all(named), "{:?}", found.findings);
        assert_eq!(read(&with, &laid).remove(0).0, bytes);
        let outcome = recovered(&with, &laid, false).unwrap();
        assert!(matches!(outcome, recover::Outcome::AlreadySealed { .. }), "{outcome:?}");
    }
}
