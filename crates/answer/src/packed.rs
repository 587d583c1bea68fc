//! Compressed inputs: gzip, zstd and xz, as streams.

use std::io::{self, BufReader, Read};

use evidence::encoding::Peeked;

#[derive(Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
}

/// How much memory the dictionary of an xz file may take, in KiB: more than `xz -9` uses.
const XZ_MEMORY: u32 = 256 * 1024;

/// How many of a file's first bytes tell whether it is compressed.
pub const MAGIC: usize = 6;

/// Whether a compressed file begins with these bytes.
pub fn is_compressed(magic: &[u8]) -> bool {
    compression(magic) != Compression::None
}

fn compression(magic: &[u8]) -> Compression {
    match magic {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or a skippable frame.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Xz,
        _ => Compression::None,
    }
}

/// The content of a compressed source, or the source as it is.
pub fn decompress<'a>(source: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let whole = Peeked::new(source, MAGIC)?;
    Ok(match compression(whole.head()) {
        Compression::Gzip => {
            Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole)))
        }
        Compression::Zstd => Box::new(Frames { decoder: frame(whole)? }),
        Compression::Xz => {
            let source = BufReader::with_capacity(1 << 16, whole);
            Box::new(lzma_rust2::XzReader::new_mem_limit(source, true, XZ_MEMORY))
        }
        Compression::None => Box::new(whole),
    })
}

type Decoder<'a> = ruzstd::decoding::StreamingDecoder<Peeked<'a>, ruzstd::decoding::FrameDecoder>;

/// All frames of a zstd file; the decoder reads one.
struct Frames<'a> {
    decoder: Option<Decoder<'a>>,
}

/// The next frame that holds data, if there is one.
fn frame(mut source: Peeked<'_>) -> io::Result<Option<Decoder<'_>>> {
    loop {
        let mut magic = Vec::with_capacity(4);
        source.by_ref().take(4).read_to_end(&mut magic)?;
        match magic.as_slice() {
            [] => return Ok(None),
            // A skippable frame: its length, then data to ignore.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
                let mut length = [0; 4];
                source.read_exact(&mut length)?;
                let length = u64::from(u32::from_le_bytes(length));
                io::copy(&mut source.by_ref().take(length), &mut io::sink())?;
            }
            _ => {
                source.put_back(&magic);
                return Decoder::new(source).map(Some).map_err(io::Error::other);
            }
        }
    }
}

impl Read for Frames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let n = decoder.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            // The frame has ended; another may follow.
            self.decoder = match self.decoder.take() {
                Some(decoder) => frame(decoder.into_inner())?,
                None => None,
            };
        }
        Ok(0)
    }
}
