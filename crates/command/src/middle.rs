//! Places between both ends: a forwarder, a bridge, a router, on this host or on another.

use std::sync::atomic::AtomicBool;

use host::net;
use host::netns::Netns;
use host::sysfs::Sysfs;
use host::tune::Place as Named;
use lab::{FarEnd, LossWatch, loss_traps};
use model::{Measurement, NotEffective, PathError};

use crate::accounting::{FarCounters, SocketCounts, statistic};
use crate::remote::{Remote, Role};
use crate::serve::FarSeen;
use crate::settings::Spot;
use crate::spec::{MiddlePlace, figures_of_place};
use crate::turn::TrialTurn;
use crate::{At, CheckedPrograms, Switch};

/// A namespace between the ends; its interfaces need no address.
pub(crate) struct Namespace {
    pub(crate) netns: Netns,
    /// As the user named it; `None` for this one.
    pub(crate) name: Option<String>,
    sysfs: Sysfs,
}

impl Namespace {
    pub(crate) fn open(name: Option<&str>) -> Result<Self, PathError> {
        let place = Named { netns: name.map(str::to_owned), root: None };
        let netns = Netns::open(place.netns_file()).map_err(PathError::part)?;
        let sysfs = Sysfs::of(&netns).map_err(PathError::part)?;
        Ok(Namespace { netns, name: name.map(str::to_owned), sysfs })
    }

    /// Interfaces that are up, without the loopback.
    fn interfaces(&self) -> Result<Vec<String>, PathError> {
        let links = self.netns.run(net::links).map_err(PathError::part)?;
        let links = links.map_err(PathError::part)?.into_iter();
        Ok(links.filter(|link| !link.is_loopback && link.is_up).map(|link| link.name).collect())
    }

    /// The namespace as a place of switches, with its interfaces of now.
    pub(crate) fn spot(&self, at: At) -> Result<Spot<'_>, PathError> {
        let interfaces = self.interfaces()?;
        Ok(Spot { at, netns: &self.netns, name: self.name.as_deref(), interfaces })
    }

    /// Sums over its interfaces. One that a command makes or removes meanwhile counts from its beginning, or not at all.
    fn counters(&self) -> Result<FarCounters, PathError> {
        let interfaces = self.interfaces()?;
        Ok(FarCounters {
            packets: self.sum(&interfaces, ["rx_packets", "tx_packets"]),
            bytes: self.sum(&interfaces, ["rx_bytes", "tx_bytes"]),
            drops: self.sum(&interfaces, ["rx_dropped", "tx_dropped"]),
            sockets: SocketCounts::default(),
        })
    }

    /// Sum of two statistics of all interfaces.
    fn sum(&self, interfaces: &[String], names: [&str; 2]) -> u64 {
        let all = interfaces.iter().flat_map(|interface| names.map(|name| (interface, name)));
        all.map(|(interface, name)| statistic(&self.sysfs, interface, name).unwrap_or(0)).sum()
    }

    pub(crate) fn watch(&self) -> Result<NamespaceWatch<'_>, PathError> {
        let losses = LossWatch::begin(&self.netns);
        Ok(NamespaceWatch { namespace: self, before: self.counters()?, losses })
    }
}

/// Counters of a namespace at the start of a client.
pub(crate) struct NamespaceWatch<'a> {
    namespace: &'a Namespace,
    before: FarCounters,
    losses: Option<LossWatch>,
}

impl NamespaceWatch<'_> {
    pub(crate) fn end(self) -> Result<FarSeen, PathError> {
        let counters = self.namespace.counters()?.since(&self.before);
        let losses = self.losses.map_or_else(Vec::new, LossWatch::end);
        Ok(FarSeen { counters: Some(counters), losses, ..FarSeen::default() })
    }
}

/// A place between both ends, on this host or on another.
pub(crate) struct Middle<T> {
    pub(crate) name: String,
    pub(crate) host: T,
}

/// Places between both ends.
#[derive(Default)]
pub(crate) struct Middles {
    pub(crate) here: Vec<Middle<Namespace>>,
    pub(crate) there: Vec<Middle<Remote>>,
}

impl<T> Middle<T> {
    pub(crate) fn at(&self) -> At {
        At::Place(self.name.clone())
    }
}

impl Middle<Namespace> {
    pub(crate) fn spot(&self) -> Result<Spot<'_>, PathError> {
        self.host.spot(self.at())
    }
}

impl Middles {
    pub(crate) fn open(
        spec: &CheckedPrograms,
        stop: &'static AtomicBool,
    ) -> Result<Self, PathError> {
        let mut middles = Middles::default();
        for MiddlePlace { name, host } in &spec.middle {
            let name = name.clone();
            let namespace = match host {
                Some(FarEnd::Ssh(host)) => {
                    let role = Role::Place(name.clone());
                    let host = Remote::start(spec, host, role, stop)?;
                    middles.there.push(Middle { name, host });
                    continue;
                }
                Some(FarEnd::Netns(netns)) => Namespace::open(Some(netns))?,
                _ => Namespace::open(None)?,
            };
            middles.here.push(Middle { name, host: namespace });
        }
        Ok(middles)
    }

    /// Reason why no trial is possible any more.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.there.iter().find_map(|place| place.host.broken())
    }

    /// Names of all, in order.
    pub(crate) fn names(&self) -> Vec<&str> {
        let here = self.here.iter().map(|place| place.name.as_str());
        let mut names: Vec<&str> =
            here.chain(self.there.iter().map(|place| place.name.as_str())).collect();
        names.sort_unstable();
        names
    }
}

/// The trial inside, with the switches that had no effect.
pub(crate) type Trial<'a> = dyn FnMut() -> Result<(Measurement, Vec<NotEffective>), PathError> + 'a;

/// Watches places of this host during a trial.
pub(crate) fn watched(
    places: &[Middle<Namespace>],
    switches: &[&Switch],
    trial: &mut Trial<'_>,
) -> Result<(Measurement, Vec<NotEffective>), PathError> {
    let watches: Vec<_> =
        places.iter().map(|place| place.host.watch()).collect::<Result<_, _>>()?;
    let (mut m, mut idle) = trial()?;
    for (place, watch) in places.iter().zip(watches) {
        account(&place.name, &watch.end()?, switches, (&mut m, &mut idle));
    }
    Ok((m, idle))
}

/// Makes the settings of places on other hosts around a trial, and watches them.
pub(crate) fn on_hosts(
    places: &mut [Middle<Remote>],
    turn: &TrialTurn,
    switches: &[&Switch],
    trial: &mut Trial<'_>,
) -> Result<(Measurement, Vec<NotEffective>), PathError> {
    let Some((place, others)) = places.split_first_mut() else { return trial() };
    let ((((mut m, mut idle), seen), _), far_idle) = place.host.trial(turn, |watch| {
        watch.begin()?;
        let measured = on_hosts(others, turn, switches, trial)?;
        Ok((measured, watch.end()?))
    })?;
    idle.extend(far_idle);
    account(&place.name, &seen, switches, (&mut m, &mut idle));
    Ok((m, idle))
}

/// Adds the figures of a place and the causes of its losses. Its switches had no effect if no packet crossed it.
fn account(
    name: &str,
    seen: &FarSeen,
    switches: &[&Switch],
    (m, idle): (&mut Measurement, &mut Vec<NotEffective>),
) {
    let counters = seen.counters.unwrap_or_default();
    let values = [counters.packets, counters.drops].map(|count| count as f64);
    m.figures.extend(figures_of_place(name).into_iter().zip(values));
    m.traps.extend(loss_traps(name, &seen.losses));
    if counters.packets == 0 {
        let here = switches.iter().filter(|switch| switch.at.to_string() == name);
        let why = format!("no packet crossed {name}");
        idle.extend(here.map(|switch| NotEffective::new(switch.id(), why.clone())));
    }
}
