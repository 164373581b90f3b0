//! `wirepath far-programs`: the far end of `prove command --far ssh:HOST`, which starts it.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

use clap::Args;
use command::{FarMeans, serve_near};
use remote::Failure;

use crate::signals;
use crate::tune::{Guard, StateArgs};

#[derive(Debug, Args)]
pub(crate) struct FarProgramsArgs {
    #[command(flatten)]
    state: StateArgs,
}

/// Answers the requests on standard input, until it ends.
pub(crate) fn run(args: &FarProgramsArgs) -> Result<(), Failure> {
    signals::stop_on_hangup()?;
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut guard = None;
    let mut start_guard = || {
        guard = Some(Guard::start(&args.state).map_err(|failure| failure.text().to_owned())?);
        Ok(())
    };
    let mut say = |line: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush())
    };
    let means = FarMeans {
        journal: args.state.store(),
        start_guard: &mut start_guard,
        stop: signals::stop_flag(),
    };
    let served = serve_near(input, &mut say, means);
    drop(guard);
    Ok(served?)
}
