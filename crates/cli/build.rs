//! Says whether `PLUMB_PAGE` names the page that `plumb page` prints.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_page)");
    println!("cargo::rerun-if-env-changed=PLUMB_PAGE");
    if std::env::var_os("PLUMB_PAGE").is_some() {
        println!("cargo::rustc-cfg=has_page");
    }
}
