//! Facts about a job and a cluster, read from text.
//!
//! ```text
//! bytes -> Chunks -> Reader (one per region, in parallel) -> CaseBuilder (in order) -> Case
//! ```
//!
//! Reading never fails: any bytes go in, facts come out, and lines that were not
//! understood are counted. Facts of parts are joined by `merge`, so a file read
//! whole, in pieces, or by several threads gives the same [`Case`]. Nothing here
//! judges, and nothing here opens a file.

#![forbid(unsafe_code)]

mod absent;
mod case;
pub mod catalogue;
mod chunk;
mod communicator;
pub mod decided;
pub mod encoding;
pub mod ending;
pub mod facts;
mod letters;
mod mend;
pub mod nccl;
mod needs;
pub mod node;
pub mod paths;
pub mod plain;
pub mod plugin;
pub mod prefix;
mod read;
pub mod recorder;
mod scan;
mod segment;
mod shape;
pub mod shell;
pub mod signals;
mod source;
pub mod strip;
pub mod submission;
pub mod topology;
pub mod yaml;

pub use absent::Absent;
pub use case::{BINARY, Case, CaseBuilder, MemberLink, Process};
pub use chunk::{Chunk, Chunks};
pub use communicator::{Claim, Communicator, Member};
pub use mend::is_broken;
pub use needs::{Missing, Source};
pub use read::{Facts, Reader, is_binary};
pub use signals::{ProcessId, Sighting, Signal};
pub use source::{Distinct, File, Kind, Quote, Seen, Sources, Spot, Tally};

/// Makes the tables that reading an NCCL log needs.
pub fn prepare() {
    messages::prepare();
}

/// Reads texts that are already in memory, each as a separate file.
///
/// For tests, for tools that have their text in memory, and as the shortest
/// description of how the parts work together.
pub fn read_texts<'a>(texts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Case {
    let mut builder = CaseBuilder::default();
    for (region, (name, text)) in (0..).zip(texts) {
        let file = builder.begin_file(name);
        let mut reader = Reader::new(region);
        let problem = read_lines(&mut reader, &mut Chunks::new(text, Chunks::<&[u8]>::SIZE)).err();
        builder.absorb(file, reader.finish());
        builder.end_file(file, problem.map(|it| it.to_string()).as_deref());
    }
    builder.finish()
}

/// Feeds all lines of a file to a reader.
pub fn read_lines<R: std::io::Read>(reader: &mut Reader, chunks: &mut Chunks<R>) -> std::io::Result<()> {
    let mut spare = Vec::new();
    let mut beginning = true;
    while let Some(chunk) = chunks.next_chunk(spare)? {
        reader.feed(chunk.bytes(), std::mem::replace(&mut beginning, false));
        spare = chunk.recycle();
    }
    Ok(())
}
