//! A router that is reached by ssh, between two namespaces: its switches act there, and are undone there.

use super::*;

/// The far namespace of a sshd as a router to a third one; that is gone when dropped.
struct Router {
    sshd: Sshd,
    behind: String,
}

impl Router {
    fn new() -> Option<Self> {
        let sshd = Sshd::start("BIN:/usr/bin:/bin:/usr/sbin:/sbin")?;
        let (near, far) = (sshd.spaces.near.clone(), sshd.spaces.far.clone());
        let behind = format!("{far}s");
        succeed(ip(&["netns", "add", &behind]));
        let router = Router { sshd, behind: behind.clone() };
        let wire = ["link", "add", "vc", "netns", &far, "type", "veth", "peer", "name", "vd"];
        succeed(ip(&[&wire[..], &["netns", &behind]].concat()));
        for (name, link, address) in [(&far, "vc", "10.78.0.1/24"), (&behind, "vd", "10.78.0.2/24")]
        {
            succeed(ip(&["-n", name, "address", "add", address, "dev", link]));
            succeed(ip(&["-n", name, "link", "set", link, "up"]));
        }
        succeed(ip(&["-n", &behind, "route", "add", "default", "via", "10.78.0.1"]));
        succeed(ip(&["-n", &near, "route", "add", "10.78.0.0/24", "via", FAR_IP]));
        succeed(enter(&far, &["sysctl", "-qw", "net.ipv4.ip_forward=1"]));
        Some(router)
    }

    fn prove(&self, more: &[&str]) -> Command {
        let options = self.sshd.far("user", "known").split_off(2);
        let (far, at) = (format!("netns:{}", self.behind), format!("ap=ssh:root@{FAR_IP}"));
        let places = ["prove", "command", "--far", &far, "--at", &at, "--load", "ping"];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let data = ["--data-dir", self.sshd.data.path().to_str().expect("a plain path")];
        let switches = [
            "--switch",
            "ap/vb:tso=off",
            "--switch",
            "ap:queue=on:ip link set vc txqueuelen 7|off:ip link set vc txqueuelen 1000",
        ];
        let args = [&places[..], &options, &switches, &data, more].concat();
        let mut command = self.sshd.spaces.near(&args);
        command.env("WIREPATH_STATE", self.sshd.data.file("near-state"));
        command
    }

    fn state(&self) -> String {
        let script = "ethtool -k vb; cat /sys/class/net/vc/tx_queue_len";
        succeed(enter(&self.sshd.spaces.far, &["sh", "-c", script]))
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _gone = ip(&["netns", "delete", &self.behind]).status();
    }
}

#[test]
fn switches_of_a_router_on_another_host_act_there_and_are_undone() {
    let Some(router) = Router::new().filter(|_| is_installed("ethtool")) else { return };
    let before = router.state();
    let document = json(router.prove(&["--time", "60s", "--max-blocks", "6", "--json"]));
    assert_eq!(router.state(), before);
    for name in ["+ap/vb:tso=off", "+ap:queue"] {
        let arm = arm(&document, name);
        assert_eq!(arm["failures"].as_array().map(Vec::len), Some(0), "{arm:#}");
        assert!(arm["not_effective"].as_array().is_none_or(Vec::is_empty), "{arm:#}");
        assert!(arm["metrics"]["ap_packet_count"]["median"].as_f64() > Some(10.0), "{arm:#}");
    }
    router.sshd.assert_nothing_left();

    // Killed while a switch is on: the router's own guard undoes it.
    let running = Running::start(router.prove(&["--time", "60s", "--no-history"]));
    assert!(until(LONG, || router.state().ends_with("\n7\n")), "{}", running.stderr());
    running.end_by("KILL", LONG);
    assert!(until(LONG, || router.state() == before), "{}", router.state());
}
