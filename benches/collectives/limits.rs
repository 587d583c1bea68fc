//! Limits of the machine itself: copy bandwidth and round trips.

#![allow(unsafe_code, reason = "memory of 4 KiB pages is mapped, and written past the caches")]

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::case::Case;
use crate::figures::Times;

/// Bytes that each thread copies.
const COPY: usize = 256 << 20;
const PASSES: usize = 3;
const BATCHES: usize = 100;

/// Limits, measured between the turns.
#[derive(Default)]
pub(crate) struct Limits {
    /// Seconds per byte, copied past the caches by one thread from and to shared memory of 4 KiB pages.
    pub(crate) copy_one: Times,
    /// The same for all bytes together by one thread per core, at most one per rank.
    pub(crate) copy_all: Times,
    /// The number of those threads.
    pub(crate) threads: usize,
    /// Seconds until another core sees a word, polling.
    pub(crate) hop: Times,
    /// Seconds one way of 8 bytes over TCP on loopback, polling.
    pub(crate) tcp: Times,
    /// Seconds in which two threads send each other a small message over TCP, and nothing else.
    pub(crate) swap_small: Times,
    /// The same with half of a large one, and again: what an `all_reduce` of two ranks must move.
    pub(crate) swap_large: Times,
}

/// The small message that is swapped, and the large one.
pub(crate) const SWAPPED: [usize; 2] = [512, 1 << 20];

impl Limits {
    /// Adds a measurement of the limits that apply to a case.
    pub(crate) fn measure(&mut self, case: &Case) -> io::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if case.memory {
            self.threads = cores.min(case.ranks);
            self.copy_one.extend(copy(1)?);
            self.copy_all.extend(copy(self.threads)?);
            self.hop.extend(hop());
        } else {
            self.tcp.extend(tcp()?);
            self.swap_small.extend(swap(SWAPPED[0], 1)?);
            self.swap_large.extend(swap(SWAPPED[1] / 2, 2)?);
        }
        Ok(())
    }
}

/// Binds this thread and its children to one core, if the kernel allows it.
pub(crate) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// Shared memory, as that of registered buffers.
struct Memory(*mut u8);

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> io::Result<Self> {
        let file = memfd_create("plumb-bench", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, COPY as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes it; it lives until `drop`.
        let start = unsafe { mmap(std::ptr::null_mut(), COPY, access, MapFlags::SHARED, &file, 0)? };
        // SAFETY: just mapped, of this length.
        unsafe { start.cast::<u8>().write_bytes(1, COPY) };
        Ok(Self(start.cast()))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and nobody has the pointer any more.
        let _ = unsafe { munmap(self.0.cast(), COPY) };
    }
}

/// Seconds per byte of all threads together, for each pass.
fn copy(threads: usize) -> io::Result<Vec<f64>> {
    let mut memories = Vec::new();
    for _ in 0..threads {
        memories.push((Memory::new()?, Memory::new()?));
    }
    let barrier = Barrier::new(threads);
    let passes = std::thread::scope(|scope| {
        let start = |(core, (from, into)): (usize, (Memory, Memory))| {
            let barrier = &barrier;
            scope.spawn(move || {
                pin(core);
                let (from, into) = (from, into);
                let pass = |_| {
                    barrier.wait();
                    let start = Instant::now();
                    // SAFETY: two mappings of `COPY` bytes each, aligned to pages.
                    unsafe { stream(from.0, into.0) };
                    start.elapsed().as_secs_f64()
                };
                // The first pass warms up.
                (0..=PASSES).map(pass).skip(1).collect::<Vec<f64>>()
            })
        };
        let workers: Vec<_> = memories.into_iter().enumerate().map(start).collect();
        workers.into_iter().map(|it| it.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    let slowest = |pass: usize| passes.iter().filter_map(|it| it.get(pass)).copied().fold(0.0, f64::max);
    Ok((0..PASSES).map(|it| slowest(it) / (COPY * threads) as f64).collect())
}

/// Copies `COPY` bytes past the caches where the processor can.
///
/// # Safety
/// Both are valid for `COPY` bytes, aligned to 64, and do not overlap.
unsafe fn stream(from: *const u8, into: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has it; the rest is the caller's promise.
        unsafe { stream_512(from, into) };
    } else {
        // SAFETY: every x86-64 has SSE2; the rest is the caller's promise.
        unsafe { stream_128(from, into) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from, into, COPY);
    }
}

/// # Safety
/// As [`stream`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_512(from: *const u8, into: *mut u8) {
    use std::arch::x86_64::{_mm_sfence, _mm512_load_si512, _mm512_stream_si512};
    for at in (0..COPY).step_by(64) {
        // SAFETY: `at` is below `COPY` and a multiple of 64.
        unsafe { _mm512_stream_si512(into.add(at).cast(), _mm512_load_si512(from.add(at).cast())) };
    }
    _mm_sfence();
}

/// # Safety
/// As [`stream`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
unsafe fn stream_128(from: *const u8, into: *mut u8) {
    use std::arch::x86_64::{_mm_load_si128, _mm_sfence, _mm_stream_si128};
    for at in (0..COPY).step_by(16) {
        // SAFETY: `at` is below `COPY` and a multiple of 16.
        unsafe { _mm_stream_si128(into.add(at).cast(), _mm_load_si128(from.add(at).cast())) };
    }
    _mm_sfence();
}

/// A word on cache lines of its own.
#[repr(align(128))]
struct Line(AtomicU32);

/// Seconds one way, for each batch.
fn hop() -> Vec<f64> {
    const TURNS: u32 = 1000;
    let (ball, answer) = (Line(AtomicU32::new(0)), Line(AtomicU32::new(0)));
    let await_it = |line: &Line, value: u32| {
        while line.0.load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for turn in 1..=TURNS * BATCHES as u32 {
                await_it(&ball, turn);
                answer.0.store(turn, Ordering::Release);
            }
        });
        let player = scope.spawn(|| {
            pin(0);
            let batch = |batch: u32| {
                let start = Instant::now();
                for turn in batch * TURNS + 1..=(batch + 1) * TURNS {
                    ball.0.store(turn, Ordering::Release);
                    await_it(&answer, turn);
                }
                start.elapsed().as_secs_f64() / f64::from(TURNS) / 2.0
            };
            (0..BATCHES as u32).map(batch).collect()
        });
        player.join().unwrap_or_default()
    })
}

/// Two connected sockets on loopback, which never wait.
fn pair() -> io::Result<[TcpStream; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    for end in [&one, &other] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
        // Reno, the simplest congestion control; if it is not allowed, the system's default.
        let _ = rustix::net::sockopt::set_tcp_congestion(end, "reno");
    }
    Ok([one, other])
}

/// Seconds in which both ends send and receive this many bytes this many times, for each batch.
fn swap(bytes: usize, times: usize) -> io::Result<Vec<f64>> {
    let swaps = if bytes < 4096 { 100 } else { 1 };
    let both = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(pair()?)
            .map(|(core, mut end)| {
                scope.spawn(move || -> io::Result<Vec<f64>> {
                    pin(core);
                    let (out, mut into) = (vec![1; bytes], vec![1; bytes]);
                    let mut seconds = Vec::new();
                    for _ in 0..=BATCHES {
                        let start = Instant::now();
                        for _ in 0..swaps * times {
                            let (mut sent, mut came) = (0, 0);
                            while sent < bytes || came < bytes {
                                if sent < bytes {
                                    sent += now(end.write(&out[sent..]))?;
                                }
                                if came < bytes {
                                    came += now(end.read(&mut into[came..]))?;
                                }
                            }
                        }
                        seconds.push(start.elapsed().as_secs_f64() / swaps as f64);
                    }
                    // The first batch warms up.
                    seconds.remove(0);
                    Ok(seconds)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|it| it.join().unwrap_or_else(|_| Ok(Vec::new())));
        joined.collect::<io::Result<Vec<_>>>()
    })?;
    Ok(both.into_iter().next().unwrap_or_default())
}

/// The bytes moved by this call: may be none, but end of stream is an error.
fn now(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Seconds one way, for each batch.
fn tcp() -> io::Result<Vec<f64>> {
    const TURNS: usize = 100;
    let [mut one, mut other] = pair()?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            // An error means that the other side closed the connection.
            while poll(&mut other).is_ok() && other.write_all(&[0; 8]).is_ok() {}
        });
        let player = scope.spawn(move || {
            pin(0);
            let mut times = Vec::new();
            for _ in 0..=BATCHES {
                let start = Instant::now();
                for _ in 0..TURNS {
                    one.write_all(&[0; 8])?;
                    poll(&mut one)?;
                }
                times.push(start.elapsed().as_secs_f64() / TURNS as f64 / 2.0);
            }
            // The first batch warms up.
            times.remove(0);
            Ok(times)
        });
        player.join().unwrap_or_else(|_| Ok(Vec::new()))
    })
}

/// Reads 8 bytes without ever sleeping.
fn poll(stream: &mut TcpStream) -> io::Result<()> {
    let mut bytes = [0; 8];
    let mut have = 0;
    while have < bytes.len() {
        match stream.read(bytes.get_mut(have..).unwrap_or_default()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
