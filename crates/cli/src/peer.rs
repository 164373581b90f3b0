//! `wirepath peer`: the far end of `probe` and `prove`.

use std::io::{BufRead, BufReader, Read, stdin};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use clap::Args;
use probe::peer::{DEFAULT_PORT, Limits, PeerOptions, serve};
use sys::thread::start_free;

use crate::exit::Failure;
use crate::shared_args::SecretArgs;
use crate::{console, privileges, signals};

#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// Address to listen on
    #[arg(long, default_value_t = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    /// Read the secret from the first line of standard input, and end when that ends; the address is printed on
    /// standard output. `prove --far ssh:HOST` starts a peer in this way
    #[arg(long, conflicts_with = "secret_file")]
    pub(crate) secret_stdin: bool,
}

/// Longest secret on standard input, bytes.
const SECRET_BYTES_MAX: u64 = 4096;
/// Time to end after standard input has; then the process is ended.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &PeerArgs) -> Result<(), Failure> {
    let secret = match args.secret_stdin {
        true => Some(secret_of_owner()?),
        false => args.secret.read()?,
    };
    if secret.is_none() && !args.listen.ip().is_loopback() {
        console::say(
            "warning: any host that reaches this address can make this one send and receive probe \
             traffic; require a secret with --secret-file",
        );
    }
    let options = PeerOptions {
        listen: args.listen,
        secret,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        limits: Limits::default(),
    };
    let tell = |line: &str| match (args.secret_stdin, line.starts_with("listening on ")) {
        (false, _) => console::say(line),
        // A closed output has no reader; then standard input ends, too.
        (true, true) => drop(console::text(line)),
        (true, false) => {}
    };
    serve(&options, signals::stop_flag(), &tell).map_err(|e| Failure::from_chain(&e))
}

/// Reads the secret from standard input, and then requests a stop when that ends.
fn secret_of_owner() -> Result<String, Failure> {
    let mut line = String::new();
    let mut input = BufReader::new(stdin());
    let unreadable = |e| Failure::Usage(format!("cannot read the secret from standard input: {e}"));
    input.by_ref().take(SECRET_BYTES_MAX).read_line(&mut line).map_err(unreadable)?;
    let secret = line.trim_end_matches(['\n', '\r']).to_owned();
    if secret.len() < 8 {
        return Err(Failure::Usage("the secret on standard input is shorter than 8 bytes".into()));
    }
    let watched = start_free("owner", move || {
        // It needs no right to read, and still watches if one cannot be dropped.
        let _ = privileges::drop_all();
        #[cfg(target_arch = "x86_64")]
        let _ = sys::seccomp::Confinement::of_peer().and_then(|filter| filter.enter());
        let mut rest = [0; 256];
        while matches!(input.read(&mut rest), Ok(1..)) {}
        signals::request_stop();
        thread::sleep(GRACE);
        std::process::exit(1);
    });
    watched.map_err(|e| Failure::failed(e.to_string()))?;
    Ok(secret)
}
