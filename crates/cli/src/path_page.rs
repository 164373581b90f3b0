//! The page of a path: its description and the latest result of each switch.

use model::Path;
use report::html::{LoadText, PathPage};
use report::store::{Filter, SqliteStore, Store, StoreError};

/// Number of newest experiments that are read: enough for a result of each switch, and few enough to
/// render the page without delay.
const EXPERIMENTS_MAX: u32 = 40;

/// Stored experiments of one path on one machine.
#[derive(Debug, Default)]
pub(crate) struct Known {
    machine: Option<String>,
    machines: Vec<String>,
    outcomes: Vec<model::Outcome>,
    total: u64,
}

impl Known {
    /// - `machine`: id of the machine; `None` for that of the path's newest experiment.
    pub(crate) fn read(
        store: Option<&SqliteStore>,
        path: &str,
        machine: Option<&str>,
    ) -> Result<Known, StoreError> {
        let Some(store) = store else { return Ok(Known::default()) };
        let mut filter = Filter { path: Some(path.into()), limit: Some(1), ..Filter::default() };
        filter.machine = match machine {
            Some(id) => Some(id.to_owned()),
            None => store.list(&filter)?.pop().map(|newest| newest.machine),
        };
        filter.limit = Some(EXPERIMENTS_MAX);
        Ok(Known {
            outcomes: store.outcomes(&filter)?,
            total: store.count(&filter)?,
            machines: store.machines()?,
            machine: filter.machine,
        })
    }

    /// The page, rendered by `render`.
    pub(crate) fn page(
        &self,
        path: &dyn Path,
        render: impl FnOnce(&PathPage<'_>) -> String,
    ) -> String {
        let loads: Vec<LoadText<'_>> = path
            .loads()
            .iter()
            .map(|load: &'static model::LoadKind| LoadText {
                name: load.name,
                what: load.what,
                judged: load.judged,
            })
            .collect();
        render(&PathPage {
            name: path.name(),
            what: path.what(),
            loads: &loads,
            switches: path.switches(),
            machine: self.machine.as_deref(),
            machines: &self.machines,
            outcomes: &self.outcomes,
            total: self.total,
        })
    }
}
