//! Any JSON as the manifest or the account of a scan: whatever it says, looking at it breaks nothing, and what is
//! read is written so that it reads back.
#![no_main]

use fullbore_core::account::{Account, CountedBy, GAPS_LISTED, judge_together};
use fullbore_core::gap::Cause;
use fullbore_core::manifest::{Manifest, Summary};
use fullbore_fuzz::edited;
use serde_json::{Number, Value};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

const MANIFEST: &str = include_str!("../samples/manifest.json");
const ACCOUNT: &str = include_str!("../samples/account.json");

fn check(bytes: &[u8]) {
    check_manifest(bytes);
    check_account(bytes);
    check_manifest(&edited(MANIFEST, bytes));
    check_account(&edited(ACCOUNT, bytes));
    check_manifest(renumbered(MANIFEST, bytes).as_bytes());
    check_account(renumbered(ACCOUNT, bytes).as_bytes());
}

/// A sample with some of its numbers replaced: which one, and its eight bytes.
fn renumbered(sample: &str, bytes: &[u8]) -> String {
    let mut value: Value = serde_json::from_str(sample).expect("a sample is JSON");
    let mut numbers = Vec::new();
    gather(&mut value, &mut numbers);
    for edit in bytes.chunks_exact(9) {
        let (&which, number) = edit.split_first().expect("nine bytes");
        let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
        let at = usize::from(which >> 1) % numbers.len();
        *numbers[at] = if which & 1 == 0 { number.into() } else { (number as i64).into() };
    }
    value.to_string()
}

fn gather<'v>(value: &'v mut Value, numbers: &mut Vec<&'v mut Number>) {
    match value {
        Value::Number(number) => numbers.push(number),
        Value::Array(all) => all.iter_mut().for_each(|value| gather(value, numbers)),
        Value::Object(all) => all.values_mut().for_each(|value| gather(value, numbers)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn check_manifest(json: &[u8]) {
    let Ok(manifest) = Manifest::from_json(json) else { return };
    let text = manifest.to_json();
    let again = Manifest::from_json(&text).expect("what was written");
    assert_eq!(again, manifest);
    assert_eq!(again.to_json(), text);
    let _ = (manifest.verdict(), manifest.bytes());
    for summary in manifest.streams.iter().filter_map(|stream| stream.account.as_ref()) {
        let _ = summary.terms.balance();
    }
}

fn check_account(json: &[u8]) {
    let Ok(mut account) = serde_json::from_slice::<Account>(json) else { return };
    let text = serde_json::to_vec(&account).expect("plain fields");
    assert_eq!(serde_json::from_slice::<Account>(&text).expect("what was written"), account);
    let _ = (account.terms.sum(), account.terms.balance(), account.why_overrun());
    for cause in [Cause::Missing, Cause::Overrun, Cause::Damaged, Cause::Late, Cause::NotTransferred] {
        let _ = account.listed(cause);
    }
    assert_eq!(Summary::from(&account).terms, account.terms);
    let mut listed = Account::new(CountedBy::Nothing);
    account.gaps.iter().for_each(|gap| listed.push_gap(*gap));
    assert!(listed.gaps.len() <= GAPS_LISTED);
    let flows = account.flows.iter().map(|flow| flow.terms);
    flows.for_each(|terms| listed.terms.add(&terms));
    let judged = account.judge();
    let mut both = [account.clone(), account.clone()];
    judge_together(&mut both);
    // In company nothing is surer than alone.
    assert!(both.iter().all(|it| it.verdict >= judged), "{judged} {both:?}");
    account.presence.iter().for_each(|presence| drop(presence.to_string()));
    account.unavailable_counters.iter().for_each(|unread| drop(unread.to_string()));
    account.verdict = judged;
    assert_eq!(account.judge(), judged, "a verdict is judged the same again");
}
