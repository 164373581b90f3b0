//! A program runs where it was told to, and a failed start names its step.

use std::path::Path;
use std::process::Command;

use sys::netns::Netns;
use testkit::LONG;
use wirepath_lab::program::{Program, ProgramEnd};

use crate::common::{GO_ON, Home, in_both_homes};

#[test]
fn output_and_status_come_back() {
    in_both_homes(|home| {
        let client = home.start("client", "cat; echo out; echo err >&2; exit 3");
        let finished = client.wait(LONG, &GO_ON).unwrap();
        assert_eq!((finished.status.code(), finished.end), (Some(3), ProgramEnd::ByItself));
        let output = [finished.stdout.bytes(), finished.stderr.bytes()];
        assert_eq!(output, [b"out\n", b"err\n"]);
        assert!(finished.wall.as_nanos() > 0);
    });
}

#[test]
fn it_runs_in_its_namespace_on_its_cpu_in_its_folder_with_its_variables() {
    let netns = Netns::new().unwrap();
    let cpu = *sys::affinity::allowed_cpus().unwrap().last().unwrap();
    in_both_homes(|home| {
        let command = "stat -Lc %i /proc/self/ns/net; grep Cpus_allowed_list /proc/self/status; pwd; \
                       echo $ARM; echo $HOME; cat /proc/self/cgroup";
        let mut spec = home.spec("client", command);
        spec.env.push(("ARM".into(), "a b".into()));
        spec.env.push(("HOME".into(), "/nowhere".into()));
        let cpus = [cpu];
        (spec.netns, spec.cpus, spec.folder) = (Some(&netns), &cpus, Path::new("/usr"));
        let client = home.start_as(&spec);
        let group = client.cgroup().map(|group| group.path().to_owned());
        let finished = client.wait(LONG, &GO_ON).unwrap();
        let text = String::from_utf8(finished.stdout.bytes().to_owned()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], netns.inode().unwrap().to_string());
        assert!(lines[1].ends_with(&format!("\t{cpu}")), "{text}");
        assert_eq!(lines[2..5], ["/usr", "a b", "/nowhere"]);
        if let Some(group) = group {
            let name = group.file_name().unwrap().to_str().unwrap();
            assert!(lines.iter().any(|line| line.starts_with("0::") && line.ends_with(name)));
            assert!(!group.exists(), "removed");
        }
    });
}

#[test]
fn no_descriptor_or_blocked_signal_is_inherited() {
    in_both_homes(|home| {
        let command = "ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status";
        let finished = home.start("client", command).wait(LONG, &GO_ON).unwrap();
        let text = String::from_utf8(finished.stdout.bytes().to_owned()).unwrap();
        // Cargo and others hand descriptors down.
        let plain = Command::new("sh").args(["-c", command]).output().unwrap().stdout;
        let plain = String::from_utf8(plain).unwrap();
        assert_eq!(text.lines().next(), plain.lines().next());
        assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
        let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        assert_eq!(ignored & (1 << (13 - 1) | 1 << (17 - 1)), 0, "SIGPIPE and SIGCHLD: {text}");
    });
}

#[test]
fn a_failed_start_names_the_step_and_leaves_nothing() {
    in_both_homes(|home| {
        let start = |change: fn(&mut wirepath_lab::program::ProgramSpec<'_>)| {
            let mut spec = home.spec("server", "sleep 600");
            change(&mut spec);
            let error = Program::start_in(&spec, &home.parent).unwrap_err();
            host::text::chain(&error)
        };
        let text = start(|spec| spec.folder = Path::new("/no/such/folder"));
        assert!(text.starts_with("cannot start the server: changing to its folder"), "{text}");
        assert!(text.contains("No such file or directory"), "{text}");
        let text = start(|spec| spec.cpus = &[1_000_000]);
        assert!(text.contains("pinning to CPUs") && text.contains("1000000"), "{text}");
        let text = start(|spec| spec.cpus = &[1023]);
        assert!(text.contains("pinning to CPUs"), "{text}");
        let text = start(|spec| spec.command = "echo a\0b");
        assert!(text.contains("byte of value 0"), "{text}");
        let long = "x".repeat(1 << 20);
        let mut spec = home.spec("server", "true");
        spec.env.push(("LONG".into(), long));
        let error = Program::start_in(&spec, &home.parent).unwrap_err();
        let text = host::text::chain(&error);
        assert!(text.contains("executing it failed"), "{text}");
    });
}

#[test]
fn a_folder_that_is_no_control_group_is_a_reason_to_go_without() {
    let home = Home::new(true);
    for folder in ["/proc", "/no/such/folder"] {
        let parent = wirepath_lab::program::CgroupParent::at(folder);
        let program = Program::start_in(&home.spec("client", "true"), &parent).unwrap();
        let why = program.why_no_cgroup().unwrap().to_owned();
        assert!(why.contains(folder), "{why}");
        assert!(program.cgroup().is_none());
        assert!(program.wait(LONG, &GO_ON).unwrap().status.success());
    }
}
