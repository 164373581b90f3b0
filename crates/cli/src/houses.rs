//! The houses that this program was built with: the one place of the core that names them.

use house::House;

/// Every house, in the order of the help.
pub(crate) fn all() -> &'static [&'static dyn House] {
    &[
        #[cfg(feature = "feed")]
        &feed_house::Feed,
        #[cfg(feature = "tunnel")]
        &tunnel_house::Tunnel,
        #[cfg(feature = "vm")]
        &vm_house::Vm,
    ]
}
