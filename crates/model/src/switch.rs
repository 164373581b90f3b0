//! Switches: the optimisations of a path, each with a name.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Range of a switch's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SwitchScope {
    /// The measuring process.
    Process,
    /// A network interface.
    Interface,
    /// The whole host.
    Host,
    /// A guest of a virtual machine.
    Guest,
}

/// Description of a switch: off in the baseline, on in a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SwitchSpec {
    /// Name on the command line and in results.
    pub id: &'static str,
    /// Difference that it makes, in one sentence.
    pub effect: &'static str,
    /// The same behind "by", for sentences about results: `polling`; empty for its id alone.
    #[serde(skip)]
    pub by: &'static str,
    /// Range of the effect.
    pub scope: SwitchScope,
    /// Requirements on the host; empty if none.
    pub needs: &'static str,
    /// Documentation of the optimisation.
    pub source: &'static str,
}

/// The switches of one path; implemented by [`switches!`](crate::switches).
pub trait PathSwitch: Copy + 'static {
    /// Descriptions, in the order of the ladder.
    const SPECS: &'static [SwitchSpec];

    fn spec(self) -> &'static SwitchSpec;

    /// Name on the command line and in results.
    fn id(self) -> &'static str {
        self.spec().id
    }
}

/// Declares the switches of a path as an enum, in the order of the ladder.
///
/// The id of a switch is its variant's name in kebab case: `RapInKernel` is `rap-in-kernel`. `by` may be left out.
///
/// ```
/// # use wirepath_model as model;
/// model::switches! {
///     /// Switches of a path.
///     pub enum Switch {
///         BusyPoll {
///             effect: "the receiver polls the device queue",
///             scope: Process,
///             needs: "",
///             source: "kernel documentation, networking/napi.rst",
///         },
///     }
/// }
/// use model::PathSwitch;
/// assert_eq!(Switch::BusyPoll.id(), "busy-poll");
/// ```
#[macro_export]
macro_rules! switches {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$about:meta])* $variant:ident {
            effect: $effect:expr,
            $(by: $by:literal,)?
            scope: $scope:ident,
            needs: $needs:expr,
            source: $source:expr $(,)?
        }),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$about])* $variant),+
        }

        impl $name {
            /// Every switch, in the order of the ladder.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
                f.write_str($crate::PathSwitch::id(*self))
            }
        }

        impl $crate::PathSwitch for $name {
            const SPECS: &'static [$crate::SwitchSpec] = &[$($crate::SwitchSpec {
                id: $crate::kebab_name!($variant),
                effect: $effect,
                by: concat!($($by)?),
                scope: $crate::SwitchScope::$scope,
                needs: $needs,
                source: $source,
            }),+];

            fn spec(self) -> &'static $crate::SwitchSpec {
                &<Self as $crate::PathSwitch>::SPECS[self as usize]
            }
        }
    };
}

/// The name of a variant in kebab case, as a constant.
#[doc(hidden)]
#[macro_export]
macro_rules! kebab_name {
    ($variant:ident) => {{
        const NAME: &str = stringify!($variant);
        const KEBAB: [u8; $crate::kebab_len(NAME)] = $crate::kebab(NAME);
        match core::str::from_utf8(&KEBAB) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    }};
}

/// Returns true if a word of the name begins at byte `at`: an upper-case letter, or the first
/// digit of a number.
const fn begins_word(name: &[u8], at: usize) -> bool {
    at > 0
        && (name[at].is_ascii_uppercase()
            || name[at].is_ascii_digit() && !name[at - 1].is_ascii_digit())
}

/// Length of [`kebab`] in bytes.
#[doc(hidden)]
pub const fn kebab_len(name: &str) -> usize {
    let name = name.as_bytes();
    let (mut len, mut at) = (name.len(), 0);
    while at < name.len() {
        len += begins_word(name, at) as usize;
        at += 1;
    }
    len
}

/// The name of a variant in kebab case.
#[doc(hidden)]
pub const fn kebab<const LEN: usize>(name: &str) -> [u8; LEN] {
    let name = name.as_bytes();
    let mut id = [b'-'; LEN];
    let (mut at, mut into) = (0, 0);
    while at < name.len() {
        into += begins_word(name, at) as usize;
        id[into] = name[at].to_ascii_lowercase();
        (at, into) = (at + 1, into + 1);
    }
    id
}

/// Identity of a switch within an experiment: a path's switch, or a knob of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SwitchId(Cow<'static, str>);

/// Ids of the switches of a path, in the order of the ladder.
pub fn ids(switches: &[SwitchSpec]) -> Vec<SwitchId> {
    switches.iter().map(SwitchId::from).collect()
}

impl SwitchId {
    /// A switch that is known by its name at run time: a knob of the host, or a setting of the user's
    /// program.
    pub fn named(name: impl Into<String>) -> Self {
        SwitchId(Cow::Owned(name.into()))
    }

    /// The name on the command line and in results.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: PathSwitch> From<S> for SwitchId {
    fn from(switch: S) -> Self {
        SwitchId::from(switch.spec())
    }
}

impl From<&SwitchSpec> for SwitchId {
    fn from(spec: &SwitchSpec) -> Self {
        SwitchId(Cow::Borrowed(spec.id))
    }
}

impl fmt::Display for SwitchId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SwitchSet(Vec<SwitchId>);

impl SwitchSet {
    pub fn contains(&self, switch: &SwitchId) -> bool {
        self.0.contains(switch)
    }

    /// Adds a switch behind the others, unless it is on already.
    pub fn insert(&mut self, switch: impl Into<SwitchId>) {
        let switch = switch.into();
        if !self.contains(&switch) {
            self.0.push(switch);
        }
    }

    /// The set without one switch.
    pub fn without(&self, switch: &SwitchId) -> Self {
        self.0.iter().filter(|on| *on != switch).cloned().collect()
    }

    /// Names of the switches, as in results.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(SwitchId::to_string).collect()
    }

    /// The names joined by `+`, as on the command line.
    pub fn joined(&self) -> String {
        self.names().join("+")
    }
}

impl<S: Into<SwitchId>> FromIterator<S> for SwitchSet {
    fn from_iter<I: IntoIterator<Item = S>>(switches: I) -> Self {
        let mut set = SwitchSet::default();
        switches.into_iter().for_each(|switch| set.insert(switch));
        set
    }
}

impl Deref for SwitchSet {
    type Target = [SwitchId];

    fn deref(&self) -> &[SwitchId] {
        &self.0
    }
}

/// Answer to the question if an arm can run on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Support {
    /// The arm can run.
    Yes,
    /// The host lacks something.
    Unsupported {
        /// Missing feature, e.g. `zero-copy on veth`.
        what: String,
        /// Requirement that would make it possible.
        needs: String,
    },
    /// The arm makes no sense or would do harm; never run.
    Refused {
        /// Reason.
        why: String,
    },
}

impl Support {
    /// Returns true if the arm can run.
    pub fn is_yes(&self) -> bool {
        matches!(self, Support::Yes)
    }

    /// Reason why the arm does not run; `None` if it can.
    pub fn reason(&self) -> Option<String> {
        match self {
            Support::Yes => None,
            Support::Unsupported { what, needs } if needs.is_empty() => Some(what.clone()),
            Support::Unsupported { what, needs } => Some(format!("{what}; needs {needs}")),
            Support::Refused { why } => Some(why.clone()),
        }
    }

    pub fn unsupported(what: impl Into<String>, needs: impl Into<String>) -> Self {
        Support::Unsupported { what: what.into(), needs: needs.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::switches! {
        enum Switch {
            Spin { effect: "a", scope: Process, needs: "", source: "" },
            RapInKernel { effect: "b", scope: Guest, needs: "", source: "" },
            Police50 { effect: "c", scope: Host, needs: "", source: "" },
        }
    }

    #[test]
    fn id_is_the_variant_in_kebab_case() {
        let ids: Vec<&str> = Switch::ALL.iter().map(|switch| switch.id()).collect();
        assert_eq!(ids, ["spin", "rap-in-kernel", "police-50"]);
    }

    #[test]
    fn set_keeps_order_and_holds_a_switch_once() {
        let set: SwitchSet =
            [Switch::RapInKernel, Switch::Spin, Switch::RapInKernel].into_iter().collect();
        assert_eq!(set.joined(), "rap-in-kernel+spin");
        assert_eq!(set.without(&Switch::RapInKernel.into()).joined(), "spin");
    }
}
