//! Filters, network address translation and connection tracking.

mod bridge;
mod bridge_nf_off;
mod counted;
mod ct_drop_rule;
mod ct_full;
mod ct_invalid;
mod drop_rule;
mod flowtable;
mod forward_policy;
mod insert_failed;
mod ipvs_reuse;
mod netfilter;
mod rule_count;
mod rules;
mod send_eperm;
mod two_backends;
mod udp_stale_ct;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    udp_stale_ct::CAUSE,
    ct_invalid::CAUSE,
    forward_policy::CAUSE,
    bridge_nf_off::CAUSE,
    ipvs_reuse::CAUSE,
    rule_count::CAUSE,
    flowtable::CAUSE,
    insert_failed::RACE,
    insert_failed::COLLISION,
    send_eperm::CAUSE,
    ct_full::CAUSE,
    drop_rule::CAUSE,
    two_backends::CAUSE,
    ct_drop_rule::CAUSE,
    netfilter::HOOKS,
    bridge::CAUSE,
    netfilter::CONNTRACK,
];
