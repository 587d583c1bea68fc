//! From decisions to numbers: the bandwidth that is normal.
