//! The help on the terminal: every text fits its width, and a missing argument is answered with an example.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::Command;
use clap::error::ErrorKind;

/// A command whose texts, and those of all its subcommands, wrap at the width of the terminal.
///
/// The sources break their lines for whoever reads them there. clap keeps these breaks where examples and
/// tables must stay as they are laid out, and then wraps each line once more. Paragraphs are joined here, so
/// that only indented lines keep their breaks. Summaries end without a full stop, whichever way clap read them.
pub fn flowing(command: Command) -> Command {
    let about = command.get_about().map(|text| text.to_string().trim_end_matches('.').to_owned());
    let long = command.get_long_about().map(|text| joined(&text.to_string()));
    let after = command.get_after_long_help().map(|text| joined(&text.to_string()));
    let command = match about {
        Some(about) => command.about(about),
        None => command,
    };
    let command = match long {
        Some(long) => command.long_about(long),
        None => command,
    };
    let command = match after {
        Some(after) => command.after_long_help(after),
        None => command,
    };
    command.mut_subcommands(flowing)
}

/// The text with each paragraph on one line. Lines that are indented stay as they are.
fn joined(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let flows = |line: &str| !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut() {
            Some(last) if flows(last) && flows(line) => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.trim_end().to_owned()),
        }
    }
    lines.join("\n")
}

/// `fullbore help --help` means `fullbore help`: clap's own `help` knows no options.
pub fn asked_for_itself(mut typed: Vec<OsString>) -> Vec<OsString> {
    if typed.get(1).is_some_and(|verb| verb == "help") {
        typed.retain(|word| word != "--help" && word != "-h");
    }
    typed
}

/// Prints what clap says of the arguments, and an example where one is missing.
pub fn refused(error: &clap::Error, command: &Command, typed: &[OsString]) -> ExitCode {
    // Where the terminal does not take it there is nobody to tell.
    let _ = error.print();
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(example) = example(meant(command, typed))
    {
        eprintln!("\nFor example:\n  {example}");
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(crate::output::REFUSED))
}

/// The subcommand that was typed.
fn meant<'a>(command: &'a Command, typed: &[OsString]) -> &'a Command {
    let down = |command: &'a Command, word: &OsString| {
        command.find_subcommand(OsStr::new(word)).unwrap_or(command)
    };
    typed.iter().skip(1).fold(command, down)
}

/// The first example of a command's help, without what is said beside it. It may go on over several lines.
fn example(command: &Command) -> Option<String> {
    let long = command.get_long_about()?.to_string();
    let mut lines = long.lines().skip_while(|line| !line.starts_with("  fullbore ")).map(str::trim);
    let mut example = lines.next()?.split("   ").next()?.to_owned();
    while let Some(begun) = example.strip_suffix('\\') {
        example = format!("{begun}{}", lines.next()?);
    }
    Some(example)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn paragraphs_flow_and_what_is_laid_out_stays() {
        let text = "One\ntwo.\n\n  a   b\n  c   d\n\nThree\nfour.";
        assert_eq!(joined(text), "One two.\n\n  a   b\n  c   d\n\nThree four.");
    }

    #[test]
    fn an_example_is_told_to_its_end() {
        let command =
            Command::new("x").long_about("Does x.\n\n  fullbore x a \\\n      --b c   what it is");
        assert_eq!(example(&command).as_deref(), Some("fullbore x a --b c   what it is"));
        let record = flowing(crate::Arguments::command());
        let told = example(record.find_subcommand("record").unwrap()).unwrap();
        assert!(told.contains("--session") && !told.contains('\\'), "{told}");
    }

    #[test]
    fn every_summary_ends_without_a_full_stop() {
        fn look(command: &Command) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && !about.ends_with('.'), "{}: {about}", command.get_name());
            command.get_subcommands().for_each(look);
        }
        look(&flowing(crate::Arguments::command()));
    }
}
