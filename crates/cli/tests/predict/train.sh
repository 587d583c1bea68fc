#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
TP=${TP:-4}
MICRO=1
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --num-attention-heads 32
    --ffn-hidden-size 11008
    --swiglu
    --untie-embeddings-and-output-weights
    --tokenizer-type Llama2Tokenizer
)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 pretrain_gpt.py "${MODEL_ARGS[@]}" \
    --tensor-model-parallel-size $TP --sequence-parallel --pipeline-model-parallel-size 2 \
    --micro-batch-size $MICRO --global-batch-size $((MICRO * 64)) --seq-length 4096 \
    --bf16 --use-distributed-optimizer --overlap-grad-reduce --tp-comm-overlap --train-iters 1000
