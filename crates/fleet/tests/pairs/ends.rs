//! Nothing of a database outlives its test program, however that ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::servers::Database;
use testkit::{LONG, note, role, until};

const FOLDER: &str = "its folder: ";

#[test]
#[ignore = "role of a child process"]
fn database_of_a_program_that_is_killed() {
    let Some(database) = Database::start() else { return };
    let address = database.address("postgres");
    let folder = address.split_whitespace().find_map(|word| word.strip_prefix("host="));
    note(&format!("{FOLDER}{}", folder.expect("a folder")));
    std::thread::sleep(LONG * 10);
}

/// Processes that work in a folder.
fn processes_in(folder: &Path) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("it is mounted").flatten();
    all.filter(|of| fs::read_link(of.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)))
        .filter_map(|of| of.file_name().to_str()?.parse().ok())
        .collect()
}

/// Segments of shared memory that these processes made, as lines of the kernel's table.
///
/// Source: sysvipc_shm_proc_show of ipc/shm.c; the fifth column is the process.
fn memory_segments(processes: &[u32]) -> Vec<String> {
    let table = fs::read_to_string("/proc/sysvipc/shm").expect("it is mounted");
    let maker = |line: &str| line.split_whitespace().nth(4)?.parse().ok();
    table
        .lines()
        .filter(|line| maker(line).is_some_and(|of| processes.contains(&of)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn database_ends_with_its_test_program_that_is_killed() {
    // Without root its processes end when they see it, and its shared memory stays.
    if fs::metadata("/proc/self").expect("it is mounted").uid() != 0 {
        return;
    }
    let mut program = role("ends::database_of_a_program_that_is_killed");
    let mut program = program.stderr(Stdio::piped()).spawn().expect("it runs");
    let said = BufReader::new(program.stderr.take().expect("a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    let folder = lines.find_map(|line| line.strip_prefix(FOLDER).map(PathBuf::from));
    let processes = folder.as_deref().map(processes_in);
    program.kill().expect("our child");
    program.wait().expect("our child");
    // PostgreSQL is not installed.
    let (Some(folder), Some(processes)) = (folder, processes) else { return };
    assert!(processes.len() > 1, "the server and its processes");
    let left = || processes_in(&folder);
    assert!(until(LONG, || left().is_empty()), "{:?}", left());
    let segments = memory_segments(&processes);
    assert!(segments.is_empty(), "shared memory is left: {segments:?}");
    fs::remove_dir_all(&folder).expect("no process uses it");
}
