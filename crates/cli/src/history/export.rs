//! `wirepath history export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use report::export::{Table, TrialsCsv, TrialsJson};
use report::store::{Filter, SqliteStore, Store};

use super::args::{ExportArgs, Format};
use crate::context::Context;
use crate::exit::Failure;
use crate::{console, results};

pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<(), Failure> {
    let store = results::open_reading(context)?;
    let mut ids = args.ids.clone();
    if args.all {
        ids = store.list(&Filter::default())?.into_iter().map(|row| row.id).collect();
        // Oldest first.
        ids.reverse();
    }
    let Some(file) = &args.output else {
        let mut out = Vec::new();
        write(&store, &ids, args.format, &mut out)?;
        return console::bytes(&out);
    };
    let failed = |e: io::Error| Failure::failed(format!("cannot write {}: {e}", file.display()));
    // Written beside it first: a full disk must not leave half a table under the final name.
    let part = part_of(file);
    let mut out = BufWriter::new(File::create(&part).map_err(failed)?);
    let written = write(&store, &ids, args.format, &mut out)
        .and_then(|()| out.flush().map_err(failed))
        .and_then(|()| std::fs::rename(&part, file).map_err(failed));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
        return written;
    }
    console::say(&format!("wrote {}", file.display()));
    Ok(())
}

fn part_of(file: &Path) -> std::path::PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn write(
    store: &SqliteStore,
    ids: &[String],
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::failed(format!("cannot write the export: {e}"));
    let mut table: Box<dyn Table + '_> = match format {
        Format::Csv => Box::new(TrialsCsv::new(out).map_err(failed)?),
        Format::Json => Box::new(TrialsJson::new(out).map_err(failed)?),
    };
    for id in ids {
        table.add(&results::outcome_of(store.load(id)?)).map_err(failed)?;
    }
    table.finish().map_err(failed)
}
