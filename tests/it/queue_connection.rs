//! Connections: every way to reach a server, and every way to lose one.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::queue::stream::StreamQueue;
use hostler::queue::{Backlog, Class, Error, Queue, Reply, Step};
use hostler::redis::connection::Connector;
use hostler::redis::startup::StartError;
use hostler::redis::target::{PasswordSource, Secret, Target, TlsFiles};
use hostler_tests::redis::{RedisOptions, TlsOptions, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::queue_scene::{KEY, Scene, connector, holds_nothing, options, settle, text};

const SECRET: &str = "hunter2-not-to-be-shown";

fn with(url: &str, password: PasswordSource, tls: TlsFiles) -> Connector {
    Connector::new(Target::parse(url, password, tls).unwrap(), "test")
}

async fn open(connector: Connector) -> Result<StreamQueue, StartError> {
    StreamQueue::open(connector, options()).await
}

/// What an error shows, anywhere.
fn shown(error: &StartError) -> String {
    let text = format!("{error} {error:?}");
    assert!(!text.contains(SECRET), "{text}");
    text
}

#[tokio::test]
async fn user_password_and_database_by_tcp_and_by_socket_in_both_protocols() {
    let scene = Scene::with(
        RedisOptions::default()
            .tcp()
            .user(&format!("bob on >{SECRET} ~* +@all")),
    )
    .await;
    let tcp = format!("redis://bob:{SECRET}@127.0.0.1:{}/3", scene.server.port());
    let socket = format!("{}?user=bob&pass={SECRET}&db=3", scene.server.url());
    for url in [
        format!("{tcp}?protocol=resp3"),
        tcp,
        format!("{socket}&protocol=resp3"),
        socket,
    ] {
        let host = open(connector(&url)).await.unwrap();
        host.interrupt().await.unwrap();
        assert_eq!(host.backlog().await.unwrap(), Backlog::default());
        assert!(
            host.fetch(1, Duration::from_millis(1))
                .await
                .unwrap()
                .is_empty()
        );
    }
    assert_eq!(scene.raw.number(&format!("EXISTS {KEY}")).await, 0);
    scene.raw.ask("SELECT 3").await;
    assert_eq!(scene.raw.number(&format!("EXISTS {KEY}")).await, 1);
}

#[tokio::test]
async fn the_default_user_may_have_a_password() {
    let scene = RedisOptions::default().set("requirepass", SECRET).start();
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?protocol={protocol}", scene.url());
        let given = PasswordSource::Given(Secret::new(SECRET));
        open(with(&url, given, TlsFiles::default())).await.unwrap();
        let error = open(connector(&url)).await.unwrap_err();
        assert!(matches!(error, StartError::Login(_)), "{error:?}");
        assert!(shown(&error).contains("NOAUTH"), "{error}");
        let wrong = PasswordSource::Given(Secret::new("wrong"));
        let error = open(with(&url, wrong, TlsFiles::default()))
            .await
            .unwrap_err();
        assert!(matches!(error, StartError::Login(_)), "{error:?}");
        assert!(shown(&error).contains("WRONGPASS"), "{error}");
    }
}

#[tokio::test]
async fn a_refused_login_shows_no_secret() {
    let scene = Scene::new().await;
    for protocol in ["resp2", "resp3"] {
        let url = format!("{}?protocol={protocol}", scene.server.url());
        let given = || PasswordSource::Given(Secret::new(SECRET));
        // A password for a user that has none.
        let result = open(with(&url, given(), TlsFiles::default())).await;
        if protocol == "resp2" {
            let error = result.unwrap_err();
            assert!(matches!(error, StartError::Login(_)), "{error:?}");
            assert!(shown(&error).contains("no password"), "{error}");
        }
        // An unknown user.
        let url = format!("{url}&user=nobody");
        let error = open(with(&url, given(), TlsFiles::default()))
            .await
            .unwrap_err();
        assert!(matches!(error, StartError::Login(_)), "{error:?}");
        shown(&error);
    }
    let error = open(connector(&format!("{}?db=99", scene.server.url())))
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Login(_)), "{error:?}");
}

#[tokio::test]
async fn a_rotated_password_file_is_read_again() {
    let scene = Scene::with(RedisOptions::default().user("bob on >first ~* +@all")).await;
    let file = scene.server.dir().join("password");
    let url = format!("{}?user=bob", scene.server.url());
    let source = PasswordSource::File(file.clone());
    let error = open(with(&url, source.clone(), TlsFiles::default()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("password file"), "{error}");
    std::fs::write(&file, "first\n").unwrap();
    let host = open(with(&url, source, TlsFiles::default())).await.unwrap();
    // A changed password alone cuts nobody off; a deleted user is cut off.
    scene.raw.ask("ACL DELUSER bob").await;
    let error = host.backlog().await.unwrap_err();
    assert_eq!(error.class(), Class::Reconnect, "{error}");
    scene.raw.ask("ACL SETUSER bob on >second ~* +@all").await;
    let error = host.backlog().await.unwrap_err();
    assert_eq!(error.class(), Class::Configuration, "{error}");
    std::fs::write(&file, "second").unwrap();
    host.backlog().await.unwrap();
}

#[tokio::test]
async fn nobody_there() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/none.sock", dir.path().display());
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for url in [socket, format!("redis://bob:{SECRET}@127.0.0.1:{port}")] {
        let error = open(connector(&url)).await.unwrap_err();
        assert!(matches!(error, StartError::Unreachable(_)), "{error:?}");
        assert!(error.may_pass());
        shown(&error);
    }
}

#[tokio::test]
async fn a_peer_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let short = Duration::from_millis(100);
    let url = format!("redis://bob:{SECRET}@127.0.0.1:{port}");
    let error = open(connector(&url).with_deadline(short))
        .await
        .unwrap_err();
    assert!(
        matches!(error, StartError::Unreachable(Error::Deadline { .. })),
        "{error:?}"
    );
    shown(&error);
}

#[tokio::test]
async fn a_server_that_stops_answering_and_comes_back() {
    let scene = Scene::new().await;
    let short = Duration::from_millis(100);
    let connector = connector(&scene.server.url()).with_deadline(short);
    let host = open(connector).await.unwrap();
    let claims = scene.read(&host, &["a"]).await;
    let pid = Pid::from_raw(scene.server.pid().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let begun = Instant::now();
    let error = host.renew(&claims).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    // A blocking read has its wait, and then the deadline.
    let wait = Duration::from_millis(200);
    let error = host.fetch(1, wait).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    assert!(begun.elapsed() >= wait + short + short);
    assert_eq!(error.class(), Class::Reconnect);
    kill(pid, Signal::SIGCONT).unwrap();
    eventually("it answers", || async { host.renew(&claims).await.is_ok() }).await;
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
}

#[tokio::test]
async fn killed_clients_connect_anew_on_the_next_call() {
    let scene = Scene::new().await;
    let host = Arc::new(scene.host().await);
    let claims = scene.read(&host, &["a"]).await;
    let opened = host.connections_opened();
    let waiting = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.fetch(1, Duration::from_secs(15)).await }
    });
    eventually("a client is blocked", || async {
        scene
            .raw
            .text("INFO clients")
            .await
            .contains("blocked_clients:1\r\n")
    })
    .await;
    scene.raw.ask("CLIENT KILL TYPE normal SKIPME yes").await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.class(), Class::Reconnect, "{error}");
    let error = host.renew(&claims).await.unwrap_err();
    assert_eq!(error.class(), Class::Reconnect, "{error}");
    // One failure, then a new connection; many callers share it.
    let (one, two, three) = tokio::join!(
        host.renew(&claims),
        host.backlog(),
        host.take_orphans(1, &holds_nothing)
    );
    assert!(one.is_ok() && two.is_ok() && three.is_ok());
    host.fetch(1, Duration::ZERO).await.unwrap();
    assert_eq!(host.connections_opened(), opened + 2);
}

#[tokio::test]
async fn a_paused_server_is_waited_for() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    scene.raw.ask("CLIENT PAUSE 300 ALL").await;
    let begun = Instant::now();
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_server_killed_and_restarted_with_its_data() {
    let mut scene = Scene::with(RedisOptions::default().appendonly()).await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    scene.server.kill();
    for _ in 0..3 {
        let error = host.renew(&claims).await.unwrap_err();
        assert_eq!(error.class(), Class::Reconnect, "{error}");
        let error = host.fetch(1, Duration::ZERO).await.unwrap_err();
        assert_eq!(error.class(), Class::Reconnect, "{error}");
    }
    scene.server.restart();
    let replies = host.renew(&claims).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Done]);
    assert_eq!(
        settle(&host, &claims[0], 1, Step::Discard).await,
        Reply::Done
    );
    host.acknowledge(&claims[1..]).await.unwrap();
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
}

#[tokio::test]
async fn a_server_restarted_without_its_data() {
    let mut scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    scene.server.restart();
    let error = host.fetch(1, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.class(), Class::Reconnect, "{error}");
    let error = host.fetch(1, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing, "{error}");
    // Both connections were lost: the other one notices by itself, then repairs.
    let held = [(Arc::clone(&claims[0]), 1)];
    let error = host.repair(&held).await.unwrap_err();
    assert_eq!(error.class(), Class::Reconnect, "{error}");
    host.repair(&held).await.unwrap();
    assert!(host.fetch(1, Duration::ZERO).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_may_pass() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    let error = host.renew(&claims).await.unwrap_err();
    assert_eq!(error.class(), Class::Retry, "{error}");
    let error = host.fetch(1, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.class(), Class::Retry, "{error}");
    let settlement = hostler::queue::Settlement {
        claim: Arc::clone(&claims[0]),
        count: 1,
        step: Step::Discard,
    };
    let error = host.settle(&[settlement]).await.unwrap_err();
    assert_eq!(error.class(), Class::Retry, "{error}");
    scene
        .raw
        .ask("CONFIG SET replica-serve-stale-data no")
        .await;
    let error = host.backlog().await.unwrap_err();
    assert!(error.to_string().contains("MASTERDOWN"), "{error}");
    assert_eq!(error.class(), Class::Retry);
    scene.raw.ask("REPLICAOF NO ONE").await;
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
}

#[tokio::test]
async fn no_room_for_clients_may_pass() {
    let scene = Scene::new().await;
    scene.raw.ask("CONFIG SET maxclients 1").await;
    for more in ["", "?protocol=resp3", "?pass=x"] {
        let error = open(connector(&format!("{}{more}", scene.server.url())))
            .await
            .unwrap_err();
        assert!(error.may_pass(), "{error:?}");
    }
}

#[tokio::test]
async fn a_user_without_client_commands_is_served() {
    let scene = Scene::with(RedisOptions::default().user("bob on nopass ~* +@all -client")).await;
    let url = format!("{}?user=bob&pass=x", scene.server.url());
    let host = Arc::new(open(connector(&url)).await.unwrap());
    let wait = Duration::from_millis(400);
    let waiting = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.fetch(1, wait).await }
    });
    eventually("a client is blocked", || async {
        scene
            .raw
            .text("INFO clients")
            .await
            .contains("blocked_clients:1\r\n")
    })
    .await;
    // It cannot be interrupted; it ends by itself.
    host.interrupt().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn a_fetch_whose_caller_gave_up_loses_nothing() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let gave_up = tokio::time::timeout(
        Duration::from_millis(50),
        host.fetch(1, Duration::from_secs(15)),
    )
    .await;
    assert!(gave_up.is_err());
    let id = scene.raw.add(KEY, "a").await;
    // It was handed out to the read that nobody waits for: pending, and found later.
    eventually("it is handed out", || async {
        host.backlog().await.unwrap().pending == 1
    })
    .await;
    let claim = host.fetch(1, Duration::ZERO).await.unwrap();
    assert!(claim.is_empty());
    scene
        .raw
        .ask(&format!(
            "XCLAIM {KEY} g {} 0 {id} IDLE 60000 RETRYCOUNT 1 JUSTID",
            host.consumer()
        ))
        .await;
    let taken = host.take_orphans(9, &holds_nothing).await.unwrap();
    assert_eq!(text(taken.claims[0].id), id);
}

/// A certificate authority of the tests' own, with a certificate for the server and one for a
/// client.
struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let dir = dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Self { dir, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Certificate and key of somebody.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
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
async fn tls_with_our_own_authority_and_client_certificates() {
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
    let short = Duration::from_secs(2);
    let try_open =
        |url: &str, tls: TlsFiles| open(with(url, PasswordSource::Url, tls).with_deadline(short));
    let host = try_open(&url, files(Some(&ours), Some(&ours)))
        .await
        .unwrap();
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
        assert!(
            matches!(error, StartError::Unreachable(_)),
            "{what}: {error:?}"
        );
    }
    let missing = TlsFiles {
        ca: Some(dir.path().join("none.pem")),
        client: None,
    };
    let error = try_open(&url, missing).await.unwrap_err();
    assert!(error.to_string().contains("none.pem"), "{error}");
}
