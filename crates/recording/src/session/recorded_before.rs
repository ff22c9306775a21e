//! Scans of the schedule that were recorded before the session was restarted.

use fullbore_core::account::Terms;
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::Manifest;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::schedule::Planned;
use fullbore_store::resume::{TakenNames, is_sealed};

use super::account::ScanOutcome;

/// The parts of a scan in the store, if it was recorded at its time.
pub fn recorded(earlier: &TakenNames, session: &Name, scan: &Planned) -> Option<ScanOutcome> {
    let name = ScanName { session: session.clone(), scan: scan.name.clone() };
    let parts = earlier.parts(&name, scan.start, scan.end);
    (!parts.is_empty()).then(|| summed(&parts))
}

fn summed(parts: &[Manifest]) -> ScanOutcome {
    let mut terms = Terms::default();
    let accounts = parts.iter().flat_map(|part| &part.streams);
    accounts.filter_map(|it| it.account.as_ref()).for_each(|it| terms.add(&it.terms));
    let name = |part: &Manifest| part.scan.scan.clone();
    ScanOutcome::RecordedBefore {
        bytes: parts.iter().map(Manifest::bytes).sum(),
        terms,
        verdict: parts.iter().filter_map(Manifest::verdict).max(),
        completeness: Completeness::of_parts(parts),
        parts: parts.iter().map(name).collect(),
        unsealed: parts.iter().filter(|part| !is_sealed(part)).map(name).collect(),
    }
}
