//! Rows of figures, as aligned text or as JSON objects with the same names.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::args::Cli;
use crate::console;
use crate::end::Failure;

/// A table under construction; a column's name carries its unit.
pub(super) struct Table {
    command: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Vec<Value>>,
}

impl Table {
    pub(super) fn new(command: &'static str, columns: &'static [&'static str]) -> Self {
        Table { command, columns, rows: Vec::new() }
    }

    /// One value a column.
    pub(super) fn row(&mut self, values: Vec<Value>) {
        self.rows.push(values);
    }

    /// Prints it, with `more` beside the rows in JSON and after them as text.
    pub(super) fn print(&self, cli: &Cli, more: &[(&str, Value)]) -> Result<(), Failure> {
        if cli.json {
            return console::text(&format!("{:#}", self.document(more)));
        }
        console::text(&self.text(more))
    }

    fn document(&self, more: &[(&str, Value)]) -> Value {
        let object = |row: &Vec<Value>| -> Value {
            let named = self.columns.iter().map(|name| (*name).to_owned()).zip(row.iter().cloned());
            Value::Object(named.collect::<Map<_, _>>())
        };
        let rows: Vec<Value> = self.rows.iter().map(object).collect();
        let mut document =
            json!({ "schema": model::SCHEMA, "command": self.command, "rows": rows });
        for (name, value) in more {
            document[*name] = value.clone();
        }
        document
    }

    fn text(&self, more: &[(&str, Value)]) -> String {
        let head: Vec<String> = self.columns.iter().map(|name| (*name).to_owned()).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(word).collect());
        let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        let widest = |column: usize| {
            all.iter().filter_map(|row| row.get(column)).map(|word| word.chars().count()).max()
        };
        let mut out = String::new();
        for row in &all {
            let mut line = String::new();
            for (column, word) in row.iter().enumerate() {
                let width = widest(column).unwrap_or(0);
                // The first column is what the row is about.
                let _ = match column {
                    0 => write!(line, "{word:<width$}"),
                    _ => write!(line, "  {word:>width$}"),
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        for (name, value) in more {
            let _ = writeln!(out, "{name}: {}", word(value));
        }
        out
    }
}

/// A value in a text; fractions with two digits.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "–".to_owned(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.2}", number.as_f64().unwrap_or(f64::NAN))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_document_say_the_same() {
        let mut table = Table::new("guest bench x", &["switches", "p50_us"]);
        table.row(vec![json!("baseline"), json!(163.251)]);
        table.row(vec![json!("quiet"), Value::Null]);
        let more = [("ratio", json!(5.1234))];
        let text = table.text(&more);
        assert_eq!(text, "switches  p50_us\nbaseline  163.25\nquiet          –\nratio: 5.12\n");
        let document = table.document(&more);
        assert_eq!(document["rows"][0]["p50_us"], 163.251);
        assert_eq!(document["ratio"], 5.1234);
        assert_eq!(document["command"], "guest bench x");
    }
}
