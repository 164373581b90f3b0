//! The pair of NATS JetStream and PostgreSQL, on real servers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use tempfile::TempDir;
use testkit::servers::{Broker, Database};
use wirepath_fleet::book::{Archive, BookEntry, BookError, Exchange, Job, JobRow, Outbox, Report};
use wirepath_fleet::keys::{Keyring, Seeds};
use wirepath_fleet::nats::{BrokerAddress, NatsExchange, STREAM_NAMES};
use wirepath_fleet::postgres::PostgresArchive;

use super::Pair;
use super::faults::Server;

/// Servers for several cases, one after the other.
pub(crate) struct Servers {
    seeds: Seeds,
    memory: TempDir,
    pub(crate) broker: RefCell<Broker>,
    pub(crate) database: RefCell<Database>,
    cases: Cell<u32>,
}

impl Servers {
    /// `None` if one of them is not installed.
    pub(crate) fn start() -> Option<Servers> {
        let broker = Broker::start("")?;
        Some(Servers {
            seeds: Seeds::generate().unwrap(),
            memory: TempDir::new().unwrap(),
            broker: RefCell::new(broker),
            database: RefCell::new(Database::start()?),
            cases: Cell::new(0),
        })
    }

    /// An empty exchange, and an archive in a new database.
    pub(crate) fn case(&self) -> Case<'_> {
        self.cases.set(self.cases.get() + 1);
        let name = format!("case{}", self.cases.get());
        self.database.borrow().sql("postgres", &format!("CREATE DATABASE {name}"));
        let case = self.again(&name);
        case.archive().create_tables().unwrap();
        drop(case.exchange());
        case.wipe_exchange();
        case
    }

    /// Name of the latest case.
    pub(crate) fn last_case(&self) -> String {
        format!("case{}", self.cases.get())
    }

    /// The case of a name as it is.
    pub(crate) fn again(&self, name: &str) -> Case<'_> {
        Case { servers: self, name: name.to_owned() }
    }
}

pub(crate) struct Case<'a> {
    servers: &'a Servers,
    name: String,
}

impl Case<'_> {
    pub(crate) fn archive(&self) -> PostgresArchive {
        PostgresArchive::open(&self.servers.database.borrow().address(&self.name), None).unwrap()
    }

    /// One key signs for the coordinator and for all hosts.
    pub(crate) fn exchange(&self) -> NatsExchange {
        let key = self.servers.seeds.public().unwrap().sign;
        let hosts: BTreeMap<String, String> =
            ["h1", "h2", "h3"].into_iter().map(|host| (host.to_owned(), key.clone())).collect();
        let address = BrokerAddress {
            url: self.servers.broker.borrow().url(),
            login: None,
            ca: None,
            inbox: "_INBOX".into(),
        };
        NatsExchange::core(&address, Keyring::new(&self.servers.seeds.sign, key, hosts).unwrap())
            .unwrap()
    }
}

impl Pair for Case<'_> {
    type Book = Both;

    fn open(&self) -> Both {
        Both { exchange: self.exchange(), archive: self.archive() }
    }

    fn wipe_exchange(&self) {
        self.exchange().wipe(&STREAM_NAMES).unwrap();
    }

    fn restart(&self, server: Server) {
        match server {
            Server::Broker => {
                let mut broker = self.servers.broker.borrow_mut();
                broker.kill();
                broker.resume();
            }
            Server::Database => {
                let mut database = self.servers.database.borrow_mut();
                database.kill();
                database.resume();
            }
        }
    }

    fn outbox(&self, host: &str) -> Outbox {
        Outbox::open(self.servers.memory.path().join(format!("{}.db", self.name)), host).unwrap()
    }
}

/// Exchange and archive as one book.
pub(crate) struct Both {
    exchange: NatsExchange,
    archive: PostgresArchive,
}

impl Exchange for Both {
    fn send(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        self.exchange.send(jobs)
    }
    fn next(&mut self, host: &str) -> Result<Option<Job>, BookError> {
        self.exchange.next(host)
    }
    fn report(&mut self, report: &Report) -> Result<(), BookError> {
        self.exchange.report(report)
    }
    fn reports(&mut self) -> Result<Vec<(i64, Report)>, BookError> {
        self.exchange.reports()
    }
    fn acknowledge(&mut self, numbers: &[i64]) -> Result<(), BookError> {
        self.exchange.acknowledge(numbers)
    }
    fn confirm(&mut self, fences: &[u64]) -> Result<(), BookError> {
        self.exchange.confirm(fences)
    }
    fn is_confirmed(&mut self, fence: u64) -> Result<bool, BookError> {
        self.exchange.is_confirmed(fence)
    }
    fn lease(&mut self, host: &str, fence: u64, now: u64, until: u64) -> Result<bool, BookError> {
        self.exchange.lease(host, fence, now, until)
    }
    fn release(&mut self, host: &str, fence: u64) -> Result<(), BookError> {
        self.exchange.release(host, fence)
    }
    fn beat(&mut self, host: &str, now_ms: u64) -> Result<(), BookError> {
        self.exchange.beat(host, now_ms)
    }
    fn are_alive(&mut self, hosts: &[&str], now_ms: u64) -> Result<Vec<bool>, BookError> {
        self.exchange.are_alive(hosts, now_ms)
    }
}

impl Archive for Both {
    fn plan(&mut self, jobs: &[Job]) -> Result<(), BookError> {
        self.archive.plan(jobs)
    }
    fn give(&mut self, planned: &[BookEntry]) -> Result<Vec<BookEntry>, BookError> {
        self.archive.give(planned)
    }
    fn store(&mut self, reports: &[Report]) -> Result<(), BookError> {
        self.archive.store(reports)
    }
    fn again(&mut self, entry: &BookEntry) -> Result<bool, BookError> {
        self.archive.again(entry)
    }
    fn close(&mut self, entry: &BookEntry, row: &JobRow) -> Result<bool, BookError> {
        self.archive.close(entry, row)
    }
    fn entries(&mut self, experiment: Option<&str>) -> Result<Vec<BookEntry>, BookError> {
        self.archive.entries(experiment)
    }

    fn open_entries(&mut self, experiment: &str) -> Result<Vec<BookEntry>, BookError> {
        self.archive.open_entries(experiment)
    }
    fn newest(&mut self, count: u32) -> Result<Vec<String>, BookError> {
        self.archive.newest(count)
    }
    fn rows(&mut self, experiment: &str) -> Result<Vec<JobRow>, BookError> {
        self.archive.rows(experiment)
    }
}
