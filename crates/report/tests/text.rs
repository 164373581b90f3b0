//! Text for a terminal.

mod common;

use std::collections::BTreeMap;

use model::{Ended, Floor, Outcome, Support, Ticks, Verdict};
use wirepath_report::store::Summary;
use wirepath_report::text::{Detail, Style, ladder, list};

/// The text without colours.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\x1b') {
        out.push_str(before);
        rest = after.split_once('m').expect("only colours are written").1;
    }
    out + rest
}

const WIDE: Style = Style { width: 400, color: false, ascii: false };

/// Columns of a line; the fixtures' wide characters take two.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if ('\u{3000}'..'\u{a000}').contains(&c) { 2 } else { 1 }).sum()
}

fn outcomes() -> Vec<Outcome> {
    let mut empty = common::ping();
    empty.arms.clear();
    empty.floor.clear();
    vec![common::ping(), common::flood(), common::hostile(), sampled(), empty]
}

/// A run of one variant that is slower, with samples.
fn sampled() -> Outcome {
    let mut outcome = common::ping();
    outcome.arms.retain(|arm| ["baseline", "baseline again", "+rps"].contains(&&*arm.name));
    for (arm, count) in outcome.arms.iter_mut().zip([300, 300, 70_000]) {
        arm.samples = Some(common::samples(count));
    }
    outcome
}

#[test]
fn all_figures_have_the_functions_that_differ_most() {
    let text = ladder(&sampled(), Style { width: 80, color: false, ascii: false }, Detail::Full);
    let (_, table) = text.split_once("CPU time by function").expect("a table");
    let rows: Vec<&str> =
        table.lines().skip_while(|line| !line.contains("handle_request")).collect();
    assert!(rows[0].contains("3.03 µs") && rows[0].contains("707 µs"), "{text}");
    assert_eq!(rows.iter().take_while(|line| !line.trim().is_empty()).count(), 5, "{text}");
    assert!(text.contains("CPU time: `handle_request`"), "{text}");
    let brief = ladder(&sampled(), Style::default(), Detail::Brief);
    assert!(
        !brief.contains("CPU time by function") && brief.contains("`handle_request`"),
        "{brief}"
    );
    let none = ladder(&common::ping(), Style::default(), Detail::Full);
    assert!(!none.contains("CPU time by function") && !none.contains("CPU time:"), "{none}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for outcome in outcomes() {
        for width in [40, 57, 79, 80, 91, 92, 120, 200] {
            for (color, ascii) in [(false, false), (true, false), (false, true), (true, true)] {
                let text = ladder(&outcome, Style { width, color, ascii }, Detail::Full);
                for line in plain(&text).lines() {
                    assert!(columns(line) <= width, "{} > {width}: {line:?}", columns(line));
                }
            }
        }
    }
}

#[test]
fn plain_text_has_no_control_characters_and_ascii_text_only_ascii() {
    for outcome in outcomes() {
        let text = ladder(&outcome, Style { width: 80, color: false, ascii: true }, Detail::Full);
        let bad = text.chars().find(|c| *c != '\n' && !(' '..='~').contains(c));
        assert_eq!(bad, None);
        let colored = ladder(&outcome, Style { width: 80, color: true, ascii: true }, Detail::Full);
        assert_eq!(plain(&colored), text, "colours change nothing else");
        assert_ne!(colored, text);
    }
}

#[test]
fn right_to_left_mark_in_a_name_is_replaced() {
    let text = ladder(&common::hostile(), Style::default(), Detail::Full);
    assert!(!text.contains('\u{202e}') && !text.contains('\x1b'));
}

#[test]
fn the_sentence_names_the_value_the_factor_and_an_interval_of_all_arms() {
    let text = ladder(&common::ping(), WIDE, Detail::Brief);
    let answer = "A ping takes 2.4 µs in place of 65.8: 27.4 times faster (95 %: 27 to 27.9 times) with +bypass, by \
                  polling (spin) and by passing the stack (bypass). Slower here: +rps (31 %).";
    assert!(text.lines().any(|line| line == answer), "{text}");
    let text = ladder(&common::flood(), WIDE, Detail::Brief);
    assert!(
        text.contains("received: 1.79 million packets/s in place of 600,000: 3.02 times faster"),
        "{text}"
    );
}

#[test]
fn more_figures_than_tables_stand_side_by_side_with_the_exits() {
    let mut outcome = common::ping();
    assert!(!ladder(&outcome, Style::default(), Detail::Full).contains("gain beside price"));
    outcome.judged.push("vcpu_ns_per_packet".into());
    for (arm, value) in outcome.arms.iter_mut().zip(1..) {
        let Some(mut metric) = arm.metrics.get("cpu_ns_per_packet").cloned() else { continue };
        arm.metrics.insert("vcpu_ns_per_packet".into(), metric.clone());
        (metric.unit, metric.median) = ("count".into(), Some(f64::from(value)));
        arm.metrics.insert("exits_per_packet".into(), metric.clone());
        metric.median = Some(0.5);
        arm.metrics.insert("kernel_exits_per_packet".into(), metric);
    }
    let html = wirepath_report::html::page(&outcome);
    assert!(html.contains("Gain beside price"), "{html}");
    let text = ladder(&outcome, Style::default(), Detail::Full);
    let (_, table) = text.split_once("gain beside price").expect(&text);
    for (arm, row) in [
        ("arm", "rtt p50 rtt p99 CPU vcpu exits kernel exits"),
        ("baseline ", "65.8 µs 92.2 µs 5.41 µs 5.41 µs 1 0.500"),
        ("+bypass", "0.0365× 0.0312× 0.520× 0.520× 6 0.500"),
    ] {
        let line = table.lines().find(|line| line.starts_with(arm)).expect(&text);
        assert_eq!(line[arm.len()..].split_whitespace().collect::<Vec<_>>().join(" "), row);
    }
}

#[test]
fn best_arm_was_judged_better() {
    let mut outcome = common::ping();
    for arm in &mut outcome.arms {
        for metric in arm.metrics.values_mut().filter(|m| m.verdict.is_some()) {
            metric.verdict = Some(Verdict::Inconclusive);
        }
    }
    let text = ladder(&outcome, WIDE, Detail::Brief);
    assert!(!text.contains("in place of"), "{text}");
    assert!(
        text.contains("not decided: +bypass is 27.1 to 27.7 times faster; 9 other arms are open"),
        "{text}"
    );
}

#[test]
fn the_sentence_names_the_best_value_among_the_arms_shown_to_be_better() {
    let mut outcome = common::ping();
    // A better ratio beside a worse value: the ratio is paired, and a reader compares the values.
    outcome.arms[2].metrics.get_mut("rtt_ns_p50").unwrap().ratio = Some(0.01);
    let text = ladder(&outcome, WIDE, Detail::Brief);
    assert!(text.contains("A ping takes 2.4 µs in place of"), "{text}");
    // The best value counts only if it was shown to be better.
    outcome.arms[5].metrics.get_mut("rtt_ns_p50").unwrap().verdict = Some(Verdict::Inconclusive);
    let text = ladder(&outcome, WIDE, Detail::Brief);
    assert!(text.contains("A ping takes 3.05 µs in place of"), "{text}");
}

/// The ladder with some of its rungs.
fn with_arms(kept: &[&str]) -> Outcome {
    let mut outcome = common::ping();
    outcome.arms.retain(|arm| kept.contains(&arm.name.as_str()));
    outcome
}

#[test]
fn one_screen_holds_a_ladder_of_twelve_arms() {
    let eight = with_arms(&[
        "baseline",
        "baseline again",
        "+spin",
        "+bypass",
        "+native",
        "+zero-copy",
        "+busy-poll",
        "+pin",
        "+rps",
        "sockperf",
    ]);
    for (outcome, widths) in
        [(eight, &[60, 80][..]), (common::ping(), &[80]), (common::flood(), &[80])]
    {
        for &width in widths {
            let text = ladder(&outcome, Style { width, ..Style::default() }, Detail::Brief);
            assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
        }
    }
}

#[test]
fn brief_text_has_one_line_for_what_is_not_here_and_one_for_what_did_nothing() {
    let mut outcome = common::ping();
    outcome.arms[12].support = Support::unsupported("one CPU", "two CPUs");
    let text = ladder(&outcome, WIDE, Detail::Brief);
    assert!(
        text.contains(
            "\nnot here: zero-copy (zero-copy AF_XDP on veth), rps (one CPU); -v for reasons\n"
        ),
        "{text}"
    );
    assert!(text.contains("\nno effect: busy-poll; -v for reasons\n"), "{text}");
    assert!(
        !text.lines().any(|line| line.starts_with("+busy-poll") || line.starts_with("+zero-copy")),
        "{text}"
    );
    assert!(text.contains("probe, ping, 64 bytes: 24 blocks of 13 arms in 88.4 s; noise floor 1.3 %; finds 1.2 % in 19 of 20 runs; no effect of the trial before (p 0.61); 20261121"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("baseline")).collect();
    assert_eq!(rows.len(), 1, "the second baseline is the noise floor: {text}");
}

#[test]
fn an_arm_that_is_worse_is_red_in_the_table() {
    let text = ladder(&common::ping(), Style { color: true, ..WIDE }, Detail::Brief);
    assert!(text.contains("\x1b[31m+rps"), "{text}");
    assert!(!text.contains("\x1b[31m+bypass"), "{text}");
}

/// Head of the table.
fn brief_head(width: usize) -> String {
    let text = ladder(&common::ping(), Style { width, ..Style::default() }, Detail::Brief);
    text.lines().find(|line| line.starts_with("arm ")).unwrap().to_owned()
}

#[test]
fn further_metrics_are_columns_where_there_is_room() {
    let [head_60, head_80, head_120] = [60, 80, 120].map(brief_head);
    assert!(head_60.contains("verdict") && !head_60.contains("interval"), "{}", head_60);
    assert!(head_80.contains("95 % interval"), "{}", head_80);
    assert!(head_120.contains("rtt p99") && head_120.contains("CPU per packet"), "{}", head_120);
}

fn first_paragraph(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| !line.is_empty()).collect()
}

#[test]
fn full_text_begins_with_the_sentences_of_the_brief_one() {
    let [brief, full] =
        [Detail::Brief, Detail::Full].map(|detail| ladder(&common::ping(), WIDE, detail));
    assert_eq!(first_paragraph(&brief)[1..], first_paragraph(&full)[1..]);
    assert!(full.contains("A/A floor") && !brief.contains("A/A floor"), "{full}");
}

#[test]
fn a_name_and_a_note_come_first() {
    let mut outcome = common::ping();
    outcome.name = Some("engines of the new host".into());
    outcome.note = Some("after the firmware update".into());
    let text = ladder(&outcome, WIDE, Detail::Brief);
    let lead = "engines of the new host\nafter the firmware update\nA ping takes";
    assert!(text.starts_with(lead), "{text}");
}

#[test]
fn arms_that_cannot_run_share_a_line_and_have_no_rows() {
    let mut outcome = common::ping();
    outcome.arms[8].support = outcome.arms[7].support.clone();
    let text = ladder(&outcome, Style { width: 200, ..Style::default() }, Detail::Full);
    assert!(
        text.contains("+zero-copy, +busy-poll: zero-copy AF_XDP on veth. To run it:"),
        "{text}"
    );
    assert!(!text.lines().any(|line| line.starts_with("+zero-copy")), "{text}");
}

#[test]
fn refused_figure_has_its_reason() {
    let mut outcome = common::ping();
    let metric = outcome.arms[4].metrics.get_mut("rtt_ns_p99").unwrap();
    metric.median = None;
    metric.ratio = None;
    metric.low = None;
    metric.high = None;
    metric.p = None;
    metric.verdict = Some(Verdict::Refused);
    metric.why = Some("12 of 20000 datagrams lost".into());
    let text = ladder(&outcome, Style::default(), Detail::Full);
    assert!(text.contains("+gso: 12 of 20000 datagrams lost (rtt p99)"), "{text}");
    let row = text.lines().filter(|l| l.starts_with("+gso")).nth(1).unwrap();
    assert!(row.contains("refused") && !row.contains("µs"), "{row}");
}

#[test]
fn unsupported_arm_has_its_reason_and_remedy() {
    let mut outcome = common::ping();
    outcome.arms[6].support = Support::Refused { why: "it would cut the only link".into() };
    let text = ladder(&outcome, Style { width: 200, ..Style::default() }, Detail::Full);
    assert!(
        text.contains("+zero-copy: zero-copy AF_XDP on veth. To run it: a NIC whose"),
        "{text}"
    );
    assert!(text.contains("not run on purpose: it would cut the only link"), "{text}");
}

#[test]
fn delivery_is_shown_only_for_arms_with_loss_or_reordering() {
    let text = ladder(&common::ping(), Style::default(), Detail::Full);
    assert!(!text.contains("\ndelivery\n"), "{text}");
    let text = ladder(&common::flood(), Style::default(), Detail::Full);
    assert!(text.contains("\ndelivery\n") && text.contains("+pin: 96 reordered"), "{text}");
    assert!(!text.contains("+gso: 0"), "{text}");
}

#[test]
fn control_that_differs_from_the_baseline_is_said_first() {
    let mut outcome = common::ping();
    assert!(!ladder(&outcome, Style::default(), Detail::Full).contains("differs from itself"));
    outcome.arms[1].metrics.get_mut("rtt_ns_p99").unwrap().verdict = Some(Verdict::Worse);
    let text = ladder(&outcome, Style { width: 200, ..Style::default() }, Detail::Full);
    assert!(text.contains("Not trusted: baseline differs from itself in rtt p99"), "{text}");
}

#[test]
fn figures_that_the_trial_before_moves_are_not_to_be_trusted() {
    let mut outcome = common::ping();
    assert!(!ladder(&outcome, Style::default(), Detail::Full).contains("not to be trusted"));
    let check = &mut outcome.trust.carry_over[0];
    check.after = Some("spin".into());
    (check.p, check.flagged) = (0.0001, true);
    let text = ladder(&outcome, Style { width: 200, ..Style::default() }, Detail::Full);
    assert!(
        text.contains("Not trusted: the trial before moves rtt p50. Run again with --settle."),
        "{text}"
    );
    assert!(text.contains("after spin 1.00× (p <0.001)"), "{text}");
    assert!(text.contains("\nnot to be trusted: the trial before moves it\n"), "{text}");
    assert_eq!(outcome.distrusted(), ["rtt_ns_p50"]);
}

#[test]
fn differences_within_a_step_of_the_figures_are_not_promised() {
    let mut outcome = common::ping();
    for arm in &mut outcome.arms {
        arm.metrics.values_mut().for_each(|metric| metric.finds = Some(1.0));
    }
    let wide = Style { width: 200, ..Style::default() };
    assert!(
        !ladder(&outcome, wide, Detail::Full).contains("in 19 of 20 runs"),
        "nothing is found from 0 % on"
    );
    let metric = "rtt_ns_p50".to_owned();
    outcome.trust.ticks.push(Ticks { metric, step: 1e6, share: 0.1 });
    let text = ladder(&outcome, wide, Detail::Full);
    assert!(text.contains("figures in steps of 1.00 ms, 10.0 % of the baseline"), "{text}");
    assert!(text.contains("finds 10 % in 19 of 20 runs"), "{text}");
}

#[test]
fn smallest_possible_p_is_named_once() {
    let mut outcome = common::ping();
    outcome.blocks = 15;
    for arm in &mut outcome.arms[2..] {
        if let Some(metric) = arm.metrics.get_mut("rtt_ns_p50") {
            (metric.p, metric.p_adjusted) = (Some(2f64.powi(-14)), Some(33.0 * 2f64.powi(-14)));
        }
    }
    let text = ladder(&outcome, Style { width: 400, ..Style::default() }, Detail::Full);
    assert_eq!(
        text.matches("0.002 is the smallest p that 15 blocks can give").count(),
        1,
        "{text}"
    );
}

#[test]
fn unknown_floor_is_stated() {
    let mut outcome = common::ping();
    outcome.floor.clear();
    assert!(ladder(&outcome, Style::default(), Detail::Full).contains("A/A floor not known"));
    outcome.floor.insert("rtt_ns_p50".into(), Floor { low: 0.9, high: 1.1 });
    assert!(ladder(&outcome, Style::default(), Detail::Full).contains("A/A floor 0.900× to 1.10×"));
}

#[test]
fn text_is_that_of_the_goldens() {
    for (golden, outcome, detail) in [
        ("ping.txt", common::ping(), Detail::Brief),
        ("flood.txt", common::flood(), Detail::Brief),
        ("ping-full.txt", common::ping(), Detail::Full),
        ("flood-full.txt", common::flood(), Detail::Full),
    ] {
        common::golden(golden, &ladder(&outcome, Style::default(), detail));
    }
    let ascii = Style { width: 110, color: false, ascii: true };
    common::golden("ping-ascii-110.txt", &ladder(&common::ping(), ascii, Detail::Full));
    common::golden("list.txt", &list(&summaries(), Style::default()));
}

#[test]
fn list_fits_its_width_and_marks_unfinished_runs() {
    for width in [40, 80] {
        let text = list(&summaries(), Style { width, ..Style::default() });
        assert!(text.lines().all(|line| columns(line) <= width), "{text}");
        assert!(text.contains("unfinished"), "{text}");
    }
    assert!(list(&[], Style::default()).contains("wirepath prove"));
}

fn summary(id: &str, ended: Ended, headline: Option<&str>) -> Summary {
    Summary {
        title: "Which switch makes a ping faster?".into(),
        note: None,
        id: id.into(),
        started: "2026-11-21T08:30:00Z".into(),
        path: "probe".into(),
        load: BTreeMap::from([
            ("kind".to_string(), "ping".to_string()),
            ("size_bytes".to_string(), "64".to_string()),
        ]),
        machine: "m-4c1d9e02".into(),
        version: "0.1.0".into(),
        arms: 14,
        blocks: 24,
        trials: 338,
        ended,
        headline: headline.map(str::to_string),
    }
}

fn summaries() -> Vec<Summary> {
    vec![
        summary("20261121-091500-probe-77c0", Ended::Unfinished, None),
        summary(
            "20261121-083000-probe-1f3a",
            Ended::Settled,
            Some(
                "rtt p50: 2.40 µs in place of 65.8 µs, 27.4 times faster (95 %: 27.1 times to 27.7 times), with +bypass",
            ),
        ),
    ]
}

/// Lines of a fenced block of the README that a golden makes, and the text before and after it.
fn golden_block(readme: &str) -> (String, String, String) {
    const BEGIN: &str = "<!-- golden: crates/report/tests/goldens/run.json -->\n```\n";
    const END: &str = "```\n<!-- end -->";
    let (before, rest) = readme.split_once(BEGIN).expect("a marked block");
    let (block, after) = rest.split_once(END).expect("the end of the block");
    (format!("{before}{BEGIN}"), block.to_owned(), format!("{END}{after}"))
}

#[test]
fn readme_shows_the_text_of_a_stored_run_as_it_is_today() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(folder.join("tests/goldens/run.json")).expect("a run");
    let outcome = wirepath_report::json::from_json(&document).expect("a result");
    let text = ladder(&outcome, Style::default(), Detail::Brief);
    let file = folder.join("../../README.md");
    let readme = std::fs::read_to_string(&file).expect("the README");
    let (before, block, after) = golden_block(&readme);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&file, format!("{before}{text}{after}")).expect("the README is written");
        return;
    }
    assert_eq!(block, text, "README.md is stale: run with UPDATE=1 and read it");
}
