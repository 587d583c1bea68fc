//! Keeps NCCL off the standard output, where the table or the JSON goes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use rustix::stdio::dup2_stdout;

/// The standard output as it was. From now on, what this process writes there goes to its standard error.
///
/// NCCL 2.18 prints its release when it joins, whatever `NCCL_DEBUG_FILE` is; and for a user who sets `NCCL_DEBUG`
/// without a file, every release writes its log there, until the end.
pub fn take() -> io::Result<File> {
    let kept = io::stdout().as_fd().try_clone_to_owned()?;
    dup2_stdout(io::stderr())?;
    Ok(kept.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stdout, reason = "it is about what is printed")]

    use std::io::Write as _;

    /// Set for the process that the test starts: this program again.
    const CHILD: &str = "PLUMB_TEST_OUTPUT";

    #[test]
    fn what_others_print_goes_to_the_standard_error() {
        if std::env::var_os(CHILD).is_some() {
            let mut kept = super::take().expect("there is a standard output");
            println!("a library's word");
            writeln!(kept, "the answer").expect("it is open");
            return;
        }
        let name = "engines::nccl::output::tests::what_others_print_goes_to_the_standard_error";
        let mut command = testbed::program(std::env::current_exe().expect("this program"));
        let child = testbed::output(command.args(["--exact", name, "--nocapture"]).env(CHILD, "1"));
        let (out, error) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(out.contains("the answer") && !out.contains("library"), "{out}");
        assert!(error.contains("a library's word") && !error.contains("answer"), "{error}");
    }
}
