//! The codes that messages carry: CUDA errors, errno, completion statuses and others.
