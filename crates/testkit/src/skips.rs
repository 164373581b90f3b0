//! Ledger of skips: a test that cannot run here reports it, and fails where its need is required.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{Write, stderr};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::thread;

/// File to which each skip is appended as a line `need<TAB>test<TAB>reason`.
const SKIPS: &str = "WIREPATH_TEST_SKIPS";
/// Needs, separated by commas, that this machine meets: a skip for one of them is a failure.
const REQUIRE: &str = "WIREPATH_TEST_REQUIRE";

/// Needs of the tests. Programs have the name of their file.
pub const NEEDS: &[&str] = &[
    "aarch64-linux-gnu-gcc",
    "arping",
    "bpftool",
    "cc",
    "chromium",
    "clang",
    "curl",
    "dnsperf",
    "dpdk-testpmd",
    "ethtool",
    "ip",
    "iperf3",
    "irtt",
    "memcached",
    "named",
    "nats-server",
    "nft",
    "nginx",
    "openssl",
    "ping",
    "postgres",
    "prlimit",
    "promtool",
    "python3",
    "qemu-system-aarch64",
    "qemu-system-x86_64",
    "qperf",
    "redis-benchmark",
    "redis-server",
    "script",
    "setpriv",
    "socat",
    "sockperf",
    "ssh",
    "ssh-keygen",
    "sshd",
    "strip",
    "systemd-analyze",
    "tc",
    "tcpdump",
    "tshark",
    "unshare",
    "wrk",
    // The firmware of `vm/firmware/`.
    "aarch64",
    // Of Go's perf tools, which ./test builds.
    "benchstat",
    // axe-core, which npm installs.
    "axe",
    "bpf",
    // A control group with a limit of memory or threads.
    "cgroup",
    // Python package of HdrHistogram, which ./test installs.
    "hdrhistogram",
    // Debian's package for Python.
    "jsonschema",
    "kvm",
    "linux-guest",
    // Python package with Perfetto's schema, which ./test installs.
    "perfetto",
    // The firmware of `vm/firmware-x86/`.
    "nettest",
    "netns",
    // /dev/cpu_dma_latency.
    "pm-qos",
    "root",
    // A feature of the kernel, a driver or the number of CPUs that an arm or a check needs.
    "kernel",
    "tap",
];

/// Reports that the calling test, or a part of it, cannot run here.
///
/// - `need`: the missing one of [`NEEDS`].
///
/// # Panics
/// If `WIREPATH_TEST_REQUIRE` has the need, or if a need is not in [`NEEDS`].
#[track_caller]
pub fn skip(need: &str, reason: impl Display) {
    let file = env::var_os(SKIPS).map(PathBuf::from);
    let required = env::var(REQUIRE).unwrap_or_default();
    let test = test_at(Location::caller());
    if let Err(why) = record(need, &test, &reason.to_string(), file.as_deref(), &required) {
        panic!("{why}");
    }
}

/// Returns true if a program is installed; reports a skip otherwise.
///
/// # Panics
/// As [`skip`].
#[track_caller]
pub fn is_installed(program: &str) -> bool {
    assert!(NEEDS.contains(&program), "{program} is missing from NEEDS in testkit");
    let found = env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        skip(program, "not installed");
    }
    found
}

/// Name of the running test: `PROGRAM::TEST`, or the caller's place on a thread without a test's name.
fn test_at(caller: &Location<'_>) -> String {
    let own = env::current_exe().unwrap_or_default();
    let file = own.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let program = file.rsplit_once('-').map_or(file, |(name, _hash)| name);
    match thread::current().name() {
        // libtest runs tests on the main thread if there is one thread only.
        None | Some("main") => format!("{program}::{}:{}", caller.file(), caller.line()),
        Some(test) => format!("{program}::{test}"),
    }
}

/// Appends a skip to the ledger. Errors: its need is required or unknown.
fn record(
    need: &str,
    test: &str,
    reason: &str,
    file: Option<&Path>,
    required: &str,
) -> Result<(), String> {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    // Not `eprintln!`, which libtest captures.
    let _ = writeln!(stderr(), "skipped: {need}: {test}: {reason}");
    if let Some(file) = file {
        let appended = File::options().create(true).append(true).open(file);
        let line = format!("{need}\t{test}\t{reason}\n");
        appended
            .and_then(|mut ledger| ledger.write_all(line.as_bytes()))
            .map_err(|error| format!("cannot append to {SKIPS}={}: {error}", file.display()))?;
    }
    let required: Vec<&str> = required.split(',').filter(|need| !need.is_empty()).collect();
    if let Some(unknown) = required.iter().chain([&need]).find(|need| !NEEDS.contains(need)) {
        return Err(format!("no test has the need {unknown}; testkit lists them as NEEDS"));
    }
    if required.contains(&need) {
        Err(format!("{REQUIRE} has {need}, but {test} cannot run: {reason}"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn skip_is_a_line_of_the_ledger_and_a_failure_if_its_need_is_required() {
        let file = env::temp_dir().join(format!("wirepath-skips-{}", std::process::id()));
        let skip = |need, required| record(need, "a::b", "two\nlines\t", Some(&file), required);
        assert_eq!(skip("kvm", ""), Ok(()));
        assert_eq!(skip("kvm", "ip,netns"), Ok(()));
        let why = skip("kvm", "ip,kvm").unwrap_err();
        assert!(why.contains("has kvm, but a::b cannot run: two lines"), "{why}");
        let ledger = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(ledger, "kvm\ta::b\ttwo lines\n".repeat(3));
    }

    #[test]
    fn unknown_needs_are_errors_on_both_sides() {
        for (need, required) in [("kmv", ""), ("kvm", "ip,kmv")] {
            let why = record(need, "a::b", "c", None, required).unwrap_err();
            assert!(why.contains("no test has the need kmv"), "{why}");
        }
        assert!(record("kvm", "a::b", "c", Some(Path::new("/proc/none/x")), "").is_err());
    }

    #[test]
    fn ci_requires_every_need_but_kernel() {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/run");
        let script = fs::read_to_string(script).unwrap();
        let lines = script.lines().filter(|line| line.starts_with("require"));
        let lists = lines.filter_map(|line| line.split_once('=')).flat_map(|(_, l)| l.split(','));
        let mut required: Vec<&str> = lists.filter(|need| !need.is_empty()).collect();
        required.push("kernel");
        required.sort_unstable();
        let mut needs = NEEDS.to_vec();
        needs.sort_unstable();
        assert_eq!(required, needs);
    }

    #[test]
    fn tests_are_named_by_program_and_thread() {
        let here = Location::caller();
        let named = |name: &str| {
            let name = name.to_owned();
            thread::Builder::new().name(name).spawn(move || test_at(here)).unwrap().join().unwrap()
        };
        let own = named("a::b");
        assert!(own.starts_with("wirepath_testkit") || own.starts_with("testkit"), "{own}");
        assert!(own.ends_with("::a::b") && !own.contains('-'), "{own}");
        assert!(named("main").contains("skips.rs:"), "{}", named("main"));
    }
}
