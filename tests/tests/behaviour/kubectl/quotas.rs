//! Resource quotas with kubectl.

use super::{Session, with_each};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_described_exceeded_and_relieved() {
    with_each(|session: Session| async move {
        session.ok("create namespace harbour").await;
        session.ok("-n harbour create quota berths --hard=count/configmaps=3,secrets=1").await;
        let wait = async |used: &str| {
            let condition = format!("--for=jsonpath={{.status.used.count/configmaps}}={used}");
            session.ok(&format!("-n harbour wait quota/berths {condition} --timeout=50s")).await;
        };
        // The CA bundle counts.
        wait("1").await;
        session.ok("-n harbour create configmap argo").await;
        session.ok("-n harbour create configmap vega").await;
        wait("3").await;
        let refused = session.refused(&["-n", "harbour", "create", "configmap", "lyra"]).await;
        let message = "configmaps \"lyra\" is forbidden: exceeded quota: berths, requested: count/configmaps=1, used: \
                       count/configmaps=3, limited: count/configmaps=3";
        assert!(refused.contains(message), "{refused}");
        session.ok("create configmap lyra").await;
        session.ok("-n harbour create secret generic key").await;
        let refused = session.refused(&["-n", "harbour", "create", "secret", "generic", "other"]).await;
        assert!(refused.contains("requested: secrets=1, used: secrets=1, limited: secrets=1"), "{refused}");

        let table = session.ok("-n harbour get quota").await;
        assert!(table.contains("count/configmaps: 3/3, secrets: 1/1"), "{table}");
        let described = session.ok("-n harbour describe quota berths").await;
        let lines: Vec<Vec<_>> = described.lines().map(|line| line.split_whitespace().collect()).collect();
        for line in [["count/configmaps", "3", "3"], ["secrets", "1", "1"]] {
            assert!(lines.iter().any(|found| *found == line), "{described}");
        }

        session.ok("-n harbour delete configmap argo").await;
        wait("2").await;
        session.ok("-n harbour create configmap lyra").await;
        let refused = session.refused(&["-n", "harbour", "create", "quota", "odd", "--hard=unicorns=1"]).await;
        assert!(refused.contains("must be a standard resource for quota"), "{refused}");
    })
    .await;
}
