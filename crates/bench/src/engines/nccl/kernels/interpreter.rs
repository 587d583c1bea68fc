//! Runs the kernels' text without a GPU: the instructions of PTX that it uses, as the PTX ISA defines them.

use std::collections::HashMap;

use collective::f16;

/// Where the memory begins: an address that no small number is taken for.
pub(super) const BASE: u64 = 0x7000_0000;

/// Blocks and threads of a block.
const GRID: [u64; 2] = [3, 4];

/// A memory that kernels work on.
pub(super) struct Machine {
    pub(super) memory: Vec<u8>,
    registers: HashMap<String, u64>,
}

/// One kernel of a module.
pub(super) struct Kernel<'a> {
    lines: Vec<&'a str>,
    labels: HashMap<&'a str, usize>,
}

impl<'a> Kernel<'a> {
    pub(super) fn of(text: &'a str, name: &str) -> Self {
        let head = format!(".visible .entry {name}(");
        let lines: Vec<&str> = text
            .lines()
            .skip_while(|it| !it.starts_with(&head))
            .skip(2)
            .take_while(|it| *it != "}")
            .map(|it| it.trim().trim_end_matches(';'))
            .filter(|it| !it.starts_with(".reg"))
            .collect();
        let labels =
            lines.iter().enumerate().filter_map(|(i, it)| Some((it.strip_suffix(':')?, i))).collect();
        assert!(!lines.is_empty(), "no kernel {name}");
        Self { lines, labels }
    }
}

impl Machine {
    pub(super) fn new(bytes: usize) -> Self {
        Self { memory: vec![0; bytes], registers: HashMap::new() }
    }

    /// Runs a kernel with these parameters, all of its threads one after the other.
    pub(super) fn run(&mut self, kernel: &Kernel<'_>, parameters: &[(&str, u64)]) {
        for thread in 0..GRID[0] * GRID[1] {
            self.registers.clear();
            for (name, value) in parameters {
                self.registers.insert(format!("[{name}]"), *value);
            }
            let here = [thread / GRID[1], GRID[1], thread % GRID[1], GRID[0]];
            for (name, value) in ["%ctaid.x", "%ntid.x", "%tid.x", "%nctaid.x"].into_iter().zip(here) {
                self.registers.insert(name.to_owned(), value);
            }
            let mut at = 0;
            while let Some(next) = self.step(kernel, at) {
                at = next;
            }
        }
    }

    /// The number of the line after this one; none at the end.
    fn step(&mut self, kernel: &Kernel<'_>, at: usize) -> Option<usize> {
        let mut line = kernel.lines[at];
        if line.ends_with(':') {
            return Some(at + 1);
        }
        if let Some((predicate, rest)) = line.strip_prefix('@').and_then(|it| it.split_once(' ')) {
            if self.value(predicate) == 0 {
                return Some(at + 1);
            }
            line = rest;
        }
        let (operation, rest) = line.split_once(' ').unwrap_or((line, ""));
        let operands: Vec<&str> = rest.split(", ").collect();
        match operation {
            "ret" => return None,
            "bra" => return Some(kernel.labels[operands[0]]),
            _ => {}
        }
        if let Some(width) = operation.strip_prefix("st.global.u") {
            self.store(operands[0], bytes(width), self.value(operands[1]));
        } else if let Some(width) = operation.strip_prefix("ld.global.u") {
            let value = self.load(operands[1], bytes(width));
            self.registers.insert(operands[0].to_owned(), value);
        } else if let Some(way) = operation.strip_prefix("red.global.") {
            let (old, own) = (self.load(operands[0], 8), self.value(operands[1]));
            let value = if way == "add.u64" { old.wrapping_add(own) } else { old.min(own) };
            self.store(operands[0], 8, value);
        } else {
            let inputs: Vec<u64> = operands[1..].iter().map(|it| self.value(it)).collect();
            let value = computed(operation, &inputs);
            self.registers.insert(operands[0].to_owned(), value);
        }
        Some(at + 1)
    }

    fn value(&self, operand: &str) -> u64 {
        if let Some(it) = operand.strip_prefix("0d").or_else(|| operand.strip_prefix("0x")) {
            return u64::from_str_radix(it, 16).expect("a number");
        }
        match operand.parse::<i128>() {
            Ok(it) => u64::try_from(it & i128::from(u64::MAX)).expect("64 bits"),
            Err(_) => *self.registers.get(operand).unwrap_or_else(|| panic!("{operand} is not set")),
        }
    }

    /// The bytes that an operand such as `[%d3+8]` names; outside of the memory is an error.
    fn place(&self, operand: &str, width: usize) -> std::ops::Range<usize> {
        let inner = operand.trim_start_matches('[').trim_end_matches(']');
        let (register, more) = inner.split_once('+').unwrap_or((inner, "0"));
        let address = self.value(register) + more.parse::<u64>().expect("a number") - BASE;
        let start = usize::try_from(address).expect("an address");
        assert!(start.is_multiple_of(width) && start + width <= self.memory.len(), "{operand} is outside");
        start..start + width
    }

    fn load(&self, operand: &str, width: usize) -> u64 {
        let mut whole = [0; 8];
        whole[..width].copy_from_slice(&self.memory[self.place(operand, width)]);
        u64::from_le_bytes(whole)
    }

    fn store(&mut self, operand: &str, width: usize, value: u64) {
        let place = self.place(operand, width);
        self.memory[place].copy_from_slice(&value.to_le_bytes()[..width]);
    }
}

fn bytes(bits: &str) -> usize {
    bits.parse::<usize>().expect("a number") / 8
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "instructions that do exactly this"
)]
fn computed(operation: &str, inputs: &[u64]) -> u64 {
    let word = |it: usize| inputs[it] as u32;
    let real = |it: usize| f64::from_bits(inputs[it]);
    let single = |it: usize| f32::from_bits(word(it));
    let signed = |it: usize| inputs[it].cast_signed();
    let of_word = u64::from;
    match operation {
        "ld.param.u64" | "cvta.to.global.u64" | "mov.u64" | "mov.b64" => inputs[0],
        "mov.u32" | "mov.b32" | "cvt.u64.u32" | "cvt.u32.u64" => of_word(word(0)),
        "cvt.u32.u16" | "cvt.u16.u32" => inputs[0] & 0xffff,
        "add.u64" | "add.s64" => inputs[0].wrapping_add(inputs[1]),
        "sub.s64" => inputs[0].wrapping_sub(inputs[1]),
        "neg.s64" => inputs[0].wrapping_neg(),
        "mul.lo.u64" | "mul.lo.s64" => inputs[0].wrapping_mul(inputs[1]),
        "mad.lo.u64" | "mad.lo.s64" => inputs[0].wrapping_mul(inputs[1]).wrapping_add(inputs[2]),
        "mul.hi.u64" => ((u128::from(inputs[0]) * u128::from(inputs[1])) >> 64) as u64,
        "div.s64" => signed(0).wrapping_div(signed(1)).cast_unsigned(),
        "min.u64" => inputs[0].min(inputs[1]),
        "and.b64" => inputs[0] & inputs[1],
        "and.pred" => inputs[0] & inputs[1],
        "xor.b64" => inputs[0] ^ inputs[1],
        // Shifts by the width or more give zero.
        "shl.b64" => inputs[0].checked_shl(word(1)).unwrap_or(0),
        "shr.u64" => inputs[0].checked_shr(word(1)).unwrap_or(0),
        "add.u32" => of_word(word(0).wrapping_add(word(1))),
        "sub.u32" => of_word(word(0).wrapping_sub(word(1))),
        "mul.wide.u32" => of_word(word(0)) * of_word(word(1)),
        "mul.hi.u32" => (of_word(word(0)) * of_word(word(1))) >> 32,
        "mad.lo.u32" => of_word(word(0).wrapping_mul(word(1)).wrapping_add(word(2))),
        "min.u32" => of_word(word(0).min(word(1))),
        "and.b32" => of_word(word(0) & word(1)),
        "shl.b32" => of_word(word(0).checked_shl(word(1)).unwrap_or(0)),
        "shr.u32" => of_word(word(0).checked_shr(word(1)).unwrap_or(0)),
        "selp.b64" | "selp.b32" => inputs[usize::from(inputs[2] == 0)],
        "setp.ge.u64" => u64::from(inputs[0] >= inputs[1]),
        "setp.eq.u64" => u64::from(inputs[0] == inputs[1]),
        "setp.ne.u64" | "setp.ne.b64" => u64::from(inputs[0] != inputs[1]),
        "setp.ne.b32" => u64::from(word(0) != word(1)),
        "setp.eq.u32" => u64::from(word(0) == word(1)),
        "setp.ge.u32" => u64::from(word(0) >= word(1)),
        "setp.gt.u32" => u64::from(word(0) > word(1)),
        "setp.lt.u32" => u64::from(word(0) < word(1)),
        // Greater, or one is not a number.
        "setp.gtu.f64" => u64::from(real(0).is_nan() || real(1).is_nan() || real(0) > real(1)),
        "cvt.rn.f32.s64" => of_word((signed(0) as f32).to_bits()),
        "cvt.rn.f64.s64" => (signed(0) as f64).to_bits(),
        "cvt.rn.f32.f64" => of_word((real(0) as f32).to_bits()),
        "cvt.f64.f32" => f64::from(single(0)).to_bits(),
        "cvt.rn.f16.f32" => u64::from(f16::from_f32(single(0)).to_bits()),
        "cvt.f32.f16" => of_word(f16::from_bits((inputs[0] & 0xffff) as u16).to_f32().to_bits()),
        "div.rn.f64" => (real(0) / real(1)).to_bits(),
        "sub.rn.f64" => (real(0) - real(1)).to_bits(),
        "mul.rn.f64" => (real(0) * real(1)).to_bits(),
        "abs.f64" => real(0).abs().to_bits(),
        _ => panic!("the interpreter has no {operation}"),
    }
}
