//! NCCL: where its library is, and its functions.
//!
//! Bound here rather than taken from a crate of bindings: those load `libnccl.so` and never `libnccl.so.2`, which is
//! all that the wheels of Python and the run-time packages install, and they take no path.
#![allow(unsafe_code, reason = "NCCL is a C library")]

use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

use fabric::Collective;

use super::driver::{Address, RawStream};
use super::layout::{Membership, Placed};
use super::symbols::functions;
use crate::data::{DataType, Operation};
use crate::engines::Call;
use crate::failure::{Cause, Failure};

/// The name every release of NCCL 2 has.
const FILE: &str = "libnccl.so.2";

/// What `ncclGetUniqueId` makes, and every rank needs.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// `ncclComm_t`.
pub(super) type RawCommunicator = *mut c_void;

/// A release of NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2.
    pub major: u32,
    /// The number people speak of.
    pub minor: u32,
    /// The last one.
    pub patch: u32,
}

impl Version {
    /// The oldest the engine works with.
    pub const OLDEST: Self = Self { major: 2, minor: 18, patch: 0 };

    /// From the number `ncclGetVersion` gives: `2804` is 2.8.4, `22809` is 2.28.9.
    pub fn of(code: u32) -> Self {
        let scale = if code < 10_000 { 1_000 } else { 10_000 };
        Self { major: code / scale, minor: code % scale / 100, patch: code % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

functions! {
    /// What is used of NCCL.
    Functions {
        version = "ncclGetVersion": fn(*mut c_int) -> c_int;
        unique_id = "ncclGetUniqueId": fn(*mut UniqueId) -> c_int;
        init = "ncclCommInitRank": fn(*mut RawCommunicator, c_int, UniqueId, c_int) -> c_int;
        finalize = "ncclCommFinalize": fn(RawCommunicator) -> c_int;
        destroy = "ncclCommDestroy": fn(RawCommunicator) -> c_int;
        abort = "ncclCommAbort": fn(RawCommunicator) -> c_int;
        async_error = "ncclCommGetAsyncError": fn(RawCommunicator, *mut c_int) -> c_int;
        error_string = "ncclGetErrorString": fn(c_int) -> *const c_char;
        last_error = "ncclGetLastError": fn(RawCommunicator) -> *const c_char;
        group_start = "ncclGroupStart": fn() -> c_int;
        group_end = "ncclGroupEnd": fn() -> c_int;
        all_reduce = "ncclAllReduce": fn(u64, u64, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;
        all_gather = "ncclAllGather": fn(u64, u64, usize, c_int, RawCommunicator, RawStream) -> c_int;
        reduce_scatter = "ncclReduceScatter": fn(u64, u64, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;
        broadcast = "ncclBroadcast": fn(u64, u64, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;
        reduce = "ncclReduce": fn(u64, u64, usize, c_int, c_int, c_int, RawCommunicator, RawStream) -> c_int;
        send = "ncclSend": fn(u64, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;
        receive = "ncclRecv": fn(u64, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;
        // These came with 2.28; before, they are made of sends and receives, as nccl-tests does.
        ? all_to_all = "ncclAlltoAll": fn(u64, u64, usize, c_int, RawCommunicator, RawStream) -> c_int;
        ? gather = "ncclGather": fn(u64, u64, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;
        ? scatter = "ncclScatter": fn(u64, u64, usize, c_int, c_int, RawCommunicator, RawStream) -> c_int;
    }
}

/// NCCL, loaded.
pub(super) struct Library {
    functions: Functions,
    version: Version,
}

impl Library {
    /// Loads the given file, or the first that is found.
    pub(super) fn load(given: Option<&Path>) -> Result<Self, Failure> {
        let library = match given {
            // An absolute path: the loader would look for a bare name elsewhere.
            Some(file) => {
                let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
                open(&file).map_err(|error| unloadable(&file, &error))?
            }
            None => find()?,
        };
        let functions = Functions::of(library).map_err(|function| Cause::FunctionMissing {
            library: FILE.to_owned(),
            function: function.to_owned(),
        })?;
        let mut code = 0;
        // SAFETY: writes one integer.
        let result = unsafe { (functions.version)(&raw mut code) };
        let version = Version::of(u32::try_from(code).unwrap_or(0));
        if result != 0 || version < Version::OLDEST {
            let (found, oldest) = (version.to_string(), Version::OLDEST.to_string());
            return Err(Cause::NcclTooOld { found, oldest }.into());
        }
        Ok(Self { functions, version })
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Opens the place where the ranks of a new communicator will meet.
    pub(super) fn unique_id(&self) -> Result<UniqueId, Failure> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: writes 128 bytes.
        self.check("ncclGetUniqueId", unsafe { (self.functions.unique_id)(&raw mut id) })?;
        Ok(id)
    }

    /// Meets the others. Waits until all are there.
    pub(super) fn join(&self, id: UniqueId, rank: usize, size: usize) -> Result<RawCommunicator, Failure> {
        let (Ok(rank), Ok(size)) = (c_int::try_from(rank), c_int::try_from(size)) else {
            return Err(Cause::TooManyRanks { ranks: size }.into());
        };
        let mut communicator = ptr::null_mut();
        // SAFETY: writes one pointer; this thread has a context.
        self.check("ncclCommInitRank", unsafe {
            (self.functions.init)(&raw mut communicator, size, id, rank)
        })?;
        Ok(communicator)
    }

    /// An error that came up meanwhile, in the network for instance.
    pub(super) fn state(&self, communicator: RawCommunicator) -> Result<(), Failure> {
        let mut code = 0;
        // SAFETY: writes one integer; the communicator lives.
        self.check("ncclCommGetAsyncError", unsafe {
            (self.functions.async_error)(communicator, &raw mut code)
        })?;
        self.check("NCCL stopped", code)
    }

    /// Ends a communicator with which all is well. Waits for the others.
    pub(super) fn leave(&self, communicator: RawCommunicator) -> Result<(), Failure> {
        // SAFETY: the communicator lives, and is used no more after `destroy`.
        unsafe {
            self.check("ncclCommFinalize", (self.functions.finalize)(communicator))?;
            self.check("ncclCommDestroy", (self.functions.destroy)(communicator))
        }
    }

    /// Ends a communicator whatever it is doing. May be called while another thread waits inside of NCCL.
    pub(super) fn abort(&self, communicator: RawCommunicator) {
        // SAFETY: the communicator lives and is used no more afterwards; its result does not matter.
        unsafe { (self.functions.abort)(communicator) };
    }

    /// Puts a collective on a stream.
    pub(super) fn start(
        &self,
        call: &Call,
        at: Placed,
        member: Membership,
        communicator: RawCommunicator,
        stream: RawStream,
    ) -> Result<(), Failure> {
        let Placed { send, receive } = at;
        let (count, kind, operation) =
            (call.count, type_code(call.data_type), operation_code(call.operation));
        let root = rank_code(call.root);
        let functions = &self.functions;
        let (name, code) = match call.collective {
            // SAFETY: here and below `Placed` lies inside of the rank's buffers, which live as long as the stream runs.
            Collective::AllReduce => ("ncclAllReduce", unsafe {
                (functions.all_reduce)(send, receive, count, kind, operation, communicator, stream)
            }),
            // SAFETY: as above.
            Collective::AllGather => ("ncclAllGather", unsafe {
                (functions.all_gather)(send, receive, count, kind, communicator, stream)
            }),
            // SAFETY: as above.
            Collective::ReduceScatter => ("ncclReduceScatter", unsafe {
                (functions.reduce_scatter)(send, receive, count, kind, operation, communicator, stream)
            }),
            // SAFETY: as above.
            Collective::Broadcast => ("ncclBroadcast", unsafe {
                (functions.broadcast)(send, receive, count, kind, root, communicator, stream)
            }),
            // SAFETY: as above.
            Collective::Reduce => ("ncclReduce", unsafe {
                (functions.reduce)(send, receive, count, kind, operation, root, communicator, stream)
            }),
            Collective::AllToAll => match functions.all_to_all {
                Some(function) => {
                    // SAFETY: as above.
                    ("ncclAlltoAll", unsafe { function(send, receive, count, kind, communicator, stream) })
                }
                None => return self.exchange(call, at, member, communicator, stream),
            },
            Collective::Gather => match functions.gather {
                // SAFETY: as above.
                Some(function) => ("ncclGather", unsafe {
                    function(send, receive, count, kind, root, communicator, stream)
                }),
                None => return self.exchange(call, at, member, communicator, stream),
            },
            Collective::Scatter => match functions.scatter {
                // SAFETY: as above.
                Some(function) => ("ncclScatter", unsafe {
                    function(send, receive, count, kind, root, communicator, stream)
                }),
                None => return self.exchange(call, at, member, communicator, stream),
            },
            Collective::SendRecv => return self.exchange(call, at, member, communicator, stream),
        };
        self.check(name, code)
    }

    /// What is made of sends and receives.
    fn exchange(
        &self,
        call: &Call,
        at: Placed,
        Membership { rank, size }: Membership,
        communicator: RawCommunicator,
        stream: RawStream,
    ) -> Result<(), Failure> {
        let (count, kind) = (call.count, type_code(call.data_type));
        let part = (count * call.data_type.size()) as u64;
        // SAFETY: as in `start`; a group that is opened is closed below.
        self.check("ncclGroupStart", unsafe { (self.functions.group_start)() })?;
        let send = |address: Address, to: usize| {
            // SAFETY: as in `start`.
            self.check("ncclSend", unsafe {
                (self.functions.send)(address, count, kind, rank_code(to), communicator, stream)
            })
        };
        let receive = |address: Address, from: usize| {
            // SAFETY: as in `start`.
            self.check("ncclRecv", unsafe {
                (self.functions.receive)(address, count, kind, rank_code(from), communicator, stream)
            })
        };
        let parts = || (0..size).map(|it| (it, it as u64 * part));
        let put = match call.collective {
            Collective::SendRecv => {
                send(at.send, (rank + 1) % size).and_then(|()| receive(at.receive, (rank + size - 1) % size))
            }
            Collective::Gather => send(at.send, call.root).and_then(|()| {
                if rank == call.root {
                    parts().try_for_each(|(it, at_part)| receive(at.receive + at_part, it))
                } else {
                    Ok(())
                }
            }),
            Collective::Scatter => {
                let handed_out = if rank == call.root {
                    parts().try_for_each(|(it, at_part)| send(at.send + at_part, it))
                } else {
                    Ok(())
                };
                handed_out.and_then(|()| receive(at.receive, call.root))
            }
            _ => parts().try_for_each(|(it, at_part)| {
                send(at.send + at_part, it).and_then(|()| receive(at.receive + at_part, it))
            }),
        };
        // SAFETY: closes the group opened above.
        let ended = self.check("ncclGroupEnd", unsafe { (self.functions.group_end)() });
        put.and(ended)
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let text = |text: *const c_char| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: NCCL's texts end with a zero and live until its next error.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        // SAFETY: both take any number, and no communicator.
        let (kind, last) = unsafe {
            (text((self.functions.error_string)(code)), text((self.functions.last_error)(ptr::null_mut())))
        };
        let last = last.trim();
        let detail = if last.is_empty() { kind } else { format!("{kind}: {last}") };
        Err(Cause::NcclCall { function: what.to_owned(), detail: super::peer_info::plain(&detail) }.into())
    }
}

/// NCCL's number for a type.
fn type_code(data_type: DataType) -> c_int {
    match data_type {
        DataType::Int8 => 0,
        DataType::Uint8 => 1,
        DataType::Int32 => 2,
        DataType::Uint32 => 3,
        DataType::Int64 => 4,
        DataType::Uint64 => 5,
        DataType::Half => 6,
        DataType::Float => 7,
        DataType::Double => 8,
        DataType::Bfloat16 => 9,
    }
}

/// NCCL's number for an operation.
fn operation_code(operation: Operation) -> c_int {
    match operation {
        Operation::Sum => 0,
        Operation::Prod => 1,
        Operation::Max => 2,
        Operation::Min => 3,
        Operation::Avg => 4,
    }
}

/// A rank, which `join` has counted with the same type.
fn rank_code(rank: usize) -> c_int {
    c_int::try_from(rank).unwrap_or(c_int::MAX)
}

fn open(name: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: loading runs the constructors of a library that the user, or the machine's administrator, put there.
    unsafe { libloading::Library::new(name) }
}

/// The loader's own choice, which obeys `LD_LIBRARY_PATH`; else what lies in a usual place.
fn find() -> Result<libloading::Library, Failure> {
    for name in [FILE, "libnccl.so"] {
        if let Ok(library) = open(Path::new(name)) {
            return Ok(library);
        }
    }
    let mut broken = None;
    for file in usual_files(&Surroundings::here()) {
        match open(&file) {
            Ok(library) => return Ok(library),
            Err(error) => broken = Some(unloadable(&file, &error)),
        }
    }
    Err(broken.unwrap_or(Cause::NcclMissing { library: FILE.to_owned() }.into()))
}

fn unloadable(file: &Path, error: &libloading::Error) -> Failure {
    Cause::LibraryUnloadable { path: file.display().to_string(), detail: error.to_string() }.into()
}

/// The variables that name folders of libraries.
#[derive(Debug, Default)]
struct Surroundings {
    path: Vec<PathBuf>,
    environments: Vec<PathBuf>,
    home: Option<PathBuf>,
}

impl Surroundings {
    fn here() -> Self {
        let variable = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        Self {
            path: env::var_os("PATH").map(|it| env::split_paths(&it).collect()).unwrap_or_default(),
            environments: ["VIRTUAL_ENV", "CONDA_PREFIX", "NCCL_HOME", "NCCL_ROOT", "CUDA_HOME"]
                .into_iter()
                .filter_map(variable)
                .collect(),
            home: variable("HOME"),
        }
    }
}

/// Files named `libnccl.so.2` in usual places: the active Python environments, the system, the user's own packages.
fn usual_files(around: &Surroundings) -> Vec<PathBuf> {
    let mut prefixes = around.environments.clone();
    // The Python that comes first in PATH is the one that trains.
    prefixes.extend(
        around
            .path
            .iter()
            .filter(|it| it.join("python3").exists())
            .filter_map(|it| Some(it.parent()?.to_owned())),
    );
    prefixes.extend(
        ["/usr/local", "/usr", "/usr/local/cuda", "/opt/nccl", "/opt/nccl/build", "/opt/conda"]
            .map(PathBuf::from),
    );
    prefixes.extend(around.home.iter().map(|it| it.join(".local")));
    let mut found: Vec<PathBuf> = Vec::new();
    for prefix in prefixes {
        let folders =
            ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"].map(|it| prefix.join(it));
        for file in folders.into_iter().chain(wheel_folders(&prefix.join("lib"))).map(|it| it.join(FILE)) {
            if file.is_file() && !found.contains(&file) {
                found.push(file);
            }
        }
    }
    found
}

/// `python3*/{site,dist}-packages/nvidia/nccl/lib` below a folder.
fn wheel_folders(lib: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(lib) else { return Vec::new() };
    let mut pythons: Vec<PathBuf> = entries
        .filter_map(|it| Some(it.ok()?.path()))
        .filter(|it| it.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
        .collect();
    pythons.sort();
    pythons
        .iter()
        .flat_map(|python| {
            ["site-packages", "dist-packages"].map(|it| python.join(it).join("nvidia/nccl/lib"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let text = |code| Version::of(code).to_string();
        assert_eq!(text(2804), "2.8.4");
        assert_eq!(text(21_805), "2.18.5");
        assert_eq!(text(23_203), "2.32.3");
        assert!(Version::of(21_708) < Version::OLDEST && Version::of(21_801) > Version::OLDEST);
    }

    #[test]
    fn codes_are_those_of_the_header() {
        assert_eq!(DataType::ALL.map(type_code), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(Operation::ALL.map(operation_code), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_file_that_is_no_library_is_named() {
        let file = env::temp_dir().join(format!("plumb-no-library-{}.so", std::process::id()));
        fs::write(&file, "no library").expect("a file in the temporary folder");
        let failure = Library::load(Some(&file)).err().expect("it is not a library");
        fs::remove_file(&file).expect("it is there");
        let Cause::LibraryUnloadable { path, .. } = failure.cause else { panic!("{failure:?}") };
        assert_eq!(path, file.display().to_string());
    }

    #[test]
    fn a_library_that_is_not_nccl_is_refused() {
        let failure = Library::load(Some(Path::new("/lib/x86_64-linux-gnu/libc.so.6"))).err();
        let cause = failure.expect("it is not NCCL").cause;
        // Elsewhere than on x86-64 the file does not exist, which is a failure as well.
        let refused = matches!(cause, Cause::FunctionMissing { .. } | Cause::LibraryUnloadable { .. });
        assert!(refused, "{cause:?}");
    }

    #[test]
    fn wheels_are_found_beside_the_python_in_path() {
        let root = env::temp_dir().join(format!("plumb-wheel-{}", std::process::id()));
        let folder = root.join("lib/python3.12/site-packages/nvidia/nccl/lib");
        fs::create_dir_all(&folder).expect("folders");
        fs::create_dir_all(root.join("bin")).expect("folders");
        fs::write(root.join("bin/python3"), "").expect("a file");
        fs::write(folder.join(FILE), "").expect("a file");
        let files = usual_files(&Surroundings { path: vec![root.join("bin")], ..Surroundings::default() });
        fs::remove_dir_all(&root).expect("they are there");
        assert_eq!(files.first(), Some(&folder.join(FILE)));
    }
}
