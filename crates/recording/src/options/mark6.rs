//! Mark 6 scatter-gather files as sources: `mark6:/mnt/disks/1/*/data/exp_st_scan.vdif`.
//!
//! The files of one recording are named by a pattern, or by several with commas between them. The parameters are those
//! of a `udp:` source, without those of sockets. The files state the length of frames, and their first frame the format.

use std::path::{Path, PathBuf};

use fullbore_core::endpoint::{Endpoint, Error, UdpSource};
use fullbore_engine::recorder::{WaitingInput, WaitingSource, mark6};

/// Parameters of a `udp:` source that only a socket has, or that the files state.
const NOT_OF_FILES: [&str; 6] = ["interface", "rcvbuf", "gro", "source", "port", "frame"];

/// The most files of a recording.
const MOST_FILES: usize = 1024;

/// True if the text names Mark 6 files.
pub(super) fn is_meant(text: &str) -> bool {
    text.trim().split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("mark6"))
}

/// Reads one endpoint, and the header of the first file.
pub(super) fn parse(text: &str) -> Result<WaitingSource, Error> {
    let endpoint: Endpoint = text.parse()?;
    if endpoint.path.is_empty() || endpoint.authority.is_some() {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    let files = files(&endpoint.path)?;
    let first = files.first().ok_or_else(|| together(format!("no file is named {}", endpoint.path)))?;
    let (frame_bytes, format) =
        mark6::frames_of(first).map_err(|error| together(format!("{}: {error}", first.display())))?;
    let has = |name: &str| endpoint.parameters.iter().any(|(known, _)| known == name);
    if let Some(name) = NOT_OF_FILES.into_iter().find(|name| has(name)) {
        return Err(together(format!("`{name}` is not for Mark 6 files: leave it out")));
    }
    let mut socket: Endpoint = "udp://[::]:1".parse()?;
    socket.parameters.clone_from(&endpoint.parameters);
    let mut add = |name: &str, value: String| {
        if !has(name) {
            socket.parameters.push((name.to_owned(), value));
        }
    };
    add("frame", frame_bytes.to_string());
    add("format", format.to_owned());
    add("name", "mark6".to_owned());
    let mut udp = UdpSource::expand(&socket)?.remove(0);
    udp.endpoint = endpoint;
    Ok(WaitingSource { input: WaitingInput::Mark6(files), udp })
}

/// The files of patterns with commas between them, in order, none twice.
fn files(patterns: &str) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for pattern in patterns.split(',') {
        let is_file = Path::new(pattern).is_file();
        if is_file {
            files.push(PathBuf::from(pattern));
            continue;
        }
        let found = glob::glob(pattern).map_err(|error| together(format!("{pattern}: {error}")))?;
        for path in found.take(MOST_FILES + 1) {
            files.push(path.map_err(|error| together(error.to_string()))?);
        }
    }
    files.sort_unstable();
    files.dedup();
    match files.len() <= MOST_FILES {
        true => Ok(files),
        false => Err(together(format!("{patterns}: a recording has at most {MOST_FILES} files"))),
    }
}

fn together(what: impl Into<String>) -> Error {
    Error::Together { what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one frame, whose first word is this.
    fn file(path: &Path, first: u32) {
        let head = [0xFEED_6666, 2, 8 + 64, 0, 64, 0, 8 + 64, first];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        bytes.resize(20 + 8 + 64, 0);
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn files_are_named_by_patterns_and_state_frames_and_format() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        for name in ["b.vdif", "a.vdif", "c.m5b"] {
            file(Path::new(&path(name)), if name == "c.m5b" { 0xABAD_DEED } else { 1 });
        }
        let source = parse(&format!("mark6:{}?fps=100&name=x", path("*.vdif"))).unwrap();
        assert_eq!(source.input, WaitingInput::Mark6(vec![path("a.vdif").into(), path("b.vdif").into()]));
        assert_eq!((source.udp.frame_bytes, source.udp.name.as_str()), (Some(64), "x"));
        assert_eq!(parse(&source.udp.endpoint.to_string()), Ok(source));
        let listed = parse(&format!("mark6:{},{}", path("b.vdif"), path("a.vdif"))).unwrap();
        assert!(matches!(listed.input, WaitingInput::Mark6(files) if files.len() == 2));
        for (text, why) in [
            (format!("mark6:{}", path("no*")), "no file"),
            (format!("mark6:{}?frame=64", path("a.vdif")), "leave it out"),
            ("mark6:".to_owned(), "mark6:"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
