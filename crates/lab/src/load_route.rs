//! Route of a load to the settings of a plan: over the path's own topology or through the plan's
//! namespace.

use std::net::IpAddr;

use host::net::{self, Mac};
use host::netns::Netns;
use host::tune::{Place, Plan, ReadyStep, Target};
use model::PathError;

use crate::{AttachedNamespace, End, FarEnd, Pair, Side, Wire};

/// A load as `tune prove` describes it.
#[derive(Debug, Clone, Copy)]
pub struct LoadTopology<'a> {
    pub path: &'a str,
    /// Namespace at the other end of the wire of the plan's interface.
    pub from: Option<&'a str>,
    /// The plan's namespace forwards the load to a sink.
    pub forward: bool,
    /// Far end on another host.
    pub far: Option<&'a FarEnd>,
}

#[derive(Debug)]
pub enum LoadRoute {
    /// The path's own topology: a lab on this machine, or a peer beyond the plan's interface.
    Own,
    /// Through the plan's namespace.
    ThroughNamespace(Netns),
}

/// Ends of a load that goes into a namespace, or through it.
#[derive(Debug)]
pub struct NamespaceEnds {
    /// Sender and receiver.
    pub pair: Pair,
    /// The namespace's interface if it forwards; `None` if one wire joins the ends.
    pub router: Option<Mac>,
    pub nic: String,
    /// Wires that were joined to the namespace; removed when dropped.
    pub wires: Vec<Wire>,
}

fn invalid(what: impl Into<String>, remedy: impl Into<String>) -> PathError {
    PathError::Invalid { what: what.into(), remedy: remedy.into() }
}

impl LoadTopology<'_> {
    /// The route on which the load meets the plan's settings. Errors: [`PathError::Invalid`] if
    /// there is none.
    pub fn route(&self, plan: &Plan, ready: &[ReadyStep]) -> Result<LoadRoute, PathError> {
        let is_of_machine =
            ready.iter().all(|step| matches!(step.target, Target::Host | Target::Cpu(_)));
        let interface = plan.interface.as_deref();
        if self.from.is_some() && interface.is_none() {
            return Err(invalid(
                "the plan names no interface to receive the load",
                "remove --from",
            ));
        }
        let is_through = self.from.is_some() || self.forward;
        if !is_through && (self.far.is_some() || is_of_machine) {
            if let (Some(far), Some(interface)) = (self.far, interface) {
                check_route(far, plan, interface)?;
            }
            return Ok(LoadRoute::Own);
        }
        if self.path != "probe" {
            let what =
                format!("path {} runs in its own lab, without the plan's settings", self.path);
            return Err(invalid(what, "use --path probe"));
        }
        let Some(netns) = &plan.netns else {
            return Err(invalid(
                "the plan is for this namespace, and nothing is attached to it",
                "give the host behind its interface (--far ssh:HOST), or a plan made with --netns",
            ));
        };
        if interface.is_some() && self.from.is_none() {
            return Err(invalid(
                "the source of the load is missing",
                "name the namespace at the other end of the interface's wire (--from NETNS)",
            ));
        }
        open_netns(netns).map(LoadRoute::ThroughNamespace)
    }

    /// Ends of the load into the plan's namespace, or through it with `forward`.
    pub fn ends(&self, plan: &Plan, netns: &Netns) -> Result<NamespaceEnds, PathError> {
        let mut wires = Vec::new();
        let (near, place) = match (self.from, plan.interface.as_deref()) {
            (Some(from), Some(interface)) => {
                let place = netns.try_clone().map_err(PathError::part)?;
                let place = End::existing(place, interface).map_err(PathError::part)?;
                (source_in(open_netns(from)?, &place)?, place)
            }
            _ => {
                let attached = AttachedNamespace::new(netns, Side::Source, self.forward)
                    .map_err(PathError::part)?;
                wires.push(attached.wire);
                (attached.own, attached.in_place)
            }
        };
        let nic = format!("{} of namespace {}", place.ifname, plan.netns.as_deref().unwrap_or("?"));
        if !self.forward {
            return Ok(NamespaceEnds { pair: Pair { near, far: place }, router: None, nic, wires });
        }
        if !place.forwards().map_err(PathError::part)? {
            let what = format!(
                "the namespace does not forward what comes in by {0}: set \
                 net.ipv4.conf.{0}.forwarding there, or remove --forward",
                place.ifname
            );
            return Err(PathError::Part(what.into()));
        }
        let sink = AttachedNamespace::new(netns, Side::Sink, true).map_err(PathError::part)?;
        wires.push(sink.wire);
        let (pair, router) = (Pair { near, far: sink.own }, Some(place.mac));
        Ok(NamespaceEnds { pair, router, nic: format!("{nic}, forwarded"), wires })
    }
}

fn open_netns(name: &str) -> Result<Netns, PathError> {
    let place = Place { netns: Some(name.to_owned()), root: None };
    Netns::open(place.netns_file()).map_err(PathError::part)
}

/// Errors: [`PathError::Invalid`] if packets do not reach the far end by the plan's interface.
fn check_route(far: &FarEnd, plan: &Plan, interface: &str) -> Result<(), PathError> {
    if plan.netns.is_some() {
        return Err(invalid(
            "the plan is for a namespace, and --far is reached from this one",
            "use --from instead",
        ));
    }
    // The others, and host names, are checked when the path connects.
    let FarEnd::Peer(peer) = far else { return Ok(()) };
    let host = match (peer.parse::<IpAddr>(), peer.rsplit_once(':')) {
        (Err(_), Some((host, _))) if !peer.ends_with(']') => host,
        _ => peer,
    };
    let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() else { return Ok(()) };
    let route = net::route_to(ip).map_err(PathError::part)?;
    let named = net::link_named(interface).map_err(PathError::part)?;
    if route.ifindex == named.index {
        return Ok(());
    }
    let by = net::link(route.ifindex).map_or("another interface".into(), |link| link.name);
    let what = format!("{host} is reached by {by}, and the plan is for {interface}");
    Err(invalid(what, "give a peer behind the plan's interface"))
}

/// The interface of a namespace whose wire leads directly to a place.
fn source_in(from: Netns, place: &End) -> Result<End, PathError> {
    let found = from.run(|| {
        let route = net::route_to(place.ip)?;
        Ok::<_, net::NetError>((route, net::link(route.ifindex)?))
    });
    let (route, link) = found.map_err(PathError::part)?.map_err(PathError::part)?;
    let by = match route.gateway {
        Some(gateway) => format!("by the router {gateway}"),
        None if link.is_loopback => "within itself".to_owned(),
        None => return End::existing(from, &link.name).map_err(PathError::part),
    };
    let what = format!("the namespace of --from reaches {} {by}", place.ip);
    Err(invalid(what, "give the namespace at the other end of the wire of the plan's interface"))
}
