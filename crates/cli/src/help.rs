//! The help on the terminal: every text fits its width, and an error about a missing argument includes an example.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory};

use crate::config::FileOptions;
use crate::output;

/// A command whose texts, and those of all its subcommands, wrap at the width of the terminal.
///
/// The source code breaks lines for its readers. clap keeps these breaks, which examples and tables need, and then
/// wraps each line again. Paragraphs are joined here, so that only indented lines keep their breaks. Summaries end
/// without a full stop, regardless of clap's parsing.
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

/// The text with each paragraph on one line. Indented lines are unchanged.
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

/// `fullbore help --help` means `fullbore help`: clap's own `help` has no options.
pub fn asked_for_itself(mut typed: Vec<OsString>) -> Vec<OsString> {
    if typed.get(1).is_some_and(|verb| verb == "help") {
        typed.retain(|word| word != "--help" && word != "-h");
    }
    typed
}

/// A negative number after an option is its value, even if invalid: `--duration -1s` means `--duration=-1s`. clap takes
/// it for an unknown option, and suggests a positional argument.
pub fn with_negative_values(typed: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut only_positional = false;
    for word in typed {
        only_positional |= word == "--";
        match words.last_mut() {
            Some(option) if !only_positional && is_option(option) && is_negative(&word) => {
                option.push("=");
                option.push(word);
            }
            _ => words.push(word),
        }
    }
    words
}

/// True if the word is an option whose value, if it takes one, is the next word.
fn is_option(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes.len() > 2 && bytes.starts_with(b"--") && !bytes.contains(&b'=')
}

fn is_negative(word: &OsStr) -> bool {
    matches!(word.as_encoded_bytes(), [b'-', b'0'..=b'9' | b'.', ..])
}

/// Prints clap's message about the arguments, the lines of options from a file, and an example if an argument is
/// missing.
pub fn refused(
    error: &clap::Error,
    command: &Command,
    typed: &[OsString],
    wishes: &FileOptions,
) -> ExitCode {
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(output::REFUSED));
    if error.use_stderr() && typed.iter().any(|word| word == "--json") {
        let text = error.render().to_string();
        output::complain(None, text.trim_end().trim_start_matches("error: "));
        return code;
    }
    // If the terminal cannot be written, the error cannot be reported.
    let _ = error.print();
    let blamed = [ContextKind::InvalidArg, ContextKind::PriorArg].map(|kind| error.get(kind));
    for blamed in blamed.into_iter().flatten() {
        wishes.named_in(&blamed.to_string()).for_each(|line| output::say(format_args!("\n{line}")));
    }
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(example) = example(meant(command, typed))
    {
        output::say(format_args!("\nFor example:\n  {example}"));
    }
    code
}

/// Prints the same message about options that neither the command line nor the file has.
pub fn missing(verb: &str, options: &[&str]) -> ExitCode {
    let mut commands = flowing(crate::Arguments::command());
    commands.build();
    let command = commands.find_subcommand_mut(verb).expect("it was typed");
    let listed: String = options.iter().map(|option| format!("\n  {option}")).collect();
    let text = format!("the following required arguments were not provided:{listed}");
    let error = command.error(ErrorKind::MissingRequiredArgument, text);
    refused(&error, command, &[], &FileOptions::default())
}

/// The subcommand that was typed.
fn meant<'a>(command: &'a Command, typed: &[OsString]) -> &'a Command {
    let down = |command: &'a Command, word: &OsString| {
        command.find_subcommand(OsStr::new(word)).unwrap_or(command)
    };
    typed.iter().skip(1).fold(command, down)
}

/// The first example of a command's help, without the remark beside it. It may span several lines.
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
    fn a_negative_number_is_the_value_of_the_option_before_it() {
        let joined = |text: &str| {
            let words = with_negative_values(text.split(' ').map(OsString::from));
            words.iter().map(|it| it.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(joined("record x --duration -1s --arm"), "record x --duration=-1s --arm");
        assert_eq!(joined("play x --from=2s -1"), "play x --from=2s -1");
        assert_eq!(joined("play --factor -.5 x"), "play --factor=-.5 x");
        assert_eq!(joined("rm --yes -- --a -1"), "rm --yes -- --a -1");
        assert_eq!(joined("rm -h -1 --store -x"), "rm -h -1 --store -x");
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
