//! The label of a scan: `<session>_<station>_<scan>` by convention, and the name of its directory in fact.

use fullbore_core::name::{self, ScanName};

/// The longest label, as VSI-S has it.
pub const LONGEST_LABEL: usize = 64;

/// The letters that make a label unique if its name is taken, in this order.
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A label that names no scan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// There is none.
    #[error("record=on needs a scan")]
    Empty,
    /// It is too long.
    #[error("the label has {length} characters, and {LONGEST_LABEL} are the most")]
    Long {
        /// Its length.
        length: usize,
    },
    /// It cannot be the name of a directory here.
    #[error("{0}")]
    Name(#[from] name::Error),
}

/// The label of `record=on:<scan>:<experiment>:<station>`; the last two may be empty.
pub fn of_fields(scan: &str, experiment: &str, station: &str) -> Result<String, LabelError> {
    if scan.is_empty() {
        return Err(LabelError::Empty);
    }
    let parts: Vec<&str> =
        [experiment, station, scan].into_iter().filter(|it| !it.is_empty()).collect();
    let label = parts.join("_");
    if label.len() > LONGEST_LABEL {
        return Err(LabelError::Long { length: label.len() });
    }
    label.parse::<ScanName>()?;
    Ok(label)
}

/// The label itself if it is free, else the first free one with a letter behind it. `None` if all are taken, or too long.
pub fn free(label: &str, is_taken: impl Fn(&str) -> bool) -> Option<String> {
    if !is_taken(label) {
        return Some(label.to_owned());
    }
    let lettered = LETTERS.iter().map(|letter| format!("{label}{}", char::from(*letter)));
    let mut fitting =
        lettered.filter(|it| it.len() <= LONGEST_LABEL && it.parse::<ScanName>().is_ok());
    fitting.find(|it| !is_taken(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_joined_and_checked() {
        assert_eq!(of_fields("r1_Wz_No1", "", "").unwrap(), "r1_Wz_No1");
        assert_eq!(of_fields("no1", "r1", "Wz").unwrap(), "r1_Wz_no1");
        assert_eq!(of_fields("", "r1", "Wz"), Err(LabelError::Empty));
        let long = "x".repeat(62);
        assert_eq!(of_fields(&long, "a", "").unwrap().len(), 64);
        assert_eq!(of_fields(&long, "ab", ""), Err(LabelError::Long { length: 65 }));
        for wrong in ["nosession", "../x_y", "r1_a/b", "r1_a.b", "r1_dsx", "_x"] {
            assert!(matches!(of_fields(wrong, "", ""), Err(LabelError::Name(_))), "{wrong}");
        }
    }

    #[test]
    fn a_taken_label_gets_the_next_letter() {
        let taken = ["r_s", "r_sa", "r_sb"];
        assert_eq!(free("r_s", |it| taken.contains(&it)).unwrap(), "r_sc");
        assert_eq!(free("r_x", |it| taken.contains(&it)).unwrap(), "r_x");
        assert_eq!(free("r_s", |_| true), None);
        let after_z = |it: &str| !it.ends_with('A');
        assert_eq!(free("r_s", after_z).unwrap(), "r_sA");
        assert_eq!(free(&format!("r_{}", "x".repeat(62)), |it| it.len() == 64), None);
    }
}
