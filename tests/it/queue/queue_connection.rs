//! Connections: all ways to reach a server, and all ways to lose the connection.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::queue::startup::StartError;
use hostler::queue::stream::StreamQueue;
use hostler::queue::{Claim, Queue, Reply};
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Secret, Target, TlsFiles};
use hostler::redis::{Class, Error};
use hostler_tests::redis::{RedisOptions, TlsOptions, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::task::JoinHandle;

use crate::queue::queue_scene::{KEY, Scene, connector, options, text};
use crate::scene::{discard, fetch, holds_nothing, is_empty, orphaned, settled, settlement};

const SECRET: &str = "hunter2-not-to-be-shown";

fn with(url: &str, password: PasswordSource, tls: TlsFiles) -> Connector {
    Connector::new(Target::parse(url, password, tls).unwrap(), "test")
}

fn with_password(url: &str, password: &str) -> Connector {
    let given = PasswordSource::Given(Secret::new(password));
    with(url, given, TlsFiles::default())
}

async fn open(connector: Connector) -> Result<StreamQueue, StartError> {
    StreamQueue::open(connector, options()).await
}

/// The whole text of an error; it must not show the password.
fn shown(error: &StartError) -> String {
    let text = format!("{error} {error:?}");
    assert!(!text.contains(SECRET), "{text}");
    text
}

/// Opening fails at the login, and the error contains this text.
async fn login_fails(connector: Connector, part: &str) {
    let error = open(connector).await.unwrap_err();
    assert!(matches!(error, StartError::Login(_)), "{error:?}");
    assert!(shown(&error).contains(part), "{error}");
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, Error>, class: Class) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.class(), class, "{error}");
    error
}

fn waiting(host: &Arc<StreamQueue>, wait: Duration) -> JoinHandle<Result<Vec<Claim>, Error>> {
    let host = Arc::clone(host);
    tokio::spawn(async move { host.fetch(1, wait).await })
}

#[tokio::test]
async fn user_password_and_database_work_by_tcp_and_by_socket_in_both_protocols() {
    let user = format!("bob on >{SECRET} ~* +@all");
    let scene = Scene::with(RedisOptions::default().tcp().user(&user)).await;
    let tcp = format!("redis://bob:{SECRET}@127.0.0.1:{}/3", scene.server.port());
    let socket = format!("{}?user=bob&pass={SECRET}&db=3", scene.url());
    for url in [
        format!("{tcp}?protocol=resp3"),
        tcp,
        format!("{socket}&protocol=resp3"),
        socket,
    ] {
        let host = open(connector(&url)).await.unwrap();
        host.interrupt().await.unwrap();
        assert!(is_empty(&host).await);
        let claims = host.fetch(1, Duration::from_millis(1)).await.unwrap();
        assert!(claims.is_empty());
    }
    scene.assert_absent(&[KEY]).await;
    scene.raw.ask("SELECT 3").await;
    assert!(scene.exists(KEY).await);
}

#[tokio::test]
async fn the_default_user_may_have_a_password() {
    let server = RedisOptions::default().set("requirepass", SECRET).start();
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?protocol={protocol}", server.url());
        open(with_password(&url, SECRET)).await.unwrap();
        login_fails(connector(&url), "NOAUTH").await;
        login_fails(with_password(&url, "wrong"), "WRONGPASS").await;
    }
}

#[tokio::test]
async fn a_refused_login_does_not_show_the_password() {
    let scene = Scene::new().await;
    let resp2 = format!("{}?protocol=resp2", scene.url());
    login_fails(with_password(&resp2, SECRET), "no password").await;
    for protocol in ["resp2", "resp3"] {
        let unknown = format!("{}?protocol={protocol}&user=nobody", scene.url());
        login_fails(with_password(&unknown, SECRET), "").await;
    }
    let no_such_database = format!("{}?db=99", scene.url());
    login_fails(connector(&no_such_database), "").await;
}

#[tokio::test]
async fn a_rotated_password_file_is_read_again() {
    let scene = Scene::with(RedisOptions::default().user("bob on >first ~* +@all")).await;
    let file = scene.server.dir().join("password");
    let url = format!("{}?user=bob", scene.url());
    let source = || {
        with(
            &url,
            PasswordSource::File(file.clone()),
            TlsFiles::default(),
        )
    };
    let error = open(source()).await.unwrap_err();
    assert!(error.to_string().contains("password file"), "{error}");
    std::fs::write(&file, "first\n").unwrap();
    let host = open(source()).await.unwrap();
    // A changed password does not close connections; a deleted user does.
    scene.raw.ask("ACL DELUSER bob").await;
    fails(host.backlog().await, Class::Reconnect);
    scene.raw.ask("ACL SETUSER bob on >second ~* +@all").await;
    fails(host.backlog().await, Class::Configuration);
    std::fs::write(&file, "second").unwrap();
    host.backlog().await.unwrap();
}

#[tokio::test]
async fn an_address_without_a_server_is_unreachable_for_now() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/none.sock", dir.path().display());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for url in [socket, format!("redis://bob:{SECRET}@127.0.0.1:{port}")] {
        let error = open(connector(&url)).await.unwrap_err();
        assert!(matches!(error, StartError::Unreachable(_)), "{error:?}");
        assert!(error.may_pass());
        shown(&error);
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_unreachable_after_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("redis://bob:{SECRET}@127.0.0.1:{port}");
    let short = Duration::from_millis(100);
    let opened = open(connector(&url).with_deadline(short)).await;
    let error = opened.unwrap_err();
    let is_deadline = matches!(error, StartError::Unreachable(Error::Deadline { .. }));
    assert!(is_deadline, "{error:?}");
    shown(&error);
}

#[tokio::test]
async fn a_host_continues_when_a_stopped_server_answers_again() {
    let scene = Scene::new().await;
    let short = Duration::from_secs(2);
    let host = open(scene.connector().with_deadline(short)).await.unwrap();
    let claims = scene.read(&host, &["a"]).await;
    let pid = Pid::from_raw(scene.server.pid().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let begun = Instant::now();
    let error = host.renew(&claims).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    // A read that may wait looks first whether there is a message.
    let wait = Duration::from_secs(60);
    let error = fails(host.fetch(1, wait).await, Class::Reconnect);
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    assert!(begun.elapsed() >= short + short);
    assert!(begun.elapsed() < wait);
    kill(pid, Signal::SIGCONT).unwrap();
    eventually("it answers", || async { host.renew(&claims).await.is_ok() }).await;
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
}

#[tokio::test]
async fn a_killed_client_reconnects_on_the_next_call() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    let host = Arc::new(host);
    let opened = host.contact().connections_opened;
    let waiting = waiting(&host, Duration::from_secs(60));
    scene.blocked(1).await;
    scene.raw.ask("CLIENT KILL TYPE normal SKIPME yes").await;
    fails(waiting.await.unwrap(), Class::Reconnect);
    fails(host.renew(&claims).await, Class::Reconnect);
    // One call fails; the next calls share a new connection.
    let (one, two, three) = tokio::join!(
        host.renew(&claims),
        host.backlog(),
        host.take_orphans(1, &holds_nothing)
    );
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    host.fetch(1, Duration::ZERO).await.unwrap();
    assert_eq!(host.contact().connections_opened, opened + 2);
}

#[tokio::test]
async fn a_call_waits_for_a_paused_server() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    let begun = Instant::now();
    scene.raw.ask("CLIENT PAUSE 300 ALL").await;
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
    assert!(begun.elapsed() >= Duration::from_millis(250));
}

#[tokio::test]
async fn a_host_continues_when_its_server_restarts_with_its_data() {
    let mut scene = Scene::with(RedisOptions::default().appendonly()).await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    scene.server.kill();
    for _ in 0..3 {
        fails(host.renew(&claims).await, Class::Reconnect);
        fails(host.fetch(1, Duration::ZERO).await, Class::Reconnect);
    }
    scene.server.restart();
    let replies = host.renew(&claims).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Done]);
    settled(&host, &claims[0], 1, discard()).await;
    host.acknowledge(&claims[1..]).await.unwrap();
    assert!(is_empty(&host).await);
}

#[tokio::test]
async fn a_host_repairs_its_queue_when_its_server_restarts_without_data() {
    let (mut scene, host, claims) = Scene::reading(&["a"]).await;
    scene.server.restart();
    fails(host.fetch(1, Duration::ZERO).await, Class::Reconnect);
    fails(host.fetch(1, Duration::ZERO).await, Class::Missing);
    // The second connection was lost too: its first call fails, and then it repairs.
    let held = [(Arc::clone(&claims[0]), 1)];
    fails(host.repair(&held).await, Class::Reconnect);
    host.repair(&held).await.unwrap();
    assert!(fetch(&host, 1).await.is_empty());
}

#[tokio::test]
async fn calls_to_a_primary_that_became_a_replica_are_retried() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    fails(host.renew(&claims).await, Class::Retry);
    fails(host.fetch(1, Duration::ZERO).await, Class::Retry);
    let settlement = settlement(&claims[0], 1, discard());
    fails(host.settle(&[settlement]).await, Class::Retry);
    let setting = "CONFIG SET replica-serve-stale-data no";
    scene.raw.ask(setting).await;
    let error = fails(host.backlog().await, Class::Retry);
    assert!(error.to_string().contains("MASTERDOWN"), "{error}");
    scene.raw.ask("REPLICAOF NO ONE").await;
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
}

#[tokio::test]
async fn a_server_without_room_for_clients_is_tried_again() {
    let scene = Scene::new().await;
    scene.raw.ask("CONFIG SET maxclients 1").await;
    for more in ["", "?protocol=resp3", "?pass=x"] {
        let url = format!("{}{more}", scene.url());
        let error = open(connector(&url)).await.unwrap_err();
        assert!(error.may_pass(), "{error:?}");
    }
}

#[tokio::test]
async fn a_user_without_client_commands_is_served_without_interruptions() {
    let scene = Scene::with_user("-client").await;
    let host = Arc::new(open(connector(&scene.user_url())).await.unwrap());
    let waiting = waiting(&host, Duration::from_secs(3));
    scene.blocked(1).await;
    // The interruption has no effect: the fetch ends after its waiting time.
    host.interrupt().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn a_fetch_that_is_dropped_loses_no_message() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    tokio::select! {
        claims = host.fetch(1, Duration::from_secs(60)) => panic!("the fetch has ended: {claims:?}"),
        () = scene.blocked(1) => {}
    }
    let id = scene.raw.add(KEY, "a").await;
    // Redis gives the message to the dropped read: it is pending, and is found later.
    eventually("the message is pending", || async {
        host.backlog().await.unwrap().pending == 1
    })
    .await;
    assert!(fetch(&host, 1).await.is_empty());
    scene.give_entry(host.consumer(), &id, 1, 60_000).await;
    assert_eq!(text(orphaned(&host, 9).await[0].id), id);
}

/// A certificate authority, with a certificate for the server and one for a client.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let dir = dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("ca.key"), key.serialize_pem()).unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Its own certificate, and its key.
    pub(crate) fn own(&self) -> (PathBuf, PathBuf) {
        (self.ca(), self.dir.join("ca.key"))
    }

    /// Issue a certificate; returns its file and the file of its key.
    pub(crate) fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.sign(name, |_| {})
    }

    /// Issue one that has expired.
    pub(crate) fn issue_expired(&self, name: &str) -> (PathBuf, PathBuf) {
        self.sign(name, |params| {
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        })
    }

    fn sign(&self, name: &str, edit: impl FnOnce(&mut CertificateParams)) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        edit(&mut params);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let paths = (
            self.dir.join(format!("{name}.pem")),
            self.dir.join(format!("{name}.key")),
        );
        std::fs::write(&paths.0, cert.pem()).unwrap();
        std::fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }
}

#[tokio::test]
async fn tls_works_with_a_private_authority_and_client_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    let theirs = Authority::new(dir.path(), "theirs");
    let (cert, key) = ours.issue("localhost");
    let scene = Scene::with(RedisOptions::default().tls(TlsOptions {
        ca: ours.ca(),
        cert,
        key,
        clients: true,
    }))
    .await;
    let port = scene.server.port();
    let url = format!("rediss://localhost:{port}");
    let files = |ca: Option<&Authority>, client: Option<&Authority>| TlsFiles {
        ca: ca.map(Authority::ca),
        client: client.map(|authority| authority.issue("client")),
    };
    let short = Duration::from_secs(5);
    let try_open =
        |url: &str, tls: TlsFiles| open(with(url, PasswordSource::Url, tls).with_deadline(short));
    let opened = try_open(&url, files(Some(&ours), Some(&ours))).await;
    let host = opened.unwrap();
    scene.read(&host, &["a"]).await;
    for (what, url, tls) in [
        ("an unknown authority", &url, files(None, Some(&ours))),
        ("another authority", &url, files(Some(&theirs), Some(&ours))),
        ("no client certificate", &url, files(Some(&ours), None)),
        ("a foreign client", &url, files(Some(&ours), Some(&theirs))),
        (
            "another host name",
            &format!("rediss://127.0.0.1:{port}"),
            files(Some(&ours), Some(&ours)),
        ),
        (
            "no tls",
            &format!("redis://localhost:{port}"),
            TlsFiles::default(),
        ),
    ] {
        let error = try_open(url, tls).await.unwrap_err();
        let is_unreachable = matches!(error, StartError::Unreachable(_));
        assert!(is_unreachable, "{what}: {error:?}");
    }
    let missing = TlsFiles {
        ca: Some(dir.path().join("none.pem")),
        client: None,
    };
    let error = try_open(&url, missing).await.unwrap_err();
    assert!(error.to_string().contains("none.pem"), "{error}");
}
