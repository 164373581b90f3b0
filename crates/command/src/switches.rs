//! Switches: a knob of `tune`, a variable of an environment, or a pair of commands, at a place of the path.

use std::fmt;
use std::str::FromStr;

use host::tune::{self, Value, is_command_name, is_interface_name};
use model::{SwitchId, did_you_mean};
use thiserror::Error;

/// A text that is not a switch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid switch {text:?}: {why}")]
pub struct SwitchError {
    pub(crate) text: String,
    pub(crate) why: String,
}

/// Place of the path at which a switch acts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// The client's end.
    Near,
    /// The server's end.
    Far,
    /// A place between them, by its name.
    Place(String),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            At::Near => "near",
            At::Far => "far",
            At::Place(name) => name,
        })
    }
}

/// A switch of an experiment. Its text is its id: `rps-cpus=0`, `near:gso=off`, `ap/eth1:rps-cpus=3`, `env:WORKERS=4`,
/// and of a pair of commands its name, such as `ap:hooks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    pub at: At,
    pub act: Act,
}

/// Effect of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Sets a knob of interfaces, of the namespace or of the host.
    Knob {
        /// `None` for the interface under test, or for all those of a place between the ends.
        interface: Option<String>,
        knob: &'static str,
        value: Value,
    },
    /// Sets a variable of the commands that run at the place.
    Env { name: String, value: String },
    /// Runs a command, and another one as its undo.
    Commands { name: String, on: String, off: String },
}

impl Switch {
    /// Its identity within an experiment.
    pub fn id(&self) -> SwitchId {
        SwitchId::named(self.to_string())
    }

    /// True if it changes settings of the place, which a journal has to record.
    pub(crate) fn is_setting(&self) -> bool {
        !matches!(self.act, Act::Env { .. })
    }

    /// True if both set the same knob or variable, or are the same pair of commands.
    pub(crate) fn contradicts(&self, other: &Switch) -> bool {
        let is_same = match (&self.act, &other.act) {
            (
                Act::Knob { interface, knob, .. },
                Act::Knob { interface: other_interface, knob: other, .. },
            ) => {
                let is_shared = interface.is_none() || other_interface.is_none();
                knob == other && (is_shared || interface == other_interface)
            }
            (Act::Env { name, .. }, Act::Env { name: other, .. })
            | (Act::Commands { name, .. }, Act::Commands { name: other, .. }) => name == other,
            _ => false,
        };
        is_same && self.at == other.at
    }

    /// Reads one switch, or one for each value of a knob: `irq-affinity=1|2`.
    pub(crate) fn parse_each(text: &str) -> Result<Vec<Self>, SwitchError> {
        let whole = text.parse::<Switch>();
        let Some((head, values)) = text.split_once('=') else { return Ok(vec![whole?]) };
        let separator = if values.contains('|') { '|' } else { ',' };
        let is_env = head.starts_with("env:") || head.contains(":env:");
        if whole.is_ok() || is_env || values.starts_with(ON) || !values.contains(separator) {
            return Ok(vec![whole?]);
        }
        values.split(separator).map(|value| format!("{head}={value}").parse()).collect()
    }
}

/// Beginnings of the commands of a pair.
const ON: &str = "on:";
const OFF: &str = "|off:";

/// Forms of a switch, for errors.
const FORMS: &str = "write KNOB=VALUE, env:NAME=VALUE or NAME=on:COMMAND|off:COMMAND, behind PLACE: if it is not the far end's";

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.at, &self.act) {
            (at, Act::Knob { interface: Some(interface), .. }) => write!(f, "{at}/{interface}:")?,
            (At::Far, _) => {}
            (at, _) => write!(f, "{at}:")?,
        }
        match &self.act {
            Act::Knob { knob, value, .. } => write!(f, "{knob}={value}"),
            Act::Env { name, value } => write!(f, "env:{name}={value}"),
            Act::Commands { name, .. } => f.write_str(name),
        }
    }
}

impl FromStr for Switch {
    type Err = SwitchError;

    fn from_str(text: &str) -> Result<Self, SwitchError> {
        let invalid = |why: String| SwitchError { text: text.to_owned(), why };
        let (head, value) = text.split_once('=').ok_or_else(|| invalid(FORMS.to_owned()))?;
        let (place, name) = match head.split_once(':') {
            Some(("env", _)) | None => ("far", head),
            Some((place, name)) => (place, name),
        };
        let (place, interface) = match place.split_once('/') {
            Some((place, interface)) => (place, Some(interface.to_owned())),
            None => (place, None),
        };
        if let Some(interface) = interface.as_ref().filter(|name| !is_interface_name(name)) {
            return Err(invalid(format!("{interface:?} is not a valid name of an interface")));
        }
        let at = match place {
            "near" => At::Near,
            "far" => At::Far,
            name if is_place_name(name) => At::Place(name.to_owned()),
            name => return Err(invalid(format!("{name:?} is not a valid name of a place"))),
        };
        let act = act(name, value, interface).map_err(invalid)?;
        Ok(Switch { at, act })
    }
}

/// Errors: the mistake, with its remedy.
fn act(name: &str, value: &str, interface: Option<String>) -> Result<Act, String> {
    let is_knob = !name.starts_with("env:") && !value.starts_with(ON);
    if !is_knob && let Some(interface) = interface {
        return Err(format!("/{interface} is for knobs alone; remove it"));
    }
    if let Some(name) = name.strip_prefix("env:") {
        if !is_variable(name) {
            return Err(format!(
                "{name:?} is not a valid name of a variable; use letters, digits and _"
            ));
        }
        return Ok(Act::Env { name: name.to_owned(), value: value.to_owned() });
    }
    if let Some(commands) = value.strip_prefix(ON) {
        return pair(name, commands);
    }
    let knob = tune::find(name).ok_or_else(|| {
        let known = tune::all();
        let hint = did_you_mean(name, known.iter().map(|knob| knob.id()));
        format!("'{name}' is not a knob{hint}`wirepath tune knobs` lists them")
    })?;
    let format = knob.format();
    let value = Value::new(value).filter(|value| format.canonical(value.as_str()).is_some());
    let value = value.ok_or_else(|| format!("{name} takes {}", format.describe()))?;
    Ok(Act::Knob { interface, knob: knob.id(), value })
}

/// The pair of commands behind `on:`.
fn pair(name: &str, commands: &str) -> Result<Act, String> {
    if !is_command_name(name) {
        return Err(format!("{name:?} is not a valid name; use letters, digits, -, _ and ."));
    }
    let Some((on, off)) = commands.split_once(OFF) else {
        return Err("it has no undo; write NAME=on:COMMAND|off:COMMAND".to_owned());
    };
    let [on, off] = [on, off].map(|command| command.trim().to_owned());
    if on.is_empty() || off.is_empty() {
        return Err("one of its commands is empty".to_owned());
    }
    if Value::new(on.as_str()).is_none() || Value::new(off.as_str()).is_none() {
        return Err("each command is one line of at most 4096 bytes".to_owned());
    }
    Ok(Act::Commands { name: name.to_owned(), on, off })
}

/// True for a name of a place between the ends.
pub(crate) fn is_place_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        && !matches!(name, "near" | "far" | "env" | "this" | "here")
}

/// True if a shell accepts this as the name of a variable.
pub(crate) fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_and_its_id_are_the_same_text() {
        for text in [
            "rps-cpus=0",
            "near:gso=off",
            "env:WORKERS=a=b",
            "near:env:A=b:c",
            "ap:rps-cpus=3",
            "ap/eth0.5:rps-cpus=3",
            "far/eth1:gro=off",
        ] {
            assert_eq!(text.parse::<Switch>().unwrap().to_string(), text);
        }
        assert_eq!("far:gso=off".parse::<Switch>().unwrap().to_string(), "gso=off");
    }

    #[test]
    fn a_pair_of_commands_is_known_by_its_name() {
        let pair = switch("ap:hooks=on:nft delete table ip nat|off:nft -f a | cat");
        assert_eq!(pair.to_string(), "ap:hooks");
        let Act::Commands { on, off, .. } = pair.act else { panic!("{pair:?}") };
        assert_eq!((on.as_str(), off.as_str()), ("nft delete table ip nat", "nft -f a | cat"));
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (text, says) in [
            ("gso", "KNOB=VALUE"),
            ("gsoo=off", "tune knobs"),
            ("gso=maybe", "on or off"),
            ("env:1X=2", "variable"),
            ("ap:hooks=on:true", "off:COMMAND"),
            ("hooks=on:true|off:", "empty"),
            ("ap:a b=on:x|off:y", "letters"),
            ("a b:gso=on", "place"),
            ("ap/a/b:gso=on", "interface"),
            ("ap/eth0:env:A=1", "remove it"),
            ("a|b=on:true|off:true", "letters"),
        ] {
            let error = text.parse::<Switch>().unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(text), "{text}: {error}");
        }
    }

    fn switch(text: &str) -> Switch {
        text.parse().unwrap()
    }

    #[test]
    fn several_values_of_a_knob_are_several_switches() {
        let each = |text| {
            let all = Switch::parse_each(text).unwrap();
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(each("irq-affinity=1|2"), ["irq-affinity=1", "irq-affinity=2"]);
        assert_eq!(each("ap:gso=on,off"), ["ap:gso=on", "ap:gso=off"]);
        // A mask has words with commas.
        assert_eq!(each("rps-cpus=1,00000000"), ["rps-cpus=1,00000000"]);
        assert_eq!(each("env:A=1|2"), ["env:A=1|2"]);
        assert!(Switch::parse_each("gso=on|maybe").is_err());
    }

    #[test]
    fn two_values_of_one_knob_contradict_each_other() {
        assert!(switch("gso=on").contradicts(&switch("gso=off")));
        assert!(switch("ap/a:gso=on").contradicts(&switch("ap:gso=off")));
        assert!(!switch("ap/a:gso=on").contradicts(&switch("ap/b:gso=off")));
        assert!(!switch("gso=on").contradicts(&switch("near:gso=off")));
        assert!(!switch("gso=on").contradicts(&switch("gro=off")));
        assert!(switch("env:A=1").contradicts(&switch("env:A=2")));
    }
}
