//! The engine over host memory.

use std::collections::BTreeMap;
use std::time::Instant;

use collective::{Buffer, Communicator, Element, bf16, f16};
use fabric::Collective;

use super::{Call, Engine, Side, memory};
use crate::data::{DataType, EngineKind, Operation};
use crate::failure::{Cause, Failure};
use crate::run::Device;

/// Ranks that are processes and buffers in their memory.
pub struct Host {
    communicator: Communicator,
    devices: Vec<Device>,
    private: bool,
    send: Memory,
    receive: Memory,
}

/// A buffer: known to the other ranks, or of this process alone.
enum Memory {
    Registered(Buffer<u64>),
    Private(Vec<u64>),
}

impl Memory {
    fn words(&self) -> &[u64] {
        match self {
            Self::Registered(it) => it,
            Self::Private(it) => it,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Registered(it) => it,
            Self::Private(it) => it,
        }
    }
}

impl Host {
    /// An engine for these ranks; `private` buffers are not registered, as those of most programs are not.
    pub fn new(communicator: Communicator, private: bool) -> Self {
        communicator.bind();
        let mut local_ranks: BTreeMap<String, usize> = BTreeMap::new();
        let mut devices = Vec::new();
        for it in communicator.members() {
            let local_rank = local_ranks.entry(it.host.clone()).or_default();
            devices.push(Device {
                rank: it.rank,
                pid: it.pid,
                host: it.host.clone(),
                device: *local_rank,
                bus: None,
                name: "host memory".to_owned(),
            });
            *local_rank += 1;
        }
        let none = || Memory::Private(Vec::new());
        Self { communicator, devices, private, send: none(), receive: none() }
    }

    /// Ends the job in good order.
    pub fn leave(self) -> Result<(), Failure> {
        let Self { communicator, send, receive, .. } = self;
        drop((send, receive));
        communicator.leave().map_err(Failure::from)
    }

    /// Makes sure that the buffers of all ranks fit the memory of each host.
    fn check_memory(&mut self, bytes: usize) -> Result<(), Failure> {
        let here = memory::available().unwrap_or(u64::MAX);
        let shared = self.communicator.share(&here.to_le_bytes())?;
        let available = |rank: usize| shared.get(rank)?.first_chunk().map(|it| u64::from_le_bytes(*it));
        for first in self.devices.iter().filter(|it| it.device == 0) {
            let ranks = || self.devices.iter().filter(|it| it.host == first.host);
            let needed = ranks().fold(0, |all: u64, _| all.saturating_add((bytes as u64).saturating_mul(2)));
            let free = ranks().filter_map(|it| available(it.rank)).min().unwrap_or(u64::MAX);
            if needed > free {
                let cause = Cause::MemoryShort { ranks: ranks().count(), needed, free };
                return Err(Failure::new(cause).of(first.rank, Some(&first.host)).during("memory"));
            }
        }
        Ok(())
    }

    fn call<T: Element>(&mut self, call: &Call) -> Result<(), Failure> {
        let Self { communicator, send, receive, .. } = self;
        let (rank, ranks) = (communicator.rank(), communicator.size());
        let (count, all) = (call.count, call.count.saturating_mul(ranks));
        let (operation, root) = (operation(call.operation), call.root);
        let send = elements::<T>(send.words());
        let receive = elements_mut::<T>(receive.words_mut());
        let short = || outside(all.saturating_mul(size_of::<T>()));
        macro_rules! send {
            ($n:expr) => {
                send.get(..$n).ok_or_else(short)?
            };
        }
        macro_rules! receive {
            ($n:expr) => {
                receive.get_mut(..$n).ok_or_else(short)?
            };
        }
        match (call.collective, call.in_place) {
            (Collective::AllReduce, false) => {
                communicator.all_reduce(send!(count), receive!(count), operation)
            }
            (Collective::AllReduce, true) => communicator.all_reduce_in_place(receive!(count), operation),
            (Collective::AllGather, false) => communicator.all_gather(send!(count), receive!(all)),
            (Collective::AllGather, true) => communicator.all_gather_in_place(receive!(all)),
            (Collective::ReduceScatter, false) => {
                communicator.reduce_scatter(send!(all), receive!(count), operation)
            }
            (Collective::ReduceScatter, true) => {
                communicator.reduce_scatter_in_place(receive!(all), operation)
            }
            (Collective::Broadcast, false) => {
                communicator.broadcast_from(send!(count), receive!(count), root)
            }
            (Collective::Broadcast, true) => communicator.broadcast(receive!(count), root),
            (Collective::Reduce, false) => {
                communicator.reduce(send!(count), receive!(count), operation, root)
            }
            (Collective::Reduce, true) => communicator.reduce_in_place(receive!(count), operation, root),
            (Collective::Gather, false) => communicator.gather(send!(count), receive!(all), root),
            (Collective::Gather, true) => communicator.gather_in_place(receive!(all), root),
            (Collective::Scatter, false) => communicator.scatter(send!(all), receive!(count), root),
            (Collective::Scatter, true) => communicator.scatter_in_place(receive!(all), root),
            (Collective::AllToAll, _) => communicator.all_to_all(send!(all), receive!(all)),
            (Collective::SendRecv, _) => {
                let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                communicator.send_receive(send!(count), next, receive!(count), before)
            }
        }
        .map_err(Failure::from)
    }
}

impl Engine for Host {
    fn kind(&self) -> EngineKind {
        EngineKind::Host
    }

    fn version(&self) -> String {
        format!("plumb {}", env!("CARGO_PKG_VERSION"))
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn control(&mut self) -> &mut Communicator {
        &mut self.communicator
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), Failure> {
        self.check_memory(bytes)?;
        let words = bytes.div_ceil(size_of::<u64>());
        for memory in [&mut self.send, &mut self.receive] {
            // The old one goes before the new one comes.
            *memory = Memory::Private(Vec::new());
            *memory = if self.private {
                let mut own = Vec::new();
                if own.try_reserve_exact(words).is_err() {
                    let cause = Cause::NoBuffer { bytes: bytes as u64 };
                    return Err(super::abort(&mut self.communicator, &cause));
                }
                own.resize(words, 0);
                Memory::Private(own)
            } else {
                Memory::Registered(self.communicator.buffer(words)?)
            };
        }
        Ok(())
    }

    fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        let memory = if side == Side::Send { &mut self.send } else { &mut self.receive };
        let place = offset
            .checked_add(bytes.len())
            .and_then(|end| elements_mut(memory.words_mut()).get_mut(offset..end));
        place.ok_or_else(|| outside(offset.saturating_add(bytes.len())))?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        let memory = if side == Side::Send { &self.send } else { &self.receive };
        let place = offset.checked_add(into.len()).and_then(|end| elements(memory.words()).get(offset..end));
        into.copy_from_slice(place.ok_or_else(|| outside(offset.saturating_add(into.len())))?);
        Ok(())
    }

    fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure> {
        let one = match call.data_type {
            DataType::Int8 => Self::call::<i8>,
            DataType::Uint8 => Self::call::<u8>,
            DataType::Int32 => Self::call::<i32>,
            DataType::Uint32 => Self::call::<u32>,
            DataType::Int64 => Self::call::<i64>,
            DataType::Uint64 => Self::call::<u64>,
            DataType::Half => Self::call::<f16>,
            DataType::Float => Self::call::<f32>,
            DataType::Double => Self::call::<f64>,
            DataType::Bfloat16 => Self::call::<bf16>,
        };
        let start = Instant::now();
        for _ in 0..repeat {
            one(self, call)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

fn outside(bytes: usize) -> Failure {
    Cause::OutsideBuffer { bytes: bytes as u64 }.into()
}

fn operation(operation: Operation) -> collective::Operation {
    match operation {
        Operation::Sum => collective::Operation::Sum,
        Operation::Prod => collective::Operation::Prod,
        Operation::Max => collective::Operation::Max,
        Operation::Min => collective::Operation::Min,
        Operation::Avg => collective::Operation::Avg,
    }
}

/// The same memory as elements of another type.
#[expect(unsafe_code, reason = "numbers are read as other numbers, without a copy")]
fn elements<T: Element>(words: &[u64]) -> &[T] {
    // SAFETY: elements are plain numbers, of which every pattern of bits is one; none needs more alignment than u64.
    unsafe { words.align_to::<T>().1 }
}

/// The same memory as elements of another type.
#[expect(unsafe_code, reason = "numbers are written as other numbers, without a copy")]
fn elements_mut<T: Element>(words: &mut [u64]) -> &mut [T] {
    // SAFETY: as above, and every number is a u64 when it is read again.
    unsafe { words.align_to_mut::<T>().1 }
}
