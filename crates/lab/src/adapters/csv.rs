//! Figures from a table of comma-separated values (RFC 4180).

use csv::{ByteRecord, ReaderBuilder, Trim};

use super::error::{Reason, quoted};

/// Returns the field of the last row in a column. The header is the first row that has the column.
pub(super) fn last(output: &[u8], column: &str) -> Result<Vec<u8>, Reason> {
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).trim(Trim::All).from_reader(output);
    let mut header: Option<(usize, usize)> = None;
    let mut record = ByteRecord::new();
    let mut last = ByteRecord::new();
    // Reading from memory fails in no other way than at the end.
    while reader.read_byte_record(&mut record).unwrap_or(false) {
        // A line of blanks.
        if record.iter().all(<[u8]>::is_empty) && record.len() == 1 {
            continue;
        }
        if header.is_some() {
            std::mem::swap(&mut record, &mut last);
        } else if let Some(at) = record.iter().position(|field| field == column.as_bytes()) {
            if record.iter().filter(|field| *field == column.as_bytes()).count() > 1 {
                return Err(Reason::ColumnTwice { column: column.into() });
            }
            header = Some((at, record.len()));
        }
    }
    let Some((at, field_count)) = header else {
        let first = output.trim_ascii_start().split(|byte| *byte == b'\n').next();
        let first = quoted(first.unwrap_or_default());
        return Err(Reason::NoColumn { column: column.into(), first });
    };
    match last.get(at) {
        _ if last.is_empty() => Err(Reason::NoRow),
        Some(field) if last.len() == field_count => Ok(field.to_vec()),
        _ => Err(Reason::FieldCount { found: last.len(), header: field_count }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Benchmark of 8 connections, \"quoted
test,rps,\"p99, ms\"
\"SET\",\"40733.20\",\"0.279\"
\"a \"\"name\"\"\",\"46620.05\",0.231
\x20
";

    #[test]
    fn last_row_counts_and_fields_may_be_quoted() {
        assert_eq!(last(TABLE.as_bytes(), "rps").unwrap(), b"46620.05");
        assert_eq!(last(TABLE.as_bytes(), "p99, ms").unwrap(), b"0.231");
        assert_eq!(last(TABLE.replace('\n', "\r\n").as_bytes(), "rps").unwrap(), b"46620.05");
    }

    fn error(text: &str, column: &str) -> Reason {
        last(text.as_bytes(), column).unwrap_err()
    }

    #[test]
    fn a_table_without_the_field_is_an_error() {
        assert!(
            matches!(error(TABLE, "p50"), Reason::NoColumn { first, .. } if first.contains("Bench"))
        );
        assert_eq!(error("a,b\n", "a"), Reason::NoRow);
        assert_eq!(error("a,b\n1,2\ndone\n", "a"), Reason::FieldCount { found: 1, header: 2 });
        assert_eq!(error("a,b\n1\n", "b"), Reason::FieldCount { found: 1, header: 2 });
        assert_eq!(error("a,a\n1,2\n", "a"), Reason::ColumnTwice { column: "a".into() });
    }
}
