//! `wirepath tune` and `wirepath doctor` in Debian guests, with the drivers of real cards and
//! with gretap. Skipped without QEMU and the guest of `cargo xtask linux-guest`.

mod appliance;
#[path = "../common/mod.rs"]
mod common;
mod doctor;
#[cfg(feature = "feed")]
#[path = "../../../../feed/tests/tune_guest.rs"]
mod feed;
mod gretap;
mod hotplug;
mod knobs;
mod machine;
mod stamps;
#[cfg(feature = "tunnel")]
#[path = "../../../../tunnel/tests/tune_guest.rs"]
mod tunnel;
mod xdp_modes;

use common::rig::{Machine, Rig};

// A guest takes longer to boot than most of these take: each test asks one guest all that it can be asked in turn, also about
// the houses that the program has.

#[test]
fn causes_are_found_and_commands_survive() {
    let Some(rig) = machine::boot(&["ip", "ethtool", "ping", "nft"]) else { return };
    doctor::finds_coalescing_and_wandering_interrupts_and_not_their_twins(&rig);
    gretap::headroom_copies_and_hooks_are_found_and_their_twins_are_not(&rig);
    stamps::are_on_for_a_run_and_off_after_it_however_it_ends(&rig);
    xdp_modes::are_those_of_the_page_of_drivers(&rig);
    #[cfg(feature = "tunnel")]
    tunnel::carries_what_hosts_behind_real_cards_send(&rig);
    #[cfg(feature = "tunnel")]
    tunnel::goes_encrypted_through_wireguard_and_ipsec_of_the_kernel(&rig);
    hotplug::commands_survive_a_cpu_going_offline(&rig);
}

#[test]
fn faults_of_an_access_point_are_counted_and_named() {
    faults_of_an_access_point(&machine::APPLIANCE);
}

#[test]
fn faults_of_an_access_point_with_a_newer_kernel_are_counted_and_named() {
    faults_of_an_access_point(&machine::MACHINE);
}

fn faults_of_an_access_point(machine: &Machine) {
    let programs = ["ip", "tc", "nft", "tcpdump", "ethtool", "ping"];
    if let Some(rig) = Rig::boot(machine, &programs) {
        appliance::nine_faults_are_each_named_with_their_counts_and_their_twins_are_not(&rig);
    }
}

#[test]
fn settings_are_applied_and_restored() {
    let Some(rig) = machine::boot(&["ip", "ethtool", "ping"]) else { return };
    knobs::every_knob_of_real_cards_is_set_and_restored_exactly(&rig);
    knobs::interrupts_move_under_traffic_and_foreign_changes_and_kills_are_survived(&rig);
    #[cfg(feature = "feed")]
    feed::counts_interrupts_by_cpu_while_they_move_with_the_plan(&rig);
}

#[cfg(feature = "feed")]
#[test]
fn interrupts_on_and_beside_the_cpu_of_a_receiver_are_two_arms_with_its_times() {
    if let Some(rig) = machine::boot(&["ip", "ethtool", "ping"]) {
        feed::times_interrupts_on_and_beside_the_cpu_of_a_receiver(&rig);
    }
}
