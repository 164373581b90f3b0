//! The far end: publishes on request.

use std::fs::File;
use std::io;
use std::thread;

use host::net;
use host::text::chain;
use lab::far::NearLines;
use lab::{describe_machine, describe_nic};
use model::PathError;
use sys::capability::{self, Capability};
use sys::thread::start;

use super::{LAGS_PER_LINE, LINE_BYTES_MAX, Publication, QUOTE_COUNT_MAX, Reply, Request};
use crate::error::EndError;
use crate::publisher::{self, Sent};

/// Serves one near end until it is gone.
///
/// - `say`: writes a line to it.
///
/// Errors: the lines are broken. Failures of trials are answers.
pub fn serve_exchange(
    input: File,
    say: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<(), PathError> {
    // Sockets need none; real-time priority does.
    capability::keep(&[Capability::SysNice]).map_err(PathError::part)?;
    let mut answer = |reply: &Reply| {
        let line = serde_json::to_string(reply).map_err(PathError::part)?;
        say(&line).map_err(PathError::part)
    };
    let machine = Box::new(describe_machine(interfaces()));
    answer(&Reply::Opened { boot_id: lab::boot_id(), machine })?;
    let mut lines = NearLines::new(input, LINE_BYTES_MAX);
    while let Some(line) = lines.next_line() {
        let Request::Publish(publication) =
            serde_json::from_slice(&line).map_err(PathError::part)?;
        let before_ns = sys::clock::process_cpu_ns();
        match publish(&publication) {
            Err(why) => answer(&Reply::Failed { why })?,
            Ok((lags_ns, sent)) => {
                for piece in lags_ns.chunks(LAGS_PER_LINE) {
                    answer(&Reply::Lags(piece.to_vec()))?;
                }
                let cpu_ns = sys::clock::process_cpu_ns().saturating_sub(before_ns);
                let Sent { begin_ns, is_undisturbed, .. } = sent;
                answer(&Reply::Sent { begin_ns, is_undisturbed, cpu_ns })?;
            }
        }
    }
    Ok(())
}

/// The interfaces of this end in words; empty if they cannot be listed.
fn interfaces() -> String {
    let links = net::links().unwrap_or_default();
    let up = links.iter().filter(|link| link.is_up && !link.is_loopback);
    let described = up.filter_map(|link| describe_nic(link.index, None).ok());
    described.collect::<Vec<_>>().join(", ")
}

/// Returns how late each quote was sent, nanoseconds, and the rest of the result.
fn publish(publication: &Publication) -> Result<(Vec<u64>, Sent), String> {
    let Publication { quotes, from, group, cpu } = publication;
    if quotes.count > QUOTE_COUNT_MAX {
        return Err(format!("{} quotes are more than {QUOTE_COUNT_MAX}", quotes.count));
    }
    let allowed = sys::affinity::allowed_cpus().map_err(|e| e.to_string())?;
    if let Some(cpu) = cpu.filter(|cpu| !allowed.contains(cpu)) {
        return Err(format!(
            "CPU {cpu} is none of those that the exchange may use: {allowed:?}; give another --far-cpu"
        ));
    }
    let cpus: Vec<usize> = cpu.iter().chain(&allowed).copied().take(1).collect();
    let mut script = quotes.script();
    // A thread of its own, as it has its CPU and priority for good.
    let published = thread::scope(|scope| {
        let exchange = start(scope, "exchange", || -> Result<Sent, EndError> {
            let pinned = sys::affinity::pin_to(&cpus);
            pinned.map_err(|source| lab::LabError::Pin { cpus: cpus.clone(), source })?;
            publisher::publish(&mut script, *from, *group)
        });
        exchange.end()
    });
    let sent = published.map_err(|error| chain(&error))?;
    let due_ns = (0..script.len()).map(|n| sent.begin_ns + script.due_ns(n));
    let lags_ns = sent.at_ns.iter().zip(due_ns).map(|(at_ns, due_ns)| at_ns.saturating_sub(due_ns));
    Ok((lags_ns.collect(), sent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Quotes;

    fn asked(count: usize, cpu: Option<usize>) -> Publication {
        let quotes = Quotes { seed: 7, kind: "paced".into(), rate_pps: 100_000, count };
        let group = "239.255.100.99:10000".parse().expect("an address");
        Publication { quotes, from: [127, 0, 0, 1].into(), group, cpu }
    }

    #[test]
    fn each_quote_has_its_send_time() {
        let (lags_ns, sent) = publish(&asked(50, None)).expect("it sends on loopback");
        assert_eq!((lags_ns.len(), sent.at_ns.len()), (50, 50));
        assert_eq!(sent.begin_ns % 1000, 0);
    }

    #[test]
    fn a_request_beyond_the_limits_is_refused_with_the_reason() {
        let why = publish(&asked(QUOTE_COUNT_MAX + 1, None)).expect_err("too many");
        assert!(why.contains("more than 1000000"), "{why}");
        let why = publish(&asked(1, Some(4096))).expect_err("no such CPU");
        assert!(why.contains("CPU 4096") && why.contains("--far-cpu"), "{why}");
    }
}
