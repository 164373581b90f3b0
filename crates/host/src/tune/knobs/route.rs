//! Metrics of a route that connections begin with.

use super::access::Access;
use super::tcp::check_is_available;
use crate::net::{self, RouteEntry, RouteMetric};
use crate::tune::error::KnobError;
use crate::tune::knob::{About, Kept, Knob, Reaches};
use crate::tune::system::System;
use crate::tune::target::{RouteTarget, Scope, Target};
use crate::tune::value::{Value, ValueFormat};

/// One metric of a route. Everything else of the route stays as it is.
///
/// Source: ip-route(8); tcp_init_cwnd, tcp_select_initial_window and tcp_ca_dst_init of net/ipv4.
#[derive(Debug)]
pub(super) struct Metric {
    about: About,
    metric: RouteMetric,
    /// Word of ip-route(8).
    word: &'static str,
}

/// Value of a metric that is a name and is not set.
const UNSET: &str = "default";
const SEGMENTS: ValueFormat = ValueFormat::Number { min: 0, max: 65_535 };

pub(super) static METRICS: &[Metric] = &[
    Metric {
        about: About {
            id: "route-congestion-control",
            what: "congestion control of connections by a route; default for that of the namespace",
            scope: Scope::Route,
            format: ValueFormat::Name,
        },
        metric: RouteMetric::CongestionControl,
        word: "congctl",
    },
    Metric {
        about: About {
            id: "route-initcwnd",
            what: "segments that a connection sends before the first answer; 0 for the kernel's 10",
            scope: Scope::Route,
            format: SEGMENTS,
        },
        metric: RouteMetric::InitialWindow,
        word: "initcwnd",
    },
    Metric {
        about: About {
            id: "route-initrwnd",
            what: "segments that a connection offers to receive at first; 0 for the kernel's choice",
            scope: Scope::Route,
            format: SEGMENTS,
        },
        metric: RouteMetric::InitialReceiveWindow,
        word: "initrwnd",
    },
];

impl Metric {
    fn entry(&self, system: &System, target: &Target) -> Result<RouteEntry, KnobError> {
        let no_target = || KnobError::NoTarget { target: target.clone() };
        let Target::Route(route) = target else { return Err(no_target()) };
        let (_, found) = Access::new(self, system, target)
            .needing("that no other route has the same destination, table and metric")
            .get(|index| {
                net::route_entry(route.destination, route.prefix_bits, route.table, index)
            })?;
        found.ok_or_else(no_target)
    }

    fn text(&self, entry: &RouteEntry) -> String {
        match self.metric {
            RouteMetric::CongestionControl => {
                entry.text(self.metric).unwrap_or_else(|| UNSET.to_owned())
            }
            _ => entry.number(self.metric).to_string(),
        }
    }

    /// As the kernel encodes it; `None` if it is to be removed.
    fn bytes(&self, value: &Value) -> Option<Vec<u8>> {
        let text = value.as_str().trim();
        match self.metric {
            RouteMetric::CongestionControl if text == UNSET => None,
            RouteMetric::CongestionControl => Some([text.as_bytes(), b"\0"].concat()),
            _ => match text.parse::<u32>().ok()? {
                0 => None,
                number => Some(number.to_ne_bytes().to_vec()),
            },
        }
    }
}

impl Knob for Metric {
    fn about(&self) -> &About {
        &self.about
    }

    fn read_at(&self, system: &System, target: &Target) -> Result<Value, KnobError> {
        let text = self.text(&self.entry(system, target)?);
        Ok(Value::new(text).unwrap_or_else(|| Value::new("?").expect("short")))
    }

    fn set_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let entry = self.entry(system, target)?;
        if self.text(&entry) == value.as_str() {
            return Ok(());
        }
        self.check_can_be_restored(&entry, target)?;
        self.accepts_at(system, target, value)?;
        let bytes = self.bytes(value);
        Access::new(self, system, target)
            .change(value, || net::set_route_metric(&entry, self.metric, bytes.as_deref()))
    }

    fn probe_at(&self, system: &System, target: &Target) -> Result<(), KnobError> {
        let entry = self.entry(system, target)?;
        self.check_can_be_restored(&entry, target)?;
        Access::new(self, system, target).may_configure()
    }

    fn accepts_at(&self, system: &System, target: &Target, value: &Value) -> Result<(), KnobError> {
        let name = value.as_str().trim();
        if self.metric != RouteMetric::CongestionControl || name == UNSET {
            return Ok(());
        }
        check_is_available(self, system, target, name)
    }

    fn reaches(&self) -> Reaches {
        Reaches::NewConnections
    }

    fn kept(&self, target: &Target, value: &Value) -> Vec<Kept> {
        let (Target::Route(route), Some(_)) = (target, self.bytes(value)) else {
            // Without the metric a route needs no configuration.
            return Vec::new();
        };
        let RouteTarget { table, .. } = route;
        vec![Kept::Route {
            destination: route.prefix(),
            is_ipv6: route.destination.is_ipv6(),
            table: *table,
            word: self.word,
            value: value.as_str().trim().to_owned(),
        }]
    }
}

impl Metric {
    fn check_can_be_restored(&self, entry: &RouteEntry, target: &Target) -> Result<(), KnobError> {
        entry.fixed_by().map_or(Ok(()), |why| {
            Err(KnobError::Inexact { knob: self.about.id.to_owned(), target: target.clone(), why })
        })
    }
}
