//! `wirepath peer`: the far end of `probe` and `prove`.

use std::io::{BufRead, BufReader, Read, stdin};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use clap::Args;
use house::{console, privileges, signals};
use probe::peer::{DEFAULT_PORT, DEFAULT_PORTS, PeerOptions, SessionLimits, serve};
use remote::Failure;
use sys::thread::start_free;

use crate::shared_args::{SECRET_BYTES_MAX, SecretArgs, check_secret};

#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// Address to listen on
    #[arg(long, default_value_t = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))]
    pub(crate) listen: SocketAddr,
    /// UDP ports of runs, at least 1024: near ends choose from them
    #[arg(
        long,
        value_name = "A-B",
        value_parser = parse_ports,
        default_value = format!("{}-{}", DEFAULT_PORTS.start(), DEFAULT_PORTS.end())
    )]
    pub(crate) ports: RangeInclusive<u16>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    /// Read the secret from the first line of standard input, and end when that ends; the address is printed on
    /// standard output. `prove --far ssh:HOST` starts a peer in this way
    #[arg(long, conflicts_with = "secret_file")]
    pub(crate) secret_stdin: bool,
}

/// Time to end after standard input has; then the process is ended.
const STOP_GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &PeerArgs) -> Result<(), Failure> {
    let secret = if args.secret_stdin { Some(secret_of_owner()?) } else { args.secret.read()? };
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
        ports: args.ports.clone(),
        limits: SessionLimits::default(),
    };
    let tell = |line: &str| match (args.secret_stdin, line.starts_with("listening on ")) {
        (false, _) => console::say(line),
        // A closed output has no reader; then standard input ends, too.
        (true, true) => drop(console::text(line)),
        (true, false) => {}
    };
    serve(&options, signals::stop_flag(), &tell).map_err(|e| Failure::from_chain(&e))
}

/// A range of ports such as `9000-9999`, or one port.
fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if (1024..=last).contains(&first) => Ok(first..=last),
        _ => Err("give two ports from 1024 to 65535, the lower one first, as in 9000-9999".into()),
    }
}

/// Reads the secret from standard input, and then requests a stop when that ends.
fn secret_of_owner() -> Result<String, Failure> {
    let mut line = String::new();
    let mut input = BufReader::new(stdin());
    let unreadable = |e| Failure::Usage(format!("cannot read the secret from standard input: {e}"));
    input.by_ref().take(SECRET_BYTES_MAX).read_line(&mut line).map_err(unreadable)?;
    let secret = line.trim_end_matches(['\n', '\r']).to_owned();
    check_secret(&secret, "on standard input").map_err(Failure::Usage)?;
    let watched = start_free("owner", move || {
        // It needs no right to read, and still watches if one cannot be dropped.
        let _ = privileges::drop_all();
        let _ = sys::landlock::read_only(&[]);
        #[cfg(target_arch = "x86_64")]
        let _ = sys::seccomp::Confinement::of_peer().and_then(|filter| filter.enter());
        let mut rest = [0; 256];
        while matches!(input.read(&mut rest), Ok(1..)) {}
        signals::request_stop();
        thread::sleep(STOP_GRACE);
        std::process::exit(1);
    });
    watched.map_err(|e| Failure::failed(e.to_string()))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_read_and_privileged_or_reversed_ones_are_refused() {
        assert_eq!(parse_ports("9000-9999"), Ok(9000..=9999));
        assert_eq!(parse_ports("1024-65535"), Ok(1024..=65535));
        assert_eq!(parse_ports("9000"), Ok(9000..=9000));
        for bad in ["", "-", "53", "1023-2000", "9999-9000", "9000-65536", "9000-", "a-b"] {
            assert!(parse_ports(bad).is_err(), "{bad}");
        }
    }
}
