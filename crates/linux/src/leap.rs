//! Choice of the leap second table: the file that the environment names, or else the system's time zone data or the
//! built-in table, whichever is complete for longer.

use std::io::Read;
use std::path::{Path, PathBuf};

use fullbore_time::leap::{self, Table};

/// The environment variable that names a leap second file.
pub const VARIABLE: &str = "FULLBORE_LEAP_SECONDS";

/// The usual paths of the system's leap second file.
const SYSTEM: [&str; 2] =
    ["/usr/share/zoneinfo/leap-seconds.list", "/usr/share/zoneinfo/leapseconds"];

/// The largest file that is read.
const LONGEST: u64 = 1 << 20;

/// The named leap second file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} names {}: {why}", file.display())]
pub struct Error {
    file: PathBuf,
    why: String,
}

/// Installs the leap second table for all time conversions of this process. Call it once, before the first time is read
/// or written.
pub fn install() -> Result<(), Error> {
    let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    let table = choose(named.as_deref(), &SYSTEM.map(Path::new))?;
    // If a table is installed already, the same rules chose it.
    let _ = leap::install(table);
    Ok(())
}

/// Returns the table of the named file, or else the table that is complete for longest.
fn choose(named: Option<&Path>, system: &[&Path]) -> Result<Table, Error> {
    if let Some(file) = named {
        return read(file).map_err(|why| Error { file: file.to_owned(), why });
    }
    let found = system.iter().filter_map(|file| read(file).ok());
    Ok(found.fold(Table::built_in(), Table::or_longer))
}

fn read(file: &Path) -> Result<Table, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    opened.take(LONGEST).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Table::read(&text, &file.display().to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAYS: [&str; 27] = [
        "1972 Jun 30",
        "1972 Dec 31",
        "1973 Dec 31",
        "1974 Dec 31",
        "1975 Dec 31",
        "1976 Dec 31",
        "1977 Dec 31",
        "1978 Dec 31",
        "1979 Dec 31",
        "1981 Jun 30",
        "1982 Jun 30",
        "1983 Jun 30",
        "1985 Jun 30",
        "1987 Dec 31",
        "1989 Dec 31",
        "1990 Dec 31",
        "1992 Jun 30",
        "1993 Jun 30",
        "1994 Jun 30",
        "1995 Dec 31",
        "1997 Jun 30",
        "1998 Dec 31",
        "2005 Dec 31",
        "2008 Dec 31",
        "2012 Jun 30",
        "2015 Jun 30",
        "2016 Dec 31",
    ];

    fn file(folder: &Path, name: &str, expires: &str) -> PathBuf {
        let lines = DAYS.map(|day| format!("Leap {day} 23:59:60 + S\n"));
        let path = folder.join(name);
        std::fs::write(&path, lines.concat() + "#expires " + expires + "\n").unwrap();
        path
    }

    #[test]
    fn the_table_that_is_complete_for_longest_is_taken_unless_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let old = file(folder.path(), "old", "1782604800");
        let new = file(folder.path(), "new", "1893456000");
        let nowhere = folder.path().join("nowhere");
        let broken = folder.path().join("broken");
        std::fs::write(&broken, "Leap 2016 Dec 31 23:59:60 + S\n").unwrap();
        let from = |named: Option<&Path>, system: &[&Path]| {
            let told = choose(named, system).map(|table| table.to_string());
            told.map_err(|error| error.to_string())
        };
        let built_in = from(None, &[]).unwrap();
        assert!(built_in.ends_with("(built in)"), "{built_in}");
        assert_eq!(from(None, &[&nowhere, &broken, &old]).unwrap(), built_in);
        let newer = from(None, &[&old, &new]).unwrap();
        assert!(newer.contains("2030-01-01") && newer.contains("new"), "{newer}");
        assert!(from(Some(&old), &[&new]).unwrap().contains("2026-06-28"));
        for wrong in [&nowhere, &broken] {
            let error = from(Some(wrong), &[]).unwrap_err();
            assert!(error.contains(VARIABLE) && error.contains(wrong.to_str().unwrap()), "{error}");
        }
    }
}
