//! The next command to type, as the last line of a command. In a document of `--json` there is none.

use crate::console;
use crate::context::Context;

/// A command line: words quoted for a shell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine(String);

impl CommandLine {
    /// This program with these words, which need no quoting.
    pub fn new(words: &str) -> Self {
        CommandLine(format!("wirepath {words}"))
    }

    /// The same as root, for a command that changes settings of the host.
    pub fn as_root(words: &str) -> Self {
        CommandLine::root_program(&format!("wirepath {words}"))
    }

    /// A command of the system as root.
    pub fn root_program(words: &str) -> Self {
        let sudo = if sys::capability::effective_uid() == 0 { "" } else { "sudo " };
        CommandLine(format!("{sudo}{words}"))
    }

    /// With another word: a value, which may be of any text.
    pub fn value(self, value: &str) -> Self {
        CommandLine(format!("{} {}", self.0, report::quoted(value)))
    }

    /// With another word, if there is one.
    pub fn argument(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.value(value),
            None => self,
        }
    }

    /// With an option, if it has a value.
    pub fn option(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => CommandLine(format!("{} {name}", self.0)).value(value),
            None => self,
        }
    }

    /// With words that need no quoting.
    pub fn words(self, words: &str) -> Self {
        CommandLine(format!("{} {words}", self.0))
    }
}

impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says the command that most users type next.
pub fn say(context: &Context, line: &CommandLine) {
    if !context.json {
        console::say(&format!("next: {line}"));
    }
}

/// Says another command that makes sense now.
pub fn say_or(context: &Context, line: &CommandLine) {
    if !context.json {
        console::say(&format!("or:   {line}"));
    }
}

/// Says the command that undoes the one that was run.
pub fn say_undo(context: &Context, line: &CommandLine) {
    if !context.json {
        console::say(&format!("undo: {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_one_word_of_a_shell_whatever_their_text() {
        let line =
            CommandLine::new("tune prove").value("my plan.toml").option("--from", Some("a;b"));
        assert_eq!(line.to_string(), "wirepath tune prove 'my plan.toml' --from 'a;b'");
        assert_eq!(
            CommandLine::new("doctor").option("--netns", None).to_string(),
            "wirepath doctor"
        );
    }
}
