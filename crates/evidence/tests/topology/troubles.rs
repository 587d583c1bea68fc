//! What is cut, contradicts itself or is hostile.

use super::{data, each, read, trouble};

#[test]
fn troubles_name_the_line() {
    for (text, line, says) in [
        ("\tGPU0\tGPU1\tGPU2\nGPU0\t X\tNV4\tNV4\n", 1, "no row shows the path from GPU1 to GPU2"),
        ("\tGPU0\tGPU1\tGPU2\nhello\n", 1, "GPU0, GPU1, GPU2, but the rows below it are missing"),
        (
            "\tGPU0\tGPU1\nGPU0\t X\tNV4\nGPU1\tSYS\t X\n",
            2,
            "GPU0 to GPU1 is NV4 in the row of GPU0 and SYS in the row of GPU1 (line 3)",
        ),
        ("\tGPU0\tGPU1\nGPU0\t X FOO\nGPU1\tSYS\t X\n", 2, "1 of 2 paths, then `FOO`"),
        ("\tGPU0\tGPU1\nGPU0\t X SYS SYS SYS\nGPU1\tSYS\t X\n", 2, "has 4 paths, the header 2 columns"),
        ("\tGPU0\tGPU1\nGPU0\tSYS\tSYS\nGPU1\tSYS\t X\n", 2, "`X` means the device itself"),
        ("\tGPU0\tGPU1\nGPU0\t X\tSYS\nGPU1\tSYS\t X\nGPU1\tPIX\t X\n", 4, "GPU1 has a second row"),
        ("GPU0\t X\tSYS\nGPU2\tSYS\t X\tSYS\n", 1, "without the header"),
        (" \tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n", 1, "GNS (GPU not supported) for GPU0 and GPU1"),
        (
            "<system version=\"1\"><cpu numaid=\"0\">\n<pci busid=\"0000:00:16.0\"/><pci busid=\"0000:00:17.0\"/></cpu></system>",
            1,
            "2 PCI devices by bus id, without their class",
        ),
        ("\n<system version=\"1\">\n<cpu>\n", 2, "is never closed"),
        ("<system version=\"1\">\n<cpu></gpu>\n</system>\n", 2, "not XML"),
        ("<system version=\"1\"></system>", 1, "neither a GPU nor a NIC"),
        (
            "a:1:1 [0] NCCL INFO === System : maxBw 1 totalBw 2 ===\na:1:1 [0] NCCL INFO CPU/0 (1/1/2)\n",
            1,
            "is cut",
        ),
    ] {
        let it = trouble(text);
        assert_eq!(it.line, Some(line), "{it}");
        assert!(it.text.contains(says), "{it}");
    }
    assert_eq!(trouble("").line, None);
    assert!(trouble("hello\n").text.contains("nvidia-smi topo -m"));
}

#[test]
fn a_contradiction_is_said() {
    let it = read("\tGPU0\tGPU1\tGPU2\nGPU0\t X\tPIX\tSYS\nGPU1\tPIX\t X\tPIX\nGPU2\tSYS\tPIX\t X\n");
    assert!(it.notes.iter().any(|it| it.contains("GPU0 to GPU2 is SYS")), "{:?}", it.notes);
}

#[test]
fn nic_rows_may_be_missing() {
    let text = String::from_utf8(data("dgx-h100.txt")).expect("text");
    let cut = text.split("NIC0\tPXB").next().expect("part");
    let it = read(cut);
    assert!(it.notes.iter().any(|it| it.contains("NIC0, NIC1")), "{:?}", it.notes);
    assert_eq!(it.machine.nics.len(), 10);
}

#[test]
fn too_many_gpus() {
    let header = each(0..10_000, |it| format!("\tGPU{it}"));
    assert_eq!(trouble(header + "\n").text, "10,000 GPUs in one machine; at most 1,024 are read");
    let gpus = "<pci busid=\"0000:01:00.0\"><gpu dev=\"0\" sm=\"90\"/></pci>".repeat(10_000);
    let text = format!("<system version=\"1\"><cpu numaid=\"0\">{gpus}</cpu></system>");
    assert_eq!(trouble(text).text, "10,000 GPUs in one machine; at most 1,024 are read");
}

#[test]
fn bombs() {
    let laughs =
        "<!DOCTYPE s [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]><system><cpu x=\"&b;\"/></system>";
    assert!(trouble(laughs).text.contains("not XML"), "{}", trouble(laughs));
    let deep = format!("<system>{}{}</system>", "<pci>".repeat(100_000), "</pci>".repeat(100_000));
    assert!(trouble(&deep).text.contains("neither"), "{}", trouble(&deep));
    let deep =
        format!("<system><cpu>{}<gpu/>{}</cpu></system>", "<pci>".repeat(100_000), "</pci>".repeat(100_000));
    assert!(trouble(&deep).text.contains("4,096 PCI bridges"), "{}", trouble(&deep));
    let wide = format!("<system><cpu>{}</cpu></system>", "<pci/>".repeat(300_000));
    assert!(trouble(&wide).text.contains("200,000 tags"), "{}", trouble(&wide));
    let long =
        format!("<system><cpu numaid=\"{}\"><pci><gpu dev=\"3\"/></pci></cpu></system>", "9".repeat(1 << 20));
    assert_eq!(read(long).machine.gpus[0].index, 3);
}
