//! The CUDA driver: a device, its memory, a stream and events.
//!
//! Its few functions are bound here rather than taken from a crate of bindings: such a crate turns result codes into an enum,
//! which a newer driver's code would break, and panics where the driver is absent.
#![allow(unsafe_code, reason = "the CUDA driver is a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use super::symbols::functions;
use crate::failure::{Cause, Failure};

/// The driver's own library. It comes with the kernel module, never with a toolkit.
pub(super) const FILE: &str = "libcuda.so.1";

/// `CUDA_ERROR_NOT_READY`: an event has not happened yet.
const NOT_READY: c_int = 600;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: c_int = 100;
/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const JIT_LOG: [c_uint; 2] = [5, 6];
/// Threads of a block.
const BLOCK: c_uint = 256;
/// Blocks of a kernel at most: enough for the largest GPUs, whose every multiprocessor holds 8.
const BLOCKS: usize = 4096;
/// `CU_STREAM_NON_BLOCKING`: apart from the legacy stream.
const NON_BLOCKING: c_uint = 1;

/// A place in the device's memory.
pub(super) type Address = u64;
/// `CUstream`, which is NCCL's `cudaStream_t` too.
pub(super) type RawStream = *mut c_void;
type RawContext = *mut c_void;
type RawEvent = *mut c_void;
type RawModule = *mut c_void;
type RawKernel = *mut c_void;

functions! {
    /// What is used of the driver.
    Functions {
        init = "cuInit": fn(c_uint) -> c_int;
        version = "cuDriverGetVersion": fn(*mut c_int) -> c_int;
        error_name = "cuGetErrorName": fn(c_int, *mut *const c_char) -> c_int;
        error_string = "cuGetErrorString": fn(c_int, *mut *const c_char) -> c_int;
        device_count = "cuDeviceGetCount": fn(*mut c_int) -> c_int;
        device_get = "cuDeviceGet": fn(*mut c_int, c_int) -> c_int;
        device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int) -> c_int;
        device_bus = "cuDeviceGetPCIBusId": fn(*mut c_char, c_int, c_int) -> c_int;
        context_retain = "cuDevicePrimaryCtxRetain": fn(*mut RawContext, c_int) -> c_int;
        context_release = "cuDevicePrimaryCtxRelease_v2": fn(c_int) -> c_int;
        context_set = "cuCtxSetCurrent": fn(RawContext) -> c_int;
        stream_create = "cuStreamCreate": fn(*mut RawStream, c_uint) -> c_int;
        stream_destroy = "cuStreamDestroy_v2": fn(RawStream) -> c_int;
        stream_synchronize = "cuStreamSynchronize": fn(RawStream) -> c_int;
        event_create = "cuEventCreate": fn(*mut RawEvent, c_uint) -> c_int;
        event_destroy = "cuEventDestroy_v2": fn(RawEvent) -> c_int;
        event_record = "cuEventRecord": fn(RawEvent, RawStream) -> c_int;
        event_query = "cuEventQuery": fn(RawEvent) -> c_int;
        event_elapsed = "cuEventElapsedTime": fn(*mut f32, RawEvent, RawEvent) -> c_int;
        memory_allocate = "cuMemAlloc_v2": fn(*mut Address, usize) -> c_int;
        memory_free = "cuMemFree_v2": fn(Address) -> c_int;
        memory_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize) -> c_int;
        memory_set = "cuMemsetD8Async": fn(Address, u8, usize, RawStream) -> c_int;
        module_load = "cuModuleLoadDataEx": fn(*mut RawModule, *const c_void, c_uint, *const c_uint, *const *mut c_void) -> c_int;
        module_unload = "cuModuleUnload": fn(RawModule) -> c_int;
        module_kernel = "cuModuleGetFunction": fn(*mut RawKernel, RawModule, *const c_char) -> c_int;
        launch = "cuLaunchKernel": fn(RawKernel, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, RawStream, *const *const c_void, *const *const c_void) -> c_int;
        copy_in = "cuMemcpyHtoDAsync_v2": fn(Address, *const c_void, usize, RawStream) -> c_int;
        copy_out = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, Address, usize, RawStream) -> c_int;
    }
}

/// The driver, initialised.
pub(super) struct Driver {
    functions: Functions,
}

impl Driver {
    /// Loads and initialises it.
    pub(super) fn load() -> Result<Self, Failure> {
        // SAFETY: the name is the one the driver installs itself under; loading it runs its constructors alone.
        let library = unsafe { libloading::Library::new(FILE) }.map_err(|error| {
            if super::IS_STATIC {
                return Cause::StaticBuild { library: FILE.to_owned() };
            }
            Cause::DriverMissing { library: FILE.to_owned(), detail: error.to_string() }
        })?;
        let functions = Functions::of(library).map_err(|function| Cause::FunctionMissing {
            library: FILE.to_owned(),
            function: function.to_owned(),
        })?;
        let driver = Self { functions };
        // SAFETY: no arguments beyond flags that must be 0.
        match unsafe { (driver.functions.init)(0) } {
            NO_DEVICE => Err(Cause::NoGpu.into()),
            code => driver.check("cuInit", code).map(|()| driver),
        }
    }

    /// The newest CUDA it can run: `13000` for 13.0.
    pub(super) fn version(&self) -> Result<c_int, Failure> {
        let mut version = 0;
        // SAFETY: writes one integer.
        self.check("cuDriverGetVersion", unsafe { (self.functions.version)(&raw mut version) })?;
        Ok(version)
    }

    /// GPUs this process may use.
    pub(super) fn devices(&self) -> Result<usize, Failure> {
        let mut count = 0;
        // SAFETY: writes one integer.
        self.check("cuDeviceGetCount", unsafe { (self.functions.device_count)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = ptr::null();
            // SAFETY: writes one pointer, to a constant text or null.
            let found = unsafe { function(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: a constant text of the library, ended by a zero.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.functions.error_name).unwrap_or_else(|| format!("error {code}"));
        let sentence =
            text(self.functions.error_string).unwrap_or_else(|| "the driver has no text for it".into());
        Err(Cause::CudaCall { function: what.to_owned(), detail: format!("{name}: {sentence}") }.into())
    }
}

/// One GPU with its primary context, which NCCL uses as well, and a stream.
pub(super) struct Gpu {
    driver: Driver,
    device: c_int,
    context: RawContext,
    stream: RawStream,
}

// SAFETY: the driver's functions may be called from any thread; contexts and streams are handles that threads may share.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Opens the device of this number; its context becomes this thread's.
    pub(super) fn open(driver: Driver, number: usize) -> Result<Self, Failure> {
        let ordinal = c_int::try_from(number).map_err(|_| Cause::NoGpu)?;
        let functions = &driver.functions;
        let mut device = 0;
        // SAFETY: writes one integer.
        driver.check("cuDeviceGet", unsafe { (functions.device_get)(&raw mut device, ordinal) })?;
        let mut context = ptr::null_mut();
        // SAFETY: writes one pointer; the device is one.
        driver.check("cuDevicePrimaryCtxRetain", unsafe {
            (functions.context_retain)(&raw mut context, device)
        })?;
        let mut gpu = Self { driver, device, context, stream: ptr::null_mut() };
        gpu.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: writes one pointer; the context is current.
        gpu.check("cuStreamCreate", unsafe {
            (gpu.driver.functions.stream_create)(&raw mut stream, NON_BLOCKING)
        })?;
        gpu.stream = stream;
        Ok(gpu)
    }

    /// Makes its context this thread's.
    pub(super) fn enter(&self) -> Result<(), Failure> {
        // SAFETY: the context is held until `drop`.
        self.check("cuCtxSetCurrent", unsafe { (self.driver.functions.context_set)(self.context) })
    }

    /// Its name: `NVIDIA H200`.
    pub(super) fn name(&self) -> Result<String, Failure> {
        self.text("cuDeviceGetName", self.driver.functions.device_name)
    }

    /// Its bus address: `0000:1b:00.0`.
    pub(super) fn bus(&self) -> Result<String, Failure> {
        self.text("cuDeviceGetPCIBusId", self.driver.functions.device_bus).map(|it| it.to_lowercase())
    }

    /// Its stream, for NCCL.
    pub(super) fn stream(&self) -> RawStream {
        self.stream
    }

    /// Waits until all that was put on the stream has ended. Nothing that waits for other ranks may be on it.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        // SAFETY: the stream lives until `drop`.
        self.check("cuStreamSynchronize", unsafe { (self.driver.functions.stream_synchronize)(self.stream) })
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), Failure> {
        self.driver.check(what, code)
    }

    fn text(
        &self,
        what: &str,
        function: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int,
    ) -> Result<String, Failure> {
        const ROOM: usize = 256;
        let mut text = [0_u8; ROOM];
        // SAFETY: writes at most as many bytes as its argument says, the last of them zero.
        self.check(what, unsafe { function(text.as_mut_ptr().cast(), 256, self.device) })?;
        Ok(CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned())
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: both were made by `open` and are used by nobody else any more: memory and events hold the `Arc`.
        unsafe {
            if !self.stream.is_null() {
                (self.driver.functions.stream_destroy)(self.stream);
            }
            (self.driver.functions.context_release)(self.device);
        }
    }
}

/// Memory of the device.
pub(super) struct Memory {
    gpu: Arc<Gpu>,
    address: Address,
    bytes: usize,
}

impl Memory {
    /// Memory of zeros; at least one byte, as CUDA cannot allocate none.
    pub(super) fn zeroed(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Failure> {
        let functions = &gpu.driver.functions;
        let mut address = 0;
        // SAFETY: writes one address.
        let code = unsafe { (functions.memory_allocate)(&raw mut address, bytes.max(1)) };
        gpu.check("cuMemAlloc", code).map_err(|failure| {
            let Cause::CudaCall { detail, .. } = failure.cause else { return failure };
            let (mut free, mut total) = (0, 0);
            // SAFETY: writes two integers.
            unsafe { (functions.memory_info)(&raw mut free, &raw mut total) };
            let [bytes, free, total] = [bytes, free, total].map(|it| it as u64);
            Cause::NoGpuMemory { bytes, free, total, detail }.into()
        })?;
        let memory = Self { gpu: Arc::clone(gpu), address, bytes };
        // SAFETY: the range is the one just made.
        gpu.check("cuMemsetD8Async", unsafe {
            (functions.memory_set)(address, 0, bytes.max(1), gpu.stream)
        })?;
        gpu.settle()?;
        Ok(memory)
    }

    /// Where it begins.
    pub(super) fn address(&self) -> Address {
        self.address
    }

    /// Waits until all that was put on the stream has ended.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        self.gpu.settle()
    }

    /// Sets its first bytes.
    pub(super) fn set(&self, bytes: usize, value: u8) -> Result<(), Failure> {
        let address = self.place(0, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `place` has checked the range.
        self.gpu.check("cuMemsetD8Async", unsafe {
            (self.gpu.driver.functions.memory_set)(address, value, bytes, self.gpu.stream)
        })?;
        self.gpu.settle()
    }

    /// Copies into it.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        let address = self.place(offset, bytes.len())?;
        // SAFETY: `place` has checked the range here; `settle` waits before the borrow of `bytes` ends.
        let code = unsafe {
            (self.gpu.driver.functions.copy_in)(address, bytes.as_ptr().cast(), bytes.len(), self.gpu.stream)
        };
        self.gpu.check("cuMemcpyHtoDAsync", code)?;
        self.gpu.settle()
    }

    /// Copies out of it.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        let address = self.place(offset, into.len())?;
        // SAFETY: `place` has checked the range here; `settle` waits before the borrow of `into` ends.
        let code = unsafe {
            (self.gpu.driver.functions.copy_out)(
                into.as_mut_ptr().cast(),
                address,
                into.len(),
                self.gpu.stream,
            )
        };
        self.gpu.check("cuMemcpyDtoHAsync", code)?;
        self.gpu.settle()
    }

    fn place(&self, offset: usize, bytes: usize) -> Result<Address, Failure> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + offset as Address),
            _ => Err(Cause::OutsideBuffer { bytes: offset.saturating_add(bytes) as u64 }.into()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made by `zeroed`; the context is this thread's, or the call fails and the process' end frees it.
        unsafe { (self.gpu.driver.functions.memory_free)(self.address) };
    }
}

/// Kernels that the driver has compiled from PTX.
pub(super) struct Module {
    gpu: Arc<Gpu>,
    module: RawModule,
}

// SAFETY: a module is a handle that threads may share.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// Elements in a row of a device's memory.
pub(super) struct Elements<'a> {
    pub(super) memory: &'a Memory,
    /// The byte at which they begin.
    pub(super) offset: usize,
    pub(super) count: usize,
    /// Bytes of one.
    pub(super) width: usize,
}

impl Module {
    /// Has the driver compile a text. Where it cannot, the failure has the first line of the compiler's log.
    pub(super) fn load(gpu: &Arc<Gpu>, text: &str) -> Result<Self, Failure> {
        let text = CString::new(text).map_err(|error| Cause::System { detail: error.to_string() })?;
        let mut log = [0_u8; 512];
        let mut module = ptr::null_mut();
        // The size of the log is passed as a pointer.
        let values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
        // SAFETY: writes one pointer, and at most as many bytes of the log as its size says; the text ends with a zero.
        let code = unsafe {
            (gpu.driver.functions.module_load)(
                &raw mut module,
                text.as_ptr().cast(),
                2,
                JIT_LOG.as_ptr(),
                values.as_ptr(),
            )
        };
        gpu.check("cuModuleLoadDataEx", code).map_err(|mut failure| {
            let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            if let (Cause::CudaCall { detail, .. }, Some(line)) = (&mut failure.cause, log.lines().next()) {
                *detail = format!("{detail}: {line}");
            }
            failure
        })?;
        Ok(Self { gpu: Arc::clone(gpu), module })
    }

    /// Puts a kernel on the stream that works on these elements. It is given their address and count, then these numbers, then the
    /// address of `found`.
    pub(super) fn launch(
        &self,
        name: &CStr,
        elements: &Elements<'_>,
        numbers: [u64; 5],
        found: &Memory,
    ) -> Result<(), Failure> {
        let Elements { memory, offset, count, width } = *elements;
        let address = memory.place(offset, count.saturating_mul(width))?;
        let found = found.place(0, 16)?;
        if count == 0 {
            return Ok(());
        }
        let functions = &self.gpu.driver.functions;
        let mut kernel = ptr::null_mut();
        // SAFETY: writes one pointer; the name ends with a zero.
        self.gpu.check("cuModuleGetFunction", unsafe {
            (functions.module_kernel)(&raw mut kernel, self.module, name.as_ptr())
        })?;
        let mut parameters = [address, count as u64, 0, 0, 0, 0, 0, found];
        parameters[2..7].copy_from_slice(&numbers);
        let pointers = parameters.each_ref().map(|it| ptr::from_ref(it).cast::<c_void>());
        let blocks = c_uint::try_from(count.div_ceil(BLOCK as usize).clamp(1, BLOCKS)).unwrap_or(1);
        // SAFETY: the kernel has these eight parameters of 64 bits; it touches the elements and 16 bytes at `found`, both of which
        // `place` has checked. The driver copies the parameters before it returns.
        self.gpu.check("cuLaunchKernel", unsafe {
            (functions.launch)(
                kernel,
                blocks,
                1,
                1,
                BLOCK,
                1,
                1,
                0,
                self.gpu.stream,
                pointers.as_ptr(),
                ptr::null(),
            )
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: made by `load`; the context is this thread's, or the call fails and the process' end frees it.
        unsafe { (self.gpu.driver.functions.module_unload)(self.module) };
    }
}

/// A CUDA event on the stream.
pub(super) struct Event {
    gpu: Arc<Gpu>,
    event: RawEvent,
}

// SAFETY: an event is a handle that threads may share.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self, Failure> {
        let mut event = ptr::null_mut();
        // SAFETY: writes one pointer.
        gpu.check("cuEventCreate", unsafe { (gpu.driver.functions.event_create)(&raw mut event, 0) })?;
        Ok(Self { gpu: Arc::clone(gpu), event })
    }

    /// Puts it behind all that is on the stream.
    pub(super) fn record(&self) -> Result<(), Failure> {
        // SAFETY: event and stream are of the same context.
        self.gpu.check("cuEventRecord", unsafe {
            (self.gpu.driver.functions.event_record)(self.event, self.gpu.stream)
        })
    }

    /// Whether all before it has ended.
    pub(super) fn is_past(&self) -> Result<bool, Failure> {
        // SAFETY: the event was recorded.
        match unsafe { (self.gpu.driver.functions.event_query)(self.event) } {
            NOT_READY => Ok(false),
            code => self.gpu.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Seconds since an earlier one; both are past.
    pub(super) fn since(&self, earlier: &Self) -> Result<f64, Failure> {
        let mut milliseconds = 0.0_f32;
        // SAFETY: writes one number.
        let code = unsafe {
            (self.gpu.driver.functions.event_elapsed)(&raw mut milliseconds, earlier.event, self.event)
        };
        self.gpu.check("cuEventElapsedTime", code)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new`.
        unsafe { (self.gpu.driver.functions.event_destroy)(self.event) };
    }
}

/// `13.0` of `13000`.
pub(super) fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version_text(12_040), "12.4");
        assert_eq!(version_text(13_000), "13.0");
    }
}
