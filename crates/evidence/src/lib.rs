//! What a job and a cluster say about themselves, read from text into facts.
//!
//! ```text
//! bytes -> Chunks -> read_chunk (in parallel) -> CaseBuilder (in order) -> Case
//! ```
//!
//! Reading never fails: any bytes go in, facts come out, and lines that were not
//! understood are counted. Facts of parts are joined by `merge`, so a file read
//! whole, in pieces, or by several threads gives the same [`Case`]. Nothing here
//! judges, and nothing here opens a file.

mod case;
mod chunk;
mod communicator;
pub mod facts;
pub mod nccl;
mod needs;
pub mod ofi;
pub mod plain;
pub mod prefix;
mod read;
mod scan;
pub mod signals;
mod source;

pub use case::{Case, CaseBuilder, Process};
pub use chunk::{Chunk, Chunks};
pub use communicator::{Communicator, Member};
pub use needs::{Missing, Source};
pub use read::{ChunkFacts, read_chunk};
pub use signals::{Sighting, Signal};
pub use source::{Distinct, File, Kind, Quote, Seen, Sources, Spot, Tally, Text};

/// Reads texts that are already in memory, each as a file of its own.
///
/// For tests, for tools that have their text at hand, and as the shortest
/// description of how the parts fit together.
pub fn read_texts<'a>(texts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Case {
    let mut builder = CaseBuilder::default();
    let mut number = 0;
    for (name, text) in texts {
        let file = builder.begin_file(name);
        let mut chunks = Chunks::new(text, Chunks::<&[u8]>::SIZE);
        let mut problem = None;
        loop {
            match chunks.next_chunk(Vec::new()) {
                Ok(Some(chunk)) => {
                    builder.absorb(file, read_chunk(&chunk, number));
                    number += 1;
                }
                Ok(None) => break,
                Err(error) => {
                    problem = Some(error.to_string());
                    break;
                }
            }
        }
        builder.end_file(file, problem.as_deref());
    }
    builder.finish()
}
