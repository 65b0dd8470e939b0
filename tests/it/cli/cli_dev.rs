//! `hostler dev`: build, swap and serve after each change. The builds of these tests copy components
//! that exist already.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use hostler_tests::command::{Ended, Host, end, hostler};
use hostler_tests::guests::{handler, language};
use hostler_tests::host::get;
use hostler_tests::redis::PATIENCE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value as Json;
use tempfile::TempDir;

/// A project whose `src/which` names the component that its build makes.
struct Project(TempDir);

const BUILD: &str = r#"
which=$(cat src/which)
echo "compiling $which"
if [ "$which" = broken ]; then
  echo "src/which:1: syntax error" >&2
  exit 3
fi
cp "components/$which.wasm" handler.wasm
"#;

impl Project {
    fn new(which: &str) -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        let file = |name: &str| project.path().join(name);
        fs::create_dir(file("src")).unwrap();
        fs::create_dir(file("components")).unwrap();
        fs::copy(language("rust"), file("components/orders.wasm")).unwrap();
        let refuses = handler("(data (i32.const 64) \"\\02\")", "i32.const 64");
        fs::write(file("components/refuses.wasm"), refuses).unwrap();
        fs::write(file("components/garbage.wasm"), "no component").unwrap();
        fs::write(file("build.sh"), BUILD).unwrap();
        // `dev` has a server of its own, and does not use this one.
        let config = "redis = \"redis://127.0.0.1:1\"\nstream = \"orders\"\ngroup = \"g\"\n\
                      handler = \"handler.wasm\"\ntimeout = \"50s\"\ncpu = \"50s\"\n\
                      [dev]\nbuild = \"sh build.sh\"\n";
        fs::write(file("hostler.toml"), config).unwrap();
        project.change(which);
        project
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn change(&self, which: &str) {
        fs::write(self.path().join("src/which"), which).unwrap();
    }

    fn dev(&self, arguments: &[&str]) -> Host {
        let mut command = hostler(["dev"]);
        command.args(arguments).current_dir(self.path());
        Host::spawn(command)
    }

    /// Run a command on the server of `dev`.
    fn ask(&self, arguments: &[&str]) -> Ended {
        let mut command = hostler(arguments);
        let command = command.args(["--redis", "embedded"]);
        end(command.current_dir(self.path())).ok()
    }

    fn publish(&self, body: &str) {
        self.ask(&["publish", "--stream", "orders", "--body", body]);
    }
}

/// For two seconds, whether it has been built more often than this.
fn is_built_more_often(dev: &Host, times: usize) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        if dev.stderr().matches("dev: building").count() > times {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn the_hint_of_dev_reaches_its_server_from_any_folder() {
    let project = Project::new("orders");
    let mut dev = project.dev(&[]);
    dev.says("dev: send a message: hostler ", 1);
    let said = dev.stderr();
    let (_, hint) = said.split_once("send a message: hostler ").unwrap();
    let (words, _) = hint.split_once(" --body '...'").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = hostler(words.split(' '));
    command.args(["--body", r#"{"id":"1","amount":1}"#]);
    end(command.current_dir(elsewhere.path())).ok();
    dev.prints("  ack  (", 1);
    assert!(!elsewhere.path().join(".hostler").exists());
    assert_eq!(dev.stop().code, 0);
}

#[test]
fn a_command_says_that_its_private_redis_is_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let publish = || {
        let line = "publish --redis embedded --stream orders --body x";
        end(hostler(line.split(' ')).current_dir(dir.path())).ok()
    };
    let place = dir.path().canonicalize().unwrap().join(".hostler");
    let first = publish().stderr;
    assert!(first.contains("a new private Redis"), "{first}");
    assert!(first.contains(place.to_str().unwrap()), "{first}");
    assert_eq!(publish().stderr, "");
}

#[test]
fn a_file_that_a_build_writes_again_with_the_same_content_starts_no_build() {
    let project = Project::new("orders");
    let lock = project.path().join("package-lock.json");
    fs::write(&lock, "{}").unwrap();
    let build = format!("{BUILD}\nprintf '{{}}' > new && mv new package-lock.json\n");
    fs::write(project.path().join("build.sh"), build).unwrap();
    let mut dev = project.dev(&[]);
    dev.says("dev: serving the stream", 1);
    assert!(!is_built_more_often(&dev, 1), "{}", dev.stderr());
    // Another content is a change.
    fs::write(&lock, "{\"a\":1}").unwrap();
    dev.says("dev: built in", 2);
    assert_eq!(dev.stop().code, 0);
}

#[test]
fn every_change_is_built_and_swapped_and_a_failed_build_keeps_the_last_good_version() {
    let project = Project::new("orders");
    let mut dev = project.dev(&[]);
    dev.says("dev: building: sh build.sh", 1);
    dev.says("dev: serving the stream `orders` with sha256:", 1);
    let good = r#"{"id":"1","amount":1}"#;
    project.publish(good);
    dev.prints("attempt 1  {\"id\":\"1\",\"amount\":1}\n  ack  (", 1);
    dev.prints("\n  | attempt 1: charged\n", 1);

    // The build fails. The last good version runs on.
    project.change("broken");
    dev.says("src/which:1: syntax error", 1);
    dev.says("dev: the build failed (exit status: 3)", 1);
    dev.says("dev: the last version runs on\n", 1);
    project.publish(good);
    dev.prints("  ack  (", 2);

    // The build makes a file that is no component. The last good version runs on.
    project.change("garbage");
    dev.says("a new version was refused; the current one stays", 1);
    dev.says("is not WebAssembly", 1);
    project.publish(good);
    dev.prints("  ack  (", 3);

    project.change("refuses");
    dev.says(" swapped ", 1);
    project.publish(good);
    dev.prints("  drop  (", 1);

    // The build makes the same component again: no swap.
    project.change("refuses\n");
    dev.says("this version already runs", 1);
    let ended = dev.stop();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.stderr.matches(" swapped ").count(), 1, "{ended:?}");
    assert_eq!(ended.stdout.matches("attempt 1  ").count(), 4, "{ended:?}");
}

#[test]
fn dev_is_a_host_that_operators_see_and_rule() {
    let project = Project::new("orders");
    let mut dev = project.dev(&[]);
    dev.says("dev: dashboard: http://", 1);
    let said = dev.stderr();
    let (_, address) = said.split_once("dev: dashboard: http://").unwrap();
    let (address, _) = address.split_once("/ui\n").unwrap();
    let (status, page) = get(address, "/ui").unwrap();
    assert!(status == 200 && page.contains("<html"), "{status}: {page}");
    let begun = Instant::now();
    loop {
        let queues = project.ask(&["queues", "--json"]).json();
        let queue = queues[0].clone();
        if queue["queue"] == "orders" && queue["hosts"] == 1 && queue["state"] == "serving" {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{queues}");
        std::thread::sleep(Duration::from_millis(20));
    }

    // A paused host reads nothing.
    let good = r#"{"id":"1","amount":1}"#;
    let paused = project
        .ask(&["pause", "--queue", "orders", "--json"])
        .json();
    assert_eq!(paused["hosts"].as_array().unwrap().len(), 1, "{paused}");
    project.publish(good);
    let inspected = project.ask(&["inspect", "--queue", "orders", "--json"]);
    assert_eq!(inspected.json()["lag"], 1, "{inspected:?}");
    assert_eq!(dev.stdout(), "");
    project.ask(&["resume", "--queue", "orders"]);
    dev.prints("  ack  (", 1);

    // A policy names the dead-letter queue, and a deployed version fills it.
    let policy = "policy set --queue orders dead_letter.key=orders:dead";
    project.ask(&policy.split(' ').collect::<Vec<_>>());
    let deploy = "deploy components/refuses.wasm --queue orders --wait";
    project.ask(&deploy.split(' ').collect::<Vec<_>>());
    dev.says(" swapped ", 1);
    let begun = Instant::now();
    while !get(address, "/status").unwrap().1.contains("orders:dead") {
        assert!(begun.elapsed() < PATIENCE, "{}", dev.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    project.publish(good);
    dev.prints("  drop  (", 1);
    let begun = Instant::now();
    while !project
        .ask(&["dlq", "peek", "orders:dead"])
        .stdout
        .contains(good)
    {
        assert!(begun.elapsed() < PATIENCE, "{}", dev.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    dev.stop();

    // The build wins over a deploy of an earlier day.
    let mut dev = project.dev(&[]);
    dev.says("dev: serving", 1);
    project.publish(good);
    dev.prints("  ack  (", 1);
    assert_eq!(dev.stop().code, 0);
}

#[test]
fn commands_in_the_folder_read_its_file_and_reach_the_server_of_dev() {
    let project = Project::new("orders");
    let here = |line: &str| end(hostler(line.split(' ')).current_dir(project.path()));
    // The file names a server that does not answer.
    assert_eq!(here("queues").code, 69);
    let mut dev = project.dev(&[]);
    dev.says("dev: serving", 1);
    let published = here("publish --body {\"id\":\"1\",\"amount\":1}").ok();
    assert!(
        published
            .stderr
            .contains("the private Redis that runs in .hostler")
    );
    dev.prints("  ack  (", 1);
    assert!(here("inspect").ok().stdout.contains("orders"));
    let tested = here("invoke handler.wasm --body {\"id\":\"1\",\"amount\":1}").ok();
    assert_eq!(
        tested.stderr.matches("private Redis").count(),
        0,
        "{tested:?}"
    );
    // The command line wins.
    assert_eq!(here("queues --redis redis://127.0.0.1:1").code, 69);
    here("publish --list jobs --body x").ok();
    assert_eq!(dev.stop().code, 0);
    assert_eq!(here("queues").code, 69);
}

#[test]
fn dev_runs_a_project_in_another_folder() {
    let project = Project::new("orders");
    let elsewhere = tempfile::tempdir().unwrap();
    let config = project.path().join("hostler.toml");
    let mut command = hostler(["dev", "--config", config.to_str().unwrap()]);
    command.current_dir(elsewhere.path());
    let mut dev = Host::spawn(command);
    dev.says("dev: serving", 1);
    project.publish(r#"{"id":"1","amount":1}"#);
    dev.prints("  ack  (", 1);
    project.change("refuses");
    dev.says(" swapped ", 1);
    assert_eq!(dev.stop().code, 0);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn the_cause_of_faults_is_printed_whole_once() {
    let project = Project::new("orders");
    let traps = handler("", "unreachable");
    fs::write(project.path().join("components/traps.wasm"), traps).unwrap();
    project.change("traps");
    let mut dev = project.dev(&[]);
    dev.says("dev: serving", 1);
    project.publish("x");
    dev.prints("attempt 1  x\n  fault (trap): ", 1);
    dev.prints("attempt 3  x  fault, 3 times for this cause\n", 1);
    let ended = dev.stop();
    assert_eq!(ended.stdout.matches("unreachable").count(), 1, "{ended:?}");
    assert!(!ended.stderr.contains("the handler faulted"), "{ended:?}");
}

#[test]
fn dev_waits_for_a_first_version_that_builds() {
    let project = Project::new("broken");
    let mut dev = project.dev(&["--json"]);
    dev.says("dev: the build failed", 1);
    dev.says("dev: nothing runs yet; waiting for a change in .", 1);
    assert!(
        !project.path().join(".hostler").exists(),
        "nothing serves yet"
    );
    project.change("orders");
    dev.says("dev: serving the stream", 1);
    project.publish(r#"{"id":"2","amount":1,"simulate":"payment-timeout"}"#);
    dev.prints("\"ack\"", 1);
    let ended = dev.stop();
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines = ended.stdout.lines();
    let lines: Vec<Json> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{ended:?}");
    assert_eq!(lines[0]["outcome"], "nack-requeue");
    assert_eq!(lines[0]["delay_ms"], 100);
    assert_eq!(
        lines[0]["logs"][0],
        "attempt 1: payment timed out, again in 100 ms"
    );
    assert_eq!(
        (&lines[1]["attempt"], &lines[1]["outcome"]),
        (&2.into(), &"ack".into())
    );
    assert_eq!(lines[0]["id"], lines[1]["id"]);
}

#[test]
fn dev_can_be_stopped_during_a_build() {
    let project = Project::new("orders");
    fs::write(
        project.path().join("build.sh"),
        "echo $$ > pid; exec sleep 1000",
    )
    .unwrap();
    let mut dev = project.dev(&[]);
    let pid = project.path().join("pid");
    dev.says("dev: building", 1);
    while !fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = dev.stop();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!project.path().join(".hostler").exists());
}

#[test]
fn files_that_every_build_writes_are_not_watched() {
    let project = Project::new("orders");
    let build = format!("{BUILD}\necho $$ > generated.c\n");
    fs::write(project.path().join("build.sh"), build).unwrap();
    let mut dev = project.dev(&[]);
    dev.says(
        "dev: no longer watched, as every build writes it: ./generated.c",
        1,
    );
    let builds = dev.stderr().matches("dev: building").count();
    // A change of a source still starts a build, and only one.
    project.change("refuses");
    dev.says(" swapped ", 1);
    let ended = dev.stop();
    let all = ended.stderr.matches("dev: building").count();
    assert_eq!(all, builds + 1, "{ended:?}");
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn output_of_dev_in_the_project_starts_no_build() {
    let project = Project::new("broken");
    let log = project.path().join("dev.log");
    let file = fs::File::create(&log).unwrap();
    let mut command = hostler(["dev"]);
    command.current_dir(project.path());
    command.stdout(file.try_clone().unwrap()).stderr(file);
    let mut dev = Killed(command.spawn().unwrap());
    let says = |text: &str, times: usize| {
        let begun = Instant::now();
        while fs::read_to_string(&log).unwrap().matches(text).count() < times {
            assert!(begun.elapsed() < PATIENCE, "{:?}", fs::read_to_string(&log));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    says("dev: the build failed", 1);
    // Only this change starts the next build.
    project.change("orders");
    says("dev: serving the stream", 1);
    project.publish(r#"{"id":"1","amount":1}"#);
    says("  ack  (", 1);
    // Its later output starts no build.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.matches("dev: building").count(), 2, "{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
    project.change("refuses");
    says(" swapped ", 1);
    let pid = Pid::from_raw(i32::try_from(dev.0.id()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    assert!(dev.0.wait().unwrap().success());
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(text.matches("dev: building").count(), 3, "{text}");
}

#[test]
fn without_a_build_command_the_file_is_watched() {
    let project = Project::new("orders");
    let path = project.path();
    let config = fs::read_to_string(path.join("hostler.toml")).unwrap();
    let (config, _) = config.split_once("[dev]").unwrap();
    fs::write(path.join("hostler.toml"), config).unwrap();
    fs::copy(
        path.join("components/orders.wasm"),
        path.join("handler.wasm"),
    )
    .unwrap();
    let mut dev = project.dev(&[]);
    dev.says("dev: serving the stream", 1);
    fs::copy(path.join("components/refuses.wasm"), path.join("next.wasm")).unwrap();
    fs::rename(path.join("next.wasm"), path.join("handler.wasm")).unwrap();
    dev.says(" swapped ", 1);
    project.publish("anything");
    dev.prints("  drop  (", 1);
    assert_eq!(dev.stop().code, 0);
}

#[test]
fn outside_of_a_project_dev_names_the_missing_file() {
    let dir = tempfile::tempdir().unwrap();
    let ended = end(hostler(["dev"]).current_dir(dir.path()));
    assert_eq!(ended.code, 64, "{ended:?}");
    assert_eq!(
        ended.stderr,
        "error: there is no hostler.toml in this folder\n\
         hint: run it in a project; `hostler new --lang LANGUAGE NAME` makes one\n"
    );
}
