//! A proof on a running service, as a page: its answer, and each period on a time line.

use maud::{Markup, html};
use model::live::{LiveArm, LivePeriodRecord};

use super::svg::{self, At, Canvas, FLOOR, GRID, INK, LINES, MUTED, Page, Scale};
use super::{Shell, class, figure, fold, heading, section, sentences, table, terms};
use crate::live::LiveProof;
use crate::page::{LivePage, LiveTimeline};
use crate::screen::Tone;
use crate::units;

/// The proof as one self-contained HTML file.
pub fn live_page(proof: &LiveProof) -> String {
    let page = LivePage::from_proof(proof);
    let body = html! {
        (heading(&page.title, &page.caption))
        (section("Answer", &answer(&page)))
        (section("Periods", &periods(&page.timeline)))
        (section("Figures", &figures(&page)))
        (section("Guard", &guard(&page)))
        (fold("Settings", &settings(&page)))
        (fold("The run", &terms(page.facts.iter().map(|(what, text)| (what.as_str(), text.as_str())))))
        (fold("Not measured here", &terms(page.absent.iter().map(|(what, why)| (what.as_str(), why.as_str())))))
    };
    Shell::File.page(&page.title, &body)
}

fn answer(page: &LivePage) -> Markup {
    html! {
        (sentences(&page.sentences))
        p class=(class(page.trust.1)) { (page.trust.0) "." }
        p class=(class(page.end.1)) { (page.end.0) }
    }
}

fn figures(page: &LivePage) -> Markup {
    let columns = ["figure", ">baseline", ">on over off", "verdict", ">evidence", ">decided after"];
    let rows = html! {
        @for row in &page.rows {
            tr {
                th scope="row" { (row.figure) }
                td.n { (row.baseline) }
                td.n { (row.ratio) }
                td { span class=(class(row.tone)) { (row.verdict) } }
                td.n { (row.evidence) }
                td.n { (row.decided) }
            }
        }
    };
    let caption =
        html! { "Medians over the pairs; evidence that decides is 20 times the number of figures" };
    table(None, &caption, &columns, &rows)
}

/// Nothing without a trip.
fn guard(page: &LivePage) -> Markup {
    let rows = html! {
        @for [at, arm, reason, undone] in &page.trips {
            tr { th scope="row" { (at) } td { (arm) } td { (reason) } td.n { (undone) } }
        }
    };
    html! {
        @if !page.trips.is_empty() {
            (table(None, &html! { "The same rules watch periods with and without the plan" },
                &["after", "period", "reason", ">undone after"], &rows))
        }
    }
}

fn settings(page: &LivePage) -> Markup {
    let rows = html! {
        @for [what, off, on] in &page.settings {
            tr { th scope="row" { (what) } td { (off) } td { (on) } }
        }
    };
    table(None, &html! { "Switched together" }, &["setting", "off", "on"], &rows)
}

/// A band of periods, and a strip for each figure.
fn periods(line: &LiveTimeline) -> Markup {
    if line.periods.is_empty() {
        return html! {};
    }
    let heights = [height(line, Page::Wide), height(line, Page::Narrow)];
    let caption = html! {
        "Upper half: periods with the plan; lower half: without it; paler: washed out; a red mark: the guard ended it. Below, "
        "the figures of each period: blue with the plan, grey without it."
    };
    let title = "Periods and their figures over time";
    figure(
        "",
        &caption,
        &svg::figure("periods", title, &line.description, heights, |canvas, page| {
            draw(canvas, page, line);
        }),
    )
}

const TOP: f64 = 10.0;
const BAND: f64 = 44.0;
const GAP: f64 = 26.0;
const BOTTOM: f64 = 40.0;

fn strip(page: Page) -> f64 {
    page.pick([110.0, 90.0])
}

fn height(line: &LiveTimeline, page: Page) -> f64 {
    TOP + BAND + line.figures.len() as f64 * (GAP + strip(page)) + BOTTOM
}

fn draw(canvas: &mut Canvas, page: Page, line: &LiveTimeline) {
    let (left, right) = (page.pick([70.0, 46.0]), page.width() - 10.0);
    let end_s = line.periods.last().map_or(0, |period| period.end_ns) as f64 / 1e9;
    let Some(x) = Scale::over([0.0, end_s.max(1.0)].into_iter(), (left, right), f64::INFINITY)
    else {
        return;
    };
    let seconds = |ns: u64| x.at(ns as f64 / 1e9);
    canvas.text("on", (left - 8.0, TOP + BAND * 0.25), 11.0, MUTED, At::End);
    canvas.text("off", (left - 8.0, TOP + BAND * 0.75), 11.0, MUTED, At::End);
    for period in &line.periods {
        band(canvas, period, &seconds);
    }
    for (number, (name, unit, place)) in line.figures.iter().enumerate() {
        let top = TOP + BAND + GAP + number as f64 * (GAP + strip(page));
        values(canvas, line, *place, (&x, (left, right)), (top, top + strip(page)), (name, unit));
    }
    let bottom = height(line, page) - BOTTOM;
    for tick in x.ticks(page.pick([8, 4])) {
        if tick >= 0.0 && tick <= end_s {
            canvas.text(
                &svg::trimmed(&units::digits(tick)),
                (x.at(tick), bottom + 14.0),
                11.0,
                MUTED,
                At::Middle,
            );
        }
    }
    canvas.text(
        "seconds since the first switch",
        ((left + right) / 2.0, bottom + 31.0),
        11.0,
        MUTED,
        At::Middle,
    );
}

fn band(canvas: &mut Canvas, period: &LivePeriodRecord, seconds: &impl Fn(u64) -> f64) {
    let (top, color) = match period.arm {
        LiveArm::On => (TOP, LINES[0]),
        LiveArm::Off => (TOP + BAND / 2.0, MUTED),
    };
    let bottom = top + BAND / 2.0 - 1.0;
    let (begin, counted) = (seconds(period.switched_ns), seconds(period.counted_ns));
    canvas.rect((begin, top), (counted, bottom), FLOOR);
    canvas.rect((counted, top), (seconds(period.end_ns).max(counted), bottom), color);
    if let Some(trip) = &period.trip {
        let at = seconds(trip.at_ns);
        canvas.rect((at - 1.5, TOP - 4.0), (at + 1.5, TOP + BAND + 4.0), svg::color(Tone::Bad));
    }
}

fn values(
    canvas: &mut Canvas,
    line: &LiveTimeline,
    place: usize,
    (x, (left, right)): (&Scale, (f64, f64)),
    (top, bottom): (f64, f64),
    (name, unit): (&str, &str),
) {
    let value = |period: &LivePeriodRecord| period.values.get(place).copied().flatten();
    let all = line.periods.iter().filter_map(value);
    let Some(y) = Scale::over(all, (bottom, top), 6.0) else { return };
    canvas.text(name, (left, top - 8.0), 11.0, INK, At::Start);
    for tick in y.ticks(3) {
        canvas.line(&[(left, y.at(tick)), (right, y.at(tick))], GRID, 1.0);
        // A unit of several words does not fit.
        let unit = if unit.contains(' ') { "" } else { unit };
        let text = svg::trimmed(&units::value(tick, unit));
        canvas.text(&text, (left - 6.0, y.at(tick)), 10.0, MUTED, At::End);
    }
    for period in &line.periods {
        let Some(value) = value(period) else { continue };
        let middle = (period.counted_ns + period.end_ns) as f64 / 2e9;
        let color = if period.arm == LiveArm::On { LINES[0] } else { MUTED };
        canvas.dot((x.at(middle), y.at(value)), 2.5, color);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::sample;

    #[test]
    fn page_has_a_mark_for_each_period_and_escapes_what_it_shows() {
        let proof = sample();
        let page = live_page(&proof);
        // Two rectangles a period and one a trip, on a wide page and a narrow one.
        let trips = proof.periods.iter().filter(|period| period.trip.is_some()).count();
        assert_eq!(page.matches("<rect").count(), 2 * (2 * proof.periods.len() + trips));
        assert!(page.contains("&lt;eth1&gt;") && !page.contains("<eth1>"), "settings are escaped");
        assert!(page.contains("5.1 % less with the plan"));
        if let Ok(file) = std::env::var("WIREPATH_SAMPLE_PAGE") {
            std::fs::write(file, page).unwrap();
        }
    }
}
