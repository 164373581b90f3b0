//! Rules by which a device steers the packets of some flows to a receive queue.

use sys::ethtool as ioctl;
pub use sys::ethtool::FlowRule;

use super::error::{NetError, ask};

/// Rules of a device, by location.
pub fn flow_rules(index: u32) -> Result<Vec<FlowRule>, NetError> {
    ask(format!("reading the steering rules of interface {index}"), |_| {
        Ok(ioctl::flow_rules(index)?)
    })
}

pub fn insert_flow_rule(index: u32, rule: &FlowRule) -> Result<(), NetError> {
    let what = format!("adding steering rule {} of interface {index}", rule.location);
    ask(what, |_| Ok(ioctl::insert_flow_rule(index, rule)?))
}

pub fn delete_flow_rule(index: u32, location: u32) -> Result<(), NetError> {
    let what = format!("removing steering rule {location} of interface {index}");
    ask(what, |_| Ok(ioctl::delete_flow_rule(index, location)?))
}
