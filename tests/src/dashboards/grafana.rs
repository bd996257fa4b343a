//! Converts dashboards to the format of Grafana 10 and newer.

use serde_json::{Map, Value, json};

use super::source::{Dashboard, GoodDirection, Kind, Panel, Query, Thresholds, Variable};

/// Columns of a page.
const PAGE: u32 = 24;
/// The schema version of Grafana 11. Newer versions migrate it on import.
const SCHEMA: u32 = 39;

/// The content of a file that can be imported or provisioned.
pub fn grafana_json(dashboard: &Dashboard) -> serde_json::Result<String> {
    let whole = json!({
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["fairlead"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "timezone": "browser",
        "templating": { "list": variables(dashboard) },
        "annotations": { "list": annotations() },
        "links": [{
            "type": "dashboards", "tags": ["fairlead"], "title": "Fairlead", "asDropdown": false,
            "includeVars": true, "keepTime": true, "targetBlank": false, "icon": "dashboard",
        }],
        "panels": panels(dashboard),
    });
    let mut text = serde_json::to_string_pretty(&whole)?;
    text.push('\n');
    Ok(text)
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn variables(dashboard: &Dashboard) -> Vec<Value> {
    let datasource = json!({
        "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1,
        "hide": 0, "multi": false, "includeAll": false, "regex": "", "options": [], "skipUrlSync": false,
    });
    let chosen = |variable: &Variable| {
        json!({
            "name": variable.name(), "label": capitalized(variable.name()), "type": "query", "datasource": source(),
            "definition": variable.values(), "query": { "query": variable.values(), "refId": variable.name() },
            "refresh": 2, "sort": 1, "hide": 0, "multi": true, "includeAll": true, "allValue": ".*", "regex": "",
            "current": { "selected": true, "text": ["All"], "value": ["$__all"] }, "options": [], "skipUrlSync": false,
        })
    };
    std::iter::once(datasource).chain(dashboard.variables.iter().map(chosen)).collect()
}

/// Events, shown as lines across all panels.
pub(crate) const EVENTS: [(&str, &str, &str); 2] = [
    (
        "Restarts",
        "changes(process_start_time_seconds{job=~\"fairlead.*\"}[1m]) > 0",
        "{{instance}} has restarted",
    ),
    (
        "Reloads",
        "changes(fairlead_reload_last_success_timestamp_seconds[1m]) > 0",
        "{{instance}} has reloaded the {{object}}",
    ),
];

fn annotations() -> Vec<Value> {
    let event = |(name, expr, text): (&str, &str, &str)| {
        json!({
            "name": name, "datasource": source(), "enable": true, "hide": false, "iconColor": "orange",
            "expr": expr, "step": "30s", "titleFormat": text, "useValueForTime": false,
        })
    };
    EVENTS.into_iter().map(event).collect()
}

fn panels(dashboard: &Dashboard) -> Vec<Value> {
    let mut all = Vec::new();
    let (mut top, mut id) = (0, 0);
    for row in &dashboard.rows {
        id += 1;
        let place = json!({ "h": 1, "w": PAGE, "x": 0, "y": top });
        all.push(json!({
            "id": id, "type": "row", "title": row.title, "collapsed": false, "gridPos": place, "panels": [],
        }));
        top += 1;
        let (mut left, mut tallest) = (0, 0);
        for panel in &row.panels {
            if left + panel.width > PAGE {
                top += tallest;
                (left, tallest) = (0, 0);
            }
            id += 1;
            let place = json!({ "h": panel.height, "w": panel.width, "x": left, "y": top });
            all.push(Value::Object(self::panel(panel, id, place)));
            left += panel.width;
            tallest = tallest.max(panel.height);
        }
        top += tallest;
    }
    all
}

fn panel(panel: &Panel, id: u32, place: Value) -> Map<String, Value> {
    let (kind, options) = look(panel.kind);
    let mut all = Map::new();
    let targets = panel.queries.iter().enumerate().map(|(index, query)| target(panel.kind, index, query));
    let parts = [
        ("id", json!(id)),
        ("type", json!(kind)),
        ("title", json!(panel.title)),
        ("description", json!(format!("**{}** {}", panel.question, panel.action))),
        ("gridPos", place),
        ("datasource", source()),
        ("fieldConfig", json!({ "defaults": defaults(panel), "overrides": overrides(panel) })),
        ("options", options),
        ("targets", targets.collect()),
    ];
    all.extend(parts.map(|(key, value)| (key.to_owned(), value)));
    if panel.kind == Kind::Table {
        all.insert("transformations".to_owned(), transformations(panel));
    }
    if let Some(more) = &panel.more {
        let url = format!("/d/{more}?${{__url_time_range}}&var-datasource=${{datasource}}");
        all.insert("links".to_owned(), json!([{ "title": "More", "url": url, "targetBlank": false }]));
    }
    all
}

fn look(kind: Kind) -> (&'static str, Value) {
    let last = json!({ "calcs": ["lastNotNull"], "fields": "", "values": false });
    match kind {
        Kind::Timeseries => (
            "timeseries",
            json!({
                "legend": { "displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": ["lastNotNull", "max"] },
                "tooltip": { "mode": "multi", "sort": "desc" },
            }),
        ),
        Kind::Stat => (
            "stat",
            json!({
                "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto",
                "textMode": "auto", "reduceOptions": last,
            }),
        ),
        Kind::Bars => (
            "bargauge",
            json!({
                "displayMode": "basic", "orientation": "horizontal", "showUnfilled": true, "valueMode": "text",
                "reduceOptions": last,
            }),
        ),
        Kind::Table => ("table", json!({ "showHeader": true, "cellHeight": "sm" })),
    }
}

fn defaults(panel: &Panel) -> Value {
    let mut all = Map::new();
    all.insert("unit".to_owned(), json!(panel.unit));
    all.insert("min".to_owned(), if panel.log { Value::Null } else { json!(0) });
    if let Some(most) = panel.max {
        all.insert("max".to_owned(), json!(most));
    }
    if let Some(decimals) = panel.decimals {
        all.insert("decimals".to_owned(), json!(decimals));
    }
    let by_threshold = panel.kind != Kind::Timeseries && panel.thresholds.is_some();
    let mode = if by_threshold { "thresholds" } else { "palette-classic" };
    all.insert("color".to_owned(), json!({ "mode": mode }));
    all.insert("thresholds".to_owned(), json!({ "mode": "absolute", "steps": steps(panel.thresholds) }));
    if panel.kind == Kind::Timeseries {
        let scale = if panel.log { json!({ "type": "log", "log": 10 }) } else { json!({ "type": "linear" }) };
        let stacking = if panel.stack { "normal" } else { "none" };
        let line = if panel.thresholds.is_some() { "dashed" } else { "off" };
        let custom = json!({
            "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "showPoints": "never", "spanNulls": false,
            "fillOpacity": if panel.stack { 40 } else { 8 }, "scaleDistribution": scale,
            "stacking": { "group": "A", "mode": stacking }, "thresholdsStyle": { "mode": line },
            "axisPlacement": "auto", "axisLabel": "",
        });
        all.insert("custom".to_owned(), custom);
    }
    Value::Object(all)
}

/// Grafana's steps ascend from minus infinity.
fn steps(thresholds: Option<Thresholds>) -> Value {
    let Some(Thresholds { good, warning, bad }) = thresholds else {
        return json!([{ "color": "text", "value": null }]);
    };
    match good {
        GoodDirection::Below if warning < bad => json!([
            { "color": "green", "value": null }, { "color": "orange", "value": warning }, { "color": "red", "value": bad },
        ]),
        GoodDirection::Below => {
            json!([{ "color": "green", "value": null }, { "color": "red", "value": bad }])
        }
        GoodDirection::Above => json!([
            { "color": "red", "value": null }, { "color": "orange", "value": bad }, { "color": "green", "value": warning },
        ]),
    }
}

/// `A`, `B`, ..
fn letter(index: usize) -> String {
    char::from_u32('A' as u32 + u32::try_from(index).unwrap_or_default()).unwrap_or('A').to_string()
}

fn target(kind: Kind, index: usize, query: &Query) -> Value {
    let over_time = matches!(kind, Kind::Timeseries | Kind::Stat);
    json!({
        "refId": letter(index), "datasource": source(), "expr": query.expr, "legendFormat": query.legend,
        "editorMode": "code", "range": over_time, "instant": !over_time,
        "format": if kind == Kind::Table { "table" } else { "time_series" },
    })
}

/// Grafana's name of a query's values in a table.
fn values(panel: &Panel, index: usize) -> String {
    if panel.queries.len() == 1 { "Value".to_owned() } else { format!("Value #{}", letter(index)) }
}

fn transformations(panel: &Panel) -> Value {
    let labels = panel.columns.iter().map(|column| (column.label.clone(), column.title.clone()));
    let numbers =
        panel.queries.iter().enumerate().map(|(index, query)| (values(panel, index), query.title.clone()));
    let names: Vec<(String, String)> = labels.chain(numbers).collect();
    let order: Map<_, _> =
        names.iter().enumerate().map(|(index, (name, _))| (name.clone(), json!(index))).collect();
    let titles: Map<_, _> = names.into_iter().map(|(name, title)| (name, json!(title))).collect();
    json!([
        { "id": "merge", "options": {} },
        { "id": "organize", "options": {
            "excludeByName": { "Time": true }, "indexByName": order, "renameByName": titles,
        } },
    ])
}

fn overrides(panel: &Panel) -> Vec<Value> {
    let unit = |query: &Query| {
        let mut properties = vec![json!({ "id": "unit", "value": query.unit.as_ref()? })];
        properties.extend(query.decimals.map(|decimals| json!({ "id": "decimals", "value": decimals })));
        Some(json!({ "matcher": { "id": "byName", "options": query.title }, "properties": properties }))
    };
    let is_table = panel.kind == Kind::Table;
    panel.queries.iter().filter(|_| is_table).filter_map(unit).collect()
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
