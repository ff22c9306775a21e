//! Markers outlive a recorder, and go with their scan.

use fullbore_store::inventory::Inventory;
use fullbore_store::markers::{Error, Moment, Set, file_of, set};
use fullbore_store::reader::Scan;
use fullbore_store::testing::{Laid, Store, StreamPlan};

use fullbore_core::marker::Text;

use crate::recover::{self, recover};
use crate::remove::remove;
use crate::verify::verify;

fn text(words: &str) -> Text {
    Text::typed(words).unwrap()
}

fn mark(store: &Store, laid: &Laid, moment: Moment<'_>, words: &str) -> Result<Set, Error> {
    set(&store.roots(), &laid.name, moment, text(words))
}

fn kept(store: &Store, laid: &Laid) -> Vec<String> {
    let inventory = Inventory::take(&store.roots(), &laid.name).unwrap();
    inventory.markers.iter().map(|marker| marker.text.to_string()).collect()
}

#[test]
fn a_marker_of_an_unsealed_scan_outlives_its_recorder_a_torn_line_and_a_lost_manifest() {
    for without_manifest in [false, true] {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(300).unsealed()]);
        mark(&store, &laid, Moment::Now, "before").unwrap();
        for member in 0..2 {
            let path = file_of(&laid.directory(0, member));
            let mut torn = std::fs::read(&path).unwrap();
            torn.extend(b"{\"uuid\":\"0199");
            std::fs::write(&path, torn).unwrap();
        }
        mark(&store, &laid, Moment::Now, "after").unwrap();
        assert_eq!(kept(&store, &laid), ["before", "after"]);
        if without_manifest {
            (0..2).for_each(|it| std::fs::remove_file(laid.manifest_path(0, it)).unwrap());
        }
        recover(&store.roots(), &laid.name, recover::Options::default(), &|_| {}).unwrap();
        let manifest = Inventory::take(&store.roots(), &laid.name).unwrap().manifest;
        let words: Vec<String> = manifest.markers.iter().map(|it| it.text.to_string()).collect();
        assert_eq!(words, ["before", "after"], "without manifest: {without_manifest}");
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        let report = verify(&scan, Default::default(), &|_, _| {}).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn one_member_that_takes_it_is_enough_and_the_file_goes_with_the_scan() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(300)]);
    // A directory has the name of the file.
    std::fs::create_dir(file_of(&laid.directory(0, 0))).unwrap();
    let set = mark(&store, &laid, Moment::Now, "x").unwrap();
    assert_eq!(set.failed.len(), 1);
    assert_eq!(kept(&store, &laid), ["x"]);
    std::fs::remove_dir(file_of(&laid.directory(0, 0))).unwrap();
    assert!(remove(&store.roots(), &laid.name).unwrap().kept.is_empty());
    assert!(!laid.directory(0, 0).exists() && !laid.directory(0, 1).exists());
}
