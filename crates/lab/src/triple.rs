//! Two ends with a namespace between them in which an XDP or tc program forwards packets.

use sys::netns::Netns;

use super::End;
use super::end::{join, quiet_netns};
use super::error::LabError;
use super::pair::{FAR, NEAR, PairSpec, introduce};

/// Three namespaces in a row: near - middle - far.
///
/// Near (10.77.0.1/24) and far (10.77.0.2/24) are configured as if one wire joined them,
/// each with a permanent neighbour entry for the other. The middle has an interface to each side and
/// **neither bridges nor routes**: nothing crosses until a program there redirects between
/// [`Middle::near_if`] and [`Middle::far_if`].
#[derive(Debug)]
pub struct Triple {
    /// The end that measures.
    pub near: End,
    /// Namespace in which a program forwards packets.
    pub middle: Middle,
    /// The end that answers.
    pub far: End,
}

/// The namespace in the middle of a [`Triple`] and its two interfaces, without addresses.
#[derive(Debug)]
pub struct Middle {
    pub netns: Netns,
    /// Interface whose wire leads to the near end.
    pub near_if: End,
    /// Interface whose wire leads to the far end.
    pub far_if: End,
}

impl Triple {
    /// Builds the lab; both wires are ready to carry traffic on return.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new(spec: &PairSpec) -> Result<Self, LabError> {
        let (near, middle, far) = (quiet_netns()?, quiet_netns()?, quiet_netns()?);
        let [near, near_if] = join(
            (&near, &spec.end("wp-near", 1, Some(NEAR))),
            (&middle, &spec.end("wp-to-near", 3, None)),
        )?;
        let [far, far_if] = join(
            (&far, &spec.end("wp-far", 2, Some(FAR))),
            (&middle, &spec.end("wp-to-far", 4, None)),
        )?;
        introduce(&near, &far)?;
        Ok(Triple { near, middle: Middle { netns: middle, near_if, far_if }, far })
    }
}
