//! What is wrong with a text that is no endpoint, and what could stand there.

use super::text::LONGEST;

/// A text that is no endpoint, or not one of the kind needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than [`LONGEST`].
    #[error("an endpoint has at most {LONGEST} bytes, and this one has {bytes}")]
    Length {
        /// How long it is.
        bytes: usize,
    },
    /// No scheme, or nothing behind it.
    #[error("`{text}` is not an endpoint")]
    Form {
        /// What was given.
        text: String,
    },
    /// A scheme that cannot stand here.
    #[error("`{scheme}:` cannot be used as a {wanted}")]
    Scheme {
        /// The scheme given.
        scheme: String,
        /// What was looked for.
        wanted: &'static str,
        /// An endpoint that could stand here.
        example: &'static str,
    },
    /// No port, or not one from 1 to 65535, or a range from high to low.
    #[error("`{text}` is not a port or a range of ports")]
    Ports {
        /// What was given.
        text: String,
    },
    /// Not an IP address.
    #[error("`{host}` is not an IP address")]
    Address {
        /// What was given.
        host: String,
    },
    /// A parameter nobody knows.
    #[error("`{name}` is not a parameter of {scheme}: endpoints; they are {known}")]
    Unknown {
        /// The parameter given.
        name: String,
        /// The scheme.
        scheme: String,
        /// All that are known.
        known: String,
    },
    /// A parameter given twice.
    #[error("`{name}` is given twice")]
    Repeated {
        /// The parameter.
        name: String,
    },
    /// A value that its parameter cannot have.
    #[error("`{name}={value}`: {why}")]
    Value {
        /// The parameter.
        name: String,
        /// The value given.
        value: String,
        /// What is wrong with it.
        why: String,
        /// What would have been read.
        example: &'static str,
    },
    /// Two parameters that exclude one another, or one that lacks another.
    #[error("{what}")]
    Together {
        /// What is wrong.
        what: String,
    },
    /// A file's name that is no template of names.
    #[error("`{name}` cannot name files: {why}")]
    Template {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Parameters behind the plain name of a file.
    #[error("`{text}` has parameters, and only an endpoint has such")]
    Unprefixed {
        /// What was given.
        text: String,
    },
    /// A file or an endpoint that is no HDF5 file.
    #[error("`{text}` names no container that can be written: there is HDF5")]
    Container {
        /// What was given.
        text: String,
    },
    /// A percent escape that does not make UTF-8.
    #[error("`{text}` does not spell UTF-8")]
    Escape {
        /// What was given.
        text: String,
    },
}

impl Error {
    /// What to write instead, where there is more to say than the error itself does.
    pub fn hint(&self) -> Option<String> {
        let for_example = |example: &str| Some(format!("write for example {example}"));
        match self {
            Error::Form { text } | Error::Ports { text } if text.starts_with("panda:") => {
                for_example("panda://172.23.252.201 or panda://[fe80::1%25eth0]:8888")
            }
            Error::Form { text } if text.starts_with("hdf5:") => for_example("hdf5:capture-%d.h5"),
            Error::Form { .. } => for_example("udp://0.0.0.0:46220?format=vdif or file:x.vdif"),
            Error::Scheme { example, .. } => for_example(example),
            Error::Ports { .. } => for_example("udp://0.0.0.0:46220 or udp://0.0.0.0:46220-46235"),
            Error::Address { .. } => for_example(
                "0.0.0.0 for any IPv4 address of this host, [::] for any IPv4 or IPv6 address, or 239.1.1.1 for a group",
            ),
            Error::Unprefixed { text } => Some(format!("write hdf5:{text}")),
            Error::Container { .. } => Some(
                "give a name that ends in .h5, .hdf5, .hdf, .he5, .nxs or .nx5, or hdf5:NAME with any ending"
                    .to_owned(),
            ),
            Error::Template { .. } => for_example("capture-%d.h5 or capture-%03d.h5"),
            Error::Value { name, example, .. } => for_example(&format!("{name}={example}")),
            Error::Length { .. }
            | Error::Unknown { .. }
            | Error::Repeated { .. }
            | Error::Together { .. }
            | Error::Escape { .. } => None,
        }
    }
}

/// Parameters that do not go together.
pub(super) fn together(what: impl Into<String>) -> Error {
    Error::Together { what: what.into() }
}
