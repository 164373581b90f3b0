//! Houses that the program is built with. Tables of all commands and paths leave out rows of the others.

pub(crate) const FEED: bool = cfg!(feature = "feed");
pub(crate) const TUNNEL: bool = cfg!(feature = "tunnel");
pub(crate) const VM: bool = cfg!(feature = "vm");

/// True if committed tables can be compared with the program or written from it: it has every house.
pub(crate) fn are_all_there() -> bool {
    let are_there = FEED && TUNNEL && VM;
    if !are_there {
        testkit::note("the program is built without a house: the committed table is not compared");
    }
    are_there
}
