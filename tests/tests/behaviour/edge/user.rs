//! A user with a terminal and a browser.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use fairlead_client::{Client, Credentials, Request, Response, TrustRoots};
use fairlead_tests::harness::{Form, binary, split_address};
use http::header::{LOCATION, SET_COOKIE};
use http::{Method, StatusCode};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::installation::{Installation, client, within};

/// A user with a home directory.
pub struct User<'a> {
    installation: &'a Installation,
    home: PathBuf,
}

/// The result of a program.
#[derive(Debug)]
pub struct Finished {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl<'a> User<'a> {
    pub fn new(installation: &'a Installation, name: &str) -> Self {
        Self { installation, home: installation.scratch(&format!("home-{name}")) }
    }

    /// The cache of tokens.
    pub fn cache(&self) -> PathBuf {
        self.home.join("cache/fairlead/login")
    }

    /// A command in this home, without a browser.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.installation.directory().parent().unwrap())
            .env("HOME", &self.home)
            .env("XDG_CACHE_HOME", self.home.join("cache"))
            .env("KUBECACHEDIR", self.home.join("kube"))
            .env("KUBECONFIG", self.installation.edge_kubeconfig())
            .env_remove("KUBERNETES_EXEC_INFO")
            .env_remove("BROWSER")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// A `fairlead` command with these arguments, for the installation.
    pub fn fairlead(&self, line: &str) -> Command {
        let mut command = self.command(&binary("fairlead").unwrap());
        command.args(line.split_whitespace());
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, mut command: Command) -> Finished {
        let output = within("a command", command.output()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Finished {
            success: output.status.success(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Runs a command and signs in as `user` at the URL that it prints.
    pub async fn run_and_sign_in(&self, mut command: Command, user: &str) -> Finished {
        let mut child = command.spawn().unwrap();
        let (address, mut stderr) = within("an address", read_url(&mut child)).await;
        let page = self.sign_in(&address, user).await;
        assert_eq!(page.status, StatusCode::OK, "{}", String::from_utf8_lossy(&page.body));
        let output = within("the end of the sign-in", async {
            let output = child.wait_with_output().await.unwrap();
            stderr.1.read_to_string(&mut stderr.0).await.unwrap();
            output
        })
        .await;
        Finished {
            success: output.status.success(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: stderr.0,
        }
    }

    /// Signs in with `fairlead login` and these options; returns the token that it prints.
    pub async fn login(&self, options: &str, user: &str) -> String {
        let finished =
            self.run_and_sign_in(self.fairlead(&format!("login --dir=site {options}")), user).await;
        assert!(finished.success, "{finished:?}");
        super::token(&finished.stdout)
    }

    /// Opens a URL in the browser, chooses a user, and returns the last page.
    async fn sign_in(&self, address: &str, user: &str) -> Response {
        let mut form = self.open(address).await;
        form.fields.push(("user".to_owned(), user.to_owned()));
        let response = self.send(&form).await;
        self.follow(&response).await.unwrap_or(response)
    }

    /// Follows a redirect, if the response is one.
    pub async fn follow(&self, response: &Response) -> Option<Response> {
        let next = response.headers.get(LOCATION)?;
        assert_eq!(response.status, StatusCode::SEE_OTHER);
        let (origin, path) = split_address(next.to_str().unwrap()).unwrap();
        let credentials = Credentials::new(TrustRoots::Nothing).unwrap();
        let callback = client(&origin, credentials);
        let response =
            within("the callback", callback.request_any_status(Request::new(Method::GET, path))).await;
        Some(response.unwrap())
    }

    /// Opens a page of the issuer with a form.
    pub async fn open(&self, address: &str) -> Form {
        let (origin, path) = split_address(address).unwrap();
        let response = self.at(&origin).request_any_status(Request::new(Method::GET, path)).await.unwrap();
        let page = String::from_utf8_lossy(&response.body);
        assert_eq!(response.status, StatusCode::OK, "{page}");
        for (header, part) in [
            ("content-security-policy", "default-src 'none'"),
            ("x-frame-options", "DENY"),
            ("cache-control", "no-store"),
        ] {
            assert!(
                response.headers[header].to_str().unwrap().contains(part),
                "{header}: {:?}",
                response.headers
            );
        }
        assert!(page.contains("no passwords") && !page.contains("<script"), "{page}");
        let cookie = response.headers[SET_COOKIE].to_str().unwrap();
        for part in ["__Host-", "Secure", "HttpOnly", "SameSite=Strict"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        Form::on(&origin, &response).unwrap()
    }

    /// The page for entering a code that a program shows.
    pub async fn device_page(&self, issuer: &str) -> String {
        let begin = Request::new(Method::POST, "/device_authorization")
            .with_body("application/x-www-form-urlencoded", "client_id=fairlead&scope=openid");
        let authorization = self.at(issuer).request_any_status(begin).await.unwrap();
        let authorization: serde_json::Value = serde_json::from_slice(&authorization.body).unwrap();
        let (origin, path) =
            split_address(authorization["verification_uri_complete"].as_str().unwrap()).unwrap();
        let page = self.at(&origin).request_any_status(Request::new(Method::GET, path)).await.unwrap();
        String::from_utf8(page.body.to_vec()).unwrap()
    }

    /// Sends a form as a browser would.
    pub async fn send(&self, form: &Form) -> Response {
        self.at(&form.origin).request_any_status(form.request().unwrap()).await.unwrap()
    }

    /// A client of the issuer.
    pub fn at(&self, origin: &str) -> Client {
        client(origin, self.installation.anonymous())
    }
}

/// The URL that a program prints.
pub async fn address(child: &mut Child) -> String {
    let (address, (_, stderr)) = within("an address", read_url(child)).await;
    child.stderr = Some(stderr.into_inner());
    address
}

/// The first URL on a program's standard error, and the rest of the output.
async fn read_url(child: &mut Child) -> (String, (String, BufReader<tokio::process::ChildStderr>)) {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut heard = String::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).await.unwrap() == 0 {
            panic!("no URL was printed:\n{heard}");
        }
        heard.push_str(&line);
        if line.trim().starts_with("https://") {
            return (line.trim().to_owned(), (heard, lines));
        }
    }
}
