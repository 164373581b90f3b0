//! Page of a recording.

use maud::{Markup, html};

use super::svg::{self, At, Canvas, GRID, INK, LINES, Page};
use super::{Shell, arms, figure, heading, remarks, section, shortened, table};
use crate::page::{BarChart, SummaryPage, SummaryTable};

const ROW: f64 = 20.0;
const MARGIN: f64 = 8.0;
/// Least space to the right of the longest bar for its figure.
const FIGURE: f64 = 110.0;
/// Width of a character of a figure, by the size of the font.
const CHARACTER: f64 = 0.62;

/// The page as one HTML file, self-contained as all of them.
pub fn summary_page(page: &SummaryPage) -> String {
    let body = html! {
        (heading(&page.title, &page.about))
        (section("In short", &arms(
            page.answers.iter().map(|a| (a.tone, a.subject.as_str(), a.text.as_str()))
        )))
        @for (at, chart) in page.bars.iter().enumerate() {
            (section(&chart.title, &bars("", chart, at)))
        }
        @for part in page.tables.chunk_by(|a, b| a.section == b.section) {
            (section(&part[0].section, &html! { @for table in part { (figures(table)) } }))
        }
        (section("Notes", &remarks(&page.notes)))
        (section("Method", &html! { p { (page.method) } }))
    };
    Shell::File.page(&page.title, &body)
}

/// - `title`: over the caption; empty for none.
pub(super) fn bars(title: &str, chart: &BarChart, at: usize) -> Markup {
    let height = 2.0 * MARGIN + ROW * chart.bars.len() as f64;
    let most = chart.bars.iter().map(|bar| bar.value).max().unwrap_or(0).max(1) as f64;
    let longest = chart.bars.iter().map(|bar| bar.text.chars().count()).max().unwrap_or(0) as f64;
    let paint = |canvas: &mut Canvas, page: Page| {
        let (left, size) = if page == Page::Wide { (190.0, 12.5) } else { (110.0, 11.0) };
        let chars_max = page.pick([28, 14]);
        let width = page.width() - left - FIGURE.max(2.0 * MARGIN + CHARACTER * size * longest);
        canvas.line(&[(left, 0.0), (left, height)], GRID, 1.0);
        for (row, bar) in chart.bars.iter().enumerate() {
            let y = MARGIN + ROW * (row as f64 + 0.5);
            let label = shortened(&bar.label, chars_max);
            canvas.text(&label, (left - 10.0, y), size, INK, At::End);
            let end = left + width * bar.value as f64 / most;
            if bar.value > 0 {
                let color = LINES[bar.line * 5 % LINES.len()];
                canvas.rect((left, y - 6.0), (end.max(left + 1.0), y + 6.0), color);
            }
            canvas.text(&bar.text, (end + 8.0, y), size - 1.0, INK, At::Start);
        }
    };
    let drawing =
        svg::figure(&format!("bars{at}"), &chart.title, &chart.description, [height; 2], paint);
    figure(title, &html! { (chart.caption) }, &drawing)
}

fn figures(part: &SummaryTable) -> Markup {
    let titles: Vec<String> = part
        .columns
        .iter()
        .map(|(name, is_figure)| if *is_figure { format!(">{name}") } else { name.clone() })
        .collect();
    let columns: Vec<&str> = titles.iter().map(String::as_str).collect();
    let rows = html! {
        @for row in &part.rows {
            tr {
                @for (at, (text, (_, is_figure))) in row.iter().zip(&part.columns).enumerate() {
                    @if at == 0 { th scope="row" { (text) } }
                    @else { td class=[is_figure.then_some("n")] { (text) } }
                }
            }
        }
    };
    table(None, &html! { (part.caption) }, &columns, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Bar, SummaryAnswer};
    use crate::screen::Tone;

    fn bar(label: &str, value: u64, line: usize) -> Bar {
        Bar { label: label.into(), value, text: value.to_string(), line }
    }

    #[test]
    fn names_of_a_feed_cannot_carry_markup_and_the_largest_bar_fills_the_chart() {
        let page = SummaryPage {
            title: "Morning <b>".into(),
            answers: vec![SummaryAnswer {
                subject: "lost".into(),
                text: "<script>".into(),
                tone: Tone::Bad,
            }],
            bars: vec![BarChart {
                title: "Lead".into(),
                caption: "c".into(),
                description: "d".into(),
                bars: vec![bar("A", 50, 0), bar("B", 100, 1), bar("none", 0, 0)],
            }],
            tables: vec![SummaryTable {
                section: "Lines".into(),
                caption: "by line".into(),
                columns: vec![("line".into(), false), ("lost".into(), true)],
                rows: vec![vec!["<i>".into(), "7".into()]],
            }],
            ..SummaryPage::default()
        };
        let html = summary_page(&page);
        assert!(!html.contains("<script>") && !html.contains("<i>"), "{html}");
        assert!(html.contains("td class=\"n\">7"), "{html}");
        // The wide drawing: 560 px for 100, half of it for 50, no bar for 0.
        assert!(html.contains("width=\"560.0\"") && html.contains("width=\"280.0\""), "{html}");
        assert_eq!(html.matches("<rect").count(), 4);
        // Longer figures get more room.
        let long = SummaryPage {
            bars: vec![BarChart {
                bars: vec![Bar { text: "12,762,656 (64.0 %)".into(), ..bar("A", 100, 0) }],
                ..page.bars[0].clone()
            }],
            ..page
        };
        assert!(summary_page(&long).contains("width=\"506.8\""), "{}", summary_page(&long));
    }
}
