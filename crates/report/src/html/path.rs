//! The page of a path: its switches, and the worth of each on this machine.

use maud::{Markup, html};
use model::{Outcome, SwitchScope, SwitchSpec};

use super::{Shell, class, figure, heading, ratio_chart, section, served, table, terms};
use crate::page::{self, RatioChart, RatioRow, Worth};
use crate::screen::Tone;
use crate::{units, wording};

/// Experiments per load in the chart over time.
const RUNS_MAX: usize = 12;

#[derive(Debug, Clone, Copy)]
pub struct LoadText<'a> {
    pub name: &'a str,
    pub what: &'a str,
    /// Judged metrics, the most important first.
    pub judged: &'a [&'a str],
}

#[derive(Debug)]
pub struct PathPage<'a> {
    pub name: &'a str,
    pub what: &'a str,
    /// Its loads, the default first.
    pub loads: &'a [LoadText<'a>],
    pub switches: &'a [SwitchSpec],
    /// Machine of the outcomes; `None` without any.
    pub machine: Option<&'a str>,
    pub machines: &'a [String],
    /// Newest experiments on that machine that have an outcome, newest first.
    pub outcomes: &'a [Outcome],
    /// All experiments of the path on that machine.
    pub total: u64,
}

impl PathPage<'_> {
    /// Returns one self-contained HTML file.
    pub fn file(&self) -> String {
        Shell::File.page(&self.title(), &self.body(false))
    }

    /// Returns the page of `serve`, with links to the experiments.
    pub fn served(&self) -> String {
        let body = html! {
            ul.actions aria-label="more" {
                li { a href={ "/?path=" (served::url(self.name)) } { "Its experiments" } }
            }
            (self.body(true))
        };
        Shell::Served { here: "/paths", live: false }.page(&self.title(), &body)
    }

    fn title(&self) -> String {
        format!("Path {}", self.name)
    }

    fn body(&self, linked: bool) -> Markup {
        html! {
            (heading(&self.title(), self.what))
            (section("What each switch was worth here", &html! {
                @if linked { (self.choice()) }
                (self.source())
                @for load in self.loads { (self.worth(load, linked)) }
            }))
            (section("The best arm over time", &html! {
                @for load in self.loads { (self.over_time(load)) }
            }))
            (section("Switches", &self.meanings()))
            (section("Loads", &self.load_table()))
        }
    }

    /// Choice of another machine, if there are several.
    fn choice(&self) -> Markup {
        html! {
            @if self.machines.len() > 1 {
                form.filter method="get" action={ "/path/" (served::url(self.name)) } {
                    label {
                        "Machine"
                        select name="machine" {
                            @for id in self.machines {
                                option selected[self.machine == Some(id)] { (id) }
                            }
                        }
                    }
                    button type="submit" { "Show" }
                }
            }
        }
    }

    /// Source of the figures, in one sentence.
    fn source(&self) -> Markup {
        let Some(machine) = self.machine.filter(|_| !self.outcomes.is_empty()) else {
            return html! {
                p { "Nothing was measured here yet: " code { "wirepath prove " (self.name) } "." }
            };
        };
        let all = units::plural(self.total, "experiment");
        let from = match self.outcomes.len() as u64 {
            count if count < self.total => format!("the newest {count} of {all}"),
            _ => all,
        };
        html! {
            p {
                "Latest result per switch, from " (from) " of this path on machine " code { (machine) }
                ". A ratio compares two arms of one experiment that differ in this switch alone; the \
                 table lists the other switches that were on."
            }
        }
    }

    fn under<'a>(&'a self, load: &LoadText<'_>) -> impl Iterator<Item = &'a Outcome> {
        let kind = load.name.to_owned();
        self.outcomes.iter().filter(move |outcome| outcome.load.get("kind") == Some(&kind))
    }

    fn worth(&self, load: &LoadText<'_>, linked: bool) -> Markup {
        const COLUMNS: [&str; 6] =
            ["switch", ">ratio", ">95 % interval", "verdict", "what else was on", "measured (UTC)"];
        let Some(name) = load.judged.first() else { return Markup::default() };
        let mut rows = Vec::new();
        let mut missing = Vec::new();
        for switch in self.switches {
            let latest = self
                .under(load)
                .find_map(|outcome| Some((outcome, page::worth(outcome, switch.id, name)?)));
            match latest {
                Some((outcome, worth)) => rows.push(row(switch, outcome, &worth, linked)),
                None => missing.push(switch.id.to_owned()),
            }
        }
        if rows.is_empty() {
            return Markup::default();
        }
        let shape = self.under(load).find_map(|outcome| page::shape(outcome, name));
        let better = shape.map_or("", |shape| wording::better(shape.better));
        let caption = html! {
            "Load " (load.name) ": " (super::caption(&wording::metric(name), name)) ", " (better)
        };
        html! {
            (table(Some("worth"), &caption, &COLUMNS, &html! { @for row in &rows { (row) } }))
            @if !missing.is_empty() {
                p.muted { "Not compared under this load: " (wording::listed(&missing)) "." }
            }
        }
    }

    fn over_time(&self, load: &LoadText<'_>) -> Markup {
        let chart = load.judged.first().and_then(|name| {
            best_over_time(
                name,
                self.under(load)
                    // The best arm so far may not be the best at the end.
                    .filter(|outcome| outcome.ended.is_complete())
                    .filter_map(|outcome| Some((outcome, page::best(outcome, name)?)))
                    .take(RUNS_MAX),
            )
        });
        html! {
            @if let (Some(chart), Some(name)) = (chart, load.judged.first()) {
                (figure(&format!("Load {}: {}", load.name, wording::metric(name)), &html! {
                    "One line per experiment, newest first: its best arm against the baseline of the \
                     same run."
                }, &ratio_chart::draw(&chart, &format!("time-{}", load.name))))
            }
        }
    }

    fn meanings(&self) -> Markup {
        html! {
            p.muted { "In the order of the ladder." }
            dl.switches {
                @for switch in self.switches {
                    div {
                        dt { code { (switch.id) } }
                        dd {
                            (switch.effect)
                            p {
                                "Changes " (scope_word(switch.scope))
                                @if !switch.needs.is_empty() { "; needs " (switch.needs) }
                                ". Described in " (switch.source) "."
                            }
                        }
                    }
                }
            }
        }
    }

    fn load_table(&self) -> Markup {
        let texts: Vec<_> = self
            .loads
            .iter()
            .map(|load| {
                let labels: Vec<String> =
                    load.judged.iter().map(|name| wording::metric(name)).collect();
                let judged = wording::listed(&labels);
                (load.name, format!("{}; judged by {judged}", load.what))
            })
            .collect();
        terms(texts.iter().map(|(name, text)| (*name, text.as_str())))
    }
}

fn scope_word(scope: SwitchScope) -> &'static str {
    match scope {
        SwitchScope::Process => "the process",
        SwitchScope::Interface => "the interface",
        SwitchScope::Host => "the host",
        SwitchScope::Guest => "the guest",
    }
}

/// `None` for fewer than two experiments.
fn best_over_time<'a>(
    name: &str,
    runs: impl Iterator<Item = (&'a Outcome, (&'a model::ArmOutcome, &'a model::MetricOutcome))>,
) -> Option<RatioChart> {
    let runs: Vec<_> = runs.collect();
    let (_, (_, shape)) = runs.first().filter(|_| runs.len() > 1)?;
    let mut description = String::new();
    let mut rows = Vec::new();
    for (outcome, (arm, metric)) in &runs {
        let when = wording::minute(&outcome.started);
        let interval = page::interval(metric).unwrap_or_default();
        let ratio = metric.ratio.map_or("–".into(), units::ratio);
        let note = format!("{ratio} {interval} {}", arm.name);
        description.push_str(&format!("{when}: {note}. "));
        rows.push(RatioRow {
            // Without the year, to fit a telephone.
            name: when.get(5..).unwrap_or(&when).to_owned(),
            ratio: metric.ratio,
            interval: metric.low.zip(metric.high),
            tone: Tone::Good,
            note,
            missing: None,
        });
    }
    let label = wording::metric(name);
    Some(RatioChart {
        title: format!("{label}: ratio of the best arm to its baseline, newest experiment first"),
        description,
        one: "baseline",
        axis: format!("ratio to baseline (×), {}, 95 % interval", wording::better(shape.better)),
        notes: "ratio, 95 % interval, arm",
        floor: None,
        rows,
    })
}

fn row(switch: &SwitchSpec, outcome: &Outcome, worth: &Worth, linked: bool) -> Markup {
    let (ratio, interval, others) = match &worth.step {
        None => ("–".into(), "–".into(), "–".into()),
        Some(step) => (
            units::ratio(step.ratio),
            units::interval(step.interval.low, step.interval.high),
            if worth.beside.is_empty() { "nothing".to_owned() } else { worth.beside.join(" ") },
        ),
    };
    let when = wording::minute(&outcome.started);
    html! {
        tr {
            th scope="row" { code { (switch.id) } }
            td.n { (ratio) }
            td.n { (interval) }
            td class=(class(wording::tone(Some(worth.verdict)))) { (wording::verdict(worth.verdict)) }
            td.wrap { (others) }
            td {
                @if linked {
                    a href=(served::experiment_url(&outcome.id)) { (when) }
                } @else {
                    (when) ", " code { (outcome.id) }
                }
            }
        }
    }
}

/// Page of all paths, each a name and one sentence, with links to their pages.
pub fn paths(all: &[(&str, &str)]) -> String {
    let body = html! {
        (heading("Paths", "What can be measured, switch by switch."))
        (section("Paths", &html! {
            dl {
                @for (name, what) in all {
                    div { dt { a href={ "/path/" (served::url(name)) } { (name) } } dd { (what) } }
                }
            }
        }))
    };
    Shell::Served { here: "/paths", live: false }.page("Paths", &body)
}
