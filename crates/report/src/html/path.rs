//! The page of a path: what it is, what its switches mean, and what each was worth here.

use model::{Outcome, Switch};

use super::ladder::{self, BestOf};
use super::{Shell, escape, readable_time, section, served, verdict_class};
use crate::{steps, units, words};

/// Experiments of which the best arm is shown in time, for each load.
const RUNS_SHOWN: usize = 12;

/// A load of a path.
#[derive(Debug, Clone, Copy)]
pub struct LoadText<'a> {
    /// Name on the command line.
    pub name: &'a str,
    /// What goes over the wire.
    pub what: &'a str,
    /// Metrics that it is judged by, the most important first.
    pub judged: &'a [&'a str],
}

/// A path, and what the history has of it.
#[derive(Debug)]
pub struct PathPage<'a> {
    /// Name on the command line.
    pub name: &'a str,
    /// What it is, in one sentence.
    pub what: &'a str,
    /// Its loads, the default first.
    pub loads: &'a [LoadText<'a>],
    /// Its switches, in the order of the ladder.
    pub switches: &'a [Switch],
    /// The machine that the outcomes come from; `None` without any.
    pub machine: Option<&'a str>,
    /// Machines to choose from.
    pub machines: &'a [String],
    /// Its newest experiments on that machine that have an outcome, newest first.
    pub outcomes: &'a [Outcome],
    /// Experiments of it on that machine.
    pub total: u64,
}

impl PathPage<'_> {
    /// One self-contained HTML file.
    pub fn file(&self) -> String {
        Shell::File.page(&self.title(), &self.body(false))
    }

    /// The same behind `serve`, with links to the experiments.
    pub fn served(&self) -> String {
        let actions = format!(
            "<ul class=\"actions\" aria-label=\"more\"><li><a href=\"/?path={}\">Its experiments</a>\
             </li></ul>\n",
            served::url(self.name)
        );
        Shell::Served { here: "/paths", live: false }
            .page(&self.title(), &(actions + &self.body(true)))
    }

    fn title(&self) -> String {
        format!("Path {}", self.name)
    }

    fn body(&self, linked: bool) -> String {
        let mut body = served::heading(&self.title(), self.what);
        let mut worth = if linked { self.choice() } else { String::new() };
        worth.push_str(&self.source());
        let worths: String = self.loads.iter().map(|load| self.worth(load, linked)).collect();
        worth.push_str(&worths);
        body.push_str(&section("What each switch was worth here", &worth));
        let charts: String = self.loads.iter().filter_map(|load| self.over_time(load)).collect();
        body.push_str(&section("The best arm over time", &charts));
        body.push_str(&section("Switches", &self.meanings()));
        body.push_str(&section("Loads", &self.load_table()));
        body
    }

    /// Another machine, where there are several.
    fn choice(&self) -> String {
        if self.machines.len() < 2 {
            return String::new();
        }
        let option = |id: &String| {
            let mark = if self.machine == Some(id) { " selected" } else { "" };
            format!("<option{mark}>{}</option>", escape(id))
        };
        format!(
            "<form class=\"filter\" method=\"get\" action=\"/path/{}\"><label>Machine\
             <select name=\"machine\">{}</select></label><button type=\"submit\">Show</button></form>",
            served::url(self.name),
            self.machines.iter().map(option).collect::<String>()
        )
    }

    /// Where the figures come from, in one sentence.
    fn source(&self) -> String {
        let Some(machine) = self.machine.filter(|_| !self.outcomes.is_empty()) else {
            return format!(
                "<p>Nothing was measured here yet: <code>wirepath prove {}</code>.</p>",
                escape(self.name)
            );
        };
        let all = words::counted(self.total as u32, "experiment");
        let from = match self.outcomes.len() as u64 {
            count if count < self.total => format!("the newest {count} of {all}"),
            _ => all,
        };
        format!(
            "<p>The newest word on each switch, from {from} of this path on machine \
             <code>{}</code>. A ratio compares two arms of one experiment that differ in this switch \
             alone; what else was on is told.</p>",
            escape(machine)
        )
    }

    fn under<'a>(&'a self, load: &LoadText<'_>) -> impl Iterator<Item = &'a Outcome> {
        let kind = load.name.to_owned();
        self.outcomes.iter().filter(move |outcome| outcome.load.get("kind") == Some(&kind))
    }

    fn worth(&self, load: &LoadText<'_>, linked: bool) -> String {
        let Some(name) = load.judged.first() else { return String::new() };
        let mut rows = String::new();
        let mut silent = Vec::new();
        for switch in self.switches {
            let found = self
                .under(load)
                .find_map(|outcome| Some((outcome, steps::worth(outcome, switch.id, name)?)));
            match found {
                Some((outcome, worth)) => rows.push_str(&row(switch, outcome, &worth, linked)),
                None => silent.push(switch.id.to_owned()),
            }
        }
        if rows.is_empty() {
            return String::new();
        }
        let better = self
            .under(load)
            .find_map(|outcome| words::shape(outcome, name))
            .map_or("", |shape| words::better(shape.better));
        let silent = match silent.is_empty() {
            true => String::new(),
            false => format!(
                "<p class=\"muted\">Not compared under this load: {}.</p>",
                escape(&words::listed(&silent))
            ),
        };
        format!(
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"worth\"><caption>Load {}: {} \
             <code>{name}</code>, {better}</caption><thead><tr><th scope=\"col\">switch</th>\
             <th scope=\"col\" class=\"n\">ratio</th><th scope=\"col\" class=\"n\">95 % interval</th>\
             <th scope=\"col\">verdict</th><th scope=\"col\">what else was on</th>\
             <th scope=\"col\">measured (UTC)</th></tr></thead><tbody>{rows}</tbody></table></div>{silent}",
            escape(load.name),
            escape(&words::metric(name)),
        )
    }

    fn over_time(&self, load: &LoadText<'_>) -> Option<String> {
        let name = load.judged.first()?;
        let best = |outcome| {
            let (arm, metric) = words::best(outcome, name)?;
            Some(BestOf { when: minute(outcome), arm: &arm.name, metric })
        };
        let runs: Vec<BestOf<'_>> = self.under(load).filter_map(best).take(RUNS_SHOWN).collect();
        let chart = ladder::over_time(&runs, name, &format!("time-{}", load.name))?;
        Some(format!(
            "<figure><figcaption><h3>Load {}: {}</h3> One line an experiment, newest first: the best \
             arm of its own, against the baseline of the same run.</figcaption>{chart}</figure>",
            escape(load.name),
            escape(&words::metric(name))
        ))
    }

    fn meanings(&self) -> String {
        let item = |switch: &Switch| {
            let scope = match switch.scope {
                model::Scope::Process => "the process",
                model::Scope::Interface => "the interface",
                model::Scope::Host => "the host",
                model::Scope::Guest => "the guest",
            };
            let needs = match switch.needs {
                "" => String::new(),
                needs => format!("; needs {needs}"),
            };
            format!(
                "<div><dt><code>{}</code></dt><dd>{}<p>Changes {scope}{}. Described in {}.</p></dd></div>",
                escape(switch.id),
                escape(switch.effect),
                escape(&needs),
                escape(switch.source)
            )
        };
        let items: String = self.switches.iter().map(item).collect();
        format!(
            "<p class=\"muted\">In the order of the ladder.</p><dl class=\"switches\">{items}</dl>"
        )
    }

    fn load_table(&self) -> String {
        let of_load = |load: &LoadText<'_>| {
            let judged: Vec<String> = load.judged.iter().map(|name| words::metric(name)).collect();
            (load.name.to_owned(), format!("{}; judged by {}", load.what, words::listed(&judged)))
        };
        super::terms(&self.loads.iter().map(of_load).collect::<Vec<_>>())
    }
}

fn row(switch: &Switch, outcome: &Outcome, worth: &steps::Worth, linked: bool) -> String {
    let (ratio, interval) = match &worth.step {
        Some(step) => {
            let (low, high) = (units::digits(step.interval.low), units::digits(step.interval.high));
            (units::ratio(step.ratio), format!("[{low}, {high}]"))
        }
        None => ("–".into(), "–".into()),
    };
    let beside = match (&worth.step, worth.beside.is_empty()) {
        (None, _) => "–".to_owned(),
        (_, true) => "nothing".to_owned(),
        (_, false) => worth.beside.join(" "),
    };
    let when = minute(outcome);
    let when = match linked {
        true => {
            format!("<a href=\"{}\">{}</a>", served::experiment_url(&outcome.id), escape(&when))
        }
        false => format!("{}, <code>{}</code>", escape(&when), escape(&outcome.id)),
    };
    format!(
        "<tr><th scope=\"row\"><code>{}</code></th><td class=\"n\">{ratio}</td>\
         <td class=\"n\">{interval}</td><td class=\"{}\">{}</td><td class=\"wrap\">{}</td>\
         <td>{when}</td></tr>",
        escape(switch.id),
        verdict_class(Some(worth.verdict)),
        words::verdict(worth.verdict),
        escape(&beside),
    )
}

/// `2026-11-21 08:30`.
fn minute(outcome: &Outcome) -> String {
    let whole = readable_time(&outcome.started);
    whole.get(..16).unwrap_or(&whole).to_owned()
}

/// All paths, each with a link to its page: name and what it is.
pub fn paths(all: &[(&str, &str)]) -> String {
    let mut body = served::heading("Paths", "What can be measured, switch by switch.");
    let item = |(name, what): &(&str, &str)| {
        format!(
            "<div><dt><a href=\"/path/{}\">{}</a></dt><dd>{}</dd></div>",
            served::url(name),
            escape(name),
            escape(what)
        )
    };
    let items: String = all.iter().map(item).collect();
    body.push_str(&section("Paths", &format!("<dl>{items}</dl>")));
    Shell::Served { here: "/paths", live: false }.page("Paths", &body)
}
