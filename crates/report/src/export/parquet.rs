//! The table of trials as Apache Parquet.
//!
//! Texts repeat from line to line, so columns hold them once (dictionary encoding, which is the
//! library's default) and nothing is compressed beyond that.

use std::io::{self, Write};
use std::sync::Arc;

use model::Outcome;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::{Line, TEXTS, Table, lines};

/// Lines that are gathered before they are written, as one row group.
const GROUP_LINES: usize = 1 << 16;

/// The columns of [`super::TrialsCsv`]: texts as strings, `block` as a 32-bit integer, `value` as a
/// double that may be null.
pub struct TrialsParquet<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    waiting: Vec<Line>,
}

fn schema() -> Result<TypePtr, ParquetError> {
    let field = |name: &str, physical, logical, repetition| {
        let builder = Type::primitive_type_builder(name, physical);
        builder.with_logical_type(logical).with_repetition(repetition).build().map(Arc::new)
    };
    let text = |name: &&str| {
        field(name, Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED)
    };
    let mut fields = TEXTS.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    fields.push(field("block", Physical::INT32, None, Repetition::REQUIRED)?);
    fields.push(field("value", Physical::DOUBLE, None, Repetition::OPTIONAL)?);
    Type::group_type_builder("trials").with_fields(fields).build().map(Arc::new)
}

impl<W: Write + Send> TrialsParquet<W> {
    /// Begins the file.
    pub fn new(out: W) -> io::Result<Self> {
        let properties = Arc::new(WriterProperties::builder().build());
        let writer = schema().and_then(|schema| SerializedFileWriter::new(out, schema, properties));
        Ok(TrialsParquet { writer: writer.map_err(io::Error::other)?, waiting: Vec::new() })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let lines = std::mem::take(&mut self.waiting);
        let mut group = self.writer.next_row_group()?;
        for place in 0.. {
            let Some(mut column) = group.next_column()? else { break };
            if place < TEXTS.len() {
                let text = |line: &Line| ByteArray::from(line.texts[place].as_str());
                let texts: Vec<_> = lines.iter().map(text).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
            } else if place == TEXTS.len() {
                let blocks: Vec<_> = lines.iter().map(|line| line.block as i32).collect();
                column.typed::<Int32Type>().write_batch(&blocks, None, None)?;
            } else {
                let values: Vec<_> = lines.iter().filter_map(|line| line.value).collect();
                let is_there: Vec<_> =
                    lines.iter().map(|line| i16::from(line.value.is_some())).collect();
                column.typed::<DoubleType>().write_batch(&values, Some(&is_there), None)?;
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

impl<W: Write + Send> Table for TrialsParquet<W> {
    fn add(&mut self, outcome: &Outcome) -> io::Result<()> {
        self.waiting.extend(lines(outcome));
        match self.waiting.len() < GROUP_LINES {
            true => Ok(()),
            false => self.write_group().map_err(io::Error::other),
        }
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.write_group().map_err(io::Error::other)?;
        }
        self.writer.close().map(drop).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;
    use crate::json;

    #[test]
    fn a_file_holds_the_lines_of_the_table() {
        let golden = include_str!("../../tests/goldens/ping.json");
        let mut outcome = json::from_json(golden).unwrap();
        let metric = outcome.arms[0].metrics.values_mut().next().unwrap();
        metric.trials[0] = None;
        let mut out = Vec::new();
        let mut table = Box::new(TrialsParquet::new(&mut out).unwrap());
        table.add(&outcome).unwrap();
        table.add(&outcome).unwrap();
        table.finish().unwrap();

        let reader = SerializedFileReader::new(parquet_bytes(out)).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let expected = lines(&outcome);
        assert_eq!(rows.len(), 2 * expected.len());
        for (row, line) in rows.iter().zip(expected.iter().chain(&expected)) {
            for (place, (name, field)) in row.get_column_iter().enumerate() {
                match field {
                    Field::Str(text) => {
                        assert_eq!((name.as_str(), text), (TEXTS[place], &line.texts[place]));
                    }
                    Field::Int(block) => assert_eq!(*block as u32, line.block),
                    Field::Double(value) => assert_eq!(Some(*value), line.value),
                    Field::Null => assert_eq!((name.as_str(), line.value), ("value", None)),
                    other => panic!("{name} is {other:?}"),
                }
            }
        }
        assert!(rows.iter().any(|row| row.get_column_iter().any(|(_, f)| *f == Field::Null)));
    }

    /// What the library reads from.
    fn parquet_bytes(bytes: Vec<u8>) -> std::fs::File {
        use std::io::{Seek, Write};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        file
    }
}
