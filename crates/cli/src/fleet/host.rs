//! `wirepath fleet host`: runs one experiment on request, for `fleet prove --on ssh:HOST`.
//!
//! The first line on standard input is the list of arguments of `prove` as JSON. The end of standard input
//! ends the experiment.

use std::io::{BufRead, Read, Write, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::exclusive::ExclusiveLock;
use sys::child::Place;
use sys::thread::start_free;

use super::{experiment, prove};
use crate::exit::Failure;
use crate::{console, signals};

/// Length of the line of arguments, in bytes.
const LINE_MAX: u64 = 256 * 1024;

pub(super) fn run() -> Result<(), Failure> {
    let mut line = String::new();
    stdin().lock().take(LINE_MAX).read_line(&mut line)?;
    let arguments = read(&line)?;
    let _lock = ExclusiveLock::acquire_alone()?;
    let has_gone = watch_near_end()?;
    let mut child = experiment::spawn(&arguments, &Place::default())?;
    let ended = loop {
        if let Some(ended) = child.wait(Duration::from_millis(100))? {
            break ended;
        }
        if has_gone.load(Ordering::Relaxed) || signals::stop_requested() {
            return Err(Failure::failed("the near end has ended"));
        }
    };
    std::io::stderr().write_all(&ended.stderr)?;
    console::bytes(&ended.stdout)?;
    let why = String::from_utf8_lossy(&ended.stderr);
    let why =
        why.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or("ended").to_owned();
    match ended.status.code() {
        Some(0) => Ok(()),
        Some(3) => Err(Failure::Unsupported(why)),
        _ => Err(Failure::failed(why)),
    }
}

/// Arguments of `prove`. Errors: they are not, so that no other command can be asked for.
fn read(line: &str) -> Result<Vec<String>, Failure> {
    let arguments: Vec<String> = serde_json::from_str(line)
        .map_err(|e| Failure::Usage(format!("cannot read the arguments of the experiment: {e}")))?;
    prove::check(&arguments)?;
    Ok(arguments)
}

/// Returns a flag that is set when standard input ends.
fn watch_near_end() -> Result<Arc<AtomicBool>, Failure> {
    let has_gone = Arc::new(AtomicBool::new(false));
    let flag = has_gone.clone();
    start_free("wp-near-end", move || {
        let mut piece = [0; 64];
        while let Ok(1..) = stdin().lock().read(&mut piece) {}
        flag.store(true, Ordering::Relaxed);
    })?;
    Ok(has_gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arguments_of_prove_are_taken() {
        assert!(read(r#"["probe","--load","ping","--json"]"#).is_ok());
        for bad in ["", "x", "[1]", r#"["--help"]"#, r#"["nonsense"]"#, r#"["probe","--runs","5"]"#]
        {
            assert_eq!(read(bad).unwrap_err().code(), 2, "{bad}");
        }
    }
}
