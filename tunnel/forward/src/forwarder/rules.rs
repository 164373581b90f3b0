//! Rules in force, read by all workers.

use std::sync::Arc;

use super::{PolicerSpec, RulesSpec};
use crate::decap::Decap;
use crate::domain::Domains;
use crate::encap::Encap;
use crate::keepalive::Keepalive;
use crate::qos::{Classifier, TokenBucket};

/// Rules in the form that workers use.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) encaps: Vec<Encap>,
    pub(super) domains: Domains,
    pub(super) keepalives: Vec<Option<Arc<Keepalive>>>,
    pub(super) decap: Decap,
    pub(super) learns: bool,
    pub(super) classifier: Classifier,
    pub(super) policer: Option<PolicerSpec>,
    /// A tunnel has sequence numbers.
    pub(super) has_sequence: bool,
}

impl From<RulesSpec> for Rules {
    fn from(spec: RulesSpec) -> Rules {
        Rules {
            has_sequence: spec.encaps.iter().any(Encap::has_sequence),
            domains: Domains::new(spec.encaps.len(), &spec.vlans),
            encaps: spec.encaps,
            keepalives: spec.keepalives,
            decap: Decap::new(spec.decap),
            learns: spec.learns,
            classifier: spec.classifier,
            policer: spec.policer,
        }
    }
}

impl Rules {
    /// A full bucket; its clock starts with the first frame.
    pub(super) fn bucket(&self) -> Option<TokenBucket> {
        self.policer.map(|p| TokenBucket::new(p.rate_bits_per_s, p.burst_bytes, 0))
    }
}
