#!/bin/bash
# From the field notes: two nodes, then eighty.
mpirun -np 16 \
  -N 2 \
  --hostfile hostfile \
  --bind-to none \
  -x NCCL_DEBUG=INFO \
  ./all_reduce_perf -b 1G -e 1G -g 8

mpirun -np 640 \
  -N 80 \
  --hostfile hostfile \
  --bind-to none \
  -x NCCL_DEBUG=INFO \
  -x NCCL_DEBUG_SUBSYS=INIT,ENV \
  ./all_reduce_perf -b 8G -e 8G -f 2 -g 8
