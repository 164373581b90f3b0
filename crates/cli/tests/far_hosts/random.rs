//! Either end of each service is killed at moments of no plan: while it starts, greets, measures or ends.

use super::*;

#[test]
fn nothing_of_a_namespace_is_left_whenever_either_end_is_killed() {
    assert_kills_leave_nothing_in_a_namespace("probe");
}

#[test]
fn nothing_of_a_host_is_left_whenever_either_end_is_killed() {
    let Some(sshd) = Sshd::start(SBIN_PATH) else { return };
    let server = ["--server", "exec sleep 1000", "--client", "exec sleep 1000", "--ready"];
    let server = [&server[..], &["sleep:10", "--within", "900s", "--arm", "x:X=1"]].concat();
    assert_kills_leave_nothing_on_a_host(&sshd, "probe", &ENDLESS);
    assert_kills_leave_nothing_on_a_host(&sshd, "command", &server);
}
