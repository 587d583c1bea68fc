//! The boundary to the worker. All `unsafe` of the page is here.

#![allow(unsafe_code, reason = "WebAssembly exports and imports plain functions on numbers")]

use std::cell::RefCell;
use std::io;

use crate::{Bytes, Question, Reply, answer};

// Of the worker.
#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "worker")]
unsafe extern "C" {
    /// Copies bytes of a file to memory; how many, or -1.
    fn read(file: u32, from: f64, to: *mut u8, length: u32) -> i32;
    /// The text of a panic.
    fn failed(text: *const u8, length: u32);
}

#[cfg(not(target_arch = "wasm32"))]
unsafe fn read(_: u32, _: f64, _: *mut u8, _: u32) -> i32 {
    -1
}

#[cfg(not(target_arch = "wasm32"))]
unsafe fn failed(_: *const u8, _: u32) {}

thread_local! {
    static QUESTION: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static REPLY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Room for a question of so many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn room(length: u32) -> *mut u8 {
    QUESTION.with_borrow_mut(|it| {
        it.clear();
        it.resize(length as usize, 0);
        it.as_mut_ptr()
    })
}

/// Answers the question; how many bytes the reply has.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> u32 {
    std::panic::set_hook(Box::new(|it| {
        let text = it.to_string();
        // SAFETY: the worker reads the text before it returns.
        unsafe { failed(text.as_ptr(), text.len() as u32) }
    }));
    let question = QUESTION.take();
    let reply = match serde_json::from_slice::<Question>(&question) {
        Ok(question) => answer(&question, &Worker),
        Err(error) => Reply::refused(format!("the page asked for something unknown: {error}")),
    };
    REPLY.with_borrow_mut(|it| {
        *it = serde_json::to_vec(&reply).unwrap_or_default();
        it.len() as u32
    })
}

/// Where the reply is.
#[unsafe(no_mangle)]
pub extern "C" fn reply() -> *const u8 {
    REPLY.with_borrow(|it| it.as_ptr())
}

/// Files that the worker holds.
struct Worker;

impl Bytes for Worker {
    fn read(&self, file: u32, from: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        #[allow(clippy::cast_precision_loss, reason = "a file in a browser has less than 2^53 bytes")]
        // SAFETY: the worker writes at most `length` bytes to the buffer and keeps no pointer to it.
        let count = unsafe { read(file, from as f64, buffer.as_mut_ptr(), length) };
        usize::try_from(count).map_err(|_| io::Error::other("the browser could not read the file"))
    }
}
