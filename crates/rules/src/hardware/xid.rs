//! What the numbers of the driver's errors mean.
//!
//! From NVIDIA's Xid catalogue, <https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html> (read in its state of
//! 2025-10-29), and the Xid manual, <https://docs.nvidia.com/deploy/xid-errors/index.html>.

use evidence::Sighting;
use evidence::signals::hardware::{XID, XID_NAMED};

use crate::Log;

/// What an Xid is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// A program's own error or end; the GPU works.
    Program,
    /// GPU memory: [`super::gpu_ecc_error`].
    Memory,
    /// NVLink: [`super::nvlink_fault`].
    Link,
    /// The GPU is gone: [`super::gpu_fell_off_bus`].
    Lost,
    /// The GPU or its firmware failed and needs a reset.
    Gpu,
    /// Worth knowing.
    Note,
}

/// A number and its meaning.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(crate) xid: u64,
    pub(crate) class: Class,
    pub(crate) text: &'static str,
}

const fn means(xid: u64, class: Class, text: &'static str) -> Meaning {
    Meaning { xid, class, text }
}

/// The numbers seen on compute nodes.
pub(super) static MEANINGS: &[Meaning] = &[
    means(8, Class::Program, "the GPU stopped processing a channel"),
    means(11, Class::Program, "an invalid or corrupted stream of commands"),
    means(13, Class::Program, "an exception in a kernel, usually an illegal address or instruction"),
    means(31, Class::Program, "a memory page fault, usually an illegal address in a kernel"),
    means(32, Class::Program, "an invalid or corrupted stream of commands"),
    means(38, Class::Note, "a watchdog of the driver's firmware"),
    means(43, Class::Program, "a program's channel was reset after its error"),
    means(44, Class::Note, "a fault while switching contexts"),
    means(45, Class::Program, "channels were cleared because a program ended or after an earlier error"),
    means(46, Class::Gpu, "the GPU stopped processing"),
    means(48, Class::Memory, "a double bit ECC error"),
    means(54, Class::Gpu, "auxiliary power is not connected to the board"),
    means(61, Class::Gpu, "a breakpoint or warning of an internal microcontroller"),
    means(62, Class::Gpu, "an internal microcontroller halted"),
    means(
        63,
        Class::Note,
        "a memory page or row was retired or remapped; it takes effect with the next reset",
    ),
    means(64, Class::Memory, "a memory page or row could not be retired or remapped"),
    means(68, Class::Program, "an exception in the video decoder"),
    means(69, Class::Program, "a class error of the graphics engine"),
    means(74, Class::Link, "an NVLink error"),
    means(79, Class::Lost, "the GPU has fallen off the bus"),
    means(92, Class::Memory, "a high rate of single bit ECC errors"),
    means(94, Class::Memory, "a contained memory error; the program that used the memory was ended"),
    means(95, Class::Memory, "an uncontained memory error; all programs on the GPU are affected"),
    means(109, Class::Gpu, "a timeout while switching contexts"),
    means(110, Class::Gpu, "a security fault"),
    means(119, Class::Gpu, "the GPU's system processor (GSP) did not answer"),
    means(120, Class::Gpu, "an error in the GPU's system processor (GSP)"),
    means(121, Class::Note, "an error of the chip-to-chip link"),
    means(136, Class::Link, "an NVLink could not be trained"),
    means(137, Class::Program, "an access over NVLink that was not allowed, usually after a program's error"),
    means(140, Class::Memory, "an ECC error that was not recovered"),
    means(143, Class::Gpu, "the GPU could not be initialised"),
    means(144, Class::Link, "an NVLink error (SAW)"),
    means(145, Class::Link, "an NVLink error (RLW)"),
    means(146, Class::Link, "an NVLink error (TLW)"),
    means(147, Class::Link, "an NVLink error (TREX)"),
    means(148, Class::Link, "an NVLink error (NVLPW_CTRL)"),
    means(149, Class::Link, "an NVLink error (NETIR)"),
    means(150, Class::Link, "an NVLink error (MSE)"),
    means(154, Class::Note, "the advised recovery of the GPU changed; it follows another Xid"),
    means(155, Class::Link, "an NVLink error defined by software"),
    means(156, Class::Note, "a resource was retired"),
    means(158, Class::Gpu, "a fatal timeout of the GPU"),
    means(167, Class::Lost, "a fatal PCIe timeout"),
    means(171, Class::Memory, "an uncorrectable DRAM error"),
    means(172, Class::Memory, "an uncorrectable SRAM error"),
];

/// The meaning of a number.
pub(crate) fn meaning(xid: u64) -> Option<&'static Meaning> {
    MEANINGS.iter().find(|it| it.xid == xid)
}

/// The Xid lines of some classes, each with its meaning.
pub(super) fn of_class<'a>(
    log: &'a Log,
    classes: &'a [Class],
) -> impl Iterator<Item = (&'a Sighting, &'static Meaning)> {
    log.case.sightings_of(&XID).filter_map(move |it| {
        let meaning = meaning(number(it)?).filter(|it| classes.contains(&it.class))?;
        Some((it, meaning))
    })
}

/// The number of an Xid line, or the one it follows: `45, ..., Ch 00000001 caused by previous Xid 149`.
pub(super) fn number(sighting: &Sighting) -> Option<u64> {
    let earlier = sighting.get("text").split_once("previous Xid ").map(|it| leading(it.1));
    earlier.unwrap_or_else(|| sighting.number("xid"))
}

/// The first note that names an Xid of some classes, where no line of the driver does.
pub(super) fn named<'a>(log: &'a Log, classes: &[Class]) -> Option<(&'a Sighting, &'static Meaning)> {
    log.case.sightings_of(&XID_NAMED).find_map(|it| {
        let text = it.quote.text.to_ascii_lowercase();
        // `No Xid 79 was seen` is good news, and a line of the driver is read as such.
        let denied = ["no xid", "not xid", "without xid", "nvrm: xid"].iter().any(|word| text.contains(word));
        let meaning = meaning(leading(it.get("n"))?).filter(|it| classes.contains(&it.class))?;
        (!denied).then_some((it, meaning))
    })
}

/// The digits at the beginning of a text.
fn leading(text: &str) -> Option<u64> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// The GPU of an Xid line: `0000:17:00`.
pub(super) fn gpu(sighting: &Sighting) -> &str {
    let bus = sighting.get("bus");
    bus.strip_prefix("PCI:").unwrap_or(bus)
}

#[cfg(test)]
mod tests {
    use super::MEANINGS;

    #[test]
    fn numbers_stand_in_order() {
        assert!(MEANINGS.windows(2).all(|it| it[0].xid < it[1].xid));
    }
}
