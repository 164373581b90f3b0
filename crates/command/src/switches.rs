//! Switches: a knob of `tune` at one end, or a variable of the server's environment.

use std::fmt;
use std::str::FromStr;

use host::tune::{self, Value};
use model::{SwitchId, did_you_mean};

use crate::SpecError;

/// End of the wire at which a knob is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnobEnd {
    /// The client's.
    Near,
    /// The server's.
    Far,
}

/// A switch of an experiment. Its text is its id: `rps-cpus=0`, `near:gso=off`, `env:WORKERS=4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    /// A knob of the end's interface, of its namespace or of the host.
    Knob { end: KnobEnd, knob: &'static str, value: Value },
    /// A variable of the server's environment; of the client's if there is no server.
    Env { name: String, value: String },
}

impl Switch {
    /// Its identity within an experiment.
    pub fn id(&self) -> SwitchId {
        SwitchId::named(self.to_string())
    }

    /// True if both set the same knob or variable.
    pub(crate) fn contradicts(&self, other: &Switch) -> bool {
        match (self, other) {
            (Switch::Knob { end, knob, .. }, Switch::Knob { end: other_end, knob: other, .. }) => {
                end == other_end && knob == other
            }
            (Switch::Env { name, .. }, Switch::Env { name: other, .. }) => name == other,
            _ => false,
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Switch::Knob { end: KnobEnd::Far, knob, value } => write!(f, "{knob}={value}"),
            Switch::Knob { end: KnobEnd::Near, knob, value } => write!(f, "near:{knob}={value}"),
            Switch::Env { name, value } => write!(f, "env:{name}={value}"),
        }
    }
}

impl FromStr for Switch {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let invalid = |why: String| SpecError::Switch { text: text.to_owned(), why };
        let (name, value) = text.split_once('=').ok_or_else(|| {
            invalid("write KNOB=VALUE, near:KNOB=VALUE or env:NAME=VALUE".to_owned())
        })?;
        if let Some(name) = name.strip_prefix("env:") {
            if !is_variable(name) {
                return Err(invalid(format!(
                    "{name:?} is not a valid name of a variable; use letters, digits and _"
                )));
            }
            return Ok(Switch::Env { name: name.to_owned(), value: value.to_owned() });
        }
        let (end, id) = match (name.strip_prefix("near:"), name.strip_prefix("far:")) {
            (Some(id), _) => (KnobEnd::Near, id),
            (None, Some(id)) => (KnobEnd::Far, id),
            (None, None) => (KnobEnd::Far, name),
        };
        let knob = tune::find(id).ok_or_else(|| {
            let known = tune::all();
            let hint = did_you_mean(id, known.iter().map(|knob| knob.id()));
            invalid(format!("'{id}' is not a knob{hint}`wirepath tune knobs` lists them"))
        })?;
        let format = knob.format();
        let value = Value::new(value).filter(|value| format.canonical(value.as_str()).is_some());
        let value = value.ok_or_else(|| invalid(format!("{id} takes {}", format.describe())))?;
        Ok(Switch::Knob { end, knob: knob.id(), value })
    }
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
        for text in ["rps-cpus=0", "near:gso=off", "env:WORKERS=a=b"] {
            assert_eq!(text.parse::<Switch>().unwrap().to_string(), text);
        }
        assert_eq!("far:gso=off".parse::<Switch>().unwrap().to_string(), "gso=off");
    }

    #[test]
    fn mistakes_name_the_remedy() {
        for (text, says) in [
            ("gso", "KNOB=VALUE"),
            ("gsoo=off", "tune knobs"),
            ("gso=maybe", "on or off"),
            ("env:1X=2", "variable"),
        ] {
            let error = text.parse::<Switch>().unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(text), "{error}");
        }
    }

    fn switch(text: &str) -> Switch {
        text.parse().unwrap()
    }

    #[test]
    fn two_values_of_one_knob_contradict_each_other() {
        assert!(switch("gso=on").contradicts(&switch("gso=off")));
        assert!(!switch("gso=on").contradicts(&switch("near:gso=off")));
        assert!(!switch("gso=on").contradicts(&switch("gro=off")));
        assert!(switch("env:A=1").contradicts(&switch("env:A=2")));
    }
}
