//! placeholder
pub(super) fn run(_name: &str) -> ! {
    board_virt::power::off()
}
