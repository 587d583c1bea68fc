//! Registered buffers.

#![allow(unsafe_code, reason = "a slice over shared memory")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::Element;
use crate::shm::Segment;

/// A registered buffer: a slice in shared memory that the other ranks of the host have mapped.
///
/// Collectives on slices of it need no copies. Other ranks read and write it during a call only.
pub struct Buffer<T> {
    segment: Arc<Segment>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    pub(crate) fn new(segment: Arc<Segment>, len: usize) -> Self {
        debug_assert!(segment.len() >= len * size_of::<T>());
        Self { segment, len, element: PhantomData }
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the segment holds `len` elements, is aligned to a page, zero is a value of every element, and other
        // ranks write to it only during calls, which borrow what they write to mutably.
        unsafe { std::slice::from_raw_parts(self.segment.start().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; outside of calls nothing else in this process reaches the segment.
        unsafe { std::slice::from_raw_parts_mut(self.segment.start().cast(), self.len) }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}
