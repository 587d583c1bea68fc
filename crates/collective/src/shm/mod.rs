//! Shared memory between the ranks of one host.

#![allow(unsafe_code, reason = "memory that other processes read and write is reached through raw pointers")]

mod desk;
mod direct;
mod relay;
mod ring;
mod segment;

pub(crate) use desk::{Desk, Layout, SMALL};
pub(crate) use direct::{Direct, Reach, Trouble};
pub(crate) use relay::Relay;
pub(crate) use ring::Rings;
pub(crate) use segment::Segment;
