//! `wirepath feed report`, and the page of `feed listen --html`.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use host::output_file::ReservedFile;
use host::text::chain;
use house::args::parse_duration;
use house::context::Context;
use house::{console, privileges, signals};
use marketdata::arbiter::ArbiterLimits;
use marketdata::capture::Reader;
use marketdata::listen::{ListenReport, RecordedError, RecordedPlan, Recording, read};
use remote::Failure;

use super::books::BookArgs;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Recording of one line or both: pcap or pcapng, also compressed (gzip)
    file: PathBuf,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Destination of line A in the recording (default: the first one found, the second is line B)
    #[arg(long, value_name = "GROUP:PORT")]
    from: Option<SocketAddrV4>,
    /// Destination of line B
    #[arg(long, value_name = "GROUP:PORT", requires = "from")]
    from_b: Option<SocketAddrV4>,
    /// Time to wait for missing messages
    #[arg(long, default_value = "5ms", value_parser = parse_duration)]
    hold: Duration,
    /// Sequences start at 1: messages missing before the first one are a gap
    #[arg(long)]
    from_start: bool,
    #[command(flatten)]
    books: BookArgs,
}

pub(crate) fn run(context: &Context, args: &ReportArgs) -> Result<(), Failure> {
    let mut reader = Reader::open(&args.file).map_err(super::capture_failure)?;
    let page = args.html.as_deref().map(PageFile::create).transpose()?;
    privileges::drop_all().map_err(Failure::failed)?;
    let plan = RecordedPlan {
        from: [args.from, args.from_b].into_iter().flatten().collect(),
        limits: ArbiterLimits {
            hold_ns: args.hold.as_nanos() as u64,
            from_one: args.from_start,
            ..ArbiterLimits::default()
        },
        books: args.books.capacity(false),
        books_shown: args.books.shown(),
    };
    let mut report = ListenReport::recording(&plan.from);
    let recording = read(&mut reader, &plan, signals::stop_flag(), |interval| {
        super::listen::tell(interval);
        report.end(interval);
    });
    let Recording { lines, damage, foreign } = recording.map_err(failed)?;
    report.set_lines(&lines);
    if let Some(said) = foreign {
        report.note(said.clone());
        console::say(&format!("left out: {said}"));
    }
    if let Some(damage) = &damage {
        report.note(format!("the recording was not read to its end: {}", chain(damage)));
    }
    if let Some(said) = super::skipped(reader.counts()) {
        console::say(&said);
    }
    report.late = reader.late();
    if context.json {
        console::json(&report.summary_document())?;
    } else {
        console::text(&report.summary_text())?;
    }
    page.map_or(Ok(()), |page| page.write(&report, &args.file.display().to_string()))?;
    damage.map_or(Ok(()), |damage| Err(Failure::from_chain(&damage)))
}

fn failed(error: RecordedError) -> Failure {
    match error {
        RecordedError::Capture(error) => Failure::from_chain(&error),
        RecordedError::Foreign { .. } => Failure::failed(error.to_string()),
        error => Failure::Usage(error.to_string()),
    }
}

/// File of a page, reserved before the run, so that a wrong path costs no morning.
pub(super) struct PageFile {
    path: PathBuf,
    file: ReservedFile,
}

impl PageFile {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        Ok(PageFile { path: path.to_owned(), file: ReservedFile::create(path)? })
    }

    /// - `origin`: recording, or groups.
    pub(super) fn write(self, report: &ListenReport, origin: &str) -> Result<(), Failure> {
        let about = format!("{origin} · {}", concat!("wirepath ", env!("CARGO_PKG_VERSION")));
        let Some(page) = report.page("Quality of the feed", &about) else { return Ok(()) };
        let html = report::html::summary_page(&page);
        self.file.write(html.as_bytes())?;
        console::say(&format!("page in {}", self.path.display()));
        Ok(())
    }
}
