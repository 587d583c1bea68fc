//! Where ranks run: started here, or inside what torchrun, mpirun or srun started.
