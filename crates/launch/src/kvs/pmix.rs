#![allow(unsafe_code, reason = "calls of a C library that is loaded at run time")]
//! PMIx, through `libpmix.so.2`, which is loaded at run time.
//!
//! The few types below are laid out as in `pmix_common.h` of PMIx 2 to 6, which keep them binary compatible. Only
//! strings, booleans and 32-bit numbers are exchanged.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::{ManuallyDrop, offset_of};
use std::sync::mpsc;
use std::time::Duration;

use libloading::Library;

use super::KeyValueStore;
use crate::Error;
use crate::variables::MAX_RANKS;

const KEY: &CStr = c"plumb-rendezvous";
const JOB_SIZE: &CStr = c"pmix.job.size";
const LOCAL_SIZE: &CStr = c"pmix.local.size";
const COLLECT_DATA: &CStr = c"pmix.collect";
const RANK_WILDCARD: u32 = u32::MAX - 1;
const SCOPE_GLOBAL: u8 = 3;
const TYPE_BOOL: u16 = 1;
const TYPE_STRING: u16 = 3;
const TYPE_UINT32: u16 = 14;

/// `pmix_proc_t`: a job and a rank in it.
#[repr(C)]
struct Proc {
    namespace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`: a type and a union of 24 bytes.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
union Data {
    flag: bool,
    string: *const c_char,
    uint32: u32,
    all: [u64; 3],
}

/// `pmix_info_t`: a named value.
#[repr(C)]
struct Info {
    key: [c_char; 512],
    flags: u32,
    value: Value,
}

const _: () = assert!(size_of::<Proc>() == 260 && offset_of!(Proc, rank) == 256);
const _: () = assert!(size_of::<Value>() == 32 && offset_of!(Value, data) == 8);
const _: () = assert!(size_of::<Info>() == 552 && offset_of!(Info, value) == 520);

type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// This process's membership in a PMIx namespace.
pub(crate) struct Pmix {
    /// Never unloaded: the library leaves exit handlers behind.
    library: ManuallyDrop<Library>,
    me: Proc,
    initialised: bool,
}

impl Pmix {
    /// Loads and initialises the library. The process manager has to confirm rank and namespace: a library that does not
    /// reach it makes this process the only rank of a job of its own.
    pub(crate) fn open(rank: usize, namespace: &str) -> Result<Self, Error> {
        // SAFETY: the library's initialisers are those of the process manager's own client, made to be loaded.
        let library = unsafe { Library::new("libpmix.so.2").or_else(|_| Library::new("libpmix.so")) }
            .map_err(|_| Error::kvs("PMIx", "libpmix.so.2 cannot be loaded"))?;
        let me = Proc { namespace: [0; 256], rank: 0 };
        let mut this = Self { library: ManuallyDrop::new(library), me, initialised: false };
        let init = this.function::<Init>(c"PMIx_Init")?;
        // SAFETY: `me` has the layout of `pmix_proc_t`, and no information is passed.
        let status = unsafe { init(&raw mut this.me, std::ptr::null_mut(), 0) };
        this.check("PMIx_Init", status)?;
        this.initialised = true;
        let name =
            this.me.namespace.iter().map(|it| u8::from_ne_bytes(it.to_ne_bytes())).take_while(|it| *it != 0);
        if usize::try_from(this.me.rank) != Ok(rank) || !name.eq(namespace.bytes()) {
            return Err(Error::kvs(
                "PMIx",
                format!("the process manager does not know rank {rank} of {namespace}"),
            ));
        }
        Ok(this)
    }

    /// The number of ranks of the job.
    pub(crate) fn size(&self) -> Result<usize, Error> {
        match self.number(JOB_SIZE)? {
            size if (1..=MAX_RANKS).contains(&size) => Ok(size),
            size => Err(Error::kvs("PMIx", format!("the process manager reports a job of {size} ranks"))),
        }
    }

    /// The number of ranks of this host, if the process manager knows it.
    pub(crate) fn local_size(&self) -> Option<usize> {
        self.number(LOCAL_SIZE).ok()
    }

    fn number(&self, key: &CStr) -> Result<usize, Error> {
        let value = self.get(RANK_WILDCARD, key)?;
        if value.kind != TYPE_UINT32 {
            return Err(Error::kvs(
                "PMIx",
                format!("{} has type {}, not uint32", key.to_string_lossy(), value.kind),
            ));
        }
        // SAFETY: the type says that the union holds this.
        let number = unsafe { value.data.uint32 };
        usize::try_from(number)
            .map_err(|_| Error::kvs("PMIx", format!("{} is {number}: too large", key.to_string_lossy())))
    }

    /// A value of a rank of this job. It is never freed: a process reads two or three, and how to free them differs between
    /// versions.
    fn get(&self, rank: u32, key: &CStr) -> Result<&'static Value, Error> {
        let get = self.function::<Get>(c"PMIx_Get")?;
        let owner = Proc { namespace: self.me.namespace, rank };
        let mut value = std::ptr::null_mut();
        // SAFETY: all pointers live through the call; no information is passed.
        let status = unsafe { get(&raw const owner, key.as_ptr(), std::ptr::null(), 0, &raw mut value) };
        self.check("PMIx_Get", status)?;
        // SAFETY: on success the library has stored a pointer to a value that is ours from now on.
        unsafe { value.as_ref() }.ok_or_else(|| Error::kvs("PMIx", "PMIx_Get returned no value"))
    }

    fn put(&self, text: &str) -> Result<(), Error> {
        let text = CString::new(text).map_err(|_| Error::kvs("PMIx", "the value contains a zero byte"))?;
        let mut value = Value { kind: TYPE_STRING, data: Data { all: [0; 3] } };
        value.data.string = text.as_ptr();
        let put = self.function::<Put>(c"PMIx_Put")?;
        let commit = self.function::<Commit>(c"PMIx_Commit")?;
        // SAFETY: key and value live through the call, which copies them.
        self.check("PMIx_Put", unsafe { put(SCOPE_GLOBAL, KEY.as_ptr(), &raw mut value) })?;
        // SAFETY: it has no arguments.
        self.check("PMIx_Commit", unsafe { commit() })
    }

    /// Waits for all ranks of the job and collects their values.
    fn fence(&self) -> Result<(), Error> {
        let value = Value { kind: TYPE_BOOL, data: Data { all: [0; 3] } };
        let mut collect = Info { key: [0; 512], flags: 0, value };
        for (target, byte) in collect.key.iter_mut().zip(COLLECT_DATA.to_bytes()) {
            *target = c_char::from_ne_bytes([*byte]);
        }
        collect.value.data.flag = true;
        let fence = self.function::<Fence>(c"PMIx_Fence")?;
        // SAFETY: one piece of information with the layout of `pmix_info_t`, which lives through the call.
        self.check("PMIx_Fence", unsafe { fence(std::ptr::null(), 0, &raw const collect, 1) })
    }

    fn exchange(&self, text: Option<&str>) -> Result<String, Error> {
        if let Some(text) = text {
            self.put(text)?;
        }
        self.fence()?;
        if text.is_some() {
            return Ok(String::new());
        }
        let value = self.get(0, KEY)?;
        if value.kind != TYPE_STRING {
            return Err(Error::kvs(
                "PMIx",
                format!("the published value has type {}, not string", value.kind),
            ));
        }
        // SAFETY: the type says that the union holds this, and the value is never freed.
        let string = unsafe { value.data.string };
        if string.is_null() {
            return Err(Error::kvs("PMIx", "the published value is empty"));
        }
        // SAFETY: a string of PMIx ends with a zero.
        let text = unsafe { CStr::from_ptr(string) };
        text.to_str().map(str::to_owned).map_err(|_| Error::kvs("PMIx", "the published value is not UTF-8"))
    }

    /// The library has no timeout: another thread calls it, and this one waits for the result, up to `timeout`.
    fn within(self: Box<Self>, text: Option<&str>, timeout: Duration) -> Result<String, Error> {
        let (sender, receiver) = mpsc::channel();
        let text = text.map(str::to_owned);
        std::thread::Builder::new()
            .name("pmix".to_owned())
            .spawn(move || {
                let result = self.exchange(text.as_deref());
                drop(self);
                // After the timeout there is no receiver.
                let _ = sender.send(result);
            })
            .map_err(|error| Error::kvs("PMIx", format!("cannot start a thread: {error}")))?;
        receiver
            .recv_timeout(timeout)
            .unwrap_or_else(|_| Err(Error::kvs("PMIx", "not all ranks connected in time")))
    }

    fn function<T: Copy>(&self, name: &CStr) -> Result<T, Error> {
        // SAFETY: the type is that of `pmix.h` for this name.
        unsafe { self.library.get::<T>(name.to_bytes_with_nul()) }
            .map(|it| *it)
            .map_err(|_| Error::kvs("PMIx", format!("libpmix.so has no function {}", name.to_string_lossy())))
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), Error> {
        if status == 0 {
            return Ok(());
        }
        let word = self.function::<ErrorString>(c"PMIx_Error_string").ok().and_then(|it| {
            // SAFETY: the library returns a static string for any number.
            let text = unsafe { it(status) };
            // SAFETY: as above; null is excluded.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        });
        Err(Error::kvs("PMIx", format!("{call}: {} ({status})", word.unwrap_or_default())))
    }
}

impl Drop for Pmix {
    fn drop(&mut self) {
        if !self.initialised {
            return;
        }
        if let Ok(finalize) = self.function::<Finalize>(c"PMIx_Finalize") {
            // SAFETY: no information is passed, and every successful PMIx_Init has one PMIx_Finalize.
            unsafe { finalize(std::ptr::null(), 0) };
        }
    }
}

impl KeyValueStore for Pmix {
    fn name(&self) -> &'static str {
        "PMIx"
    }

    fn publish(self: Box<Self>, value: &str, timeout: Duration) -> Result<(), Error> {
        self.within(Some(value), timeout).map(|_| ())
    }

    fn fetch(self: Box<Self>, timeout: Duration) -> Result<String, Error> {
        self.within(None, timeout)
    }
}
