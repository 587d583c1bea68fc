"""Described machines: machines.json, and the XML that NCCL_TOPO_FILE takes.

A machine has `sockets`, each a list of PCIe switches `[GPUs, NICs]`; where `flat` is true there are no switches and every
device hangs on its socket. `nvswitch` is the number of NVLinks of each GPU to the switch, `mesh` a list `[GPU, GPU, links]`.
`cc` is the compute capability of the GPUs, `peer: false` says that no GPU reaches another's memory, `fabric` how
many nodes one NVLink domain joins, `c2c` is `[links, MB/s]` between GPU and CPU. Faults: `narrow` has the PCIe lanes and
`unlinked` the NVLinks of single GPUs, by number.
"""

import dataclasses
import json
import pathlib
import xml.etree.ElementTree as xml_tree

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Machine:
    name: str
    about: str
    xml: str
    gpus: list  # PCI bus ids
    nics: list  # names
    cc: int
    nvls: bool  # NVLink multicast
    peer: bool
    fabric: int  # nodes of one NVLink domain, 0 where NVLink ends at the node
    net: dict


def names():
    return sorted(_all())


def machine(name):
    described = _all().get(name)
    if described is None:
        raise SystemExit(f"oracle: no machine {name} in machines.json; there are {', '.join(names())}")
    return _Writer(name, described).machine()


def recorded(name, folder, index):
    """A machine of machines.json, or else that of FOLDER/NAME.xml, about which `index` says what no XML has."""
    if name in _all():
        known = machine(name)
        known.net = dict(known.net, collnet=index["net"].get("collnet", False))
        return known
    xml = (folder / f"{name}.xml").read_text()
    tree = xml_tree.fromstring(xml)
    gpus = [(int(gpu.get("dev")), pci.get("busid")) for pci in tree.iter("pci") for gpu in pci.findall("gpu")]
    nics = [it.get("name") for it in tree.iter("net")]
    cc = int(next(tree.iter("gpu")).get("sm"))
    return Machine(name, index["about"], xml, [bus for _, bus in sorted(gpus)], nics, cc, cc >= 90, index["peer"], index["fabric"], index["net"])


def _all():
    return json.loads((HERE / "machines.json").read_text())


class _Writer:
    def __init__(self, name, it):
        self.name, self.it, self.gpus, self.nics = name, it, [], []

    def machine(self):
        # Links of a mesh name bus ids of later GPUs, so the first pass collects these.
        self.body()
        known, self.gpus, self.nics = self.gpus, [], []
        self.known = known
        xml = self.body()
        it = self.it
        nvls = it["cc"] >= 90 and "nvswitch" in it
        return Machine(self.name, it["about"], xml, self.gpus, self.nics, it["cc"], nvls, it.get("peer", True), it.get("fabric", 0), it["net"])

    def body(self):
        vendor, family, model = self.it["cpu"]
        text, number = '<system version="1">\n', 0
        for index, switches in enumerate(self.it["sockets"]):
            arch = self.it.get("arch", "x86_64")
            text += f'  <cpu numaid="{index}" affinity="ffff" arch="{arch}" vendor="{vendor}" familyid="{family}" modelid="{model}">\n'
            for gpus, nics in switches:
                number += 1
                inner = "".join(self.gpu(number) for _ in range(gpus)) + "".join(self.nic(number, k) for k in range(nics))
                text += inner if self.it.get("flat") else self.pci(f"ffff:ff:{number:02x}.0", "0x060400", inner, "    ")
            text += "  </cpu>\n"
        return text + "</system>\n"

    def pci(self, bus, kind, inner, indent, width=16):
        ids = 'vendor="0x10de" device="0x20b0" subsystem_vendor="0x10de" subsystem_device="0x134f"'
        return f'{indent}<pci busid="{bus}" class="{kind}" {ids} link_speed="{self.it["speed"]}" link_width="{width}">\n{inner}{indent}</pci>\n'

    def bus(self, number, slot, flat_base):
        if self.it.get("flat"):
            return f"0000:{flat_base + number * 2:02x}:00.0"
        return f"0000:{0x10 + number * 16:02x}:{slot:02x}.0"

    def gpu(self, number):
        slot = len(self.gpus) % 2 + 0x1C
        bus = self.bus(number, slot, 0x30)
        while bus in self.gpus:
            slot += 1
            bus = self.bus(number, slot, 0x30)
        index = len(self.gpus)
        self.gpus.append(bus)
        links = ""
        if "nvswitch" in self.it:
            links = f'<nvlink target="fffffff:ffff:ff" count="{self.it.get("unlinked", {}).get(str(index), self.it["nvswitch"])}" tclass="0x068000"/>'
        for a, b, count in self.it.get("mesh", []):
            if index in (a, b) and hasattr(self, "known"):
                links += f'<nvlink target="{self.known[b if index == a else a]}" count="{count}" tclass="0x030200"/>'
        if "c2c" in self.it:
            count, bandwidth = self.it["c2c"]
            links += f'<c2c bw="{bandwidth}" count="{count}"/>'
        return self.pci(bus, "0x030200", f'      <gpu dev="{index}" sm="{self.it["cc"]}">{links}</gpu>\n', "      ", self.it.get("narrow", {}).get(str(index), 16))

    def nic(self, number, slot):
        name = f"rdmap{len(self.nics)}"
        self.nics.append(name)
        net = self.it["net"]
        facts = f'latency="{net["latency_us"]}" speed="{net["mbps"]}" gdr="{int(net["gpudirect"])}"'
        return self.pci(self.bus(number, slot, 0x70), "0x020000", f'      <nic><net name="{name}" {facts}/></nic>\n', "      ")
