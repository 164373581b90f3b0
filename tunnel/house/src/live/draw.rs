//! Layout of the live view: rates with their last minute, tables side by side, notes, keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::{bar, border};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline};

use super::{LiveTable, Rate, Scene};

/// Lines of a rate: its figures and two of bars.
const RATE_LINES: u16 = 3;
/// Notes shown, with the line above them.
const NOTE_LINES: u16 = 5;

const BARS: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "+",
    five_eighths: "+",
    half: "=",
    three_eighths: "=",
    one_quarter: "-",
    one_eighth: ".",
    empty: " ",
};

/// Capabilities of the terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looks {
    pub color: bool,
    pub ascii: bool,
}

impl Looks {
    fn text(self, text: &str) -> String {
        if self.ascii { text.chars().map(report::text::ascii).collect() } else { text.into() }
    }

    fn color(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    fn block(self, title: &str) -> Block<'static> {
        let line = if self.ascii { "-" } else { border::PLAIN.horizontal_top };
        let set = border::Set { horizontal_top: line, ..border::PLAIN };
        Block::new()
            .borders(Borders::TOP)
            .border_set(set)
            .title(Span::styled(format!("{} ", self.text(title)), Modifier::BOLD))
    }
}

/// Draws the view on the whole terminal of any size.
pub(super) fn draw(frame: &mut Frame<'_>, scene: &Scene, notes: &[String], looks: Looks) {
    let [head, rates, tables, note_area, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(RATE_LINES * scene.rates.len() as u16),
        Constraint::Min(2),
        Constraint::Length(NOTE_LINES),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let up = format!("{} s", scene.up.as_secs());
    frame.render_widget(ends(&looks.text(&scene.title), &up, head, Modifier::REVERSED), head);
    let areas = Layout::vertical(vec![Constraint::Length(RATE_LINES); scene.rates.len()]);
    for (rate, area) in scene.rates.iter().zip(areas.split(rates).iter()) {
        draw_rate(frame, rate, *area, looks);
    }
    let areas = Layout::horizontal(vec![Constraint::Fill(1); scene.tables.len()]).spacing(2);
    for (table, area) in scene.tables.iter().zip(areas.split(tables).iter()) {
        draw_table(frame, table, *area, looks);
    }
    let block = looks.block("notes");
    let room = usize::from(block.inner(note_area).height);
    let newest = &notes[notes.len().saturating_sub(room)..];
    let lines: Vec<Line<'_>> = newest.iter().map(|note| looks.text(note).into()).collect();
    frame.render_widget(Paragraph::new(lines).block(block), note_area);
    frame.render_widget(Line::styled(looks.text(scene.keys), Modifier::DIM), keys);
}

fn draw_rate(frame: &mut Frame<'_>, rate: &Rate, area: Rect, looks: Looks) {
    let [figures, bars] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let now = rate.per_second.back().copied().unwrap_or(0);
    let most = rate.per_second.iter().max().copied().unwrap_or(0);
    let left = format!("{:<14} {now:>9}/s  at most {most}/s", looks.text(rate.name));
    frame.render_widget(
        ends(&left, &format!("{} in all", rate.count), figures, Modifier::BOLD),
        figures,
    );
    let shown = rate.per_second.len().min(usize::from(bars.width));
    let set = if looks.ascii { BARS } else { bar::NINE_LEVELS };
    let newest = rate.per_second.iter().skip(rate.per_second.len() - shown);
    frame.render_widget(
        Sparkline::default().data(newest).bar_set(set).style(looks.color(Color::Cyan)),
        bars,
    );
}

fn draw_table(frame: &mut Frame<'_>, table: &LiveTable, area: Rect, looks: Looks) {
    let block = looks.block(table.title);
    let inner = block.inner(area);
    let room = usize::from(inner.height);
    let style = if table.warns { looks.color(Color::Red) } else { Style::new() };
    // What does not fit is not passed over in silence.
    let shown = if table.rows.len() > room { room.saturating_sub(1) } else { table.rows.len() };
    let mut lines: Vec<Line<'_>> = table.rows[..shown]
        .iter()
        .map(|(name, figure): &(String, String)| {
            ends(&looks.text(name), &looks.text(figure), inner, Modifier::empty()).style(style)
        })
        .collect();
    if shown < table.rows.len() {
        lines.push(format!("and {} more", table.rows.len() - shown).into());
    }
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// A line with one text at its left and one at its right.
fn ends(left: &str, right: &str, area: Rect, modifier: Modifier) -> Line<'static> {
    let (left, right) = (Span::raw(left.to_owned()), Span::raw(right.to_owned()));
    let gap = usize::from(area.width).saturating_sub(left.width() + right.width()).max(1);
    Line::from(vec![left, " ".repeat(gap).into(), right]).style(Style::new().add_modifier(modifier))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::path::Path;
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn scene() -> Scene {
        let rate = |name, most: u64| Rate {
            name,
            count: 123_456_789,
            per_second: (0..60).map(|n| most * n / 59).collect::<VecDeque<_>>(),
        };
        let rows = |names: Vec<String>| {
            names.into_iter().enumerate().map(|(n, name)| (name, (n * 1000).to_string())).collect()
        };
        let reasons = (0..12).map(|n| format!("reason_{n}")).collect();
        let workers = vec!["worker 0".into(), "worker 1".into()];
        Scene {
            title: "wirepath tunnel run  bürø.toml".into(),
            up: Duration::from_secs(754),
            rates: vec![rate("into tunnels", 2_000_000), rate("out of tunnels", 30)],
            tables: vec![
                LiveTable { title: "dropped", rows: rows(reasons), warns: true },
                LiveTable { title: "workers", rows: rows(workers), warns: false },
                LiveTable { title: "state", rows: rows(vec!["addresses".into()]), warns: false },
            ],
            keys: "q ends · SIGHUP reads the file again",
        }
    }

    fn drawn(width: u16, height: u16, looks: Looks) -> Terminal<TestBackend> {
        let notes: Vec<_> = (0..9).map(|n| format!("note {n} → far end\u{1b}[31m")).collect();
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &scene(), &notes, looks)).unwrap();
        terminal
    }

    fn golden(name: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
        if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            wanted == text,
            "{name} differs; if that is meant, run with UPDATE=1. Now:\n{text}"
        );
    }

    fn text_of(terminal: &Terminal<TestBackend>) -> String {
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        for line in buffer.content().chunks(usize::from(buffer.area.width)) {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    #[test]
    fn picture_fits_80_by_24() {
        let text = text_of(&drawn(80, 24, Looks { color: true, ascii: false }));
        golden("live.txt", &text);
        let text = text_of(&drawn(80, 24, Looks { color: false, ascii: true }));
        assert!(text.is_ascii(), "{text}");
        golden("live-ascii.txt", &text);
    }

    #[test]
    fn there_is_no_color_where_none_is_wanted() {
        let colored = |color| {
            let terminal = drawn(80, 24, Looks { color, ascii: false });
            let cells = terminal.backend().buffer().content().iter();
            cells.filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
        };
        assert_eq!(colored(false), 0);
        assert!(colored(true) > 0);
    }

    #[test]
    fn every_size_can_be_drawn_on() {
        for (width, height) in [(1, 1), (3, 40), (200, 2), (20, 8), (300, 100)] {
            drawn(width, height, Looks { color: true, ascii: false });
        }
    }
}
