//! The verbs that a client may run, and what it may give them.

use super::MOST_ARGUMENTS;
use crate::auth::Role;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An option without a value.
    Flag,
    /// A scan, a stream of one, or the beginning of a name.
    Scan,
    /// The whole name of a scan that is there.
    Whole,
    /// A number, a time, a name, or a list of them.
    Plain,
    /// Any line of text.
    Text,
    /// Where datagrams go.
    Datagrams,
    /// The name of a file, which is made in the directory for exports.
    File,
    /// An output of `convert` in that directory.
    Export,
}

/// A verb.
#[derive(Debug)]
pub struct Verb {
    /// Its name.
    pub name: &'static str,
    /// The least role of a client that may run it.
    pub role: Role,
    /// The least and the largest number of arguments.
    pub count: (usize, usize),
    /// What an argument is.
    arguments: Kind,
    /// What the last argument is, if it is another thing.
    last: Option<Kind>,
    /// Its options, by their long names.
    pub options: &'static [(&'static str, Kind)],
    /// True if it goes on when its client is gone, until it is done or cancelled.
    pub stays: bool,
}

impl Verb {
    /// What an argument is, by its number from 0 and the number of all.
    pub fn kind_of(&self, number: usize, count: usize) -> Kind {
        match self.last {
            Some(last) if number + 1 == count => last,
            _ => self.arguments,
        }
    }
}

const LISTS: (&str, Kind) = ("all", Kind::Flag);

/// The verbs.
pub const VERBS: &[Verb] = &[
    Verb {
        name: "ls",
        role: Role::Viewer,
        count: (0, 1),
        arguments: Kind::Scan,
        last: None,
        options: &[],
        stays: false,
    },
    Verb {
        name: "info",
        role: Role::Viewer,
        count: (1, 1),
        arguments: Kind::Scan,
        last: None,
        options: &[("full", Kind::Flag), ("gaps", Kind::Plain), ("follow", Kind::Flag)],
        stays: false,
    },
    Verb {
        name: "watch",
        role: Role::Viewer,
        count: (1, 1),
        arguments: Kind::Scan,
        last: None,
        options: &[("every", Kind::Plain), ("looks", Kind::Plain)],
        stays: false,
    },
    Verb {
        name: "verify",
        role: Role::Operator,
        count: (0, MOST_ARGUMENTS),
        arguments: Kind::Scan,
        last: None,
        options: &[LISTS, ("reads", Kind::Plain), ("follow", Kind::Flag), ("verbose", Kind::Flag)],
        stays: true,
    },
    Verb {
        name: "rm",
        role: Role::Admin,
        count: (1, MOST_ARGUMENTS),
        arguments: Kind::Whole,
        last: None,
        options: &[
            ("yes", Kind::Flag),
            ("leftovers", Kind::Flag),
            ("without-absent-members", Kind::Flag),
            ("copied", Kind::Flag),
        ],
        stays: true,
    },
    Verb {
        name: "protect",
        role: Role::Admin,
        count: (1, MOST_ARGUMENTS),
        arguments: Kind::Scan,
        last: None,
        options: &[("off", Kind::Flag)],
        stays: true,
    },
    Verb {
        name: "mark",
        role: Role::Operator,
        count: (1, 2),
        arguments: Kind::Scan,
        last: Some(Kind::Text),
        options: &[("last", Kind::Flag), ("time", Kind::Plain), ("position", Kind::Plain)],
        stays: true,
    },
    Verb {
        name: "trigger",
        role: Role::Operator,
        count: (1, 1),
        arguments: Kind::Scan,
        last: None,
        options: &[
            ("before", Kind::Plain),
            ("after", Kind::Plain),
            ("at", Kind::Plain),
            ("name", Kind::Plain),
            ("note", Kind::Text),
            ("wait", Kind::Flag),
        ],
        stays: true,
    },
    Verb {
        name: "snapshot",
        role: Role::Operator,
        count: (1, 1),
        arguments: Kind::Scan,
        last: None,
        options: &[("at", Kind::Plain), ("length", Kind::Plain), ("output", Kind::File)],
        stays: true,
    },
    Verb {
        name: "rebuild",
        role: Role::Admin,
        count: (0, MOST_ARGUMENTS),
        arguments: Kind::Scan,
        last: None,
        options: &[LISTS],
        stays: true,
    },
    Verb {
        name: "convert",
        role: Role::Operator,
        count: (2, 2),
        arguments: Kind::Scan,
        last: Some(Kind::Export),
        options: &[
            ("as", Kind::Plain),
            ("allow-damaged", Kind::Flag),
            ("follow", Kind::Flag),
            ("quiet", Kind::Flag),
        ],
        stays: true,
    },
    Verb {
        name: "play",
        role: Role::Operator,
        count: (1, MOST_ARGUMENTS),
        arguments: Kind::Scan,
        last: None,
        options: &[
            ("to", Kind::Datagrams),
            ("stream", Kind::Plain),
            ("factor", Kind::Plain),
            ("rate", Kind::Text),
            ("flat-out", Kind::Flag),
            ("fps", Kind::Plain),
            ("near", Kind::Plain),
            ("gentle", Kind::Flag),
            ("at-once", Kind::Flag),
            ("catch-up", Kind::Plain),
            ("from", Kind::Plain),
            ("until", Kind::Plain),
            ("loop", Kind::Plain),
            ("as-recorded", Kind::Flag),
            ("fills", Kind::Flag),
            ("vtp", Kind::Flag),
            ("at", Kind::Plain),
            ("late-after", Kind::Plain),
            ("strict", Kind::Flag),
            ("follow", Kind::Flag),
            ("delay", Kind::Plain),
            ("live", Kind::Flag),
        ],
        stays: true,
    },
];
