//! Tasks in pods. There is no API server here: a script in the place of kubectl answers as kubectl does, and its pods are
//! hosts made of namespaces.

mod bed;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use bed::{nothing_remains, place, placed_scripts, processes, run, small_plumb};
use launch::{Client, How, Kubernetes, KubernetesOptions, ObstacleKind, Stop, Way as _};
use testbed::{Folder, Hosts};

/// `$0` lies beside what it answers. Host N is the pod with index N - 1.
const KUBECTL: &str = r#"#!/bin/sh
here=${0%/*}
[ "$1" = --namespace=gpu ] || { echo "error: no namespace: $1" >&2; exit 1; }
shift
case $1 in
create) [ "$2 $3" = "-f -" ] || exit 1
  if [ -e "$here/refuses" ]; then echo 'Error from server (Forbidden): jobs.batch is forbidden' >&2; exit 1; fi
  if [ -e "$here/exists" ]; then echo 'Error from server (AlreadyExists): error when creating "STDIN": jobs.batch "fleet" already exists' >&2; exit 1; fi
  cat > "$here/created"; echo job.batch/fleet created;;
get) [ "$4" = job-name=fleet ] || exit 1; cat "$here/pods";;
delete) cat > "$here/deleted"; echo 'job.batch "fleet" deleted';;
exec) [ "$2" = -i ] && [ "$4 $5 $6" = "-c node --" ] || exit 1
  pod=$3; shift 6
  case $pod in
  fleet-0-*) exec "$here/enter.1" "$@";;
  fleet-1-*) exec "$here/enter.2" "$@";;
  *) echo "Error from server (NotFound): pods \"$pod\" not found" >&2; exit 1;;
  esac;;
esac
"#;

#[test]
fn pods_of_a_job() {
    let hosts = Hosts::new(2);
    let folder = Folder::new("kubectl");
    let write = |name: &str, text: &str| {
        fs::write(folder.file(name), text).expect("a file");
        fs::set_permissions(folder.file(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    };
    write("kubectl", KUBECTL);
    // The last pod runs in the answer of the API server, and is gone when it is used.
    let pods = "fleet-0-aaaaa\t0\tRunning\tnode-a\t10.77.0.1\t\t\t\nfleet-1-bbbbb\t1\tRunning\tnode-b\t10.77.0.2\t\t\t\n\
                fleet-2-ccccc\t2\tPending\t\t\t\tUnschedulable\t0/3 nodes are available\n\
                fleet-3-ddddd\t3\tPending\tnode-d\t\tImagePullBackOff\t\t\n\
                fleet-4-eeeee\t4\tRunning\tnode-e\t10.77.0.5\t\t\t\n";
    write("pods", pods);
    for (number, host) in hosts.iter() {
        host.wrapper("/usr/bin/env", &[], &folder.file(&format!("enter.{number}")));
    }
    let client = Client {
        program: folder.file("kubectl").into_os_string(),
        plumb: Some(small_plumb(folder.file("plumb"), "0.0.1")),
        parallel: 4,
        ..Client::kubectl()
    };
    let options = KubernetesOptions {
        manifest: "kind: Job\n".to_owned(),
        name: "fleet".to_owned(),
        namespace: Some("gpu".to_owned()),
        pods: 5,
        container: "node".to_owned(),
        wait: Duration::from_secs(1),
    };
    let idle = processes(&hosts);
    let mut way = Kubernetes::new(client.clone(), options.clone()).expect("a way");
    assert_eq!(way.hosts().len(), 5);
    let around = way.shown_around();
    assert!(around[0].ends_with("kubectl --namespace=gpu create -f -"), "{around:?}");
    let failed = way.start(&Stop::new()).expect("a job");
    let failed: Vec<_> = failed.iter().map(|(name, it)| (name.as_str(), it.kind)).collect();
    assert_eq!(failed, [("fleet-2-ccccc", ObstacleKind::NoAnswer), ("node-d", ObstacleKind::NoProgram)]);
    let all = way.hosts();
    assert_eq!(all.iter().map(ToString::to_string).collect::<Vec<_>>(), ["node-a", "node-b", "node-e"]);
    let placed = place(&mut way, &all);
    let address = |name: &str| placed[name].as_ref().expect("a place").address.clone();
    assert_eq!(
        [address("node-a"), address("node-b")],
        [Some("10.77.0.1".to_owned()), Some("10.77.0.2".to_owned())]
    );
    assert!(placed["node-e"].as_ref().is_err_and(|it| it.kind == ObstacleKind::NameUnknown), "{placed:?}");
    let ended = run(&mut way, &placed_scripts(&all, "hostname; exit 4", Duration::from_secs(60)));
    assert_eq!((&ended[0].how, ended[0].text().as_str()), (&How::Code(4), "h1\n"));
    assert_eq!((&ended[1].how, ended[1].text().as_str()), (&How::Code(4), "h2\n"));
    assert!(matches!(ended[2].how, How::Unreachable(_)));
    let slow = run(&mut way, &placed_scripts(&all[..1], "sleep 1000", Duration::from_secs(1)));
    assert_eq!(slow[0].how, How::TimedOut);
    assert_eq!(way.clean(), []);
    let read = |name: &str| fs::read_to_string(folder.file(name)).expect("a manifest");
    assert_eq!((read("created"), read("deleted")), ("kind: Job\n".to_owned(), "kind: Job\n".to_owned()));
    nothing_remains(&hosts, &idle);

    // A job of another user with the same name is not deleted.
    fs::remove_file(folder.file("deleted")).expect("it was deleted");
    write("exists", "");
    let mut way = Kubernetes::new(client.clone(), options.clone()).expect("a way");
    let error = way.start(&Stop::new()).expect_err("another job").to_string();
    assert!(error.contains("AlreadyExists"), "{error}");
    drop(way);
    assert!(!folder.file("deleted").exists());
    fs::remove_file(folder.file("exists")).expect("it is ours");

    // A user without the right.
    write("refuses", "");
    let mut way = Kubernetes::new(client.clone(), options.clone()).expect("a way");
    let error = way.start(&Stop::new()).expect_err("no right").to_string();
    assert!(error.contains("Forbidden"), "{error}");
    assert!(Kubernetes::new(client, KubernetesOptions { name: "--all".to_owned(), ..options }).is_err());
}
