//! Rights at a real broker with the configuration of `fleet init`: a host reaches its own subjects alone, and jobs
//! that the coordinator did not sign for it are refused.

use std::collections::BTreeMap;
use std::time::Duration;

use remote::work::Call;
use testkit::servers::Broker;
use wirepath_fleet::book::{Agent, Exchange, Job, JobState, Measured, Outbox, Report, VERSION};
use wirepath_fleet::enrol::{Enrolment, Fleet, configuration};
use wirepath_fleet::keys::{Keyring, Seeds};
use wirepath_fleet::message::seal;
use wirepath_fleet::nats::{BrokerAddress, NatsExchange};

struct World {
    broker: Broker,
    fleet: Fleet,
    coordinator: Seeds,
    hosts: BTreeMap<String, Seeds>,
}

impl World {
    fn start() -> Option<World> {
        let coordinator = Seeds::generate().unwrap();
        let hosts: BTreeMap<String, Seeds> =
            ["h5", "h7"].map(|host| (host.to_owned(), Seeds::generate().unwrap())).into();
        let public = hosts.iter().map(|(host, of)| (host.clone(), of.public().unwrap()));
        let mut fleet = Fleet::new(coordinator.public().unwrap(), public.collect());
        let broker = Broker::start(&configuration(&fleet, None))?;
        fleet.broker = broker.url();
        Some(World { broker, fleet, coordinator, hosts })
    }

    fn core(&self) -> NatsExchange {
        let address = self.fleet.address(&self.coordinator, None);
        NatsExchange::core(&address, self.fleet.keyring(&self.coordinator).unwrap()).unwrap()
    }

    fn enrolment(&self, host: &str) -> Enrolment {
        Enrolment {
            v: 1,
            host: host.into(),
            broker: self.broker.url(),
            ca: None,
            coordinator: self.fleet.coordinator.sign.clone(),
            seeds: None,
        }
    }

    fn agent(&self, host: &str) -> NatsExchange {
        let (enrolment, seeds) = (self.enrolment(host), &self.hosts[host]);
        let keys = enrolment.keyring(seeds).unwrap();
        NatsExchange::agent(&enrolment.address(seeds, None), keys, host).unwrap()
    }
}

fn job(host: &str, fence: u64) -> Job {
    Job {
        v: VERSION,
        job: format!("e-{host}"),
        experiment: "e".into(),
        host: host.into(),
        attempt: 1,
        fence,
        call: Call::StopPing,
        not_after_ms: 1_000,
    }
}

fn report(host: &str) -> Report {
    Report {
        v: VERSION,
        job: "e-h7".into(),
        host: host.into(),
        attempt: 1,
        fence: 1,
        state: JobState::Done,
        body: "forged".into(),
    }
}

/// A log-in at the broker without the rules of the product's own client.
mod raw {
    use std::sync::{Arc, Mutex};

    use async_nats::{Client, ConnectOptions, Event};

    use super::*;

    pub(super) struct Intruder {
        pub(super) runtime: tokio::runtime::Runtime,
        pub(super) client: Client,
        errors: Arc<Mutex<Vec<String>>>,
    }

    impl Intruder {
        /// Logs in as a host.
        pub(super) fn as_host(world: &World, host: &str) -> Intruder {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let errors: Arc<Mutex<Vec<String>>> = Arc::default();
            let kept = errors.clone();
            let options = ConnectOptions::new()
                .nkey(world.hosts[host].login.clone())
                .custom_inbox_prefix(format!("_INBOX_{host}"))
                .event_callback(move |event| {
                    let kept = kept.clone();
                    async move {
                        if let Event::ServerError(error) = event {
                            kept.lock().unwrap().push(error.to_string());
                        }
                    }
                });
            let client = runtime.block_on(options.connect(world.broker.url())).unwrap();
            Intruder { runtime, client, errors }
        }

        /// Runs a step, then waits until the broker refused something.
        pub(super) fn is_refused(&self, step: impl AsyncFnOnce(&Client)) -> bool {
            self.errors.lock().unwrap().clear();
            self.runtime.block_on(async {
                step(&self.client).await;
                self.client.flush().await.unwrap();
                // The broker answers in order: its refusal comes before the answer to this.
                for _ in 0..1000 {
                    if !self.errors.lock().unwrap().is_empty() {
                        return true;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                false
            })
        }
    }
}

#[test]
fn host_reaches_its_own_subjects_alone() {
    let Some(world) = World::start() else { return };
    drop(world.core());
    let intruder = raw::Intruder::as_host(&world, "h5");
    for subject in [
        "wp.job.h5",
        "wp.job.h7",
        "wp.result.h5",
        "wp.result.h7",
        "wp.up.h7.result",
        "wp.up.h7.hb",
        "wp.up.h7.lease",
        "wp.up.h7.last.job",
        "wp.hb.h7",
        "wp.lease.h7",
        "wp.stored.h5.1",
        "wp.stored.h7.1",
        "$JS.API.DIRECT.GET.JOBS.wp.job.h7",
        "$JS.API.DIRECT.GET.JOBS",
        "$JS.API.DIRECT.GET.LEASE.wp.lease.h7",
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.DELETE.JOBS",
        "$JS.API.STREAM.PURGE.RESULTS",
        "$JS.API.CONSUMER.CREATE.RESULTS.spy",
        "$JS.API.CONSUMER.MSG.NEXT.RESULTS.collector",
        "_INBOX_h7.x",
    ] {
        let refused = intruder.is_refused(async |client| {
            client.publish(subject, "x".into()).await.unwrap();
        });
        assert!(refused, "may publish {subject}");
    }
    for subject in ["wp.job.h7", "wp.job.*", "wp.>", "wp.result.h5", "_INBOX_h7.>", "_INBOX.>", ">"]
    {
        let refused = intruder.is_refused(async |client| {
            client.subscribe(subject).await.unwrap();
        });
        assert!(refused, "may subscribe to {subject}");
    }
    // The same client may do its own work, so that the refusals above are not those of a broken broker.
    let mut own = world.agent("h5");
    own.beat("h5", 1).unwrap();
    assert!(own.lease("h5", 1, 1, 100).unwrap());
    assert!(own.next("h5").unwrap().is_none());
    let mut stranger = world.fleet.address(&Seeds::generate().unwrap(), None);
    let keys = || world.fleet.keyring(&world.coordinator).unwrap();
    assert!(NatsExchange::core(&stranger, keys()).is_err(), "a key of no user");
    stranger.login = None;
    assert!(NatsExchange::core(&stranger, keys()).is_err(), "no key");
}

#[test]
fn forged_injected_replayed_and_expired_jobs_are_not_measured() {
    let Some(world) = World::start() else { return };
    let mut core = world.core();
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::open(folder.path().join("agent.db"), "h7").unwrap();
    let mut agent = Agent::start("h7", outbox).unwrap();
    let mut exchange = world.agent("h7");
    core.send(&[job("h7", 5)]).unwrap();

    // A reply subject makes the broker write for the host that asks: the stored job must stay.
    let intruder = raw::Intruder::as_host(&world, "h5");
    intruder.runtime.block_on(async {
        let client = &intruder.client;
        client.publish_with_reply("wp.up.h5.hb", "wp.job.h7", "1".into()).await.unwrap();
        let get = "wp.up.h5.last.job";
        client.publish_with_reply(get, "wp.job.h7", "".into()).await.unwrap();
        client.flush().await.unwrap();
    });
    // Sent behind them on the same connection, and answered: the broker has handled both.
    intruder.runtime.block_on(async {
        intruder.client.request("wp.up.h5.hb", "2".into()).await.unwrap();
    });
    assert_eq!(exchange.next("h7").unwrap(), Some(job("h7", 5)), "the stored job stays");

    let mut measured = Vec::new();
    let mut turn = |exchange: &mut NatsExchange, now_ms: u64| {
        agent
            .turn(
                exchange,
                now_ms,
                |job: &Job| {
                    measured.push(job.fence);
                    Measured::Done("x".into())
                },
                |_| true,
            )
            .unwrap();
        measured.clone()
    };
    assert_eq!(turn(&mut exchange, 10), [5]);
    // The broker, or an intruder there, stores it again, and one of another host, and one signed by another key.
    core.send(&[job("h7", 5)]).unwrap();
    assert_eq!(turn(&mut exchange, 20), [5], "replayed");
    core.send(&[Job { not_after_ms: 25, ..job("h7", 6) }]).unwrap();
    assert_eq!(turn(&mut exchange, 30), [5], "expired");
    let forger = Seeds::generate().unwrap();
    let address = world.fleet.address(&world.coordinator, None);
    let forged =
        Keyring::new(&forger.sign, forger.public().unwrap().sign, BTreeMap::new()).unwrap();
    let mut broken = NatsExchange::core(&address, forged).unwrap();
    broken.send(&[job("h7", 7)]).unwrap();
    assert_eq!(turn(&mut exchange, 40), [5], "forged");
    let why = exchange.take_refusals().pop().expect("a refusal").why;
    assert!(why.contains("signature"), "{why}");
    core.send(&[job("h7", 8)]).unwrap();
    assert_eq!(turn(&mut exchange, 50), [5, 8], "a job of the coordinator still is");
}

#[test]
fn forged_report_is_refused_and_the_others_are_read() {
    let Some(world) = World::start() else { return };
    let mut core = world.core();
    let address: BrokerAddress = world.fleet.address(&world.coordinator, None);
    drop(address);
    let intruder = raw::Intruder::as_host(&world, "h5");
    let keys = Keyring::new(&world.hosts["h5"].sign, "", BTreeMap::new()).unwrap();
    let forged = seal(&keys, &report("h7")).unwrap();
    for payload in [forged, b"noise".to_vec()] {
        intruder.runtime.block_on(async {
            intruder.client.request("wp.up.h5.result", payload.into()).await.unwrap();
        });
    }
    world.agent("h7").report(&report("h7")).unwrap();
    let mut read = Vec::new();
    let all = testkit::until(testkit::LONG, || {
        read.extend(core.reports().unwrap());
        !read.is_empty()
    });
    assert!(all);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].1, report("h7"));
    let refused = core.take_refusals();
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused.iter().all(|of| of.host == "h5"), "{refused:?}");
    core.drop_refused().unwrap();
    core.acknowledge(&[read[0].0]).unwrap();
    drop(core);
    assert!(world.core().reports().unwrap().is_empty(), "none comes again");
}
