//! The far end: publishes on request.

use std::sync::atomic::AtomicBool;
use std::thread;

use host::net;
use host::text::chain;
use lab::{describe_machine, describe_nic};
use model::PathError;
use remote::{Calls, RemoteError};
use sys::capability::{self, Capability};
use sys::thread::start;

use super::{FarFeed, LAGS_PER_LINE, Publication, QUOTE_COUNT_MAX, Reply, Request};
use crate::error::EndError;
use crate::publisher::{self, Sent};

/// Serves the near end at standard input and output until it is gone.
///
/// Errors: the exchange is broken. Failures of trials are answers.
pub fn serve_exchange(stop: &'static AtomicBool) -> Result<(), PathError> {
    // Sockets need none; real-time priority does.
    capability::keep(&[Capability::SysNice]).map_err(PathError::part)?;
    let mut calls = Calls::<FarFeed>::start(stop).map_err(PathError::part)?;
    while let Some(request) = calls.next_call() {
        answer(&calls, &request).map_err(PathError::part)?;
    }
    calls.finish().map_err(PathError::part)
}

fn answer(calls: &Calls<FarFeed>, request: &Request) -> Result<(), RemoteError> {
    let Request::Publish(publication) = request else {
        let machine = Box::new(describe_machine(interfaces()));
        return calls.answer(&Reply::Described { boot_id: lab::boot_id(), machine });
    };
    let before_ns = sys::clock::process_cpu_ns();
    let (lags_ns, sent) = match publish(publication) {
        Ok(published) => published,
        Err(why) => return calls.answer(&Reply::Failed { why }),
    };
    for piece in lags_ns.chunks(LAGS_PER_LINE) {
        calls.answer(&Reply::Lags(piece.to_vec()))?;
    }
    let cpu_ns = sys::clock::process_cpu_ns().saturating_sub(before_ns);
    let Sent { begin_ns, is_undisturbed, .. } = sent;
    calls.answer(&Reply::Sent { begin_ns, is_undisturbed, cpu_ns })
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
        let quotes = Quotes { seed: 7, kind: crate::FeedLoad::Paced, rate_pps: 100_000, count };
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
