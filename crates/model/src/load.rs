//! Loads: the traffic that a path can be put under, each with a name.

use std::time::Duration;

use crate::{Load, PathError};

/// Description of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadKind {
    /// Name on the command line and in results.
    pub name: &'static str,
    pub what: &'static str,
    /// Metrics of the verdict, most important first.
    pub judged: &'static [&'static str],
    /// Default UDP payload of every datagram in bytes; 0 if the messages have sizes of their own.
    pub size_bytes: usize,
    /// Default rate in datagrams per second; 0 if the load has none.
    pub rate_pps: u64,
    /// Default length of the measured part of a trial.
    pub trial: Duration,
    /// Programs that can carry it as peer arms.
    pub peers: &'static [&'static str],
}

/// Words for sentences about results under a load; empty if there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadWords {
    /// Thing whose time the first judged metric is: `ping`.
    pub noun: &'static str,
    /// The baseline: `plain socket`.
    pub baseline: &'static str,
}

/// The loads of one path; implemented by [`loads!`](crate::loads).
pub trait PathLoad: Copy + 'static {
    /// Every load; the first is the default.
    const ALL: &'static [Self];
    /// Descriptions, in the same order.
    const KINDS: &'static [LoadKind];

    fn kind(self) -> &'static LoadKind;

    /// Name on the command line and in results.
    fn name(self) -> &'static str {
        self.kind().name
    }

    /// The kind of a load. Errors: the path has none of that name.
    fn parse(load: &Load) -> Result<Self, PathError> {
        let found = Self::ALL.iter().copied().find(|kind| kind.name() == load.kind);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::KINDS.iter().map(|kind| kind.name).collect();
            PathError::Invalid {
                what: format!("this path has no load {}", load.kind),
                remedy: format!("its loads: {}", names.join(", ")),
            }
        })
    }
}

/// Declares the loads of a path as an enum, the default first.
///
/// The name of a load is its variant's in kebab case: `Police50` is `police-50`. The fields are those of
/// [`LoadKind`] without the name; `..OTHER` takes the rest from another.
///
/// ```
/// # use wirepath_model as model;
/// use std::time::Duration;
///
/// model::loads! {
///     /// Loads of a path.
///     pub enum PingLoad {
///         EchoFlood {
///             what: "echoed datagrams as fast as they go",
///             judged: &["received_pps"],
///             size_bytes: 64,
///             rate_pps: 0,
///             trial: Duration::from_millis(200),
///             peers: &[],
///         },
///     }
/// }
/// use model::PathLoad;
/// assert_eq!(PingLoad::EchoFlood.name(), "echo-flood");
/// ```
#[macro_export]
macro_rules! loads {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$about:meta])* $variant:ident { $($field:tt)* }),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$about])* $variant),+
        }

        impl $crate::PathLoad for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            const KINDS: &'static [$crate::LoadKind] = &[$($crate::LoadKind {
                name: $crate::kebab_name!($variant),
                $($field)*
            }),+];

            fn kind(self) -> &'static $crate::LoadKind {
                &<Self as $crate::PathLoad>::KINDS[self as usize]
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
                f.write_str($crate::PathLoad::name(*self))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: LoadKind = LoadKind {
        name: "",
        what: "a",
        judged: &[],
        size_bytes: 64,
        rate_pps: 0,
        trial: Duration::from_millis(1),
        peers: &[],
    };

    crate::loads! {
        enum TestLoad {
            Flood { ..PLAIN },
            TcpReceive { what: "b", ..PLAIN },
            Police50 { rate_pps: 7, ..PLAIN },
        }
    }

    fn load(kind: &str) -> Load {
        let (trial, ipv6, vlan_tag, far) = (PLAIN.trial, false, None, None);
        Load {
            kind: kind.to_owned(),
            size_bytes: 64,
            rate_pps: 0,
            trial,
            ipv6,
            vlan_tag,
            wire: None,
            far,
        }
    }

    #[test]
    fn name_is_the_variant_in_kebab_case_and_is_read_back() {
        let names: Vec<&str> = TestLoad::KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names, ["flood", "tcp-receive", "police-50"]);
        assert_eq!(TestLoad::Police50.kind().rate_pps, 7);
        for kind in TestLoad::ALL {
            assert_eq!(TestLoad::parse(&load(&kind.to_string())).unwrap(), *kind);
        }
    }

    #[test]
    fn unknown_load_is_refused_with_the_loads_of_the_path() {
        let error = TestLoad::parse(&load("storm")).unwrap_err().to_string();
        assert!(error.contains("no load storm; its loads: flood, tcp-receive"), "{error}");
    }
}
