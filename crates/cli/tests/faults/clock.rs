//! A wall clock that jumps, for one command: a library that stands before the C library's own.
//! The machine's clock stays what it is.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::NamedTempFile;

use crate::common::skip;

/// Adds what a file says, in seconds, to what the kernel says.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *jump;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("WIREPATH_TEST_CLOCK");
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(0, sizeof *jump, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) jump = at;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int rc = syscall(SYS_clock_gettime, id, now);
    if (rc == 0 && jump && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += *jump;
    return rc;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int rc = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return rc;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The library, built once; `None` where there is no compiler.
fn library() -> Option<&'static PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (source, built) = (folder.join("jump.c"), folder.join("jump.so"));
        fs::write(&source, SOURCE).expect("a file");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&built).arg(&source);
        if !compiler.status().is_ok_and(|status| status.success()) {
            skip("no C compiler: the wall clock is not set");
            return None;
        }
        Some(built)
    };
    BUILT.get_or_init(build).as_ref()
}

pub(crate) fn is_there() -> bool {
    library().is_some()
}

/// How far the wall clock is off for a command.
pub(crate) struct Clock(NamedTempFile);

impl Clock {
    pub(crate) fn new() -> Self {
        let clock = Clock(NamedTempFile::new().expect("a temporary file"));
        clock.set(0);
        clock
    }

    /// Puts it so many seconds ahead.
    pub(crate) fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt;
        self.0.as_file().write_all_at(&seconds.to_ne_bytes(), 0).expect("our file");
    }

    /// Has a command go by it.
    pub(crate) fn show_to(&self, command: &mut Command) {
        if let Some(library) = library() {
            command.env("LD_PRELOAD", library).env("WIREPATH_TEST_CLOCK", self.0.path());
        }
    }
}
