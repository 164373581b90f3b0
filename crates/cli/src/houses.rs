//! The houses that this program was built with: the one place of the core that names them.

use house::{Command, House};

/// Every house, in the order of the help.
pub(crate) fn all() -> &'static [&'static dyn House] {
    &[
        #[cfg(feature = "feed")]
        &feed_house::FeedHouse,
        #[cfg(feature = "tunnel")]
        &tunnel_house::TunnelHouse,
        #[cfg(feature = "vm")]
        &vm_house::VmHouse,
    ]
}

/// Commands of every house.
pub(crate) fn commands() -> impl Iterator<Item = &'static Command> {
    all().iter().flat_map(|house| house.commands())
}

/// Commands and paths of houses that this program was built without, each with the Cargo feature that brings it.
const LEFT_OUT: &[(&str, &str)] = &[
    #[cfg(not(feature = "feed"))]
    ("feed", "feed"),
    #[cfg(not(feature = "tunnel"))]
    ("tunnel", "tunnel"),
    #[cfg(not(feature = "vm"))]
    ("vmnic", "vm"),
    #[cfg(not(feature = "vm"))]
    ("guest", "vm"),
];

/// Remedy for a command or path that this program has only if it is built with another house; `None` for any other name.
pub(crate) fn remedy(name: &str) -> Option<String> {
    let (_, feature) = LEFT_OUT.iter().find(|(left_out, _)| *left_out == name)?;
    Some(format!("this program was built without {name}; build it with `--features {feature}`"))
}

#[cfg(all(test, not(feature = "feed")))]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_house_that_was_left_out_has_its_remedy() {
        let said = remedy("feed").expect("it was left out");
        assert!(said.ends_with("build it with `--features feed`"), "{said}");
        assert_eq!(remedy("probe"), None);
    }
}
