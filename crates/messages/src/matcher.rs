//! From a printed text to the entry that printed it.
//!
//! One piece of the fixed text of each entry, its longest, is searched for in the text. Of the entries whose piece is there, those fit
//! whose pieces follow each other in order with a plausible value in each hole. The one with the most fixed text wins.
//!
//! Blanks around colons, the number of blanks, the kind of quotation marks and upper and lower case do not matter.

use std::collections::HashMap;
use std::sync::OnceLock;

use memchr::memmem;

use crate::entry::{Entry, Hole, Level, Part, Product, Shape};

/// What else the line says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hint<'a> {
    /// `None`: any.
    pub product: Option<Product>,
    /// A warning is never taken for an ordinary line. The reverse is possible: NCCL prints some warnings as INFO.
    pub level: Option<Level>,
    /// `transport/net_ib.cc:2273 (ncclIbTest)`, as far as the line has it; aws-ofi-nccl and libfabric print the function.
    pub location: &'a [u8],
}

/// An entry and the values of its holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match<'t> {
    /// What printed it.
    pub entry: &'static Entry,
    /// In the order of the text; fewer than the entry has if the text is cut.
    pub values: Vec<Filled<'t>>,
    /// Whether the whole text is this message: nothing before it, nothing after it, nothing missing.
    pub whole: bool,
}

/// What stands in a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled<'t> {
    /// Which hole.
    pub hole: Hole,
    /// Its text.
    pub text: &'t [u8],
}

impl<'t> Match<'t> {
    /// The value that comes from a table.
    pub fn value(&self, table: &str) -> Option<&'t [u8]> {
        self.values.iter().find(|it| it.hole.table == table).map(|it| it.text)
    }
}

/// The entry that printed `text`, a message without the prefix of its line.
pub fn find<'t>(text: &'t [u8], hint: Hint<'_>) -> Option<Match<'t>> {
    let plain = Plain::new(text);
    let own = Product::ALL.into_iter().filter(|&it| match hint.product {
        Some(product) => product == it,
        // Only the plugin begins its texts so.
        None => (it == Product::AwsOfiNccl) == plain.bytes.starts_with(b"net/ofi "),
    });
    let best = own.filter_map(|it| book(it).best(&plain, hint)).max_by_key(|(fit, _)| fit.score)?;
    let (fit, pattern) = best;
    let values =
        fit.values.iter().map(|it| Filled { hole: it.hole, text: plain.original(text, it.begin, it.end) });
    Some(Match { entry: pattern.entry, values: values.collect(), whole: fit.whole })
}

/// Texts longer than this are cut: NCCL's buffer has 1,024 bytes.
const LONGEST: usize = 2048;

/// A text in the form that is compared, and where its bytes come from.
struct Plain {
    bytes: Vec<u8>,
    from: Vec<u32>,
}

impl Plain {
    fn new(text: &[u8]) -> Self {
        let text = text.get(..LONGEST).unwrap_or(text).trim_ascii();
        let mut it = Self { bytes: Vec::with_capacity(text.len()), from: Vec::with_capacity(text.len()) };
        for (at, &byte) in (0_u32..).zip(text) {
            let byte = match byte {
                b'\t' | b'\r' | b'\n' => b' ',
                b'"' | b'`' => b'\'',
                other => other.to_ascii_lowercase(),
            };
            let last = it.bytes.last().copied();
            if byte == b' ' && matches!(last, Some(b' ' | b':') | None) {
                continue;
            }
            if byte == b':' && last == Some(b' ') {
                it.bytes.pop();
                it.from.pop();
            }
            it.bytes.push(byte);
            it.from.push(at);
        }
        it
    }

    /// The bytes of `text` that these positions come from.
    fn original<'t>(&self, text: &'t [u8], begin: usize, end: usize) -> &'t [u8] {
        let text = text.get(..LONGEST).unwrap_or(text).trim_ascii();
        let place = |at: usize| self.from.get(at).map_or(text.len(), |it| *it as usize);
        text.get(place(begin)..place(end)).unwrap_or_default().trim_ascii()
    }
}

/// The entries of one product, ready to be searched.
struct Book {
    patterns: Vec<Pattern>,
    /// From the beginning of a piece that is searched for to the patterns that have it.
    long: HashMap<[u8; LONG], Vec<u32>>,
    /// The same for pieces that are shorter.
    short: HashMap<[u8; SHORT], Vec<u32>>,
}

/// So much of a piece is looked up.
const LONG: usize = 8;
/// Shorter pieces are not looked for.
const SHORT: usize = 2;

struct Pattern {
    entry: &'static Entry,
    pieces: Vec<Piece>,
    /// The letters and digits of its fixed text.
    letters: usize,
}

enum Piece {
    Text(Vec<u8>),
    Hole(Hole),
}

fn book(product: Product) -> &'static Book {
    static NCCL: OnceLock<Book> = OnceLock::new();
    static AWS_OFI_NCCL: OnceLock<Book> = OnceLock::new();
    static LIBFABRIC_EFA: OnceLock<Book> = OnceLock::new();
    let slot = match product {
        Product::Nccl => &NCCL,
        Product::AwsOfiNccl => &AWS_OFI_NCCL,
        Product::LibfabricEfa => &LIBFABRIC_EFA,
    };
    slot.get_or_init(|| Book::new(product.entries()))
}

impl Book {
    fn new(entries: &'static [Entry]) -> Self {
        let patterns: Vec<Pattern> = entries.iter().map(Pattern::new).collect();
        let mut it = Self { patterns: Vec::new(), long: HashMap::new(), short: HashMap::new() };
        for (number, pattern) in (0_u32..).zip(&patterns) {
            let Some(piece) = pattern.rare() else { continue };
            if let Some(begin) = piece.first_chunk::<LONG>() {
                it.long.entry(*begin).or_default().push(number);
            } else if let Some(begin) = piece.first_chunk::<SHORT>() {
                it.short.entry(*begin).or_default().push(number);
            }
        }
        it.patterns = patterns;
        it
    }

    /// The patterns whose piece stands in a text.
    fn candidates(&self, text: &[u8]) -> impl Iterator<Item = &Pattern> {
        let mut found: Vec<u32> = Vec::new();
        for at in 0..text.len() {
            let rest = text.get(at..).unwrap_or_default();
            let long = rest.first_chunk().and_then(|it| self.long.get(it));
            let short = rest.first_chunk().and_then(|it| self.short.get(it));
            for &number in long.into_iter().chain(short).flatten() {
                let piece = self.patterns.get(number as usize).and_then(Pattern::rare);
                if piece.is_some_and(|it| rest.starts_with(it)) && !found.contains(&number) {
                    found.push(number);
                }
            }
        }
        found.into_iter().filter_map(|it| self.patterns.get(it as usize))
    }

    fn best(&self, text: &Plain, hint: Hint<'_>) -> Option<(Fit, &Pattern)> {
        let mut best: Option<(Fit, &Pattern)> = None;
        for pattern in self.candidates(&text.bytes) {
            if hint.level == Some(Level::Warn) && pattern.entry.level == Level::Info {
                continue;
            }
            if let Some(fit) = pattern.fit(text, hint)
                && best.as_ref().is_none_or(|(old, _)| fit.score > old.score)
            {
                best = Some((fit, pattern));
            }
        }
        best
    }
}

/// Makes the tables of NCCL's messages: whoever will need them saves the time where another core is idle.
pub fn prepare() {
    let _ = crate::family::all();
    let _ = book(Product::Nccl);
}

/// Texts with fewer letters say too little to be recognised inside other text.
const TELLING: usize = 10;
/// So much of a piece is searched for.
const SEARCHED: usize = 24;

struct Fit {
    score: usize,
    whole: bool,
    values: Vec<Range>,
}

#[derive(Clone, Copy)]
struct Range {
    hole: Hole,
    begin: usize,
    end: usize,
}

impl Pattern {
    fn new(entry: &'static Entry) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        // The text is put into its compared form as one, so that blanks beside holes are treated as in a line.
        let mut joined = Vec::new();
        let mut holes = Vec::new();
        for part in entry.parts() {
            match part {
                Part::Text(text) => joined.extend_from_slice(text.as_bytes()),
                Part::Hole(hole) => {
                    joined.push(0);
                    holes.push(hole);
                }
            }
        }
        let plain = Plain::new(&joined);
        let mut holes = holes.into_iter();
        for (number, text) in plain.bytes.split(|it| *it == 0).enumerate() {
            if number > 0
                && let Some(hole) = holes.next()
            {
                pieces.push(Piece::Hole(hole));
            }
            if !text.is_empty() {
                pieces.push(Piece::Text(text.to_vec()));
            }
        }
        let letters = plain.bytes.iter().filter(|it| it.is_ascii_alphanumeric()).count();
        Self { entry, pieces, letters }
    }

    /// The piece that is searched for: the beginning of the longest.
    fn rare(&self) -> Option<&[u8]> {
        let texts = self.pieces.iter().filter_map(|it| match it {
            Piece::Text(text) => Some(text.as_slice()),
            Piece::Hole(_) => None,
        });
        // Of equally long ones the first, which a cut text still has.
        let longest = texts.rev().max_by_key(|it| it.len().min(SEARCHED))?;
        Some(longest.get(..SEARCHED).unwrap_or(longest))
    }

    fn fit(&self, text: &Plain, hint: Hint<'_>) -> Option<Fit> {
        let here = self.is_at(hint.location);
        let bytes = text.bytes.as_slice();
        let mut state =
            State { text: bytes, values: Vec::new(), budget: 2_000, fixed: 0, end: 0, cut: false };
        let mut starts = match self.pieces.first()? {
            Piece::Text(first) if self.letters >= TELLING && first.len() >= 4 => {
                memmem::find_iter(bytes, first).take(4).collect()
            }
            _ => vec![0],
        };
        if !starts.contains(&0) {
            starts.push(0);
        }
        let begin = starts.into_iter().find(|&begin| {
            state.values.clear();
            state.fixed = 0;
            state.follow(&self.pieces, begin)
        })?;
        let rest = bytes.get(state.end..).unwrap_or_default();
        let ended = rest.iter().all(|it| matches!(it, b' ' | b'.' | b'!' | b'\''));
        let whole = begin == 0 && ended && !state.cut;
        // Text with few letters must be the whole message, and from the right file where the line has one.
        let placed =
            here || (hint.location.is_empty() || self.entry.file.is_empty()) && self.letters > TELLING / 2;
        if self.letters < TELLING && (!whole || !placed) {
            return None;
        }
        if state.cut && state.fixed * 2 < self.letters.max(2 * TELLING) {
            return None;
        }
        let mut score = state.fixed * 8;
        // Of two texts that differ in holes only, the one with more of them says more.
        score += 2 * state.values.len();
        score += if here { 60 } else { 0 };
        score += if whole { 40 } else { 0 };
        score += if hint.level.is_none_or(|it| it == self.entry.level) { 16 } else { 0 };
        score += usize::from(self.entry.level == Level::Warn);
        Some(Fit { score, whole, values: state.values })
    }

    /// Whether the line comes from the file or function of this entry.
    fn is_at(&self, location: &[u8]) -> bool {
        let place = location.split(|it| *it == b':').next().unwrap_or_default();
        if place.is_empty() {
            return false;
        }
        let file = self.entry.file.as_bytes();
        let (long, short) = if file.len() >= place.len() { (file, place) } else { (place, file) };
        let same_file = !short.is_empty()
            && long.strip_suffix(short).is_some_and(|it| it.is_empty() || it.ends_with(b"/"));
        same_file || place == self.entry.function.as_bytes()
    }
}

/// A pattern compared with a text.
struct State<'a> {
    text: &'a [u8],
    values: Vec<Range>,
    /// So many steps are tried: a text of many equal pieces could need very many.
    budget: u32,
    /// The letters and digits of fixed text that were found.
    fixed: usize,
    end: usize,
    /// The text ends before the pattern.
    cut: bool,
}

impl State<'_> {
    /// Whether `pieces` follow each other from `at` on.
    fn follow(&mut self, pieces: &[Piece], at: usize) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        let Some((first, others)) = pieces.split_first() else {
            self.end = at;
            self.cut = false;
            return true;
        };
        let rest = self.text.get(at..).unwrap_or_default();
        match first {
            Piece::Text(text) => {
                // An empty hole leaves one blank of two.
                let after_blank = at > 0 && self.text.get(at - 1) == Some(&b' ');
                let without = text.strip_prefix(b" ").filter(|_| after_blank);
                let tail = rest.strip_prefix(text.as_slice()).or_else(|| rest.strip_prefix(without?));
                if let Some(tail) = tail {
                    let letters = text.iter().filter(|it| it.is_ascii_alphanumeric()).count();
                    self.fixed += letters;
                    let fits = self.follow(others, self.text.len() - tail.len());
                    if !fits {
                        self.fixed -= letters;
                    }
                    return fits;
                }
                // Cut inside this piece, or a full stop or blank that is missing at the end.
                if text.starts_with(rest) {
                    self.fixed += rest.iter().filter(|it| it.is_ascii_alphanumeric()).count();
                    self.end = self.text.len();
                    let left = text.get(rest.len()..).unwrap_or_default();
                    self.cut = !others.is_empty() || left.iter().any(u8::is_ascii_alphanumeric);
                    return true;
                }
                false
            }
            Piece::Hole(hole) => {
                let count = self.values.len();
                for length in lengths(hole.shape, rest, others.first()) {
                    self.values.push(Range { hole: *hole, begin: at, end: at + length });
                    if self.follow(others, at + length) {
                        return true;
                    }
                    self.values.truncate(count);
                }
                false
            }
        }
    }
}

/// How long the value of a hole may be, likeliest first.
fn lengths(shape: Shape, rest: &[u8], next: Option<&Piece>) -> Vec<usize> {
    let blanks = rest.iter().take_while(|it| **it == b' ').count();
    let value = rest.get(blanks..).unwrap_or_default();
    let run = |of: fn(&u8) -> bool, from: usize| value.iter().skip(from).take_while(|it| of(it)).count();
    let sign = usize::from(value.first().is_some_and(|it| matches!(it, b'-' | b'+')));
    let length = match shape {
        Shape::Number => match run(u8::is_ascii_digit, sign) {
            0 => 0,
            digits => sign + digits,
        },
        Shape::Hexadecimal | Shape::Pointer => {
            let nil = if value.starts_with(b"(nil)") { 5 } else { 0 };
            let mark = if value.starts_with(b"0x") { 2 } else { 0 };
            match run(u8::is_ascii_hexdigit, mark) {
                0 => nil,
                digits => mark + digits,
            }
        }
        Shape::Decimal => {
            let digits = run(|it| it.is_ascii_digit() || *it == b'.', sign);
            let word = value.get(sign..sign + 3).is_some_and(|it| it == b"nan" || it == b"inf");
            let exponent = match value.get(sign + digits..) {
                Some([b'e', b'+' | b'-', ..]) if digits > 0 => 2 + run(u8::is_ascii_digit, sign + digits + 2),
                _ => 0,
            };
            match digits + exponent + if word { 3 } else { 0 } {
                0 => 0,
                length => sign + length,
            }
        }
        Shape::Character => usize::from(!value.is_empty()),
        Shape::Text => return texts(rest, next),
    };
    if length == 0 {
        // A text that ends here may be cut.
        return if value.is_empty() { vec![rest.len()] } else { Vec::new() };
    }
    vec![blanks + length]
}

/// The places where the text of a hole may end.
fn texts(rest: &[u8], next: Option<&Piece>) -> Vec<usize> {
    const MOST: usize = 12;
    match next {
        None => vec![rest.len()],
        Some(Piece::Text(text)) => {
            let mut found: Vec<usize> = memmem::find_iter(rest, text).take(MOST).collect();
            // The text may be cut inside the hole, or inside what follows it.
            found.push(rest.len());
            found
        }
        Some(Piece::Hole(_)) => (0..=rest.len().min(64)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Hint, Match, find};
    use crate::entry::{Level, Product, all};

    fn warned<'t>(text: &'t str, location: &'t str) -> Option<Match<'t>> {
        find(text.as_bytes(), Hint { product: None, level: Some(Level::Warn), location: location.as_bytes() })
    }

    #[test]
    fn finds_the_wording_and_its_values() {
        let found = warned("Call to bind failed: Address already in use", "misc/socket.cc:1").unwrap();
        assert_eq!(found.value("errno"), Some(b"Address already in use".as_slice()));
        assert!(found.whole);
        let found = warned("Cuda failure 999 'unknown error'", "include/alloc.h:112").unwrap();
        assert_eq!(found.value("cuda"), Some(b"999".as_slice()));
        assert_eq!(found.entry.result(), Some(1));
    }

    #[test]
    fn blanks_case_and_quotes_do_not_matter() {
        for text in [
            "Call to bind failed : Address already in use",
            "Call to bind failed: Address already in use",
            "call to  bind failed:Address already in use",
        ] {
            assert_eq!(
                warned(text, "").and_then(|it| it.value("errno")),
                Some(b"Address already in use".as_slice())
            );
        }
    }

    #[test]
    fn a_cut_text_is_known_by_its_beginning() {
        let text = "Duplicate GPU detected : rank 3 and rank 1 both on CUDA dev";
        assert!(warned(text, "").is_some_and(|it| !it.whole && it.values.len() == 2));
        assert_eq!(warned("Duplicate", ""), None);
    }

    #[test]
    fn the_file_decides_between_equal_texts() {
        let found = warned("Unknown link type", "graph/xml.cc:10");
        assert!(found.is_none_or(|it| it.entry.file.contains("xml")));
        let a = warned("GIN not supported.", "gin/gin_host.cc:5").unwrap();
        assert_eq!(a.entry.file, "gin/gin_host.cc");
        let b = warned("GIN not supported.", "rma/rma_proxy.cc:5").unwrap();
        assert_eq!(b.entry.file, "rma/rma_proxy.cc");
    }

    #[test]
    fn every_entry_is_found_by_its_own_text() {
        let mut others = Vec::new();
        let mut count = 0;
        for entry in all() {
            let location = if entry.product == Product::Nccl { entry.file } else { entry.function };
            let location = format!("{location}:42");
            let hint = Hint {
                product: Some(entry.product),
                level: Some(entry.level),
                location: if entry.file.is_empty() { b"x.cc:3" } else { location.as_bytes() },
            };
            let text = entry.example();
            let found = find(text.as_bytes(), hint).map(|it| it.entry.text);
            count += 1;
            let same = |it: &str| it.to_ascii_lowercase().replace(" :", ":");
            if found.map(same) != Some(same(entry.text)) {
                others.push(format!("{} -> {found:?}", entry.text));
            }
        }
        assert!(others.len() * 100 < count, "{} of {count}: {others:#?}", others.len());
    }

    #[test]
    fn strange_text_has_no_entry() {
        for text in ["", "the moon", "Error: it rains", "failed: 3", "{s}", "Using network X", "\u{0}\u{1}"] {
            assert_eq!(warned(text, ""), None, "{text}");
        }
    }

    #[test]
    fn products_are_told_apart() {
        let found =
            find(b"NET/OFI Unable to find a protocol that worked.  Failing initialization.", Hint::default())
                .unwrap();
        assert_eq!(found.entry.product, Product::AwsOfiNccl);
    }
}
