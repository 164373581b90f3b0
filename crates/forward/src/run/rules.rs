//! Rules of the forwarder, from the configuration and the state of the host.

use super::keepalive::Prober;
use super::next_hop::Links;
use super::{Operator, RunError, ports};
use crate::config::Config;
use crate::encap::Encap;
use crate::fdb::Mac;
use crate::forwarder::RulesSpec;

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
                "underlay.mtu is {}, but {ifname} carries {mtu_bytes}: larger frames will be lost",
                config.underlay.mtu_bytes
            ));
        }
        let encap = Encap::new(tunnel.tunnel, tunnel.outer(links.own_mac, next_hop))
            .map_err(|source| RunError::Tunnel { name: tunnel.name.clone(), source })?;
        operator.note(&format!(
            "tunnel {}: {} to {} by {}, inner frames up to {} bytes",
            tunnel.name,
            tunnel.tunnel.local,
            tunnel.tunnel.remote,
            Mac(next_hop),
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
