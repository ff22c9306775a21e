//! Scans that are being sealed, each by a thread of its own: files are read back, put in order and written,
//! redundancy is completed, which lasts as long as the members take.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use fullbore_core::endpoint::UdpSource;
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::ScanName;

use super::error::RecordError;
use super::event::Sealed;
use super::order;
use super::read_back::read_back;
use super::scan::Scan;
use super::scribe::PATIENCE;
use super::seal::seal;
use crate::ring::Gauge;
use crate::store::tails::Tails;

/// What sealing goes by.
#[derive(Clone)]
pub struct Basis {
    /// Where frames came from.
    pub sources: Vec<UdpSource>,
    /// Counters of the writers.
    pub writers: Vec<Arc<Gauge>>,
    /// Whether the recording was aborted.
    pub aborted: bool,
    /// Who keeps the tails of its streams.
    pub tails: Option<Tails>,
}

/// A scan that is being sealed.
pub struct Sealing {
    name: ScanName,
    thread: Result<JoinHandle<Done>, RecordError>,
}

/// A scan that was sealed, or could not be.
pub struct Done {
    /// Its name.
    pub name: ScanName,
    /// What a user should know of it.
    pub warnings: Vec<String>,
    /// It as it is now, or why it is not sealed.
    pub sealed: Result<Sealed, Unsealed>,
}

/// A scan that could not be sealed.
pub struct Unsealed {
    /// Why.
    pub why: String,
    /// What would have been written down, where its books were brought to an end.
    pub books: Option<Sealed>,
}

impl Sealing {
    /// Begins to seal a scan of which everything awaited has come.
    pub fn begin(scan: Scan, basis: Basis) -> Self {
        let name = scan.manifest.scan.clone();
        let thread = Builder::new().name("seal".into());
        let thread = thread.spawn(move || carry_out(scan, &basis)).map_err(RecordError::Thread);
        Self { name, thread }
    }

    /// Which scan it seals.
    pub fn scan(&self) -> &ScanName {
        &self.name
    }

    /// Whether it has come to its end.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().map_or(true, JoinHandle::is_finished)
    }

    /// What came of it.
    pub fn end(self) -> Done {
        let failed = |name, why| {
            let unsealed = Unsealed { why, books: None };
            Done { name, warnings: Vec::new(), sealed: Err(unsealed) }
        };
        match self.thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| failed(self.name, "the thread that sealed it failed".into())),
            Err(error) => failed(self.name, error.to_string()),
        }
    }
}

fn carry_out(mut scan: Scan, basis: &Basis) -> Done {
    let mut warnings = read_back(&mut scan);
    warnings.extend(order::plan(&mut scan));
    // Every block is written by now, and a scan that is sealed has no tail.
    let tails = basis.tails.as_ref();
    let late = tails.map_or_else(Vec::new, |it| it.forget(scan.opening.uuid, PATIENCE));
    let sealed = seal(&mut scan, &basis.sources, &basis.writers, basis.aborted);
    let sealed = sealed.inspect(|_| {
        warnings.extend(order::carry_out(&mut scan));
        warnings.extend(scan.complete_redundancy());
    });
    scan.release();
    scan.name_the_silent();
    let name = scan.manifest.scan.clone();
    warnings.extend(scan.silent.iter().map(|&member| {
        format!(
            "{} does not answer: {name} is sealed without it; once it does, `fullbore recover {name}` \
             completes what it holds",
            scan.manifest.members[member].path.display()
        )
    }));
    warnings.extend(late.into_iter().filter(|member| !scan.silent.contains(member)).map(
        |member| {
            let path = scan.manifest.members[member].path.display();
            format!("{path} does not answer: the tails of {name} stay there until it does")
        },
    ));
    let sealed = sealed.map(|sealed| Sealed::of(scan.manifest.clone(), sealed.accounts));
    warnings.extend(sealed.iter().filter_map(wanting));
    let sealed = sealed.map_err(|error| Unsealed {
        why: error.to_string(),
        books: Some(Sealed::of(
            Manifest { state: State::Recording, ..scan.manifest },
            scan.accounts.into_values().collect(),
        )),
    });
    Done { name, warnings, sealed }
}

/// In what its disk set was found wanting, in words: every frame may be there, and the recording ends with 1 all the same.
fn wanting(sealed: &Sealed) -> Option<String> {
    let wanting = sealed.manifest.wanting();
    let listed: Vec<String> = wanting.iter().map(ToString::to_string).collect();
    let name = &sealed.manifest.scan;
    (!listed.is_empty())
        .then(|| format!("{name} is less safe than was asked for: {}", listed.join("; ")))
}
