//! Commands under the supervision of a shell on their own host, over two pipes: the standard input and output of `sh`
//! here, of `ssh`, or of `srun`.
//!
//! - [`script`]: what the shell does. It reads its own text from the pipe, so that no argument passes through the login
//!   shell or appears in a list of processes; it begins and ends the output with marks; it ends the command when the pipe
//!   does.
//! - [`frame`]: the output between the marks, bounded.
//! - [`connection`]: one such process, and how many of them are served at once.
//! - [`tasks`]: a request over connections.
//! - [`short`]: programs of this machine that are asked something.
//! - [`keeper`]: a connection that stays open, for the folder with plumb.

pub(crate) mod connection;
pub(crate) mod frame;
pub(crate) mod keeper;
pub(crate) mod script;
pub(crate) mod short;
pub(crate) mod tasks;
