//! Code that processes have mapped, and its functions.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sys::sampling::CodeMapping;

use super::elf::ElfFunctions;
use crate::text::printable;

/// Most processes whose mappings are known at a time.
const PROCESSES_MAX: usize = 1 << 15;
/// Most mappings of one process.
const MAPPINGS_MAX: usize = 1 << 12;
/// Most files whose functions are read; others give their name.
const FILES_MAX: usize = 256;
/// Most memory that the functions of all files take.
const FUNCTIONS_BYTES_MAX: usize = 256 << 20;

/// Place of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CodePlace {
    Kernel {
        address: u64,
    },
    File {
        file: usize,
        offset_bytes: u64,
    },
    /// In no mapping that is known.
    Unknown,
}

/// Mappings of processes, by process.
#[derive(Debug, Default)]
pub(super) struct ProcessCode {
    mapped: HashMap<u32, Arc<Vec<Mapped>>>,
    /// Processes whose mappings could not be read.
    unknown: HashSet<u32>,
    pub(super) files: CodeFiles,
}

/// Code of a process that is part of a file; in ascending order and without overlap.
#[derive(Debug, Clone, Copy)]
struct Mapped {
    start: u64,
    end: u64,
    offset_bytes: u64,
    file: usize,
}

impl ProcessCode {
    /// Reads the mappings of a process that runs.
    pub(super) fn read(&mut self, pid: u32) {
        let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        if self.mapped.len() >= PROCESSES_MAX {
            return;
        }
        // One without code is about to execute a program, whose mappings are recorded.
        self.mapped.insert(pid, Arc::default());
        text.lines().filter_map(code_mapping).for_each(|mapping| self.map(pid, mapping));
    }

    /// Mappings of processes that do not descend from those that were read are not kept.
    pub(super) fn map(&mut self, pid: u32, mapping: CodeMapping) {
        let Some(mapped) = self.mapped.get_mut(&pid) else { return };
        let CodeMapping { start, len_bytes, offset_bytes, inode, path } = mapping;
        let end = start.saturating_add(len_bytes);
        let mapped = Arc::make_mut(mapped);
        mapped.retain(|of| of.end <= start || of.start >= end);
        if mapped.len() >= MAPPINGS_MAX {
            return;
        }
        let file = self.files.find(&path, inode, pid);
        let at = mapped.partition_point(|of| of.start < start);
        mapped.insert(at, Mapped { start, end, offset_bytes, file });
    }

    pub(super) fn fork(&mut self, pid: u32, parent: u32) {
        self.unknown.remove(&pid);
        if let Some(mapped) = self.mapped.get(&parent).cloned()
            && self.mapped.len() < PROCESSES_MAX
        {
            self.mapped.insert(pid, mapped);
        }
    }

    pub(super) fn execute(&mut self, pid: u32) {
        if let Some(mapped) = self.mapped.get_mut(&pid) {
            *mapped = Arc::default();
        }
    }

    /// Place of an address of a process. Reads the mappings of one that is not known, in case a record was lost.
    pub(super) fn place(&mut self, pid: u32, address: u64) -> CodePlace {
        if !self.mapped.contains_key(&pid) && self.unknown.insert(pid) {
            self.read(pid);
        }
        let found = self.mapped.get(&pid).and_then(|mapped| {
            let after = mapped.partition_point(|of| of.start <= address);
            mapped.get(after.checked_sub(1)?).filter(|of| address < of.end)
        });
        found.map_or(CodePlace::Unknown, |of| CodePlace::File {
            file: of.file,
            offset_bytes: of.offset_bytes.saturating_add(address - of.start),
        })
    }

    pub(super) fn forget_processes(&mut self) {
        self.mapped.clear();
        self.unknown.clear();
    }
}

/// A line of `/proc/PID/maps`, if it is of code. Source: proc_pid_maps(5).
fn code_mapping(line: &str) -> Option<CodeMapping> {
    let mut words = line.splitn(6, ' ');
    let (range, rights) = (words.next()?, words.next()?);
    let (offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
    let path = words.next().unwrap_or_default().trim_start();
    if rights.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let [start, end, offset_bytes] = [start, end, offset].map(|hex| u64::from_str_radix(hex, 16));
    let start = start.ok()?;
    let path = if path.is_empty() { NO_FILE } else { path };
    Some(CodeMapping {
        start,
        len_bytes: end.ok()?.checked_sub(start)?,
        offset_bytes: offset_bytes.ok()?,
        inode: inode.parse().ok()?,
        path: path.as_bytes().to_vec(),
    })
}

/// Name of memory without a file in records of the kernel.
const NO_FILE: &str = "//anon";

/// Files of code, by their number.
#[derive(Debug, Default)]
pub(super) struct CodeFiles {
    numbers: HashMap<(Vec<u8>, u64), usize>,
    files: Vec<CodeFile>,
    functions_bytes: usize,
}

#[derive(Debug)]
struct CodeFile {
    /// Name for people, without its folder.
    name: String,
    open: Option<File>,
    /// State of the file that was read, and its functions; `None` before.
    read: Option<(FileState, Option<ElfFunctions>)>,
}

/// Length and time of change: a file that was built again in its place has other functions.
type FileState = (u64, i64, i64);

fn file_state(metadata: &Metadata) -> FileState {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

impl CodeFiles {
    /// - `path`: as process `pid` sees it.
    fn find(&mut self, path: &[u8], inode: u64, pid: u32) -> usize {
        if let Some(number) = self.numbers.get(&(path.to_vec(), inode)) {
            return *number;
        }
        let text = String::from_utf8_lossy(path);
        let (is_file, name) = match &*text {
            "//anon" => (false, "code of no file".to_owned()),
            other if !other.starts_with('/') => (false, printable(other, 100)),
            other => (true, printable(other.rsplit('/').next().unwrap_or(other), 100)),
        };
        let is_within = self.files.iter().filter(|of| of.open.is_some()).count() < FILES_MAX;
        let open = if is_file && is_within { open(&text, inode, pid) } else { None };
        // Further files share the last number, so that a program that maps without end takes no memory.
        let number = if self.files.len() < 4 * FILES_MAX {
            self.files.push(CodeFile { name, open, read: None });
            self.files.len() - 1
        } else {
            return self.files.len() - 1;
        };
        self.numbers.insert((path.to_vec(), inode), number);
        number
    }

    /// Name of the function at a byte of a file; `None` where the file names none.
    pub(super) fn function(&mut self, file: usize, offset_bytes: u64) -> Option<String> {
        let CodeFiles { files, functions_bytes, .. } = self;
        files.get_mut(file)?.functions(functions_bytes)?.name(offset_bytes)
    }

    /// Name of a file, without its folder.
    pub(super) fn name(&self, file: usize) -> String {
        self.files.get(file).map_or_else(String::new, |file| file.name.clone())
    }
}

impl CodeFile {
    /// - `all_bytes`: memory that the functions of all files take.
    fn functions(&mut self, all_bytes: &mut usize) -> Option<&ElfFunctions> {
        let open = self.open.as_ref()?;
        let now = file_state(&open.metadata().ok()?);
        if self.read.as_ref().is_none_or(|(state, _)| *state != now) {
            let before = self.read.take().and_then(|(_, functions)| functions);
            *all_bytes -= before.map_or(0, |functions| functions.len_bytes());
            let functions = ElfFunctions::read(open).ok();
            let functions =
                functions.filter(|of| *all_bytes + of.len_bytes() <= FUNCTIONS_BYTES_MAX);
            *all_bytes += functions.as_ref().map_or(0, ElfFunctions::len_bytes);
            self.read = Some((now, functions));
        }
        self.read.as_ref()?.1.as_ref()
    }
}

/// Opens a file of a process: by the process's own root while it runs, else by this one's if it is the same file.
fn open(path: &str, inode: u64, pid: u32) -> Option<File> {
    let of_process = PathBuf::from(format!("/proc/{pid}/root{path}"));
    // A root of a container's process shows its files, whose inodes may be those of a layer below.
    if let Some((file, _)) = open_regular(&of_process) {
        return Some(file);
    }
    let (file, metadata) = open_regular(Path::new(path))?;
    (metadata.ino() == inode).then_some(file)
}

fn open_regular(path: &Path) -> Option<(File, Metadata)> {
    // Not to wait for the other end of a pipe.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    metadata.is_file().then_some((file, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, len_bytes: u64, path: &str) -> CodeMapping {
        CodeMapping { start, len_bytes, offset_bytes: 0x40, inode: 1, path: path.into() }
    }

    #[test]
    fn code_of_a_process_is_inherited_and_replaced() {
        let mut code = ProcessCode::default();
        code.mapped.insert(10, Arc::default());
        code.map(10, mapping(0x1000, 0x1000, "/no/such/server"));
        code.map(11, mapping(0x1000, 0x1000, "/no/such/stranger"));
        code.fork(12, 10);
        code.map(12, mapping(0x1800, 0x1000, "[vdso]"));
        let mut name = |pid, address| match code.place(pid, address) {
            CodePlace::File { file, offset_bytes } => {
                assert_eq!(code.files.function(file, offset_bytes), None);
                Some((code.files.name(file), offset_bytes))
            }
            _ => None,
        };
        assert_eq!(name(10, 0x1810), Some(("server".into(), 0x850)));
        assert_eq!(name(12, 0x1810), Some(("[vdso]".into(), 0x50)));
        assert_eq!(name(12, 0x1010), None, "a new mapping ends those that it overlaps");
        assert_eq!(name(10, 0x2000), None);
        assert_eq!(name(u32::MAX, 0x1010), None);
        code.execute(10);
        assert_eq!(code.place(10, 0x1810), CodePlace::Unknown);
    }

    #[test]
    fn lines_of_maps_are_code_or_nothing() {
        let line = "55a4ebb45000-55a4ebb4a000 r-xp 00002000 fe:00 247026      /usr/bin/my cat";
        let read = code_mapping(line).unwrap();
        assert_eq!((read.start, read.len_bytes), (0x55a4_ebb4_5000, 0x5000));
        assert_eq!(
            (read.offset_bytes, read.inode, &*read.path),
            (0x2000, 247_026, &b"/usr/bin/my cat"[..])
        );
        assert_eq!(code_mapping(&line.replace("r-xp", "r--p")), None);
        assert_eq!(code_mapping("7f00-8f00 r-xp 0 00:00 0").unwrap().path, NO_FILE.as_bytes());
        for bad in ["", "x", "1-2 r-xp", "2-1 r-xp 0 0:0 0", "g-h r-xp 0 0:0 0"] {
            assert_eq!(code_mapping(bad), None, "{bad}");
        }
    }

    #[test]
    fn own_functions_are_found_and_a_file_that_changes_is_read_again() {
        let mut code = ProcessCode::default();
        let own = std::process::id();
        code.read(own);
        let address = lines_of_maps_are_code_or_nothing as *const () as u64;
        let CodePlace::File { file, offset_bytes } = code.place(own, address) else {
            panic!("{address:#x} is in no file: {code:?}");
        };
        let name = code.files.function(file, offset_bytes).unwrap_or_default();
        assert!(name.ends_with("lines_of_maps_are_code_or_nothing"), "{name}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let elf = |name| super::super::elf::tests::elf_file(&[(0x1100, 0x20, 0x12, name)]);
        fs::write(&path, elf("before")).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let path = path.to_str().unwrap();
        let file = code.files.find(path.as_bytes(), inode, u32::MAX);
        assert_eq!(code.files.function(file, 0x110).as_deref(), Some("before"));
        fs::write(path, elf("and_after")).unwrap();
        assert_eq!(code.files.function(file, 0x110).as_deref(), Some("and_after"));
        assert_eq!(code.files.function(file, 0x200), None);
        let other = code.files.find(path.as_bytes(), inode + 1, u32::MAX);
        assert_eq!(code.files.function(other, 0x110), None, "another file of that name");
        assert_eq!(code.files.name(other), "program");
    }
}
