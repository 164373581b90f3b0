//! An experiment whose session is open.

use std::any::Any;

use model::Session;

use crate::best::Space;
use crate::proof::Proof;

/// An experiment whose session is open.
pub(crate) struct Opened<'a> {
    pub(crate) proof: Proof,
    pub(crate) session: Box<dyn Session>,
    /// Sets among which the best is searched; `None` for the arms of the proof.
    pub(crate) space: Option<Space<'a>>,
    /// A search is stored while it runs, so that it can be resumed.
    pub(crate) records_search: bool,
    pub(crate) guards: Vec<Box<dyn Any>>,
}
