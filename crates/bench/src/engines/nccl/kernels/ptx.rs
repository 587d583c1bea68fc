//! The kernels as PTX text, which the driver compiles for its GPU: no toolkit is needed, neither to build nor to run.
//!
//! They mirror [`Pattern`]: `mixed`, `remixed`, `within`, `owner`, `owned`, `factor`, `outermost`, `signed`, `turn`, `value` and
//! `total` here write the instructions of the functions of the same names there, `input` and `result` those of its two methods, and
//! `element` those of its conversions. What a pattern's constants decide is decided while the text is written.
//!
//! PTX ISA 6.0 for `sm_50` is what the drivers of CUDA 9 and all later ones take, and NCCL needs no older GPU. It has no conversion to
//! bfloat16, which is rounded by integer arithmetic.

use std::fmt::Write as _;

use crate::data::DataType;
use crate::engines::pattern::{
    FIRST, GOLDEN, Kind, Pattern, SECOND, Window, factors, is_float, is_unsigned, limit, real, triangle,
};

/// Writes what a rank sends.
pub(super) const FILL: &str = "fill";
/// Counts the elements that differ from the result, and finds the first.
pub(super) const COMPARE: &str = "compare";

/// The parameters of both kernels, each of 64 bits: where the elements are, how many they are, the index of the first, the pattern's
/// salt, the rank's own salt, the rank, its place in the window's period, and where [`COMPARE`] adds its count and puts the first index.
pub(super) const PARAMETERS: [&str; 8] =
    ["address", "count", "from", "salt", "own", "rank", "place", "found"];

/// The text of both kernels; none for more ranks than 32 bits count.
pub(super) fn module(pattern: &Pattern) -> Option<String> {
    u32::try_from(pattern.ranks).ok()?;
    if let Kind::Sum { window, .. } | Kind::Prod { window } = pattern.kind {
        u32::try_from(window.period).ok()?;
    }
    let mut text = ".version 6.0\n.target sm_50\n.address_size 64\n".to_owned();
    text += &fill(pattern);
    text += &compare(pattern);
    Some(text)
}

fn fill(pattern: &Pattern) -> String {
    let mut code = Code::new(pattern);
    let (index, address) = code.head();
    let value = code.input(&index);
    let element = code.element(&value, false);
    code.line(&format!("st.global.{} [{address}], {element}", code.stored()));
    code.tail();
    code.kernel(FILL)
}

fn compare(pattern: &Pattern) -> String {
    let mut code = Code::new(pattern);
    code.line("mov.u64 %wrong, 0");
    code.line("mov.u64 %first, 0xffffffffffffffff");
    let (index, address) = code.head();
    // What is only moved arrives as it was sent.
    let (value, average) = match pattern.kind {
        Kind::Copied => (code.input(&index), false),
        Kind::Sum { average, .. } => (code.result(&index), average),
        _ => (code.result(&index), false),
    };
    let expected = code.element(&value, average);
    let (load, class) = (format!("ld.global.{}", code.stored()), code.class());
    let got = code.made(class, &load, &[&format!("[{address}]")]);
    let bits = if class == Class::Wide { "b64" } else { "b32" };
    let mut differs = code.predicate(&format!("setp.ne.{bits}"), &[&got, &expected]);
    if pattern.tolerance() > 0.0 {
        let far = code.is_far(&got, &expected, pattern.tolerance());
        differs = code.predicate("and.pred", &[&differs, &far]);
    }
    code.line(&format!("@{differs} add.u64 %wrong, %wrong, 1"));
    code.line(&format!("@{differs} min.u64 %first, %first, %i"));
    code.tail();
    let none = code.predicate("setp.eq.u64", &["%wrong", "0"]);
    code.line(&format!("@{none} bra END"));
    code.line("red.global.add.u64 [%found], %wrong");
    code.line("red.global.min.u64 [%found+8], %first");
    code.label("END");
    code.kernel(COMPARE)
}

/// Kinds of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Wide,
    Word,
    Short,
    Single,
    Double,
    Predicate,
}

impl Class {
    const ALL: [Self; 6] = [Self::Wide, Self::Word, Self::Short, Self::Single, Self::Double, Self::Predicate];

    fn letter_and_type(self) -> (char, &'static str) {
        match self {
            Self::Wide => ('d', "b64"),
            Self::Word => ('w', "b32"),
            Self::Short => ('h', "b16"),
            Self::Single => ('s', "f32"),
            Self::Double => ('r', "f64"),
            Self::Predicate => ('p', "pred"),
        }
    }
}

/// The body of a kernel. Every instruction gets a register of its own for its result; the driver's compiler chooses real ones.
struct Code<'a> {
    pattern: &'a Pattern,
    text: String,
    used: [usize; 6],
}

impl<'a> Code<'a> {
    fn new(pattern: &'a Pattern) -> Self {
        Self { pattern, text: String::new(), used: [0; 6] }
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "    {line};");
    }

    fn label(&mut self, name: &str) {
        let _ = writeln!(self.text, "{name}:");
    }

    fn made(&mut self, class: Class, instruction: &str, operands: &[&str]) -> String {
        let number = &mut self.used[class as usize];
        let register = format!("%{}{number}", class.letter_and_type().0);
        *number += 1;
        let _ = writeln!(self.text, "    {instruction} {register}, {};", operands.join(", "));
        register
    }

    fn wide(&mut self, instruction: &str, operands: &[&str]) -> String {
        self.made(Class::Wide, instruction, operands)
    }

    fn word(&mut self, instruction: &str, operands: &[&str]) -> String {
        self.made(Class::Word, instruction, operands)
    }

    fn predicate(&mut self, instruction: &str, operands: &[&str]) -> String {
        self.made(Class::Predicate, instruction, operands)
    }

    /// The loop over the elements: each thread takes one, and then the one so far on as there are threads. Returns the index in the pattern
    /// and the address.
    fn head(&mut self) -> (String, String) {
        let [block, size, thread, blocks] =
            ["%ctaid.x", "%ntid.x", "%tid.x", "%nctaid.x"].map(|it| self.word("mov.u32", &[it]));
        let thread = self.wide("cvt.u64.u32", &[&thread]);
        let before = self.wide("mul.wide.u32", &[&block, &size]);
        self.line(&format!("add.u64 %i, {before}, {thread}"));
        self.line(&format!("mul.wide.u32 %stride, {blocks}, {size}"));
        self.label("NEXT");
        let past = self.predicate("setp.ge.u64", &["%i", "%count"]);
        self.line(&format!("@{past} bra DONE"));
        let index = self.wide("add.u64", &["%i", "%from"]);
        let width = self.pattern.data_type.size().to_string();
        let address = self.wide("mad.lo.u64", &["%i", &width, "%address"]);
        (index, address)
    }

    fn tail(&mut self) {
        self.line("add.u64 %i, %i, %stride");
        self.line("bra NEXT");
        self.label("DONE");
    }

    /// The whole kernel.
    fn kernel(&self, name: &str) -> String {
        let parameters = PARAMETERS.map(|it| format!(".param .u64 {name}_{it}")).join(", ");
        let mut text = format!(".visible .entry {name}({parameters})\n{{\n");
        let named = PARAMETERS.iter().chain(&["i", "stride", "wrong", "first"]).map(|it| format!("%{it}"));
        let _ = writeln!(text, "    .reg .b64 {};", named.collect::<Vec<_>>().join(", "));
        for (class, used) in Class::ALL.into_iter().zip(self.used) {
            let (letter, kind) = class.letter_and_type();
            if used > 0 {
                let _ = writeln!(text, "    .reg .{kind} %{letter}<{used}>;");
            }
        }
        for it in PARAMETERS {
            let _ = writeln!(text, "    ld.param.u64 %{it}, [{name}_{it}];");
        }
        for it in ["address", "found"] {
            let _ = writeln!(text, "    cvta.to.global.u64 %{it}, %{it};");
        }
        text + &self.text + "    ret;\n}\n"
    }

    fn mixed(&mut self, index: &str, salt: &str) -> String {
        let bits = self.wide("mad.lo.u64", &[index, &hex(GOLDEN), salt]);
        self.remixed(&bits)
    }

    fn remixed(&mut self, bits: &str) -> String {
        let bits = self.folded(bits, "30");
        let bits = self.wide("mul.lo.u64", &[&bits, &hex(FIRST)]);
        let bits = self.folded(&bits, "27");
        let bits = self.wide("mul.lo.u64", &[&bits, &hex(SECOND)]);
        self.folded(&bits, "31")
    }

    fn folded(&mut self, bits: &str, by: &str) -> String {
        let high = self.wide("shr.u64", &[bits, by]);
        self.wide("xor.b64", &[bits, &high])
    }

    fn within(&mut self, bits: &str, highest: i64) -> String {
        let bits = self.wide("shl.b64", &[bits, "1"]);
        self.wide("mul.hi.u64", &[&bits, &hex(highest.unsigned_abs() + 1)])
    }

    /// The lower and the upper half.
    fn halves(&mut self, bits: &str) -> (String, String) {
        let low = self.word("cvt.u32.u64", &[bits]);
        let high = self.wide("shr.u64", &[bits, "32"]);
        (low, self.word("cvt.u32.u64", &[&high]))
    }

    fn is_owner(&mut self, bits: &str) -> String {
        let (low, _) = self.halves(bits);
        let owner = self.word("mul.hi.u32", &[&low, &self.pattern.ranks.to_string()]);
        let rank = self.word("cvt.u32.u64", &["%rank"]);
        self.predicate("setp.eq.u32", &[&owner, &rank])
    }

    fn owned(&mut self, bits: &str) -> String {
        let bits = self.remixed(bits);
        self.within(&bits, limit(self.pattern.data_type) / 2)
    }

    fn factor(&mut self, bits: &str) -> String {
        let bits = self.remixed(bits);
        let above = self.within(&bits, factors(self.pattern.data_type).0 - 1);
        self.wide("add.u64", &[&above, "1"])
    }

    fn outermost(&mut self, bits: &str, least: bool) -> String {
        let (limit, half) = (limit(self.pattern.data_type), limit(self.pattern.data_type) / 2);
        let bits = self.remixed(bits);
        let above = self.within(&bits, half - 1);
        let above = self.wide("add.s64", &[&above, &(half + 1).to_string()]);
        if !least {
            above
        } else if is_unsigned(self.pattern.data_type) {
            let highest = self.wide("mov.u64", &[&(limit - 1).to_string()]);
            self.wide("sub.s64", &[&highest, &above])
        } else {
            self.wide("neg.s64", &[&above])
        }
    }

    fn signed(&mut self, bits: &str, value: &str) -> String {
        if is_unsigned(self.pattern.data_type) {
            return value.to_owned();
        }
        let lowest = self.wide("and.b64", &[bits, "1"]);
        let odd = self.predicate("setp.ne.u64", &[&lowest, "0"]);
        let negative = self.wide("neg.s64", &[value]);
        self.wide("selp.b64", &[&negative, value, &odd])
    }

    fn turn(&mut self, window: Window, bits: &str) -> String {
        let (_, high) = self.halves(bits);
        self.word("mul.hi.u32", &[&high, &window.period.to_string()])
    }

    fn value(&mut self, window: Window, bits: &str) -> String {
        let turn = self.turn(window, bits);
        // The rank's own place in a period and the turn are both less than a period.
        let place = self.word("cvt.u32.u64", &["%place"]);
        let place = self.word("add.u32", &[&place, &turn]);
        let past = self.word("sub.u32", &[&place, &window.period.to_string()]);
        let is_past = self.predicate("setp.ge.u32", &[&place, &window.period.to_string()]);
        let place = self.word("selp.b32", &[&past, &place, &is_past]);
        let inside = self.predicate("setp.lt.u32", &[&place, &window.width.to_string()]);
        let value = self.word("add.u32", &[&place, "1"]);
        self.word("selp.b32", &[&value, "0", &inside])
    }

    fn total(
        &mut self,
        window: Window,
        bits: &str,
        whole: u64,
        before: fn(&mut Self, Window, &str) -> String,
    ) -> String {
        let period = window.period.to_string();
        let turn = self.turn(window, bits);
        let end = self.word("add.u32", &[&turn, &(self.pattern.ranks % window.period).to_string()]);
        let until = self.word("min.u32", &[&end, &period]);
        let over = self.word("sub.u32", &[&end, &until]);
        let [until, turn, over] = [until, turn, over].map(|it| before(self, window, &it));
        let first = self.word("sub.u32", &[&until, &turn]);
        let left = self.word("add.u32", &[&first, &over]);
        let left = self.wide("cvt.u64.u32", &[&left]);
        self.wide("add.u64", &[&left, &whole.to_string()])
    }

    fn inside(&mut self, window: Window, number: &str) -> String {
        self.word("min.u32", &[number, &window.width.to_string()])
    }

    fn triangle(&mut self, window: Window, number: &str) -> String {
        let number = self.inside(window, number);
        let twice = self.word("mad.lo.u32", &[&number, &number, &number]);
        self.word("shr.u32", &[&twice, "1"])
    }

    fn input(&mut self, index: &str) -> String {
        let bits = self.mixed(index, "%salt");
        match self.pattern.kind {
            Kind::Copied => {
                let shifted = self.wide("shr.u64", &[&bits, "1"]);
                let value = self.within(&shifted, limit(self.pattern.data_type));
                self.signed(&bits, &value)
            }
            Kind::Sum { window, unit, .. } => {
                let is_owner = self.is_owner(&bits);
                let owned = self.owned(&bits);
                let owned = self.wide("selp.b64", &[&owned, "0", &is_owner]);
                let value = self.value(window, &bits);
                let value = self.wide("cvt.u64.u32", &[&value]);
                let value = self.wide("mad.lo.s64", &[&value, &unit.to_string(), &owned]);
                self.signed(&bits, &value)
            }
            Kind::Prod { window } => {
                let value = self.value(window, &bits);
                let is_two = self.predicate("setp.gt.u32", &[&value, "0"]);
                let two = self.wide("selp.b64", &["2", "1", &is_two]);
                let factor = self.factor(&bits);
                let factor = self.signed(&bits, &factor);
                let product = self.wide("mul.lo.s64", &[&factor, &two]);
                let is_owner = self.is_owner(&bits);
                self.wide("selp.b64", &[&product, &two, &is_owner])
            }
            Kind::Extreme { least } => {
                let half = limit(self.pattern.data_type) / 2;
                let outermost = self.outermost(&bits, least);
                let own = self.mixed(index, "%own");
                let shifted = self.wide("shr.u64", &[&own, "1"]);
                let inner = self.within(&shifted, half);
                let inner = self.signed(&own, &inner);
                let inner = if !least {
                    inner
                } else if is_unsigned(self.pattern.data_type) {
                    self.wide("add.s64", &[&inner, &half.to_string()])
                } else {
                    self.wide("neg.s64", &[&inner])
                };
                let is_owner = self.is_owner(&bits);
                self.wide("selp.b64", &[&outermost, &inner, &is_owner])
            }
        }
    }

    fn result(&mut self, index: &str) -> String {
        let bits = self.mixed(index, "%salt");
        match self.pattern.kind {
            Kind::Copied => self.wide("mov.u64", &["0"]),
            Kind::Sum { window, unit, .. } => {
                let whole = self.pattern.ranks / window.period * triangle(window.width);
                let sum = self.total(window, &bits, whole, Self::triangle);
                let owned = self.owned(&bits);
                let value = self.wide("mad.lo.s64", &[&sum, &unit.to_string(), &owned]);
                self.signed(&bits, &value)
            }
            Kind::Prod { window } => {
                let whole = self.pattern.ranks / window.period * window.width;
                let twos = self.total(window, &bits, whole, Self::inside);
                let twos = self.word("cvt.u32.u64", &[&twos]);
                let factor = self.factor(&bits);
                let factor = self.signed(&bits, &factor);
                self.wide("shl.b64", &[&factor, &twos])
            }
            Kind::Extreme { least } => self.outermost(&bits, least),
        }
    }

    /// The bits of an element from a whole number, over the number of ranks where it is an average.
    fn element(&mut self, value: &str, average: bool) -> String {
        let data_type = self.pattern.data_type;
        let ranks = self.pattern.ranks.cast_signed();
        let average = average && ranks > 1;
        if average && is_float(data_type) {
            let sum = self.made(Class::Double, "cvt.rn.f64.s64", &[value]);
            let ranks = format!("0d{:016x}", real(ranks).to_bits());
            let real = self.made(Class::Double, "div.rn.f64", &[&sum, &ranks]);
            if data_type == DataType::Double {
                return self.wide("mov.b64", &[&real]);
            }
            let single = self.made(Class::Single, "cvt.rn.f32.f64", &[&real]);
            return self.of_single(&single);
        }
        let whole =
            if average { self.wide("div.s64", &[value, &ranks.to_string()]) } else { value.to_owned() };
        match data_type {
            DataType::Int64 | DataType::Uint64 => whole,
            DataType::Int32 | DataType::Uint32 => self.word("cvt.u32.u64", &[&whole]),
            DataType::Int8 | DataType::Uint8 => {
                let word = self.word("cvt.u32.u64", &[&whole]);
                self.word("and.b32", &[&word, "0xff"])
            }
            DataType::Double => {
                let real = self.made(Class::Double, "cvt.rn.f64.s64", &[&whole]);
                self.wide("mov.b64", &[&real])
            }
            DataType::Half | DataType::Bfloat16 | DataType::Float => {
                let single = self.made(Class::Single, "cvt.rn.f32.s64", &[&whole]);
                self.of_single(&single)
            }
        }
    }

    /// The bits of a type of 16 or 32 bits.
    fn of_single(&mut self, single: &str) -> String {
        match self.pattern.data_type {
            DataType::Half => {
                let half = self.made(Class::Short, "cvt.rn.f16.f32", &[single]);
                self.word("cvt.u32.u16", &[&half])
            }
            DataType::Bfloat16 => {
                // To nearest, ties to even: what is cut off, plus a little less than half of the last place, plus its last bit.
                let bits = self.word("mov.b32", &[single]);
                let high = self.word("shr.u32", &[&bits, "16"]);
                let last = self.word("and.b32", &[&high, "1"]);
                let bits = self.word("add.u32", &[&bits, &last]);
                let bits = self.word("add.u32", &[&bits, "0x7fff"]);
                self.word("shr.u32", &[&bits, "16"])
            }
            _ => self.word("mov.b32", &[single]),
        }
    }

    /// An element of a float type as a number.
    fn number(&mut self, element: &str) -> String {
        let single = match self.pattern.data_type {
            DataType::Double => return self.made(Class::Double, "mov.b64", &[element]),
            DataType::Half => {
                let half = self.made(Class::Short, "cvt.u16.u32", &[element]);
                self.made(Class::Single, "cvt.f32.f16", &[&half])
            }
            DataType::Bfloat16 => {
                let bits = self.word("shl.b32", &[element, "16"]);
                self.made(Class::Single, "mov.b32", &[&bits])
            }
            _ => self.made(Class::Single, "mov.b32", &[element]),
        };
        self.made(Class::Double, "cvt.f64.f32", &[&single])
    }

    /// Whether two elements differ by more than a share of the second, or one is not a number.
    fn is_far(&mut self, got: &str, expected: &str, tolerance: f64) -> String {
        let [got, expected] = [got, expected].map(|it| self.number(it));
        let far = self.made(Class::Double, "sub.rn.f64", &[&got, &expected]);
        let far = self.made(Class::Double, "abs.f64", &[&far]);
        let most = self.made(Class::Double, "abs.f64", &[&expected]);
        let most =
            self.made(Class::Double, "mul.rn.f64", &[&most, &format!("0d{:016x}", tolerance.to_bits())]);
        self.predicate("setp.gtu.f64", &[&far, &most])
    }

    fn class(&self) -> Class {
        if self.pattern.data_type.size() == 8 { Class::Wide } else { Class::Word }
    }

    /// The type of an element in memory.
    fn stored(&self) -> &'static str {
        match self.pattern.data_type.size() {
            1 => "u8",
            2 => "u16",
            4 => "u32",
            _ => "u64",
        }
    }
}

fn hex(number: u64) -> String {
    format!("{number:#018x}")
}
