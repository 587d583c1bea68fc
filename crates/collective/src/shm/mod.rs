//! Shared memory between the ranks of one host.

#![allow(unsafe_code, reason = "memory that other processes read and write is reached through raw pointers")]

mod direct;
mod fd_exchange;
mod mailbox;
mod ring;
mod segment;

pub(crate) use direct::{
    Caches, Direct, DirectError, FINE_PIECE, FINE_STAGE, Manner, Reach, RegisteredSegment,
};
pub(crate) use fd_exchange::FdExchange;
pub(crate) use mailbox::{Layout, Mailbox, SMALL};
pub(crate) use ring::Rings;
pub(crate) use segment::Segment;
