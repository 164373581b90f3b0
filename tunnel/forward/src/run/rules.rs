//! Rules of the forwarder, from the configuration and the state of the host.

use super::keepalive::Prober;
use super::next_hop::Links;
use super::{Operator, RunError, ports};
use crate::config::Config;
use crate::encap::Encap;
use crate::fdb::MacDisplay;
use crate::forwarder::RulesSpec;
use crate::spec::{Outer, mtu_bytes_min};

/// Rules for the tunnels of a configuration, with the MAC addresses of their next hops.
pub(super) fn rules(
    config: &Config,
    links: &Links,
    prober: &Prober,
    operator: &mut impl Operator,
) -> Result<RulesSpec, RunError> {
    if let Some(warning) = ports::keeps_tags(config)? {
        operator.note(&warning);
    }
    let mut encaps = Vec::with_capacity(config.tunnels.len());
    for (tunnel, hop) in config.tunnels.iter().zip(&links.next_hops) {
        let next_hop = hop.mac;
        if let Some((ifname, mtu_bytes)) = &hop.narrow {
            operator.note(&format!(
                "underlay.mtu is {}, but {ifname} carries {mtu_bytes}: senders of larger packets are told",
                config.underlay.mtu_bytes
            ));
        }
        let mtu_bytes_min = mtu_bytes_min(tunnel.tunnel.remote);
        let mtu_bytes = hop.link_mtu_bytes(config).max(mtu_bytes_min);
        let outer = Outer { mtu_bytes, ..tunnel.outer(links.own_mac, next_hop) };
        let encap = Encap::new(tunnel.tunnel, outer)
            .map_err(|source| RunError::Tunnel { name: tunnel.name.clone(), source })?;
        let encap = match hop.learnt {
            Some(learnt) => encap.over_path(learnt.mtu_bytes),
            None => encap,
        };
        operator.note(&format!(
            "tunnel {}: {} to {} by {}, inner frames up to {} bytes",
            tunnel.name,
            tunnel.tunnel.local,
            tunnel.tunnel.remote,
            MacDisplay(next_hop),
            encap.inner_bytes_max()
        ));
        encaps.push(encap);
    }
    Ok(RulesSpec {
        encaps,
        vlans: config.vlans(),
        keepalives: prober.keepalives(config),
        decap: config.decap(),
        learns: config.learns,
        classifier: config.classifier(),
        policer: config.qos.policer,
    })
}
