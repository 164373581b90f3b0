//! A wall clock that jumps for one command: a preloaded library overrides the C library's clock. The
//! machine's clock is not changed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::NamedTempFile;

/// Adds the seconds in a file to the kernel's time.
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

/// The library, built once; `None` without a compiler.
fn library() -> Option<&'static PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
            let (source, built) = (folder.join("jump.c"), folder.join("jump.so"));
            fs::write(&source, SOURCE).expect("a file");
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&built).arg(&source);
            if !compiler.status().is_ok_and(|status| status.success()) {
                return None;
            }
            Some(built)
        })
        .as_ref()
}

pub(crate) fn is_there() -> bool {
    let is_there = library().is_some();
    if !is_there {
        testkit::skip("cc", "no C compiler: the wall clock is not set");
    }
    is_there
}

/// Offset of the wall clock for a command.
pub(crate) struct Clock(NamedTempFile);

impl Clock {
    pub(crate) fn new() -> Self {
        let clock = Clock(NamedTempFile::new().expect("a temporary file"));
        clock.set(0);
        clock
    }

    /// Sets the offset in seconds.
    pub(crate) fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt;
        self.0.as_file().write_all_at(&seconds.to_ne_bytes(), 0).expect("our file");
    }

    /// Makes a command use it.
    pub(crate) fn show_to(&self, command: &mut Command) {
        if let Some(library) = library() {
            command.env("LD_PRELOAD", library).env("WIREPATH_TEST_CLOCK", self.0.path());
        }
    }
}
