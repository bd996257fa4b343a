//! The admin page in a real browser, and the commands with the same information.

mod browser;
mod commands;
mod forwarder;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlead_certs::Client as Role;
use fairlead_tests::harness::is_left_out;
use serde_json::{Value, json};

use crate::installation::{Installation, until, until_object};
use browser::{Browser, Scheme};
use forwarder::Forwarder;

const PAGE: &str = "/services/fairlead/admin/";
const SHARDS: &str = "/apis/core.kcp.io/v1alpha1/shards";
/// A script that returns accessibility problems of the page.
const ACCESSIBLE: &str = include_str!("accessible.js");
const CORDON: &str = "experimental.core.kcp.io/unschedulable";

/// The folder for pictures of the page.
fn pictures() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let folder = target.join("dashboards");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits until an expression on the page is true.
async fn until_page(browser: &Browser, script: &str) {
    until(script, || async {
        let found = browser.run(&format!("return Boolean({script})")).await;
        if found == json!(true) { Ok(()) } else { Err(browser.run("return document.body.innerText").await) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_views_the_gateway_and_cordons_a_shard() {
    if is_left_out("chromium") {
        return;
    }
    let installation = Installation::start(2).await;
    let shards: Vec<String> = ["root", "shard-1"].map(str::to_owned).into();
    for (name, shard) in [("fleet", "root"), ("harbour", &*shards[1]), ("yard", &*shards[1])] {
        installation.workspace("root", name, shard).await;
    }
    let traffic = tokio::spawn(traffic(installation.admin("/clusters")));
    let forwarder = Forwarder::start(&installation, &installation.credentials(&Role::Admin)).await;
    let browser = Browser::start(&installation.scratch("browser")).await;

    // Without the final slash, the browser is redirected.
    browser.open(&format!("{}{}", forwarder.url(), PAGE.trim_end_matches('/'))).await;
    until_page(&browser, "document.querySelectorAll('#shards tbody tr').length === 2").await;
    let text = |selector: &'static str| {
        let script = format!("return document.querySelector('{selector}').innerText");
        let browser = &browser;
        async move { browser.run(&script).await.as_str().unwrap().to_owned() }
    };
    let table = text("#shards").await;
    for word in shards.iter().map(String::as_str).chain(["healthy", "Cordon", "Drain"]) {
        assert!(table.contains(word), "{word}: {table}");
    }
    let listeners = text("#listeners").await;
    assert!(listeners.contains("internal") && listeners.contains("client certificates"), "{listeners}");
    assert!(listeners.contains("OIDC: "), "{listeners}");
    assert!(text("#certificates").await.contains("listener internal"));
    assert!(text("#reloads").await.contains("serving certificate of listener internal"));

    // The plot shows the latency of real requests.
    until_page(&browser, "[...document.querySelectorAll('#latency path.series')].some((path) => path.getAttribute('d').includes('L'))").await;
    until_page(&browser, "document.querySelector('#workspaces').innerText.includes('root:fleet')").await;

    // The cordon button changes the Shard after a confirmation.
    let cordon = "#shards tr[data-key=shard-1] button[name=cordon]";
    browser.click(cordon).await;
    browser.click("#confirm-no").await;
    let root = installation.admin("/clusters/root");
    let shard: Value = root.get_json(&format!("{SHARDS}/shard-1")).await.unwrap();
    assert_eq!(shard["metadata"]["annotations"][CORDON], Value::Null, "not yet confirmed");
    browser.click(cordon).await;
    browser.click("#confirm-yes").await;
    until_object(&root, SHARDS, "shard-1", |shard| shard["metadata"]["annotations"][CORDON] == "true").await;
    until_page(&browser, "document.querySelector('#shards').innerText.includes('cordoned')").await;

    // The search explains a path for the user of a certificate.
    let files = installation.layout().client_cert(&Role::Admin);
    let certificate = std::fs::read_to_string(files.certificate).unwrap();
    browser.fill("#explain-path", "root:harbour").await;
    browser
        .run(&format!("document.querySelector('#explain-credential').value = {}", json!(certificate)))
        .await;
    browser.click("#explain button[type=submit]").await;
    until_page(&browser, "document.querySelector('#explained .verdict')").await;
    let explained = text("#explained").await;
    for word in ["Forwarded to shard-1", "User kcp-admin", "workspace harbour leads to logical cluster"] {
        assert!(explained.contains(word), "{word}: {explained}");
    }

    // Enough samples for lines in the plots.
    until_page(&browser, "typeof samples !== 'undefined' && samples.length > 12").await;
    for (scheme, name) in [(Scheme::Light, "admin-light.png"), (Scheme::Dark, "admin-dark.png")] {
        browser.prefer(scheme).await;
        assert_eq!(browser.run(ACCESSIBLE).await, json!([]), "{scheme:?}");
        browser.picture(&pictures().join(name)).await;
    }
    browser.prefer(Scheme::Light).await;
    browser.narrow().await;
    browser.picture(&pictures().join("admin-narrow.png")).await;
    let width = browser.run("return document.documentElement.scrollWidth - window.innerWidth").await;
    assert!(width.as_i64().unwrap() <= 0, "the page is wider than the window by {width}");

    assert_eq!(browser.faults().await, Vec::<String>::new());
    // Internal pages of the browser do not count.
    let is_elsewhere = |url: &String| url.starts_with("http") && !url.starts_with(&forwarder.url());
    let elsewhere: Vec<String> = browser.requested_urls().await.into_iter().filter(is_elsewhere).collect();
    assert_eq!(elsewhere, Vec::<String>::new());
    traffic.abort();
}

/// Sends requests of typical clients until the task is aborted.
async fn traffic(clusters: fairlead_client::Client) {
    for number in 0_u64.. {
        let workspace = ["root:fleet", "root:harbour", "root:yard"][number as usize % 3];
        let path = format!("/{workspace}/api/v1/configmaps");
        let _ = clusters.get(&path).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_operators_have_access_and_only_on_listeners_with_the_page() {
    let installation = Installation::start(1).await;
    let code = |client: fairlead_client::Client, path: &'static str| async move {
        crate::installation::code(&client.get(path).await)
    };
    let gateway = |credentials| {
        crate::installation::client(&format!("https://127.0.0.1:{}", installation.port()), credentials)
    };
    for path in [
        PAGE,
        "/services/fairlead/admin/script.js",
        "/services/fairlead/v1/stats",
        "/services/fairlead/v1/tail",
    ] {
        assert_eq!(code(gateway(installation.anonymous()), path).await, 401, "{path}");
        assert_eq!(
            code(gateway(installation.credentials(&Role::ExternalLogicalClusterAdmin)), path).await,
            403,
            "{path}"
        );
    }
    let page = gateway(installation.credentials(&Role::Admin)).get(PAGE).await.unwrap();
    let head = |name: &str| page.headers[name].to_str().unwrap().to_owned();
    assert!(head("content-security-policy").starts_with("default-src 'none'; script-src 'self'"));
    assert_eq!((head("x-frame-options"), head("cache-control")), ("DENY".to_owned(), "no-store".to_owned()));
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(
        !text.contains("http:")
            && !text.contains("https:")
            && !text.contains("<style")
            && !text.contains(" style="),
        "{text}"
    );
}

/// Names and errors are shown as text, whatever they contain. The gateway's Content-Security-Policy is left out here: it is the
/// second line of defence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_are_shown_as_text() {
    if is_left_out("chromium") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hostile = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=2</script>'\"&\u{202e}";
    let forwarder = Forwarder::hostile(hostile).await;
    let browser = Browser::start(folder.path()).await;
    browser.open(&format!("{}{PAGE}", forwarder.url())).await;
    until_page(&browser, "document.querySelectorAll('#shards tbody tr').length === 1").await;
    browser.fill("#explain-path", hostile).await;
    browser.click("#explain button[type=submit]").await;
    until_page(&browser, "document.querySelector('#explained .steps')").await;
    // The response to the button is hostile, too.
    browser.click("#shards button[name=cordon]").await;
    browser.click("#confirm-yes").await;
    until_page(&browser, "!document.querySelector('#alarm').hidden").await;
    let name = json!(hostile).to_string();
    for place in [
        "#shards",
        "#workspaces",
        "#listeners",
        "#certificates",
        "#reloads",
        "#latency",
        "#explained",
        "#alarm",
        "#about",
    ] {
        let shown = browser
            .run(&format!("return document.querySelector('{place}').textContent.includes({name})"))
            .await;
        assert_eq!(
            shown,
            true,
            "{place}: {}",
            browser.run(&format!("return document.querySelector('{place}').outerHTML")).await
        );
    }
    assert_eq!(browser.run("return window.hacked === undefined && document.querySelectorAll('img, script:not([src])').length === 0").await, true);
}
