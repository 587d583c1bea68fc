#!/bin/sh
# Fills corpus/ with what the recordings under ../cases hold, one folder per target.
set -eu
cd "$(dirname "$0")"
mkdir -p corpus

# Lines into files of their own, one for each pair of first words: the others are alike.
lines() {
    mkdir -p "corpus/$1"
    LC_ALL=C awk -v folder="corpus/$1" '!seen[$1 " " $2]++ { file = folder "/line-" NR; printf "%s", $0 > file; close(file) }'
}

all() { find ../cases -type f ! -name README.md ! -name record.py -exec cat {} +; }

all | LC_ALL=C sed -n 's/.*NCCL INFO //p' | lines nccl_line
all | LC_ALL=C sed -n 's/.*NET\/OFI //p' | lines ofi_line
all | LC_ALL=C awk '{ shape = $0; gsub(/[0-9a-f]+/, "0", shape); shape = substr(shape, 1, 60) } !seen[shape]++' | lines prefix
all | LC_ALL=C grep -a -e WARN -e rror -e imeout -e NCCL_ | lines template_book

# What the signals look for, with something in the places of their names.
templates() { LC_ALL=C sed -n 's/^ *"\(.*\)",$/\1/p' ../crates/evidence/src/signals/*.rs | sed 's/\\"/"/g; s/{[a-z_0-9]*\(\.\.\.\)\{0,1\}}/7/g'; }

templates | lines template_book
mkdir -p corpus/whole_file
templates | sed 's/^/node-0:1:2 [0] misc\/socket.cc:1 NCCL WARN /' | split -l 25 - corpus/whole_file/templates-

for target in training chunks whole_file; do
    mkdir -p "corpus/$target"
    for recording in ../cases/*/; do
        name=$(basename "$recording")
        # The beginning and the end: what lies between repeats itself.
        for file in "$recording"*; do
            case $file in */README.md) continue ;; esac
            { head -c 12000 "$file"; echo; tail -c 6000 "$file"; } > "corpus/$target/$name-$(basename "$file")"
        done
    done
done

mkdir -p corpus/topology_matrix corpus/topology_xml corpus/manifest corpus/nccl_tests
cp ../cases/h200-topo/topo.txt corpus/topology_matrix/h200
cp ../cases/g6e-topo/topo.txt corpus/topology_matrix/g6e
cp ../cases/p4d-topo/topo.txt corpus/topology_matrix/p4d
cp ../cases/p4d-pod-spec/pod.yaml corpus/manifest/p4d

# Descriptions of machines: matrices, XML, and the lines of logs in which NCCL tells its system.
mkdir -p corpus/topology corpus/cluster corpus/machine
for file in ../cases/*-topo/topo.txt ../cases/oracle-*/*.xml; do
    cp "$file" "corpus/topology/$(basename "$(dirname "$file")")-$(basename "$file")"
done
for log in ../cases/oracle-*/*.gz; do
    name=$(basename "$(dirname "$log")")-$(basename "$log" .log.gz)
    gzip -dc "$log" | LC_ALL=C awk '/NCCL INFO === System/ { on = 1 } on; /NCCL INFO =====/ && on { exit }' > "corpus/topology/$name"
done
for length in 8 64 512 2048; do
    LC_ALL=C awk -v n="$length" 'BEGIN { for (i = 1; i <= n; i++) printf "%c", 32 + i * 7919 % 95 }' > "corpus/machine/$length"
done

# Recorded states of nodes.
mkdir -p corpus/node_state
cp ../crates/cli/tests/data/nodes/*.json corpus/node_state/

# What is submitted: as it is for the parsers, and with a digit before it that chooses the name, as targets/lint_input.rs reads it.
mkdir -p corpus/yaml_tree corpus/shell_words corpus/submission corpus/lint corpus/lint_fix corpus/env_output
find ../crates/cli/tests/manifests ../cases -type f -size -64k | while read -r file; do
    case $file in
        *.yaml | *.yml) digit=0 target=yaml_tree ;;
        *.sbatch) digit=1 target=shell_words ;;
        *.sh) digit=2 target=shell_words ;;
        */Dockerfile*) digit=3 target=shell_words ;;
        *.env) digit=4 target=shell_words ;;
        *.json) digit=5 target=yaml_tree ;;
        *) continue ;;
    esac
    name=$(echo "${file#../}" | tr / -)
    cp "$file" "corpus/$target/$name"
    for target in submission lint lint_fix; do
        { printf %s "$digit"; cat "$file"; } > "corpus/$target/$name"
    done
done
for seed in seeds/*/*; do
    cp "$seed" "corpus/$(basename "$(dirname "$seed")")/"
done
