//! Metrics of a measurement, and refusals.

use wirepath_model::{
    Better, Cost, Delivery, Hardware, Measurement, Metric, Shape, Throughput, describe,
    is_event_count, latency_histogram, segment_stem, stated_unit,
};

fn books(sent: u64, received: u64) -> Delivery {
    Delivery { sent_count: sent, received_count: received, ..Delivery::default() }
}

/// `count` round trips of 1000, 1001, … nanoseconds in the segment.
fn measurement(segment: &str, count: u64) -> Measurement {
    let mut histogram = latency_histogram();
    (0..count).for_each(|step| histogram.record(1000 + step).unwrap());
    Measurement {
        wall_ns: 1_000_000_000,
        segments: [(segment.to_owned(), histogram)].into(),
        deliveries: [("forward".to_owned(), books(count, count))].into(),
        ..Measurement::default()
    }
}

fn metric(measurement: &Measurement, name: &str) -> Option<Metric> {
    measurement.metrics().into_iter().find(|metric| metric.name == name)
}

fn value(measurement: &Measurement, name: &str) -> f64 {
    metric(measurement, name).expect(name).value.expect(name)
}

fn refusal(measurement: &Measurement, name: &str) -> String {
    metric(measurement, name).expect(name).value.expect_err(name)
}

#[test]
fn quantiles_are_named_after_their_segment() {
    let measurement = measurement("kernel→app", 10_000);
    let p50 = value(&measurement, "kernel_to_app_ns_p50");
    assert!((p50 / 6000.0 - 1.0).abs() < 0.002, "{p50}");
    assert!(value(&measurement, "kernel_to_app_ns_p999") > 10_900.0);
    assert!(value(&measurement, "kernel_to_app_ns_max") >= 10_999.0);
    assert!((value(&measurement, "kernel_to_app_ns_min") / 1_000.0 - 1.0).abs() < 0.002);
    assert!((value(&measurement, "kernel_to_app_ns_mean") / 6_000.0 - 1.0).abs() < 0.002);
    assert_eq!(segment_stem("schedule→send"), "schedule_to_send");
    let metric = metric(&measurement, "kernel_to_app_ns_p90").unwrap();
    assert_eq!((metric.unit.as_ref(), metric.better), ("ns", Better::Lower));
}

#[test]
fn quantile_needs_ten_samples_beyond_it() {
    let enough = measurement("rtt", 10_000);
    assert!(metric(&enough, "rtt_ns_p999").unwrap().value.is_ok());
    let few = measurement("rtt", 9_999);
    assert_eq!(
        refusal(&few, "rtt_ns_p999"),
        "p999 refused: 9999 samples leave 9 beyond it, 10 are needed"
    );
    assert!(metric(&few, "rtt_ns_p99").unwrap().value.is_ok());
    assert!(metric(&few, "rtt_ns_max").unwrap().value.is_ok());
    for name in ["rtt_ns_max", "rtt_ns_min", "rtt_ns_mean"] {
        assert_eq!(refusal(&measurement("rtt", 0), name), "no sample");
    }
}

#[test]
fn loss_refuses_the_quantiles_among_the_lost_and_leaves_the_rest() {
    let mut measurement = measurement("rtt", 3_988);
    measurement.deliveries.insert("forward".into(), books(4_000, 3_988));
    measurement.throughput = Some(Throughput {
        interval_ns: 500_000_000,
        received_count: 3_988,
        payload_bytes: 3_988 * 64,
    });
    // 12 of 4,000 are lost, and p99.9 leaves 4 beyond it: too few samples either way.
    assert!(refusal(&measurement, "rtt_ns_p999").contains("4000 samples leave 4 beyond it"));
    let why = refusal(&measurement, "rtt_ns_max");
    assert!(why.starts_with("max refused: 12 of 4000 datagrams were lost"), "{why}");
    let why = refusal(&measurement, "rtt_ns_mean");
    assert!(why.starts_with("mean refused: 12 of 4000 datagrams were lost"), "{why}");
    assert!(metric(&measurement, "rtt_ns_min").unwrap().value.is_ok(), "the fastest arrived");
    // p50 of all is the 2,000th arrival: 1,999 ns above the first.
    assert!((value(&measurement, "rtt_ns_p50") / 2_999.0 - 1.0).abs() < 0.001);
    // p99 of all is the 3,960th of the 3,988 that arrived.
    assert!((value(&measurement, "rtt_ns_p99") / 4_959.0 - 1.0).abs() < 0.001);
    assert_eq!(value(&measurement, "received_pps"), 7_976.0);
    assert_eq!(value(&measurement, "goodput_bps"), 7_976.0 * 512.0);
    assert_eq!(value(&measurement, "sent_pps"), 4_000.0);
    assert_eq!(value(&measurement, "lost_count"), 12.0);
}

#[test]
fn delivery_is_summed_and_split_by_direction() {
    let mut measurement = measurement("rtt", 100);
    assert!(metric(&measurement, "lost_count_forward").is_none(), "one direction needs no split");
    let back = Delivery {
        sent_count: 100,
        received_count: 99,
        duplicated_count: Some(4),
        reordered_count: 2,
    };
    measurement.deliveries.insert("return".into(), back);
    assert_eq!(value(&measurement, "lost_count"), 5.0);
    assert_eq!(value(&measurement, "lost_count_forward"), 0.0);
    assert_eq!(value(&measurement, "lost_count_return"), 5.0);
    assert_eq!(value(&measurement, "duplicated_count_return"), 4.0);
    assert_eq!(value(&measurement, "reordered_count"), 2.0);
}

#[test]
fn cost_is_all_ends_over_first_arrivals() {
    let mut measurement = measurement("rtt", 100);
    let back = Delivery {
        sent_count: 100,
        received_count: 104,
        duplicated_count: Some(4),
        reordered_count: 0,
    };
    measurement.deliveries.insert("return".into(), back);
    let near = Cost {
        user_ns: 1_000,
        system_ns: 2_000,
        softirq_ns: Some(1_000),
        context_switch_count: 50,
        syscall_count: Some(400),
        hardware: Some(Hardware {
            instruction_count: 80_000,
            cycle_count: 160_000,
            llc_miss_count: Some(40),
            tlb_miss_count: None,
        }),
    };
    measurement.costs.insert("near".into(), near);
    assert_eq!(value(&measurement, "cpu_ns_per_packet"), 20.0);
    assert_eq!(value(&measurement, "context_switches_per_packet"), 0.25);
    assert_eq!(value(&measurement, "syscalls_per_packet"), 2.0);
    measurement.costs.insert("far".into(), Cost { syscall_count: None, ..near });
    assert_eq!(value(&measurement, "cpu_ns_per_packet"), 40.0);
    assert!(refusal(&measurement, "syscalls_per_packet").contains("at the far end"));
    assert_eq!(value(&measurement, "instructions_per_packet"), 800.0);
    assert_eq!(value(&measurement, "cycles_per_packet"), 1600.0);
    assert_eq!(value(&measurement, "llc_misses_per_packet"), 0.4);
    assert!(metric(&measurement, "tlb_misses_per_packet").is_none(), "no end counted them");
    let softirq_ns = Some(5);
    measurement.costs.insert("kernel".into(), Cost { softirq_ns, ..Cost::default() });
    assert_eq!(value(&measurement, "instructions_per_packet"), 800.0);
    measurement.costs.insert("peer".into(), Cost::default());
    assert!(refusal(&measurement, "instructions_per_packet").contains("at the peer end"));
}

#[test]
fn nothing_received_is_refused_instead_of_infinite() {
    let mut measurement = Measurement::default();
    measurement.deliveries.insert("forward".into(), books(10, 0));
    measurement.throughput = Some(Throughput::default());
    measurement.costs.insert("near".into(), Cost { user_ns: 5, ..Cost::default() });
    assert!(metric(&measurement, "received_pps").unwrap().value.is_err());
    assert!(metric(&measurement, "cpu_ns_per_packet").unwrap().value.is_err());
    assert_eq!(value(&measurement, "lost_count"), 10.0);
    assert!(Measurement::default().metrics().is_empty());
}

#[test]
fn percentiles_of_a_peer_follow_the_same_rules() {
    let mut peer = Measurement {
        deliveries: [("forward".to_owned(), books(2_000, 2_000))].into(),
        ..Measurement::default()
    };
    let reported = vec![(0.5, 60_000.0), (0.99, 87_000.0), (0.999, 90_000.0), (1.0, 99_000.0)];
    peer.reported.insert("rtt".into(), reported);
    assert_eq!(value(&peer, "rtt_ns_p50"), 60_000.0);
    assert_eq!(value(&peer, "rtt_ns_p99"), 87_000.0);
    assert!(refusal(&peer, "rtt_ns_p999").contains("2000 samples leave 2"));
    assert_eq!(value(&peer, "rtt_ns_max"), 99_000.0);
    peer.deliveries.insert("forward".into(), books(2_000, 1_999));
    assert!(refusal(&peer, "rtt_ns_p50").starts_with("p50 refused: 1 of 2000"));
}

#[test]
fn path_specific_figures_do_not_hide_metrics() {
    let mut own = measurement("rtt", 2_000);
    own.figures.insert("main_wait_ns_per_packet".into(), 812.5);
    own.figures.insert("rtt_ns_p50".into(), 1.0);
    assert_eq!(value(&own, "main_wait_ns_per_packet"), 812.5);
    assert_ne!(value(&own, "rtt_ns_p50"), 1.0);
    assert_eq!(own.metrics().iter().filter(|metric| metric.name == "rtt_ns_p50").count(), 1);
}

#[test]
fn a_figure_that_the_user_named_has_the_unit_and_direction_that_came_with_it() {
    let mut own = measurement("rtt", 2_000);
    own.figures.extend([("rps".to_owned(), 812.5), ("p99_us".to_owned(), 61.0)]);
    own.shapes.insert("rps".into(), Shape { unit: "req/s".into(), better: Better::Higher });
    let metrics = own.metrics();
    let metric = |name| metrics.iter().find(|metric| metric.name == name).unwrap();
    assert_eq!((metric("rps").unit.as_ref(), metric("rps").better), ("req/s", Better::Higher));
    assert_eq!((metric("p99_us").unit.as_ref(), metric("p99_us").better), ("us", Better::Lower));
}

#[test]
fn costs_are_shared_by_the_packets_of_an_interface_if_no_datagram_was_counted() {
    let cost = Cost { user_ns: 600, system_ns: 400, ..Cost::default() };
    let mut own = Measurement { packet_count: Some(10), ..Measurement::default() };
    own.costs.insert("server".into(), cost);
    assert_eq!(value(&own, "cpu_ns_per_packet"), 100.0);
    own.packet_count = None;
    assert!(refusal(&own, "cpu_ns_per_packet").contains("not known"));
}

#[test]
fn unit_and_direction_follow_from_the_name() {
    assert_eq!(describe("goodput_bps"), ("bps", Better::Higher));
    assert_eq!(describe("frames_per_doorbell"), ("count", Better::Higher));
    assert_eq!(describe("received_pps"), ("pps", Better::Higher));
    assert_eq!(describe("cpu_ns_per_packet"), ("ns", Better::Lower));
    assert_eq!(describe("jitter_ns"), ("ns", Better::Lower));
    assert_eq!(describe("syscalls_per_packet"), ("count", Better::Lower));
    assert_eq!(describe("guest_share_idle"), ("share", Better::Higher));
    assert_eq!(describe("p99_us"), ("us", Better::Lower));
    assert_eq!(describe("latency_ms_p99"), ("ms", Better::Lower));
    assert_eq!(describe("rps"), ("rps", Better::Higher));
    assert_eq!(stated_unit("memory_bytes_max"), Some(("bytes", None)));
    assert_eq!(stated_unit("requests_per_s"), None);
    assert_eq!(stated_unit("score"), None);
    assert!(is_event_count("lost_count") && is_event_count("lost_count_forward"));
    assert!(!is_event_count("syscalls_per_packet"));
}

#[test]
fn counts_of_the_largest_size_add_up_to_the_largest() {
    let most = Delivery {
        sent_count: u64::MAX,
        received_count: u64::MAX,
        duplicated_count: Some(u64::MAX),
        reordered_count: u64::MAX,
    };
    let cost = Cost {
        user_ns: u64::MAX,
        system_ns: u64::MAX,
        softirq_ns: Some(u64::MAX),
        context_switch_count: u64::MAX,
        syscall_count: Some(u64::MAX),
        hardware: None,
    };
    let m = Measurement {
        deliveries: ["forward", "return"].map(|way| (way.to_owned(), most)).into(),
        costs: ["near", "far"].map(|end| (end.to_owned(), cost)).into(),
        wall_ns: 1,
        ..Measurement::default()
    };
    let mut sum = most;
    sum += most;
    assert_eq!(sum, most);
    assert_eq!((m.lost_count(), m.cpu_ns()), (u64::MAX, u64::MAX));
    assert_eq!(value(&m, "duplicated_count"), u64::MAX as f64);
    let packets = refusal(&m, "context_switches_per_packet");
    assert_eq!(packets, "no cost per packet: no datagram arrived", "each was a duplicate");
}

#[test]
fn metric_that_nothing_counted_is_refused_with_the_reason() {
    let mut m = Measurement::default();
    m.enter_round_trips(books(10, 7));
    assert_eq!(m.packet_count, Some(14), "an answered echo is two packets that arrived");
    assert_eq!(value(&m, "lost_count"), 3.0);
    for name in ["lost_count_forward", "lost_count_return"] {
        assert!(refusal(&m, name).contains("only round trips are known"));
    }
}
