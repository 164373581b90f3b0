//! `wirepath history export`.

use std::io::{self, BufWriter, Write};

use host::output_file::OutputFile;
use house::console;
use house::context::Context;
use model::Outcome;
use remote::Failure;
use report::export::{OtavaRows, Table, TrialsCsv, TrialsJson};
use report::store::{Filter, SqliteStore, Store};

use super::args::{ExportArgs, Format};
use crate::results;

pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<(), Failure> {
    let store = results::database(context).open_reading()?;
    let mut ids = args.ids.clone();
    if args.all {
        ids = store.list(&Filter::default())?.into_iter().map(|row| row.id).collect();
        // Oldest first.
        ids.reverse();
    }
    #[cfg(feature = "fleet")]
    if args.share {
        return super::share::run(context, args, &store, &ids);
    }
    let Some(file) = &args.out else {
        let mut out = Vec::new();
        write(&store, &ids, args.format, &mut out)?;
        return match args.format {
            Format::Csv | Format::Otava => console::bytes(&out),
            Format::Json => console::text(&String::from_utf8_lossy(&out)),
        };
    };
    let mut out = BufWriter::new(OutputFile::create(file)?);
    write(&store, &ids, args.format, &mut out)?;
    let out = out.into_inner().map_err(|error| Failure::failed(not_written(error.error())))?;
    out.finish()?;
    console::say(&format!("wrote {}", file.display()));
    Ok(())
}

fn write(
    store: &SqliteStore,
    ids: &[String],
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::failed(not_written(&error));
    let mut table: Box<dyn Table + '_> = match format {
        Format::Csv => Box::new(TrialsCsv::new(out).map_err(failed)?),
        Format::Json => Box::new(TrialsJson::new(out).map_err(failed)?),
        Format::Otava => return out.write_all(otava(store, ids)?.as_bytes()).map_err(failed),
    };
    for id in ids {
        table.add(&outcome(store, id)?).map_err(failed)?;
    }
    table.finish().map_err(failed)
}

/// Outcome of a stored experiment by its id, or a prefix of it.
pub(super) fn outcome(store: &SqliteStore, id: &str) -> Result<Outcome, Failure> {
    Ok(results::outcome_of(store.load_outcome(id).map_err(runner::store_failure)?))
}

/// Runs of one series for Apache Otava; says which figures have gaps.
fn otava(store: &SqliteStore, ids: &[String]) -> Result<String, Failure> {
    let mut rows = OtavaRows::default();
    for id in ids {
        rows.add(&outcome(store, id)?);
    }
    let file = rows.finish().map_err(Failure::usage)?;
    if !file.left_out.is_empty() {
        let columns = file.left_out.join(", ");
        console::say(&format!("left out, as not every run has them: {columns}"));
    }
    Ok(file.text)
}

fn not_written(error: &io::Error) -> String {
    format!("cannot write the export: {error}")
}
