//! One set of options laid over another, such as a command line over a configuration file.

use super::RecordingOptions;

/// The groups of options that belong together, because they say the same thing or only have a meaning together. If an
/// option of the upper layer excludes a group, all of it is left out of the lower layer.
const STORE: &[&str] = &[
    "store",
    "chunk",
    "keep",
    "circular",
    "circular-in",
    "trigger",
    "trigger-on",
    "before",
    "after",
    "hold-off",
    "redundancy",
    "new-member",
];
const TARGET: &[&str] = &["to", "overwrite", "flush"];
const SCHEDULE: &[&str] = &["schedule", "station", "lead"];
const CIRCULAR: &[&str] =
    &["circular", "circular-in", "trigger", "trigger-on", "before", "after", "hold-off"];
const OF_SERIES: &[&str] = &["keep", "redundancy", "scans", "duration", "bytes", "until"];
const SINGLE: &[&str] = &["scan", "scans", "start", "duration", "bytes", "until"];

/// Options, and the groups that they exclude. `overwrite` and `flush` only complete a target, and exclude nothing.
const EXCLUDED: &[(&[&str], &[&[&str]])] = &[
    (&["to"], &[STORE, TARGET, SCHEDULE]),
    (&["store"], &[TARGET]),
    (&["schedule"], &[SINGLE, TARGET, CIRCULAR]),
    (SINGLE, &[SCHEDULE]),
    (&["circular"], &[OF_SERIES, SCHEDULE]),
    (OF_SERIES, &[CIRCULAR]),
    (&["cpus"], &[&["place"]]),
    (&["place"], &[&["cpus"]]),
];

/// An option that may be given.
trait Given: Default {
    fn is_given(&self) -> bool;
}

impl<T> Given for Option<T> {
    fn is_given(&self) -> bool {
        self.is_some()
    }
}

impl<T> Given for Vec<T> {
    fn is_given(&self) -> bool {
        !self.is_empty()
    }
}

impl Given for bool {
    fn is_given(&self) -> bool {
        *self
    }
}

/// Does the same with every field, so that none can be forgotten: a missing field does not compile.
macro_rules! fields {
    ($($field:ident $key:literal)*) => {
        impl RecordingOptions {
            /// The key of each option, in the order of the fields.
            pub const KEYS: &[&str] = &[$($key),*];

            /// The keys of the options that are given.
            pub fn given(&self) -> Vec<&'static str> {
                let Self { $($field),* } = self;
                let mut given = Vec::new();
                $(if $field.is_given() { given.push($key); })*
                given
            }

            /// These options, and those of `lower` that are not given here.
            fn over(self, lower: Self) -> Self {
                Self { $($field: if self.$field.is_given() { self.$field } else { lower.$field }),* }
            }

            /// Takes the options with these keys back.
            fn leave_out(&mut self, keys: &[&str]) {
                $(if keys.contains(&$key) { self.$field = Default::default(); })*
            }
        }
    };
}

fields! {
    source "source" store "store" to "to" forward "forward" spectra "spectra" overwrite "overwrite" flush "flush"
    session "session" scan "scan" schedule "schedule" station "station" lead "lead"
    scans "scans" start "start" duration "duration" bytes "bytes" until "until"
    buffer "buffer" chunk "chunk" capture_threads "capture-threads" cpus "cpus" place "place"
    priority "priority" sync "sync" arm "arm" reconnect "reconnect" keep "keep" circular "circular"
    circular_in "circular-in" trigger "trigger"
    trigger_on "trigger-on" before "before" after "after" hold_off "hold-off"
    redundancy "redundancy" new_member "new-member" clock_offset "clock-offset" clock_drift "clock-drift"
}

impl RecordingOptions {
    /// These options, completed by `defaults`. An option given here replaces that of `defaults`, a list as a whole. It
    /// also replaces those that it excludes: where a recording goes, stores and other targets together, is one choice,
    /// and so are a schedule and the scans of one recording.
    pub fn or(self, mut defaults: Self) -> Self {
        let given = self.given();
        // An option of a store completes targets with a store, and replaces targets without one.
        if !defaults.is_into_store() && STORE.iter().any(|option| given.contains(option)) {
            defaults.leave_out(TARGET);
        }
        for (options, groups) in EXCLUDED {
            if options.iter().any(|option| given.contains(option)) {
                groups.iter().for_each(|group| defaults.leave_out(group));
            }
        }
        self.over(defaults)
    }
}
