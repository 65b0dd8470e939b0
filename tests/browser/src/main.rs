//! The dashboard in Chromium, driven by its own driver: what it shows, what it does, that it is accessible, and
//! that a thousand queues and 100,000 dead letters stay quick. Makes the pictures of the documentation, if
//! `PICTURES` names their directory.
//!
//! Variables: `HOSTLER` (the binary), `GUEST` (a component: the scripted guest of the tests), `AXE` (axe.min.js).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const PATIENCE: Duration = Duration::from_secs(30);

type Checked<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A process with those that it starts: all of them end with it. Killing a driver alone leaves its browser.
struct Group(Child);

impl Group {
    fn start(command: &mut Command) -> Checked<Self> {
        Ok(Self(command.process_group(0).spawn()?))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(id) = i32::try_from(self.0.id()) {
            // It may have ended by itself.
            let _ended = killpg(Pid::from_raw(id), Signal::SIGKILL).is_err();
        }
        drop(self.0.wait());
    }
}

/// A Redis server, a host, a dashboard and a driver.
struct Scene {
    _processes: Vec<Group>,
    dir: tempfile::TempDir,
    page: String,
    driver: String,
}

fn variable(name: &str) -> Checked<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{name} is not set").into())
}

/// The lines of a stream until one holds this text; the rest is read and dropped, so that no writer waits.
fn line_with(stream: impl std::io::Read + Send + 'static, text: &str) -> Checked<String> {
    let mut lines = BufReader::new(stream).lines();
    let found = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains(text));
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    found.ok_or_else(|| format!("`{text}` never came").into())
}

impl Scene {
    fn start() -> Checked<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("redis.sock");
        let mut redis = Command::new("redis-server");
        redis
            .args(["--port", "0", "--save", "", "--dir"])
            .arg(dir.path());
        redis.arg("--unixsocket").arg(&socket).stdout(Stdio::null());
        let mut processes = vec![Group::start(&mut redis)?];
        let begun = Instant::now();
        while !socket.exists() {
            if begun.elapsed() > PATIENCE {
                return Err("redis does not start".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let url = format!("unix://{}", socket.display());

        let hostler = variable("HOSTLER")?;
        let mut host = Command::new(&hostler);
        host.args([
            "run",
            "--redis",
            &url,
            "--stream",
            "orders",
            "--group",
            "billing",
            "--handler",
        ]);
        host.arg(variable("GUEST")?).args([
            "--dead-letter",
            "orders:dead",
            "--max-deliveries",
            "2",
        ]);
        host.args([
            "--log-format",
            "json",
            "--accept-deploys",
            "--backoff-first",
            "1ms",
        ]);
        let mut host = Group::start(host.stdout(Stdio::null()).stderr(Stdio::piped()))?;
        line_with(host.0.stderr.take().ok_or("no stderr")?, "\"ready\"")?;
        processes.push(host);

        let token = dir.path().join("token");
        std::fs::write(&token, TOKEN)?;
        let mut ui = Command::new(&hostler);
        ui.args([
            "ui",
            "--redis",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--token-file",
        ])
        .arg(&token);
        let mut ui = Group::start(ui.stderr(Stdio::piped()))?;
        let said = line_with(ui.0.stderr.take().ok_or("no stderr")?, "/ui ")?;
        let page = said.split(' ').next().unwrap_or_default().to_owned();
        processes.push(ui);

        let mut driver = Command::new("chromedriver");
        driver
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut driver = Group::start(&mut driver)?;
        let said = line_with(
            driver.0.stdout.take().ok_or("no stdout")?,
            "started successfully on port",
        )?;
        let port: String = said
            .chars()
            .rev()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        let port: String = port.chars().rev().collect();
        processes.push(driver);
        Ok(Self {
            _processes: processes,
            page,
            driver: format!("http://127.0.0.1:{port}"),
            dir,
        })
    }

    fn redis(&self, commands: &str) -> Checked<String> {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(self.dir.path().join("redis.sock"));
        let mut cli = cli.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        cli.stdin
            .take()
            .ok_or("no stdin")?
            .write_all(commands.as_bytes())?;
        Ok(String::from_utf8(cli.wait_with_output()?.stdout)?)
    }

    fn publish(&self, bodies: &[&str]) -> Checked {
        let commands: String = bodies
            .iter()
            .map(|body| format!("XADD orders * _payload \"{body}\"\n"))
            .collect();
        self.redis(&commands).map(drop)
    }

    /// A browser of its own, in this theme.
    async fn browser(&self, is_dark: bool) -> Checked<Client> {
        let theme = if is_dark {
            "--blink-settings=preferredColorScheme=0"
        } else {
            "--blink-settings=preferredColorScheme=1"
        };
        let options = json!({
            "goog:chromeOptions": {
                "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", theme],
            },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let mut builder = ClientBuilder::new(HttpConnector::new());
        if let Value::Object(options) = options {
            builder.capabilities(options);
        }
        let client = builder.connect(&self.driver).await?;
        client.set_window_size(1280, 900).await?;
        Ok(client)
    }

    async fn open(&self, client: &Client, place: &str) -> Checked {
        // Another place of the same page does not load it again: begin anew.
        client.goto("about:blank").await?;
        client.goto(&format!("{}{place}", self.page)).await?;
        settled(client).await
    }
}

/// Wait until the page shows what it has asked for.
async fn settled(client: &Client) -> Checked {
    let script = "const s = document.getElementById('status').textContent; \
                  return document.querySelector('main h2') !== null && !s.includes('…') \
                  && !(document.getElementById('causes') || {textContent: ''}).textContent.includes('counting');";
    until(client, script, "the page is there").await
}

async fn until(client: &Client, script: &str, what: &str) -> Checked {
    let begun = Instant::now();
    while client.execute(script, Vec::new()).await? != Value::Bool(true) {
        if begun.elapsed() > PATIENCE {
            let text = text_of(client, "body").await?;
            return Err(format!("never: {what}\n{text}").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// What a part of the page shows. The page may replace its parts at any time, so the browser reads it at once.
async fn text_of(client: &Client, css: &str) -> Checked<String> {
    let script = "return (document.querySelector(arguments[0]) || {innerText: ''}).innerText";
    let text = client.execute(script, vec![json!(css)]).await?;
    Ok(text.as_str().unwrap_or_default().to_owned())
}

/// Follow the link with this text.
async fn follow(client: &Client, text: &str) -> Checked {
    let script = "const link = [...document.querySelectorAll('main a')].find((a) => a.textContent === arguments[0]); \
                  if (link) link.click(); return link !== undefined";
    let found = client.execute(script, vec![json!(text)]).await?;
    check(found == true, format!("no link {text}"))?;
    settled(client).await
}

async fn button(client: &Client, title: &str) -> Checked<Element> {
    let path = format!("//main//button[normalize-space()='{title}']");
    Ok(client.find(Locator::XPath(&path)).await?)
}

fn check(holds: bool, what: impl Into<String>) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(what.into().into())
    }
}

/// Every rule of axe-core that concerns people holds on this page.
async fn accessible(client: &Client, axe: &str, place: &str) -> Checked {
    client.execute(axe, Vec::new()).await?;
    let run = "const done = arguments[arguments.length - 1]; \
               axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }) \
               .then((r) => done(r.violations.map((v) => v.id + ': ' + v.help + ' ' + v.nodes.map((n) => n.html + ' ' + n.failureSummary).slice(0, 3).join(' | '))), \
               (e) => done(['axe failed: ' + e]));";
    let found = client.execute_async(run, Vec::new()).await?;
    let count = found.as_array().map_or(0, Vec::len);
    check(count == 0, format!("{place}: {found:#}"))
}

/// Where pictures go, if some are made.
fn pictures() -> Option<std::ffi::OsString> {
    std::env::var_os("PICTURES").filter(|dir| !dir.is_empty())
}

/// Two minutes of messages: pictures show a queue at work.
fn work(scene: &Scene) -> Checked {
    for turn in 0..240 {
        let many = 6 + 4 * (turn / 30 % 3);
        scene.publish(&vec!["ack"; many])?;
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

async fn picture(client: &Client, name: &str) -> Checked {
    if let Some(dir) = pictures() {
        std::fs::write(Path::new(&dir).join(name), client.screenshot().await?)?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Checked {
    let scene = Scene::start()?;
    scene.publish(&[
        "text:<script>alert(1)</script>+panic",
        "drop:no customer 17",
        "drop:no customer 4",
        "drop:the card was declined",
        "ack",
        "ack",
        "ack",
        "ack",
    ])?;
    let begun = Instant::now();
    while !scene
        .redis("XLEN orders:dead\nZCARD hostler:queues\n")?
        .starts_with("4\n1")
    {
        check(begun.elapsed() < PATIENCE, "the messages never died")?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let axe = std::fs::read_to_string(variable("AXE")?)?;
    // Id, name of a field, body: the one that panicked.
    let dead = scene.redis("XRANGE orders:dead - +\n")?;
    let lines: Vec<&str> = dead.lines().collect();
    let body = lines.iter().position(|line| line.ends_with("+panic"));
    let body = body.ok_or("it died")?;
    let id = lines[body - 2].trim();
    let is_name = |line: &&str| *line == "h:x-dead-letter-source-id";
    let name = lines.iter().skip(body).position(is_name);
    let message = lines[body + name.ok_or("its id")? + 1].trim();
    let places = [
        "",
        "#/queue/orders/billing",
        "#/queue/orders/billing/dead",
        &format!("#/letter/orders%3Adead/{id}"),
        &format!("#/message/{message}"),
        "#/dead/orders%3Adead",
        "#/queue/orders/billing/hosts",
        "#/queue/orders/billing/versions",
        "#/queue/orders/billing/schedules",
        "#/queue/orders/billing/policies",
        "#/policies",
    ];

    if pictures().is_some() {
        work(&scene)?;
    }
    for is_dark in [false, true] {
        let client = scene.browser(is_dark).await?;
        for (at, place) in places.iter().enumerate() {
            scene.open(&client, place).await?;
            accessible(&client, &axe, place).await?;
            let names = ["queues", "queue", "dead", "letter", "message"];
            if let (Some(name), false) = (names.get(at), is_dark) {
                picture(&client, &format!("dashboard-{name}.png")).await?;
            }
        }
        client.close().await?;
        println!("accessible, {}", if is_dark { "dark" } else { "light" });
    }

    let client = scene.browser(false).await?;
    reads(&scene, &client, &places).await?;
    println!("shows queues, hosts and dead letters as text");
    waits(&scene, &client).await?;
    println!("shows held messages and journals");
    keyboard(&scene, &client).await?;
    println!("usable by the keyboard");
    phone(&scene, &client, &places).await?;
    println!("fits on a phone");
    acts(&scene, &client).await?;
    println!("acts with the token, when it is confirmed");
    large(&scene, &client).await?;
    console(&client).await?;
    println!("no script or policy failed");
    client.close().await?;
    Ok(())
}

async fn reads(scene: &Scene, client: &Client, places: &[&str]) -> Checked {
    scene.open(client, places[0]).await?;
    until(
        client,
        "return document.querySelector('#list').textContent.includes('serving')",
        "the queue serves",
    )
    .await?;
    let list = text_of(client, "#list").await?;
    check(list.contains("orders") && list.contains("billing"), list)?;
    // The address changes with a link, and the page with it.
    follow(client, "orders").await?;
    let text = text_of(client, "main").await?;
    check(
        text.contains("serving, ") && text.contains("3 causes"),
        text,
    )?;
    let charts = client
        .find_all(Locator::Css("figure [role=img][aria-label] canvas"))
        .await?;
    check(charts.len() == 5, "five charts")?;
    // A look at a chart is not disturbed, and a range changes what it shows.
    let kept = "window.kept ??= document.querySelector('canvas'); \
                return window.kept === document.querySelector('canvas') && window.seen !== document.getElementById('status').textContent;";
    client
        .execute(
            "window.seen = document.getElementById('status').textContent",
            Vec::new(),
        )
        .await?;
    until(
        client,
        kept,
        "the chart stays when the page is filled again",
    )
    .await?;
    let legend = "return document.querySelector('.u-legend').textContent";
    let legend = client.execute(legend, Vec::new()).await?;
    check(
        legend.as_str().is_some_and(|text| text.contains("/s")),
        "units",
    )?;
    button(client, "6 h").await?.click().await?;
    let pressed = "return document.querySelector('[aria-pressed=true]').textContent === '6 h'";
    until(client, pressed, "six hours").await?;
    for (tab, word) in [
        ("Hosts 1", "sha256:"),
        ("Versions", "hostler deploy"),
        ("Schedules", "hostler schedule add"),
        ("Limits", "flow.limit"),
    ] {
        follow(client, tab).await?;
        let text = text_of(client, "main").await?;
        check(text.contains(word), format!("{word} in {text}"))?;
    }
    scene
        .open(client, "#/queue/orders/billing/policies")
        .await?;
    let text = text_of(client, "main").await?;
    check(text.contains("max_deliveries"), text)?;
    scene.open(client, places[2]).await?;
    let text = text_of(client, "main").await?;
    check(
        text.contains("dropped: no customer #") && text.contains("max-deliveries"),
        text,
    )?;
    scene.open(client, places[3]).await?;
    let text = text_of(client, "main").await?;
    // As text: nothing of it ran, and no element came of it.
    check(
        text.contains("<script>alert(1)</script>")
            && text.contains("asked to panic")
            && text.contains("wasm backtrace:"),
        text,
    )?;
    let scripts = client.find_all(Locator::Css("script")).await?;
    check(scripts.len() == 2, "two scripts")?;
    // The same message is found by its id, with what became of it.
    let id = places[4].rsplit('/').next().unwrap_or_default();
    let search = client.find(Locator::Css("#search-id")).await?;
    search.send_keys(&format!("{id}\n")).await?;
    settled(client).await?;
    until(
        client,
        "return document.querySelectorAll('ol.story li').length >= 2",
        "a story",
    )
    .await?;
    let story = text_of(client, "ol.story").await?;
    check(
        story.contains("was published to orders") && story.contains("died after 2 attempts"),
        story,
    )?;
    scene.open(client, "#/message/nobody").await?;
    let text = text_of(client, "main").await?;
    check(text.contains("hostler trace nobody"), text)
}

/// A message waits for its next attempt. The test writes to Redis that it was held, and has a journal: the guest
/// does neither.
async fn waits(scene: &Scene, client: &Client) -> Checked {
    scene.publish(&["nack:3600000"])?;
    let begun = Instant::now();
    let id = loop {
        let pending = scene.redis("XPENDING orders billing - + 1 hostler:parked\n")?;
        if let Some(id) = pending.lines().next().filter(|line| line.contains('-')) {
            break id.to_owned();
        }
        check(begun.elapsed() < PATIENCE, "the message was never parked")?;
        std::thread::sleep(Duration::from_millis(50));
    };
    // A journal is beside a member that has the bytes of all.
    scene.redis(&format!(
        "ZADD {{orders}}:held:billing 1 {id}\nZADD {{orders}}:journals:billing 1 {id} 100 bytes\n"
    ))?;
    scene.open(client, "#/queue/orders/billing").await?;
    let text = text_of(client, "main").await?;
    let is_shown = |name: &str, value: &str| {
        let mut lines = text.lines().skip_while(|line| !line.starts_with(name));
        lines.by_ref().take(2).any(|line| line.contains(value))
    };
    check(is_shown("held", "1, uncharged"), &text)?;
    check(is_shown("journals", "1"), &text)?;
    scene.redis(&format!(
        "XACK orders billing {id}\nDEL {{orders}}:held:billing {{orders}}:journals:billing {{orders}}:parked:billing\n"
    ))?;
    Ok(())
}

async fn keyboard(scene: &Scene, client: &Client) -> Checked {
    scene.open(client, "").await?;
    let focused = "return document.activeElement.textContent";
    client
        .execute("document.activeElement.blur()", Vec::new())
        .await?;
    let body = client.find(Locator::Css("body")).await?;
    body.send_keys(&Key::Tab.to_string()).await?;
    let first = client.execute(focused, Vec::new()).await?;
    // Tabs begin where the page has put the focus: the content. Its first stop is the filter.
    check(!first.is_null(), "something is focused")?;
    let input = client.find(Locator::Css("#filter")).await?;
    input.send_keys("nothing like this").await?;
    let list = text_of(client, "#list").await?;
    check(list == "no queue has this in its name", list)?;
    input.clear().await?;
    // The next look at the queues leaves what is typed.
    input.send_keys("ord").await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let typed = client
        .execute("return document.getElementById('filter').value", Vec::new())
        .await?;
    check(typed == "ord", format!("{typed}"))?;
    input.clear().await?;
    scene.open(client, "#/queue/orders/billing").await?;
    let tab = client.find(Locator::Css(".tabs a")).await?;
    tab.send_keys(&Key::Right.to_string()).await?;
    let at = client.execute(focused, Vec::new()).await?;
    check(
        at.as_str().is_some_and(|at| at.starts_with("Dead letters")),
        format!("{at}"),
    )?;
    // The theme of a person wins over that of the machine.
    let theme = client.find(Locator::Css("#theme")).await?;
    let back = "return getComputedStyle(document.body).backgroundColor";
    theme.click().await?;
    let light = client.execute(back, Vec::new()).await?;
    theme.click().await?;
    let dark = client.execute(back, Vec::new()).await?;
    check(
        light == "rgb(255, 255, 255)" && dark == "rgb(15, 20, 25)",
        format!("{light} {dark}"),
    )?;
    theme.click().await?;
    Ok(())
}

async fn phone(scene: &Scene, client: &Client, places: &[&str]) -> Checked {
    client.set_window_size(500, 850).await?;
    for place in places {
        scene.open(client, place).await?;
        let over = client
            .execute("return document.documentElement.scrollWidth - document.documentElement.clientWidth", Vec::new())
            .await?;
        check(
            over.as_i64().unwrap_or(1) <= 0,
            format!("{place} is {over} pixels too wide"),
        )?;
    }
    scene.open(client, places[1]).await?;
    picture(client, "dashboard-phone.png").await?;
    client.set_window_size(1280, 900).await?;
    Ok(())
}

async fn acts(scene: &Scene, client: &Client) -> Checked {
    scene.open(client, "#/dead/orders%3Adead").await?;
    // Before a person signs in, nothing can be done.
    check(
        button(client, "Purge all").await.is_err(),
        "no action is there",
    )?;
    sign_in(client, "wrong").await?;
    until(
        client,
        "return document.getElementById('status').textContent.includes('the token is wrong')",
        "it is refused",
    )
    .await?;
    check(
        button(client, "Purge all").await.is_err(),
        "no action is there",
    )?;
    sign_in(client, TOKEN).await?;
    until(
        client,
        "return document.getElementById('status').textContent === 'signed in'",
        "it is right",
    )
    .await?;
    // Once is enough, also after the page was loaded again.
    client.refresh().await?;
    settled(client).await?;
    accessible_again(client).await?;
    // A name that is wrong leaves the button off.
    button(client, "Purge all").await?.click().await?;
    client
        .find(Locator::Css("#confirm-name"))
        .await?
        .send_keys("orders")
        .await?;
    let off = client
        .find(Locator::Css("#confirm-act"))
        .await?
        .prop("disabled")
        .await?;
    check(off.as_deref() == Some("true"), "the action is off")?;
    picture(client, "dashboard-confirm.png").await?;
    client
        .find(Locator::Css("#confirm-name"))
        .await?
        .send_keys(&Key::Escape.to_string())
        .await?;
    check(
        scene.redis("XLEN orders:dead\n")?.trim() == "4",
        "nothing was purged",
    )?;
    purge_all(client, "orders:dead").await?;
    until(
        client,
        "return document.getElementById('status').textContent.includes('done, purged 4')",
        "it is done",
    )
    .await?;
    check(
        scene.redis("XLEN orders:dead\n")?.trim() == "0",
        "all were purged",
    )?;
    // The queue is paused and resumed.
    client
        .goto(&format!("{}#/queue/orders/billing", scene.page))
        .await?;
    let is_there = "return (document.querySelector('main h2') || {textContent: ''}).textContent.startsWith('orders')";
    until(client, is_there, "the page of the queue").await?;
    confirmed(client, "Pause", "orders").await?;
    until(
        client,
        "return document.querySelector('main .state').textContent === 'paused'",
        "it is paused",
    )
    .await?;
    confirmed(client, "Resume", "orders").await?;
    until(
        client,
        "return document.querySelector('main .state').textContent === 'serving'",
        "it serves",
    )
    .await
}

/// The page with its actions is accessible, too.
async fn accessible_again(client: &Client) -> Checked {
    let axe = std::fs::read_to_string(variable("AXE")?)?;
    accessible(client, &axe, "with actions").await
}

async fn sign_in(client: &Client, token: &str) -> Checked {
    client.find(Locator::Css("#sign")).await?.click().await?;
    let input = client.find(Locator::Css("#token")).await?;
    input.send_keys(&format!("{token}\n")).await?;
    Ok(())
}

async fn purge_all(client: &Client, name: &str) -> Checked {
    confirmed(client, "Purge all", name).await
}

async fn confirmed(client: &Client, title: &str, name: &str) -> Checked {
    button(client, title).await?.click().await?;
    let input = client.find(Locator::Css("#confirm-name")).await?;
    input.clear().await?;
    input.send_keys(name).await?;
    client
        .find(Locator::Css("#confirm-act"))
        .await?
        .click()
        .await?;
    Ok(())
}

/// A thousand queues, and 100,000 dead letters.
async fn large(scene: &Scene, client: &Client) -> Checked {
    let fill = "EVAL \"for i=1,1000 do local q='queue'..i redis.call('XGROUP','CREATE',q,'g','0','MKSTREAM') \
                redis.call('ZADD','hostler:queues',1e13,cjson.encode({queue=q,kind='stream',group='g',dead_letter='many:dead'})) end \
                for i=1,100000 do redis.call('XADD','many:dead','*','_payload','body '..i,'h:x-dead-letter-reason','dropped',\
                'h:x-dead-letter-detail','no customer '..i..' in '..(i%20)..string.char(97+i%20),'h:x-dead-letter-source','many') end return 'OK'\" 0\n";
    check(scene.redis(fill)?.contains("OK"), "the server is filled")?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let begun = Instant::now();
    scene.open(client, "").await?;
    until(
        client,
        "return document.querySelectorAll('#list tbody tr').length >= 1000",
        "a thousand queues",
    )
    .await?;
    let queues = begun.elapsed();
    let begun = Instant::now();
    client.goto("about:blank").await?;
    client
        .goto(&format!("{}#/dead/many%3Adead", scene.page))
        .await?;
    until(
        client,
        "return document.querySelectorAll('main tbody tr').length >= 50",
        "the newest dead letters",
    )
    .await?;
    let newest = begun.elapsed();
    settled(client).await?;
    let causes = begun.elapsed();
    let text = text_of(client, "main").await?;
    check(text.contains("100000 entries"), "all are counted")?;
    println!(
        "a thousand queues in {queues:?}, the newest of 100,000 dead letters in {newest:?}, their causes in {causes:?}"
    );
    check(
        queues < Duration::from_secs(8) && newest < Duration::from_secs(5),
        "it is quick",
    )
}

/// What the browser has complained about: a policy that was violated, a script that failed. An answer that is
/// no success is a line as well, and is asked for above.
async fn console(client: &Client) -> Checked {
    let failed = client
        .execute("return performance.getEntriesByType('resource').filter((r) => !r.name.startsWith(location.origin)).map((r) => r.name)", Vec::new())
        .await?;
    check(failed == json!([]), format!("outside resources: {failed}"))
}
