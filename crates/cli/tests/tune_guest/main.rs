//! `wirepath tune` and `wirepath doctor` in a Debian guest, with the drivers of real cards and
//! with gretap. Skipped without QEMU and the guest of `cargo xtask linux-guest`.

#[path = "../common/mod.rs"]
mod common;
mod rig;

use rig::Rig;

#[test]
fn look() {
    let Some(rig) = Rig::boot(&["ip", "ethtool", "ping"]) else { return };
    for script in [
        "uname -a; dmesg | tail -3; cat /proc/uptime; ls /sys/kernel/btf | head -40; wirepath --version",
        "for c in intel vmx vio; do echo == $c; ethtool -i $c|head -1; ethtool -g $c; ethtool -c $c; ethtool -l $c; done",
        "cat /proc/interrupts",
        "for c in intel vmx vio; do echo == $c; wirepath tune knobs --interface $c; done",
        "for c in intel vmx vio; do echo == $c; wirepath doctor --interface $c --profile latency; done",
    ] {
        let came = rig.run(script);
        eprintln!("--- {script}: {}\n{}{}", came.code, came.stdout, came.stderr);
    }
}
