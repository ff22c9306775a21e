//! Seals captured data like the recorder, and verifies it: `verify` must find no error.

use fullbore_care::verify::verify;
use fullbore_core::account::Host;
use fullbore_core::index;
use fullbore_store::read::Settings;
use fullbore_store::reader::Scan;
use fullbore_store::testing::{MadeBlock, Store};

use super::*;
use crate::discovered;
use crate::scan_stream::{StreamLayout, StreamMetrics};

/// Seals every scan like the recorder, and runs `verify` on it: it must find no error.
pub(super) fn verify_all(bench: &Bench) -> Result<(), TestCaseError> {
    let store = Store::in_memory(1);
    for (n, notice) in bench.notices.iter().enumerate() {
        let CaptureEvent::Ended { scan, number, format, account, .. } = notice else { continue };
        let Some((shape, metrics)) = opened(bench, *number) else { panic!("nobody opened it") };
        let mut account = (**account).clone();
        let (pool_blocks, high_water) = (&metrics.pool_blocks, &metrics.high_water);
        let [pool_blocks, high_water] =
            [pool_blocks, high_water].map(|it| it.load(Ordering::Relaxed));
        account.host =
            Some(Host { pool_blocks, high_water, members: Vec::new(), high_water_history: None });
        account.verdict = account.judge();
        let stream = discovered(shape, format, String::new());
        let mut pages: Vec<&Page> =
            bench.pages.iter().filter(|it| (it.scan, it.stream) == (*scan, *number)).collect();
        pages.sort_by_key(|page| page.filled.sequence);
        let told = bench.told.get(&(*scan, *number)).cloned().unwrap_or_default();
        let name = format!("s_{n}").parse().unwrap();
        store.lay_captured(&name, stream, &account, pages.into_iter().map(made).collect(), &told);
        let scan = Scan::open(&store.roots(), &name).unwrap();
        let found = verify(&scan, Settings::default(), &|_, _| {}).unwrap().findings;
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        prop_assert!(found.is_empty(), "{found:#?} in {account:#?}, {told:?}");
    }
    Ok(())
}

/// Returns the layout of a stream and its metrics.
fn opened(bench: &Bench, stream: u16) -> Option<(&StreamLayout, &StreamMetrics)> {
    bench.notices.iter().find_map(|notice| match notice {
        CaptureEvent::Opened { shape, metrics, .. } if shape.number == stream => {
            Some((shape, &**metrics))
        }
        _ => None,
    })
}

fn made(page: &Page) -> MadeBlock {
    let Filling { sequence, first, frames, present, invalid, time, seen, .. } = page.filled;
    let (chunk, offset, bytes, crc) = (0, 0, 0, 0);
    let block = index::Block {
        sequence,
        offset,
        chunk,
        bytes,
        crc,
        frames,
        present,
        invalid,
        first,
        time,
        seen,
    };
    let (gaps, lengths) = (page.filled.gaps.clone(), page.filled.lengths.clone());
    MadeBlock { member: 0, block, bytes: page.bytes.clone(), gaps, lengths }
}

/// Streams of every kind: what the sender sends, the endpoint, and the threads.
fn kinds() -> impl Strategy<Value = (Kind, &'static str, &'static [u16])> {
    prop_oneof![
        Just((Kind::Vdif, "frame=512&fps=RATE", &[0][..])),
        Just((Kind::Vdif, "frame=512", &[0][..])),
        Just((Kind::Vdif, "frame=512&fill=omit", &[0][..])),
        Just((Kind::Vdif, "frame=512&fill=omit&fps=RATE", &[0][..])),
        // A rate that the frames contradict: frames beyond it have no index.
        Just((Kind::Vdif, "frame=512&fps=30", &[0][..])),
        Just((Kind::Vdif, "frame=512&fill=omit&fps=30", &[0][..])),
        Just((Kind::Vdif, "frame=512&threads=3,0&fps=RATE", &[3, 0][..])),
        Just((Kind::Vdif, "frame=512&threads=3,0", &[3, 0][..])),
        Just((Kind::Vdif, "frame=512&fill=omit", &[3, 0, 1][..])),
        Just((Kind::Vdif, "frame=512&fill=omit&fps=RATE", &[3, 0, 1][..])),
        Just((Kind::Vdif, "frame=512&threads=split&fill=omit", &[3, 0][..])),
        Just((Kind::Vdif, "frame=512&threads=split", &[3, 0][..])),
        Just((Kind::Vtp, "format=vtp&frame=512&fps=RATE", &[0][..])),
        Just((Kind::Vtp, "format=vtp&frame=512&fill=omit", &[0][..])),
        Just((Kind::Field(8), "format=raw&frame=512&seq=0:8:le", &[0][..])),
        Just((Kind::Field(8), "format=raw&frame=512&seq=0:8:le&fill=omit", &[0][..])),
        Just((Kind::Field(8), "format=raw&frame=512", &[0][..])),
        Just((Kind::Field(8), "format=raw", &[0][..])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() * 2, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_found_in_a_scan_that_was_recorded_whatever_happened_to_it(
        (kind, text, threads) in kinds(),
        // If frames at the end of a second of 98 frames are lost, the second looks like one of 100.
        fps in prop::sample::select(vec![37u32, 98, 100]),
        merged in any::<bool>(),
        members in 1usize..3,
        steps in any::<bool>().prop_flat_map(steps),
    ) {
        let gro = if merged { "on" } else { "off" };
        let text = text.replace("RATE", &fps.to_string());
        let steps = forward(kind, steps);
        let mut bench = Bench::new(
            &format!("udp://127.0.0.1:1?{text}&gro={gro}"),
            Wire { fps, ..wire(kind, threads) },
            members,
        );
        steps.iter().for_each(|step| bench.play(step));
        bench.finish();
        verify_all(&bench)?;
    }
}
