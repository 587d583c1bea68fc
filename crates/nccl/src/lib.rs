//! What NCCL decides on a machine, by release and environment.
