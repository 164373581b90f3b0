//! Arms of a path, run as `prove` runs them.

use std::time::Duration;

use model::{Arm, Measurement, Support};
use wirepath_paths::{Load, Path};

/// A path by its name.
pub(crate) fn path(name: &str) -> Box<dyn Path> {
    wirepath_paths::all().into_iter().find(|path| path.name() == name).expect("listed")
}

/// A load of the path as it is without options, in trials of `trial`.
pub(crate) fn load(path: &dyn Path, kind: &str, trial: Duration) -> Load {
    let kind = path.loads().iter().find(|load| load.name == kind).expect("a load of that name");
    Load {
        kind: kind.name.to_owned(),
        size_bytes: kind.size_bytes,
        rate_pps: kind.rate_pps,
        trial,
        far: None,
        secret: None,
    }
}

/// Whether an arm can run here; says why if it cannot.
pub(crate) fn supported(path: &dyn Path, arm: &Arm, load: &Load) -> bool {
    match path.support(arm, load) {
        Support::Yes => true,
        Support::Unsupported { what, needs } => {
            super::skip(&format!("{}: {what}; {needs}", arm.name));
            false
        }
        Support::Refused { why } => panic!("{}: {why}", arm.name),
    }
}

#[track_caller]
pub(crate) fn counter(m: &Measurement, name: &str) -> u64 {
    *m.counters.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", m.counters))
}
