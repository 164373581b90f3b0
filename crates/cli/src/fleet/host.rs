//! `wirepath fleet host`: runs one experiment, one step of a roll-out, or a host's part of a mesh, on request, for
//! `--on ssh:HOST`.
//!
//! The first line on standard input is the list of arguments of `prove`, a [`Work`], or a [`Join`], as JSON. The
//! end of standard input ends the program that does it.

use std::io::{BufRead, Read, Write, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use host::exclusive::ExclusiveLock;
use remote::Failure;
use sys::child::Place;
use sys::thread::start_free;

use super::mesh::{Join, serve};
use super::work::Work;
use super::{experiment, prove};
use crate::{console, signals};

/// Length of the line of arguments, in bytes.
const LINE_MAX: u64 = 4 << 20;

pub(super) fn run() -> Result<(), Failure> {
    let mut line = String::new();
    stdin().lock().take(LINE_MAX).read_line(&mut line)?;
    let request = read(&line)?;
    let _lock = request.measures().then(ExclusiveLock::acquire_alone).transpose()?;
    let mut child = match &request {
        Request::Join(join) => return serve(join),
        Request::Prove(arguments) => experiment::spawn(arguments, &Place::default())?,
        Request::Work(work) => work.spawn(None, None)?,
    };
    let has_gone = watch_near_end()?;
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
        Some(4) => Err(Failure::Threshold(why)),
        _ => Err(Failure::failed(why)),
    }
}

/// Work that a host does on request.
#[derive(Debug)]
enum Request {
    /// `prove` with these arguments.
    Prove(Vec<String>),
    /// A step of a roll-out.
    Work(Work),
    /// A host's part of a mesh.
    Join(Join),
}

impl Request {
    fn measures(&self) -> bool {
        match self {
            Request::Prove(_) | Request::Join(_) => true,
            Request::Work(work) => work.measures(),
        }
    }
}

/// Reads a request. Errors: it is none of these, so that no other command can be asked for.
fn read(line: &str) -> Result<Request, Failure> {
    let unreadable = |e| Failure::Usage(format!("cannot read the request: {e}"));
    if let Ok(join) = serde_json::from_str(line) {
        return Ok(Request::Join(join));
    }
    if line.starts_with('{') {
        let work: Work = serde_json::from_str(line).map_err(unreadable)?;
        work.check()?;
        return Ok(Request::Work(work));
    }
    let arguments: Vec<String> = serde_json::from_str(line).map_err(unreadable)?;
    prove::check(&arguments)?;
    Ok(Request::Prove(arguments))
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
    fn only_arguments_of_prove_and_steps_of_roll_outs_are_taken() {
        assert!(matches!(
            read(r#"{"work":"confirm","owner":"x"}"#),
            Ok(Request::Work(Work::Confirm { .. }))
        ));
        let measure = |argument: &str| {
            let arguments = format!(r#"["--load","ping",{argument:?}]"#);
            read(&format!(
                r#"{{"work":"measure","plan":"","has_plan":true,"arguments":{arguments}}}"#
            ))
        };
        assert!(measure("--time=9s").is_ok());
        for bad in ["--state=/x", "--root=/x", "--data-dir=/x", "--nonsense", "apply"] {
            assert_eq!(measure(bad).unwrap_err().code(), 2, "{bad}");
        }
        assert_eq!(read(r#"{"work":"shell"}"#).unwrap_err().code(), 2);
        assert!(read(r#"["probe","--load","ping","--json"]"#).is_ok());
        assert!(matches!(read(r#"{"mesh_over_ipv6":true,"session":7}"#), Ok(Request::Join(_))));
        for bad in ["", "x", "[1]", r#"["--help"]"#, r#"["nonsense"]"#, r#"["probe","--runs","5"]"#]
        {
            assert_eq!(read(bad).unwrap_err().code(), 2, "{bad}");
        }
    }
}
