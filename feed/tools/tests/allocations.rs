//! No allocations after set-up, as counted by the allocator.
use market::twse::Telegrams;
use wirepath_marketdata::arbiter::{
    Arbiter, ArbiterDelivery, ArbiterLimits, FeedLine, SequenceDomain,
};
use wirepath_marketdata::capture::{CapturedInterface, LinkType, Writer};
use wirepath_marketdata::schedule::SendSchedule;
use wirepath_marketdata::symbols::{Symbols, Update};
use wirepath_marketdata::synthetic::{SyntheticSession, SyntheticSpec};

/// Generates, drops, repeats, arbitrates and decodes `datagrams` datagrams and updates the order books.
struct Whole {
    session: SyntheticSession,
    arbiter: Arbiter,
    symbols: Symbols,
    datagram: Vec<u8>,
    applied: u64,
    now_ns: u64,
}

impl Whole {
    fn run(&mut self, datagrams: u64) {
        for n in 0..datagrams {
            let written = self.session.datagram(&mut self.datagram, 4).expect("room for four");
            self.now_ns += 1000;
            let (symbols, applied) = (&mut self.symbols, &mut self.applied);
            let mut deliver = |delivery: ArbiterDelivery<'_>| {
                let ArbiterDelivery::Message { message, .. } = delivery else { return };
                for telegram in Telegrams::new(message) {
                    let telegram = telegram.expect("a synthetic telegram is right");
                    if let Update::Applied(_) = symbols.update(&telegram) {
                        *applied += 1;
                    }
                }
            };
            for (line, lost) in [(FeedLine::A, n % 7 == 0), (FeedLine::B, n % 5 == 0)] {
                if lost {
                    continue;
                }
                for telegram in Telegrams::new(&self.datagram[..written.bytes]) {
                    let telegram = telegram.expect("a synthetic telegram is right");
                    let domain =
                        SequenceDomain::twse(telegram.business().to_wire(), telegram.format());
                    self.arbiter.offer(
                        line,
                        domain,
                        telegram.sequence().into(),
                        self.now_ns,
                        telegram.bytes(),
                        &mut deliver,
                    );
                }
            }
        }
    }
}

#[test]
fn nothing_is_allocated_in_steady_state() {
    let mut whole = Whole {
        session: SyntheticSession::new(&SyntheticSpec {
            symbols: 500,
            schedule: SendSchedule::paced(1_000_000),
            ..SyntheticSpec::new(1)
        }),
        arbiter: Arbiter::new(ArbiterLimits { from_one: true, ..ArbiterLimits::default() }),
        symbols: Symbols::new(2000),
        datagram: vec![0; 1472],
        applied: 0,
        now_ns: 0,
    };
    // Every domain is known.
    whole.run(2000);
    let mut writer = Writer::new(
        std::io::sink(),
        &CapturedInterface { name: "lab0", link: LinkType::RawIp },
        "a test",
    )
    .expect("a sink takes all");
    let (source, destination) = ("192.0.2.1:1".parse(), "224.0.100.100:10000".parse());
    let (source, destination) = (source.expect("fine"), destination.expect("fine"));

    let made = allocation_counter::measure(|| {
        whole.run(50_000);
        for n in 0..1000 {
            writer.datagram(n, source, destination, &whole.datagram).expect("a sink takes all");
        }
    });

    assert_eq!(made.count_total, 0, "allocations in 50,000 datagrams");
    let totals = whole.arbiter.totals();
    assert!(totals.held > 1000 && totals.missing > 1000, "{totals:?}: the hold was at work");
    assert!(whole.applied > 150_000, "{} telegrams", whole.applied);
    assert!(whole.arbiter.balances());
    let known = allocation_counter::measure(|| drop(vec![0u8; 100]));
    assert_eq!(known.count_total, 1, "the allocator counts");
}
