use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::account::{Account, CountedBy, DropCounter, Edge, Layer};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::index::RECORD_BYTES;
use fullbore_core::manifest::{Fill, Format, Summary};
use fullbore_store::testing::{Laid, Store, StreamPlan};
use proptest::prelude::*;

use super::walk::walk_frames;
use super::*;

fn verified(store: &Store, laid: &Laid) -> Verification {
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    verify(&scan, Settings::default(), &|_, _| {}).unwrap()
}

fn plans() -> Vec<StreamPlan> {
    vec![
        StreamPlan::vdif("a")
            .threads(&[1, 3])
            .gap(40, 3, Cause::Missing)
            .gap(100, 1, Cause::Damaged)
            .gap(999, 1, Cause::Late)
            .skip_blocks(10..12)
            .invalid(&[7, 500]),
        StreamPlan::vdif("b").fill(Fill::Omit).gap(31, 2, Cause::Missing).gap(
            200,
            70,
            Cause::Overrun,
        ),
        StreamPlan::raw("c").fill(Fill::Pattern(0x5555_5555)).gap(5, 9, Cause::Missing),
        StreamPlan::varying("d").frames(700),
    ]
}

fn what(verification: &Verification) -> Vec<String> {
    verification.findings.iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn a_verification_that_is_stopped_reads_no_further_and_has_no_result() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let stop = StopHandle::default();
    let settings = Settings { reads_per_device: 1, ..Settings::default() };
    let whole = verify_until(&scan, settings, &|_, _| {}, &stop).unwrap().unwrap();
    assert!(whole.good && whole.bytes > 0);
    let read = std::sync::atomic::AtomicU64::new(0);
    let progress = |done, _| {
        read.fetch_max(done, std::sync::atomic::Ordering::Relaxed);
        if done > 0 {
            stop.stop();
        }
    };
    assert!(verify_until(&scan, settings, &progress, &stop).unwrap().is_none());
    assert!(read.into_inner() < whole.bytes);
}

/// Damages a whole scan and expects a diagnostic of this kind that names the file.
fn expect(
    damage: impl FnOnce(&Store, &Laid),
    file: impl FnOnce(&Laid) -> PathBuf,
    is: impl Fn(&DiagnosticKind) -> bool,
) -> Verification {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    damage(&store, &laid);
    let verification = verified(&store, &laid);
    let file = file(&laid);
    let named = verification
        .findings
        .iter()
        .any(|finding| finding.file.as_deref() == Some(&file) && is(&finding.what));
    assert!(named, "{} is not named in {:#?}", file.display(), what(&verification));
    assert!(!verification.good);
    verification
}

fn flip(path: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_scan_as_it_was_written_is_good() {
    for members in [1, 3] {
        let store = Store::new(members);
        let laid = store.lay_down("r1_a", &plans());
        let verification = verified(&store, &laid);
        assert_eq!(what(&verification), Vec::<String>::new());
        assert!(verification.good);
        let bytes: usize = laid.bytes.iter().map(Vec::len).sum();
        assert_eq!(verification.bytes, bytes as u64);
        for (result, account) in verification.streams.iter().zip(&laid.accounts) {
            assert_eq!(result.written, account.terms.written);
            let absent = account.terms.expected - account.terms.written;
            assert!(result.absent.is_none_or(|it| it == absent));
        }
    }
}

#[test]
fn what_is_away_is_counted_among_what_ought_to_be_there() {
    let whole = {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        verified(&store, &laid).streams.swap_remove(0)
    };
    assert!(whole.good && whole.lost == 0 && whole.good_blocks == whole.blocks);
    let damages: [fn(&Store, &Laid); 2] = [
        |_, laid| fs::remove_file(laid.chunk_path(0, 0)).unwrap(),
        |_, laid| fs::remove_file(laid.index_path(0, 1)).unwrap(),
    ];
    for damage in damages {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        damage(&store, &laid);
        let stream = verified(&store, &laid).streams.swap_remove(0);
        assert!(!stream.good && stream.lost > 0, "{stream:?}");
        assert!(stream.good_blocks < stream.blocks && stream.blocks == whole.blocks, "{stream:?}");
    }
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    let scan = Scan::open(&store.roots()[..1], &laid.name).unwrap();
    let stream = verify(&scan, Settings::default(), &|_, _| {}).unwrap().streams.swap_remove(0);
    assert!(!stream.good && stream.lost > 0 && stream.blocks == whole.blocks, "{stream:?}");
}

#[test]
fn a_stream_without_any_account_has_lost_the_frames_that_the_manifest_counts() {
    let damages: [fn(&Laid, usize) -> PathBuf; 2] = [
        |laid, member| laid.directory(0, member),
        |laid, member| laid.directory(0, member).join(".fullbore"),
    ];
    for damage in damages {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        (0..2).for_each(|member| fs::remove_dir_all(damage(&laid, member)).unwrap());
        let verification = verified(&store, &laid);
        let stream = &verification.streams[0];
        assert!(!verification.good && !stream.good && stream.verdict.is_none(), "{stream:?}");
        let written = laid.accounts[0].terms.written;
        assert_eq!((stream.lost, stream.good_blocks), (written, 0), "{stream:?}");
        assert_eq!(stream.stored, Some(laid.accounts[0].terms));
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        assert_eq!(scan.streams[0].missing_blocks(), stream.blocks);
        assert_eq!(scan.streams[1].missing_blocks(), 0);
    }
}

#[test]
fn a_flipped_byte_in_any_block_is_found_and_named() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    for stream in 0..laid.blocks.len() {
        for (_, block) in &laid.blocks[stream] {
            let path = laid.chunk_path(stream, block.chunk);
            let at = block.offset + u64::from(block.bytes) * 2 / 3;
            flip(&path, at);
            let verification = verified(&store, &laid);
            let expected = DiagnosticKind::BlocksDamaged {
                first: block.sequence,
                count: 1,
                offset: block.offset,
            };
            let [finding] = verification.findings.as_slice() else {
                panic!("block {}: {:#?}", block.sequence, what(&verification));
            };
            assert_eq!((finding.file.as_ref(), &finding.what), (Some(&path), &expected));
            flip(&path, at);
        }
    }
    assert!(verified(&store, &laid).good, "flipping back mends it");
}

#[test]
fn every_truncated_chunk_is_found() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    for stream in 0..laid.blocks.len() {
        for chunk in laid.chunks(stream) {
            let path = laid.chunk_path(stream, chunk);
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
            let verification = verified(&store, &laid);
            let found = verification.findings.iter().any(|finding| {
                finding.file.as_ref() == Some(&path)
                    && finding.frames.is_some()
                    && matches!(finding.what, DiagnosticKind::ChunkTruncated { blocks: 1, .. })
            });
            assert!(found, "{:#?}", what(&verification));
            fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn every_deleted_chunk_is_found() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    for stream in 0..laid.blocks.len() {
        for chunk in laid.chunks(stream) {
            let path = laid.chunk_path(stream, chunk);
            let bytes = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let verification = verified(&store, &laid);
            let found = verification.findings.iter().any(|finding| {
                finding.file.as_ref() == Some(&path)
                    && finding.frames.is_some()
                    && matches!(finding.what, DiagnosticKind::ChunkMissing { .. })
            });
            assert!(found, "{:#?}", what(&verification));
            fs::write(&path, &bytes).unwrap();
        }
    }
}

#[test]
fn swapped_chunks_are_told_from_damaged_ones() {
    let verification = expect(
        |_, laid| {
            let (a, b) = (laid.chunk_path(0, 1), laid.chunk_path(0, 2));
            let (bytes_a, bytes_b) = (fs::read(&a).unwrap(), fs::read(&b).unwrap());
            fs::write(a, bytes_b).unwrap();
            fs::write(b, bytes_a).unwrap();
        },
        |laid| laid.chunk_path(0, 1),
        |what| *what == DiagnosticKind::BlocksSwapped { first: 3, count: 3, holds: 6 },
    );
    assert_eq!(verification.findings.len(), 2);
}

#[test]
fn a_deleted_or_emptied_index_is_found() {
    for (stream, empty) in [(0, false), (1, true), (3, false)] {
        let verification = expect(
            |_, laid| {
                fs::remove_file(laid.index_path(stream, 1)).unwrap();
                if empty {
                    fs::write(laid.index_path(stream, 1), [0; 4096]).unwrap();
                }
            },
            |laid| laid.index_path(stream, 1),
            |what| *what == DiagnosticKind::IndexMissing,
        );
        let absent = |it: &Diagnostic| matches!(it.what, DiagnosticKind::BlocksAbsent { .. });
        assert!(verification.findings.iter().any(absent), "{:#?}", what(&verification));
    }
}

#[test]
fn an_index_cut_anywhere_is_found() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &plans());
    for stream in [0, 3] {
        let path = laid.index_path(stream, 0);
        let bytes = fs::read(&path).unwrap();
        for cut in (0..bytes.len()).step_by(RECORD_BYTES / 2) {
            fs::write(&path, &bytes[..cut]).unwrap();
            let verification = verified(&store, &laid);
            let only_marks_lost = cut + RECORD_BYTES == bytes.len() && stream == 0;
            assert!(!verification.good || only_marks_lost, "cut at {cut}");
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_in_an_index_is_found() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(200)]);
    let path = laid.index_path(0, 0);
    let bytes = fs::metadata(&path).unwrap().len();
    for at in (0..bytes).step_by(31) {
        flip(&path, at);
        let verification = verified(&store, &laid);
        let named = verification.findings.iter().any(|it| it.file.as_ref() == Some(&path));
        assert!(named, "byte {at}: {:#?}", what(&verification));
        flip(&path, at);
    }
}

#[test]
fn lost_and_changed_manifests_and_accounts_are_found() {
    expect(
        |_, laid| fs::remove_file(laid.manifest_path(1, 1)).unwrap(),
        |laid| laid.manifest_path(1, 1),
        |what| *what == DiagnosticKind::ManifestMissing,
    );
    expect(
        |_, laid| fs::write(laid.manifest_path(1, 1), b"{").unwrap(),
        |laid| laid.manifest_path(1, 1),
        |what| matches!(what, DiagnosticKind::ManifestUnreadable { .. }),
    );
    expect(
        |_, laid| {
            let mut manifest = laid.manifest.clone();
            manifest.host = "elsewhere".into();
            fs::write(laid.manifest_path(0, 0), manifest.to_json()).unwrap();
        },
        |laid| laid.manifest_path(0, 0),
        |what| matches!(what, DiagnosticKind::ManifestDiffers { .. }),
    );
    expect(
        |_, laid| fs::remove_file(laid.account_path(2, 0)).unwrap(),
        |laid| laid.account_path(2, 0),
        |what| *what == DiagnosticKind::AccountMissing,
    );
    expect(
        |_, laid| {
            let mut account = laid.accounts[0].clone();
            account.terms.missing += 1;
            let json = serde_json::to_vec(&account).unwrap();
            for member in 0..2 {
                fs::write(laid.account_path(0, member), &json).unwrap();
            }
        },
        |laid| laid.account_path(0, 0),
        |what| matches!(what, DiagnosticKind::AccountTerm { term: "missing", .. }),
    );
}

#[test]
fn member_whose_disk_is_not_mounted_is_not_attached_and_nothing_else_is_wrong() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(90)]);
    assert!(laid.blocks[0].iter().all(|(member, _)| *member == 0), "{:?}", laid.blocks);
    // The mount point of the other member, without its disk.
    let root = &store.roots()[1];
    fs::remove_dir_all(root).unwrap();
    fs::create_dir(root).unwrap();
    let verification = verified(&store, &laid);
    let [finding] = verification.findings.as_slice() else {
        panic!("{:#?}", what(&verification));
    };
    assert!(matches!(finding.what, DiagnosticKind::MemberAbsent { bare: true, .. }), "{finding}");
    assert!(finding.to_string().ends_with("its disk is not mounted there, or was replaced"));
    assert_eq!(verification.streams[0].lost, 0);
    // A scan without the member file is of the member, so only that file is missing.
    fs::create_dir_all(laid.directory(0, 1).join(".fullbore")).unwrap();
    let findings = verified(&store, &laid).findings;
    let lacks_file = |it: &Diagnostic| matches!(it.what, DiagnosticKind::MemberFileMissing { .. });
    assert!(findings.iter().any(lacks_file), "{findings:#?}");
}

#[test]
fn named_pipe_in_the_place_of_a_stored_file_is_found_and_not_waited_for() {
    let places: [fn(&Laid) -> PathBuf; 6] = [
        |laid| laid.manifest_path(0, 0),
        |laid| laid.account_path(0, 0),
        |laid| laid.index_path(0, 0),
        |laid| laid.chunk_path(0, 0),
        |laid| laid.directory(0, 0).join(".fullbore/markers"),
        |laid| laid.directory(0, 0).join(".fullbore/r1_a_dsa.00000077.part"),
    ];
    for place in places {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        let path = place(&laid);
        // Markers are read, and a marker that cannot be read is none.
        let is_read = !path.ends_with("markers");
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // The test may have given up waiting.
            let _ = tell.send(verified(&store, &laid));
        });
        let verification = told.recv_timeout(std::time::Duration::from_secs(60));
        let verification = verification.unwrap_or_else(|_| panic!("waits for {}", path.display()));
        let named = verification.findings.iter().any(|it| it.file.as_ref() == Some(&path));
        assert_eq!(named, is_read, "{}: {:#?}", path.display(), what(&verification));
    }
}

#[test]
fn a_flipped_byte_anywhere_in_the_only_account_is_found() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &plans()[..1]);
    let path = laid.account_path(0, 0);
    let bytes = fs::metadata(&path).unwrap().len();
    for at in (0..bytes).step_by(29).chain(bytes - 29..bytes) {
        flip(&path, at);
        let verification = verified(&store, &laid);
        let unreadable = |it: &Diagnostic| {
            it.file.as_ref() == Some(&path)
                && matches!(it.what, DiagnosticKind::AccountUnreadable { .. })
        };
        assert!(verification.findings.iter().any(unreadable), "byte {at}");
        assert!(!verification.good && verification.streams[0].lost == 0);
        flip(&path, at);
    }
    assert!(verified(&store, &laid).good);
    // An earlier version wrote no checksum.
    fs::write(&path, serde_json::to_vec_pretty(&laid.accounts[0]).unwrap()).unwrap();
    assert!(verified(&store, &laid).good);
}

#[test]
fn a_member_that_is_gone_is_named_with_what_it_held() {
    let store = Store::new(3);
    let laid = store.lay_down("r1_a", &plans());
    let roots = &store.roots()[..2];
    let scan = Scan::open(roots, &laid.name).unwrap();
    let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
    let gone = &laid.manifest.members[2];
    assert!(verification.findings.iter().any(|it| it.member.as_ref() == Some(&gone.path)
        && matches!(&it.what, DiagnosticKind::MemberAbsent { uuid, .. } if *uuid == gone.uuid)));
    for (stream, blocks) in laid.blocks.iter().enumerate() {
        let lost = blocks.iter().filter(|(member, _)| *member == 2).count() as u64;
        let name = laid.manifest.streams[stream].name.to_string();
        let of_stream = verification.findings.iter().filter(|it| it.stream.as_ref() == Some(&name));
        let absent = of_stream.filter_map(|it| match it.what {
            DiagnosticKind::BlocksAbsent { count, .. } => Some(count),
            _ => None,
        });
        assert_eq!(absent.sum::<u64>(), lost, "stream {name}");
    }
}

#[test]
fn files_too_many_are_found() {
    expect(
        |_, laid| {
            let path = laid.chunk_path(0, 0);
            fs::write(path.with_extension("00000099"), b"x").unwrap();
        },
        |laid| laid.chunk_path(0, 0).with_extension("00000099"),
        |what| *what == DiagnosticKind::ChunkUnknown { bytes: 1 },
    );
    expect(
        |_, laid| {
            let mut bytes = fs::read(laid.chunk_path(0, 1)).unwrap();
            bytes.push(0);
            fs::write(laid.chunk_path(0, 1), bytes).unwrap();
        },
        |laid| laid.chunk_path(0, 1),
        |what| matches!(what, DiagnosticKind::ChunkTooLong { .. }),
    );
    expect(
        |_, laid| {
            let path = laid.chunk_path(0, 1);
            let twin = laid.directory(0, 0).join(path.file_name().unwrap());
            fs::copy(path, twin).unwrap();
        },
        |laid| laid.chunk_path(0, 1),
        |what| matches!(what, DiagnosticKind::ChunkTwice { .. }),
    );
    expect(
        |_, laid| fs::write(laid.directory(1, 0).join("notes.txt"), b"x").unwrap(),
        |laid| laid.directory(1, 0).join("notes.txt"),
        |what| *what == DiagnosticKind::Stranger,
    );
}

#[test]
fn a_frame_in_the_wrong_place_is_found_though_its_checksum_is_right() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let stream = &scan.streams[0];
    let in_place = &stream.blocks[2];
    let mut bytes = laid.bytes[0][2 * 16384..3 * 16384].to_vec();
    let (a, b) = (bytes[512..1024].to_vec(), bytes[1024..1536].to_vec());
    bytes[512..1024].copy_from_slice(&b);
    bytes[1024..1536].copy_from_slice(&a);
    let walk = walk_frames(stream, &in_place.block, &bytes);
    assert_eq!(walk.misplaced.count, 2);
    bytes[512 + 8] ^= 1;
    assert_eq!(walk_frames(stream, &in_place.block, &bytes).bad.count, 1);
}

/// Returns a stream of every kind, with the same frames absent in each.
fn kinds(gaps: &[Gap]) -> Vec<(StreamPlan, Option<CountedBy>)> {
    let sequence = Some(CountedBy::SequenceField);
    let kinds = [
        (StreamPlan::vdif("filled"), None),
        (StreamPlan::vdif("filled2").threads(&[1, 3]), None),
        (StreamPlan::vdif("omitted").fill(Fill::Omit), None),
        (StreamPlan::vdif("together").threads(&[1, 3]).fill(Fill::Omit), None),
        (StreamPlan::vdif("vtp").fill(Fill::Omit), Some(CountedBy::PacketNumber)),
        (StreamPlan::vdif("vtpfilled"), Some(CountedBy::PacketNumber)),
        (StreamPlan::raw("counted").fill(Fill::Pattern(7)), sequence),
        (StreamPlan::raw("countedomitted"), sequence),
    ];
    let with = |plan: StreamPlan| {
        gaps.iter().fold(plan, |plan, gap| plan.gap(gap.first, gap.count, gap.cause))
    };
    let uncounted = (StreamPlan::raw("uncounted"), None);
    kinds.into_iter().map(|(plan, by)| (with(plan), by)).chain([uncounted]).collect()
}

/// A change to an account, and its name.
type Change = (&'static str, fn(&mut Account));

/// Changes a recorded edge to a time that is in no frame.
fn later(edge: &mut Option<Edge>) {
    let time = edge.as_mut().and_then(|edge| edge.time.as_mut());
    time.into_iter().for_each(|time| *time = time.plus_ns(2_000_000_000));
}

/// Returns the account with one change each, so that it still balances.
fn changes(account: &Account) -> Vec<(&'static str, Account)> {
    let changes: [Change; 35] = [
        ("20 missing less", |it| {
            let fewer = it.terms.missing.min(20);
            (it.terms.missing, it.terms.expected) =
                (it.terms.missing - fewer, it.terms.expected - fewer);
        }),
        ("50 missing more", |it| {
            (it.terms.missing, it.terms.expected) = (it.terms.missing + 50, it.terms.expected + 50);
        }),
        ("missing is late", |it| {
            let some = it.terms.missing.min(5);
            (it.terms.missing, it.terms.late) = (it.terms.missing - some, it.terms.late + some);
        }),
        ("all missing is late", |it| {
            it.terms.late += std::mem::take(&mut it.terms.missing);
        }),
        ("missing is overrun", |it| {
            it.terms.overrun += std::mem::take(&mut it.terms.missing);
        }),
        ("overrun is damaged", |it| {
            it.terms.damaged += std::mem::take(&mut it.terms.overrun);
        }),
        ("one written less", |it| {
            (it.terms.written, it.terms.missing) = (it.terms.written - 1, it.terms.missing + 1);
        }),
        ("one overrun more", |it| {
            (it.terms.overrun, it.terms.expected) = (it.terms.overrun + 1, it.terms.expected + 1);
        }),
        ("no gaps", |it| it.gaps.clear()),
        ("a gap less", |it| it.gaps.truncate(it.gaps.len().saturating_sub(1))),
        ("a gap less, in all that tells of it", |it| {
            let Some(gone) = (!it.gaps.is_empty()).then(|| it.gaps.remove(0)) else { return };
            let count = gone.count as i64;
            it.gaps.iter_mut().for_each(|gap| gap.first -= count);
            it.last.as_mut().unwrap().index -= count;
            let terms = &mut it.terms;
            (terms.missing, terms.expected) =
                (terms.missing - gone.count, terms.expected - gone.count);
        }),
        ("a gap of a thread less, in all that tells of it", |it| {
            let Some(flow) = it.flows.first_mut() else { return };
            let gone = flow.gaps.remove(0).count;
            flow.gaps.iter_mut().for_each(|gap| gap.first -= gone as i64);
            for terms in [&mut flow.terms, &mut it.terms] {
                (terms.missing, terms.expected) = (terms.missing - gone, terms.expected - gone);
            }
        }),
        ("a gap more", |it| {
            let gap = Gap { first: 990, count: 2, cause: Cause::Missing };
            it.gaps.push(gap);
        }),
        ("a gap elsewhere", |it| it.gaps.iter_mut().take(1).for_each(|gap| gap.first += 1)),
        ("a later gap elsewhere", |it| {
            it.gaps.iter_mut().skip(1).take(1).for_each(|gap| gap.first += 1)
        }),
        ("the last gap elsewhere", |it| {
            it.gaps.iter_mut().skip(1).last().into_iter().for_each(|gap| gap.first -= 1)
        }),
        ("a longer gap", |it| it.gaps.iter_mut().take(1).for_each(|gap| gap.count += 1)),
        ("another cause", |it| {
            for gap in it.gaps.iter_mut().take(1) {
                let overrun = gap.cause == Cause::Overrun;
                gap.cause = if overrun { Cause::Damaged } else { Cause::Overrun };
            }
        }),
        ("an unlisted gap", |it| it.gaps_unlisted += 1),
        ("a later first", |it| it.first.as_mut().unwrap().index += 1),
        ("an earlier first", |it| it.first.as_mut().unwrap().index -= 1),
        ("a later last", |it| it.last.as_mut().unwrap().index += 1),
        ("an earlier last", |it| it.last.as_mut().unwrap().index -= 1),
        ("proven", |it| it.verdict = Verdict::Proven),
        ("consistent", |it| it.verdict = Verdict::Consistent),
        ("unexplained", |it| it.verdict = Verdict::Unexplained),
        ("unproven", |it| it.verdict = Verdict::Unproven),
        ("filled", |it| it.filled += 1),
        ("invalid", |it| it.invalid += 1),
        ("no gaps of a thread", |it| it.flows.iter_mut().take(1).for_each(|it| it.gaps.clear())),
        ("more of a thread", |it| {
            for flow in it.flows.iter_mut().take(1) {
                (flow.terms.missing, flow.terms.expected) =
                    (flow.terms.missing + 1, flow.terms.expected + 1);
            }
        }),
        ("no threads", |it| it.flows.clear()),
        ("unverified", |it| it.unverified += 1),
        ("another time of the first", |it| later(&mut it.first)),
        ("another time of the last", |it| later(&mut it.last)),
    ];
    let changed = changes.into_iter().map(|(name, change)| {
        let mut changed = account.clone();
        change(&mut changed);
        (name, changed)
    });
    changed.filter(|(_, changed)| changed != account).collect()
}

#[test]
fn the_field_in_which_a_manifest_differs_from_the_account_is_named_in_words() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut manifest = laid.manifest.clone();
    let summary = manifest.streams[0].account.as_mut().unwrap();
    summary.beside.as_mut().unwrap().counters_moved = true;
    summary.terms.late += 3;
    fs::write(laid.manifest_path(0, 0), manifest.to_json()).unwrap();
    let scan = Scan::open(&store.roots(), &laid.name).unwrap();
    let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
    let told: Vec<String> = verification.findings.iter().map(ToString::to_string).collect();
    let words = "the manifest says account with counters moved true, late 3, and the recording with counters moved \
                 nothing, late 0";
    assert!(told.iter().any(|it| it.contains(words)), "{told:?}");
}

/// Writes an account and its summary in the manifest to all members.
fn put_account(laid: &Laid, members: usize, account: &Account, derived: bool) {
    let mut manifest = laid.manifest.clone();
    manifest.streams[0].account = Some(Summary::from(account));
    if let Format::Frames { derived: told, .. } = &mut manifest.streams[0].format {
        *told = derived;
    }
    for member in 0..members {
        fs::write(laid.manifest_path(0, member), manifest.to_json()).unwrap();
        fs::write(laid.account_path(0, member), serde_json::to_vec(account).unwrap()).unwrap();
    }
}

/// Returns true if a diagnostic has a text that names the stream and the term that differs from the data.
fn is_told(finding: &Diagnostic, laid: &Laid) -> bool {
    let stream = format!("stream {}: the account ", laid.manifest.streams[0].name);
    let text = finding.to_string();
    let told = match &finding.what {
        DiagnosticKind::AccountTerm { term, stored, counted } => {
            text.contains(&format!("says {term} {stored}, and the recording {counted}"))
        }
        DiagnosticKind::AccountUnbalanced { expected, sum } => {
            let frames = fullbore_core::completeness::counted(*expected, "frame");
            text.contains(&format!("expects {frames}, but its terms add up to {sum}"))
        }
        _ => false,
    };
    told && text.contains(&stream)
}

fn absent() -> impl Strategy<Value = Vec<Gap>> {
    let causes = [Cause::Missing, Cause::Overrun, Cause::Damaged, Cause::Late];
    let gap = (5i64..70, 1u64..60, prop::sample::select(causes.to_vec()));
    prop::collection::vec(gap, 1..7).prop_map(|list| {
        // Some frames are missing in any case; the others are behind them, and none touches the next.
        let mut gaps = vec![Gap { first: 30, count: 90, cause: Cause::Missing }];
        for (apart, count, cause) in list {
            let last = gaps.last().unwrap();
            let first = last.first + last.count as i64 + apart;
            gaps.push(Gap { first, count, cause });
        }
        gaps.retain(|gap| gap.first + (gap.count as i64) < 980);
        gaps
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_changed_in_an_account_is_found(gaps in absent(), derived in any::<bool>()) {
        for (plan, counted_by) in kinds(&gaps) {
            let store = Store::in_memory(2);
            let laid = store.lay_down("r1_a", std::slice::from_ref(&plan));
            let mut account = laid.accounts[0].clone();
            account.counted_by = counted_by.unwrap_or(account.counted_by);
            account.verdict = account.judge();
            put_account(&laid, 2, &account, derived);
            let good = verified(&store, &laid);
            prop_assert!(good.good, "{plan:?}: {:#?}", what(&good));
            // Without numbers, the place of a gap is unknown.
            let by_time = account.counted_by == CountedBy::FrameTime;
            let in_place = by_time || laid.manifest.streams[0].fill != Fill::Omit;
            for (name, changed) in changes(&account) {
                // A learnt rate does not give the number of frames between those of two seconds either.
                let between = derived && laid.manifest.streams[0].fill == Fill::Omit;
                let tells = match name {
                    "a gap elsewhere" => in_place,
                    // A packet number carries no time.
                    "another time of the first" | "another time of the last" => by_time,
                    "a later gap elsewhere" | "the last gap elsewhere" => in_place && !between,
                    "a gap less, in all that tells of it" => in_place && !between,
                    _ => true,
                };
                if !tells {
                    continue;
                }
                put_account(&laid, 2, &changed, derived);
                let found = verified(&store, &laid);
                let told = found.findings.iter().filter(|it| is_told(it, &laid)).count();
                prop_assert!(told > 0, "{name} of {plan:?}: {:#?}", what(&found));
            }
        }
    }
}

#[test]
fn a_loss_that_came_late_or_has_no_number_is_no_fault() {
    let gaps = [Gap { first: 40, count: 30, cause: Cause::Missing }];
    for (plan, counted_by) in kinds(&gaps).into_iter().take(3) {
        let store = Store::in_memory(1);
        let laid = store.lay_down("r1_a", &[plan]);
        let mut account = laid.accounts[0].clone();
        account.counted_by = counted_by.unwrap_or(account.counted_by);
        // One of them arrived after the index record, and a rate that was learnt late finds four more.
        account.gaps.clear();
        for (first, count, cause) in
            [(40, 10, Cause::Missing), (50, 1, Cause::Late), (51, 19, Cause::Missing)]
        {
            account.push_gap(Gap { first, count, cause });
        }
        (account.terms.missing, account.terms.late) = (29 + 4, 1);
        account.terms.expected += 4;
        account.gaps_unlisted = 1;
        account.verdict = account.judge();
        put_account(&laid, 1, &account, true);
        let good = verified(&store, &laid);
        assert!(good.good, "{:#?}", what(&good));
    }
}

#[test]
fn a_verdict_that_was_given_together_with_streams_since_recovered_stands() {
    let store = Store::in_memory(1);
    let mut laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").gap(40, 3, Cause::Missing)]);
    laid.manifest.state = State::Recovered;
    let shared = DropCounter {
        layer: Layer::Device,
        counter: "rx_dropped".into(),
        scope: "eth0".into(),
        own: false,
        coarse: false,
        before: 0,
        after: 3,
    };
    let good = |verdict: Verdict, drop_counters: &[DropCounter], host: bool| {
        let mut account = laid.accounts[0].clone();
        (account.verdict, account.drop_counters) = (verdict, drop_counters.to_vec());
        account.host = account.host.filter(|_| host);
        put_account(&laid, 1, &account, false);
        verified(&store, &laid).good
    };
    let leaning = std::slice::from_ref(&shared);
    assert!(good(Verdict::Consistent, leaning, true));
    // Another stream used the same counter, and was counted again at the recovery.
    assert!(good(Verdict::Unexplained, leaning, true));
    assert!(!good(Verdict::Proven, leaning, true));
    assert!(good(Verdict::Unexplained, &[], true));
    assert!(!good(Verdict::Consistent, &[], true), "nothing explains it");
    assert!(!good(Verdict::Unproven, &[], true));
    assert!(good(Verdict::Unexplained, &[], false));
    // A stream that lost nothing keeps its verdict, and one that was counted again is not proven.
    let store = Store::in_memory(1);
    let mut laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    laid.manifest.state = State::Recovered;
    for (verdict, host, stands) in [
        (Verdict::Proven, true, true),
        (Verdict::Consistent, true, false),
        (Verdict::Consistent, false, true),
    ] {
        let mut account = laid.accounts[0].clone();
        account.verdict = verdict;
        account.host = account.host.filter(|_| host);
        put_account(&laid, 1, &account, false);
        assert_eq!(verified(&store, &laid).good, stands, "{verdict} {host}");
    }
}

#[test]
fn what_a_member_lost_when_it_failed_its_index_could_not_be_told() {
    let store = Store::in_memory(1);
    let mut laid =
        store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(1024).skip_blocks(30..32)]);
    assert!(verified(&store, &laid).good);
    // The last records are that of the gap and the mark behind it.
    let path = laid.index_path(0, 0);
    let records = fs::read(&path).unwrap();
    fs::write(&path, &records[..records.len() - 2 * RECORD_BYTES]).unwrap();
    assert!(!verified(&store, &laid).good);
    laid.manifest.members[0].failure = Some("syncing a chunk: Input/output error".into());
    let account = laid.accounts[0].clone();
    put_account(&laid, 1, &account, false);
    let good = verified(&store, &laid);
    assert!(good.good, "{:#?}", what(&good));
    // Data that exists must not be reported as absent by any failure.
    let mut less = account;
    less.push_gap(Gap { first: 10, count: 5, cause: Cause::Overrun });
    (less.terms.written, less.terms.overrun) = (less.terms.written - 5, less.terms.overrun + 5);
    put_account(&laid, 1, &less, false);
    assert!(!verified(&store, &laid).good);
}

#[test]
fn more_may_be_unverified_than_recover_found_only_where_a_member_failed() {
    let store = Store::in_memory(1);
    let mut laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut account = laid.accounts[0].clone();
    account.unverified = 32;
    account.verdict = account.judge();
    put_account(&laid, 1, &account, false);
    let told = what(&verified(&store, &laid)).join("; ");
    assert!(told.contains("says unverified 32, and the recording 0"), "{told}");
    laid.manifest.members[0].failure = Some("syncing a chunk: Input/output error".into());
    put_account(&laid, 1, &account, false);
    assert!(verified(&store, &laid).good, "its blocks were read back");
    account.unverified = account.terms.written + 1;
    put_account(&laid, 1, &account, false);
    assert!(!verified(&store, &laid).good, "they are no more than all");
}

#[test]
fn an_account_made_anew_claims_nothing_that_died_with_the_recorder() {
    let store = Store::in_memory(1);
    let mut laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    laid.manifest.state = State::Recovered;
    let mut account = laid.accounts[0].clone();
    (account.host, account.verdict) = (None, Verdict::Consistent);
    put_account(&laid, 1, &account, false);
    assert!(verified(&store, &laid).good);
    account.duplicates = 3;
    put_account(&laid, 1, &account, false);
    let told = what(&verified(&store, &laid)).join("; ");
    assert!(told.contains("says duplicates 3, and the recording 0"), "{told}");
}
