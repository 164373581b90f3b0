//! A curve of latency against load as it is shown.

use std::cmp::Ordering;

use model::{
    ArmCurve, ArmKind, CARRIED_SHARE_MIN, CurveEnd, KNEE_LOSS, KNEE_P99_RATIO, KneeDoubt,
    LoadCurve, LoadPoint, Support,
};

use super::{ChartLine, LineChart, Remark, machine, machine_line};
use crate::screen::Tone;
use crate::{units, wording};

#[derive(Debug, Clone, PartialEq)]
pub struct CurvePage {
    pub subject: String,
    /// Time, version and settings in one line.
    pub below: String,
    /// One sentence an arm: its knee, or the reason why it has none.
    pub knees: Vec<Remark>,
    pub arms: Vec<CurveArm>,
    /// Round trips over the offered rate: p99, and the median.
    pub charts: Vec<CurveChart>,
    /// Missing figures, disturbed trials, and failures.
    pub doubts: Vec<Remark>,
    /// The rule of the knee, and of lost datagrams.
    pub method: String,
    pub machine: Vec<(String, String)>,
    /// The machine in one line.
    pub machine_line: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CurveArm {
    pub name: String,
    pub rows: Vec<CurveRow>,
}

/// One rate; figures that were refused are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveRow {
    pub offered: String,
    /// Datagrams sent, received, lost and unsent.
    pub counts: [String; 4],
    /// Round trip p50, p99 and maximum; CPU time per packet.
    pub figures: [Option<String>; 4],
    pub is_knee: bool,
    pub tone: Tone,
}

/// Lines of all arms, and the knee of each line that has one.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveChart {
    pub chart: LineChart,
    /// Index of the line, and the point.
    pub knees: Vec<(usize, (f64, f64))>,
}

/// A figure of a point, nanoseconds.
type Value = fn(&LoadPoint) -> Option<f64>;

impl CurvePage {
    pub fn from_curve(curve: &LoadCurve) -> CurvePage {
        let charts: [(&str, Value); 2] =
            [("round trip p99", |p| p.rtt_ns_p99), ("round trip p50", |p| p.rtt_ns_p50)];
        CurvePage {
            subject: format!("probe · latency against load · {} B", curve.size_bytes),
            below: format!(
                "{} · wirepath {} · {} of {} a rate · seed {}",
                wording::time(&curve.started),
                curve.version,
                units::plural(curve.trials, "trial"),
                units::duration_ms(curve.trial_ms),
                curve.seed
            ),
            knees: curve.arms.iter().map(|arm| knee(arm, curve)).collect(),
            arms: curve.arms.iter().filter(|arm| !arm.points.is_empty()).map(table).collect(),
            charts: charts
                .iter()
                .filter_map(|(label, value)| chart(curve, label, *value))
                .collect(),
            doubts: curve.arms.iter().flat_map(doubts).collect(),
            method: method(),
            machine: machine(&curve.machine),
            machine_line: machine_line(&curve.machine),
        }
    }
}

fn rate(pps: u64) -> String {
    units::value(pps as f64, "pps")
}

/// `; higher than that of baseline`; empty for the baseline itself, and if one of the two has no bounds.
fn beside_baseline(arm: &ArmCurve, curve: &LoadCurve) -> String {
    let base = curve.arms.iter().find(|other| other.kind == ArmKind::Baseline);
    let Some(base) = base.filter(|base| {
        base.name != arm.name && base.knee.rate_pps.or(base.knee.beyond_pps).is_some()
    }) else {
        return String::new();
    };
    let word = match arm.knee.beside(&base.knee) {
        Ordering::Less => "lower than",
        Ordering::Greater => "higher than",
        Ordering::Equal => "not shown to differ from",
    };
    format!("; {word} that of {}", base.name)
}

fn knee(arm: &ArmCurve, curve: &LoadCurve) -> Remark {
    let remark = |text: String, tone| Remark::new(&arm.name, text, tone);
    let point = |pps| arm.points.iter().find(|point| point.offered_pps == pps);
    match arm.knee.unbounded {
        Some(KneeDoubt::FewTrials { needed }) => {
            let text = format!("no knee: it needs {needed} trials a rate; give --trials {needed}");
            return remark(text, Tone::Doubt);
        }
        Some(KneeDoubt::Flips { broke_pps, held_pps }) => {
            let text = format!(
                "no knee: {} broke the rule and {} held it; give more --trials or a longer --trial",
                rate(broke_pps),
                rate(held_pps)
            );
            return remark(text, Tone::Doubt);
        }
        None => {}
    }
    let beside = beside_baseline(arm, curve);
    match (&arm.support, arm.knee.rate_pps, arm.knee.beyond_pps) {
        (Support::Unsupported { what, needs }, ..) => {
            remark(format!("not possible here: {what}; needs {needs}"), Tone::Dim)
        }
        (Support::Refused { why }, ..) => remark(format!("not run: {why}"), Tone::Dim),
        (_, Some(pps), beyond) => {
            let p99 = point(pps).and_then(|point| point.rtt_ns_p99);
            let p99 = p99.map_or("–".into(), |ns| units::value(ns, "ns"));
            match beyond {
                Some(beyond) => remark(
                    format!("knee between {} (p99 {p99}) and {}{beside}", rate(pps), rate(beyond)),
                    Tone::Good,
                ),
                None => remark(
                    format!(
                        "no knee up to {} (p99 {p99}): no higher rate broke the rule{beside}",
                        rate(pps)
                    ),
                    Tone::Doubt,
                ),
            }
        }
        (_, None, Some(start))
            if point(start).is_some_and(|p| p.is_carried() && p.rtt_ns_p99.is_none()) =>
        {
            let text = format!(
                "no knee: p99 at {} is not known; give more --trials or a longer --trial",
                rate(start)
            );
            remark(text, Tone::Doubt)
        }
        (_, None, Some(beyond)) => {
            let text = format!("knee below {}; start lower to bound it{beside}", rate(beyond));
            remark(text, Tone::Bad)
        }
        (_, None, None) if arm.points.is_empty() => {
            remark("no rate was measured".into(), Tone::Doubt)
        }
        (_, None, None) => {
            let text = "no knee: the trials at the lowest rate do not agree; give more --trials or a longer --trial";
            remark(text.into(), Tone::Doubt)
        }
    }
}

fn table(arm: &ArmCurve) -> CurveArm {
    let rows = arm.points.iter().map(|point| table_row(arm, point)).collect();
    CurveArm { name: arm.name.clone(), rows }
}

fn table_row(arm: &ArmCurve, p: &LoadPoint) -> CurveRow {
    CurveRow {
        offered: rate(p.offered_pps),
        counts: [p.sent_count, p.received_count, p.lost_count, p.unsent_count]
            .map(|n: u64| units::grouped(n.try_into().unwrap_or(i64::MAX))),
        figures: [p.rtt_ns_p50, p.rtt_ns_p99, p.rtt_ns_max, p.cpu_ns_per_packet]
            .map(|ns: Option<f64>| ns.map(|ns| units::value(ns, "ns"))),
        is_knee: arm.knee.rate_pps == Some(p.offered_pps),
        tone: if p.is_carried() { Tone::Plain } else { Tone::Bad },
    }
}

/// `None` without a point.
fn chart(curve: &LoadCurve, label: &str, value: Value) -> Option<CurveChart> {
    let point = |p: &LoadPoint| Some((p.offered_pps as f64, value(p)?));
    let mut description = format!("{label} by arm, over the offered rate: ");
    let (mut lines, mut knees) = (Vec::new(), Vec::new());
    for (place, arm) in curve.arms.iter().enumerate() {
        let stretches: Vec<Vec<(f64, f64)>> = arm
            .points
            .split(|p| value(p).is_none())
            .map(|stretch| stretch.iter().filter_map(point).collect())
            .filter(|stretch: &Vec<_>| !stretch.is_empty())
            .collect();
        if stretches.is_empty() {
            continue;
        }
        let knee = arm.points.iter().find(|p| arm.knee.rate_pps == Some(p.offered_pps));
        knees.extend(knee.and_then(point).map(|at| (lines.len(), at)));
        let said = stretches.iter().flatten();
        let said =
            said.map(|(pps, ns)| format!("{} at {}", units::value(*ns, "ns"), rate(*pps as u64)));
        description.push_str(&format!("{}: {}. ", arm.name, said.collect::<Vec<_>>().join(", ")));
        lines.push(ChartLine {
            arm: arm.name.clone(),
            number: place + 1,
            kind: arm.kind,
            variant: place.saturating_sub(1),
            stretches,
        });
    }
    if lines.is_empty() {
        return None;
    }
    let title = format!("{label} against the offered rate");
    let chart = LineChart { title, description, label: label.into(), unit: "ns".into(), lines };
    Some(CurveChart { chart, knees })
}

fn doubts(arm: &ArmCurve) -> Vec<Remark> {
    let mut doubts = Vec::new();
    let mut doubt = |text| doubts.push(Remark::new(&arm.name, text, Tone::Doubt));
    match &arm.end {
        CurveEnd::Failed(why) => doubt(format!("ended by a trial that failed: {why}")),
        CurveEnd::Unfinished => doubt("ended before a rate that it does not carry".into()),
        CurveEnd::NotCarried | CurveEnd::NotRun => {}
    }
    let disturbed: u32 = arm.points.iter().map(|point| point.disturbed_trial_count).sum();
    let trials: u32 = arm.points.iter().map(|point| point.trial_count).sum();
    if disturbed > 0 {
        doubt(format!(
            "other work used more than 10 % of the cores in use in {disturbed} of {}; they count",
            units::plural(trials, "trial")
        ));
    }
    for point in &arm.points {
        // Of the maximum nothing need be said: the table has the losses.
        let refused = point.refused.iter().filter(|why| !why.starts_with("max"));
        let refused: Vec<&str> = refused.map(String::as_str).collect();
        if !refused.is_empty() {
            doubt(format!("at {}: {}", rate(point.offered_pps), refused.join("; ")));
        }
    }
    doubts
}

fn method() -> String {
    format!(
        "Rates double until less than {} of the offered datagrams are answered. Each is timed from the \
         moment it is due; one that is lost, or that could not be sent, counts as infinitely late. All \
         trials of a point are pooled. Knee: between the highest rate of an unbroken sequence, from the lowest \
         on, at which p99 of every trial is below {KNEE_P99_RATIO} times the median at the lowest rate and less \
         than {} of the offered datagrams is lost or unsent, and the lowest rate at which that is so of no \
         trial; two knees differ if these bounds do not overlap",
        units::percent(CARRIED_SHARE_MIN),
        units::percent(KNEE_LOSS)
    )
}

#[cfg(test)]
mod tests {
    use model::{Knee, LoadTrial, Machine};

    use super::*;
    use crate::{html, text};

    fn point(offered_pps: u64, p99_ns: Option<f64>, lost_count: u64) -> LoadPoint {
        LoadPoint {
            offered_pps,
            trial_count: 5,
            disturbed_trial_count: 1,
            offered_count: 1000,
            sent_count: 1000,
            received_count: 1000 - lost_count,
            lost_count,
            unsent_count: 0,
            rtt_ns_p50: Some(5_000.0),
            rtt_ns_p99: p99_ns,
            rtt_ns_max: (lost_count == 0).then_some(90_000.0),
            cpu_ns_per_packet: Some(1_500.0),
            refused: p99_ns.is_none().then(|| "p99 refused: lost".to_owned()).into_iter().collect(),
            trials: vec![
                LoadTrial {
                    rtt_ns_p99: p99_ns,
                    unanswered_share: lost_count as f64 / 1000.0
                };
                5
            ],
        }
    }

    fn curve() -> LoadCurve {
        let arm = |name: &str, kind, points: Vec<LoadPoint>| ArmCurve {
            name: name.into(),
            kind,
            support: Support::Yes,
            end: CurveEnd::NotCarried,
            knee: model::knee(&points),
            points,
        };
        let rising = vec![
            point(1000, Some(10_000.0), 0),
            point(2000, Some(11_000.0), 0),
            point(4000, Some(60_000.0), 0),
            point(8000, None, 300),
        ];
        let mut absent = arm("<zero-copy>", ArmKind::Variant, Vec::new());
        absent.support = Support::unsupported("zero-copy", "a NIC");
        absent.end = CurveEnd::NotRun;
        LoadCurve {
            started: "2026-11-25T10:00:00Z".into(),
            version: "1".into(),
            machine: Machine::default(),
            size_bytes: 64,
            trial_ms: 300,
            trials: 5,
            seed: 7,
            arms: vec![
                arm("baseline", ArmKind::Baseline, rising.clone()),
                arm("spin", ArmKind::Variant, rising[..2].to_vec()),
                absent,
            ],
        }
    }

    #[test]
    fn knee_is_said_marked_and_explained() {
        let page = CurvePage::from_curve(&curve());
        assert!(page.knees[0].text.contains("knee between 2.00 kpps (p99 11.0 µs) and 4.00 kpps"));
        assert!(page.knees[1].text.contains("no knee up to 2.00 kpps"));
        assert!(page.knees[1].text.ends_with("not shown to differ from that of baseline"));
        assert!(page.knees[2].text.contains("needs a NIC"));
        assert_eq!(page.charts[0].knees, [(0, (2000.0, 11_000.0)), (1, (2000.0, 11_000.0))]);
        let knees = page.arms[0].rows.iter().map(|row| row.is_knee);
        assert_eq!(knees.collect::<Vec<_>>(), [false, true, false, false]);
        let mut unknown = curve();
        unknown.arms[0].points = vec![point(1000, None, 0)];
        unknown.arms[0].knee = model::knee(&unknown.arms[0].points);
        let unknown = CurvePage::from_curve(&unknown);
        assert!(unknown.knees[0].text.contains("--trials"), "{:?}", unknown.knees);
        assert!(page.method.contains("below 2 times") && page.method.contains("0.100 %"));
    }

    #[test]
    fn refused_figure_is_a_dash_with_its_reason_and_a_gap_in_the_line() {
        let curve = curve();
        let page = CurvePage::from_curve(&curve);
        assert_eq!(page.arms[0].rows[3].figures[1], None);
        assert_eq!(page.charts[0].chart.lines[0].stretches[0].len(), 3, "p99");
        assert_eq!(page.charts[1].chart.lines[0].stretches[0].len(), 4, "p50");
        assert!(page.doubts.iter().any(|doubt| doubt.text == "at 8.00 kpps: p99 refused: lost"));
        let text = text::curve(&curve, crate::text::Style::default());
        let row = text.lines().find(|line| line.contains("8.00 kpps") && line.contains("700"));
        assert!(row.is_some_and(|row| row.contains('–')), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn page_is_one_file_with_a_drawing_and_no_markup_of_names() {
        let mut all = curve();
        let page = html::curve_page(&all);
        assert!(page.contains("<svg") && page.contains("knee between 2.00 kpps"), "{page}");
        assert!(!page.contains("<zero-copy>") && page.contains("&lt;zero-copy&gt;"));
        all.arms.iter_mut().for_each(|arm| {
            arm.points.clear();
            arm.knee = Knee::default();
        });
        assert!(!html::curve_page(&all).contains("<svg"), "nothing to draw");
    }
}
