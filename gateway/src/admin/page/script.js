// The admin page of the gateway. All displayed data is untrusted, so it is inserted as text, never as markup.
'use strict';

const API = '/services/fairlead/v1/';
const SHARDS = '/clusters/root/apis/core.kcp.io/v1alpha1/shards/';
const CORDON = 'experimental.core.kcp.io/unschedulable';
const DRAIN = 'fairlead.dev/drain';
const POLL_INTERVAL = 2000;
const MAX_SAMPLES = 150;
const STAGES = ['accept', 'tls', 'auth', 'route', 'queue', 'upstream_connect'];

const samples = [];
const state = { paused: false, failing: 0, status: null, top: null, polls: 0, timer: 0, polling: false, busy: new Set() };

// ---- Elements

const id = (name) => document.getElementById(name);

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === 'data') Object.assign(made.dataset, value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function svgElement(name, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const tag = (text, tone = '') => element('span', { className: 'tag', data: { tone } }, text);

// Updates the rows of a table in place, so that focus and scroll position stay.
function fill(table, items, key, cells) {
  const body = id(table).tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  items.forEach((item, place) => {
    const name = key(item);
    let row = known.get(name);
    known.delete(name);
    if (!row) {
      row = element('tr');
      row.dataset.key = name;
    }
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
    cells(item).forEach((made, column) => {
      const cell = row.cells[column];
      if (!cell) row.append(made);
      else if (!cell.isEqualNode(made)) {
        const focus = cell.contains(document.activeElement) ? document.activeElement.name : null;
        row.replaceChild(made, cell);
        if (focus) made.querySelector(`[name="${focus}"]`)?.focus();
      }
    });
  });
  for (const row of known.values()) row.remove();
}

const named = (text) => element('td', { className: text.length < 40 ? 'name' : '' }, element('strong', {}, text));
const cell = (...children) => element('td', {}, ...children);
const number = (text) => element('td', { className: 'number' }, text);

// ---- Formatting

const count = new Intl.NumberFormat('en');
const rate = (value) => (value >= 100 ? count.format(Math.round(value)) : value >= 10 ? value.toFixed(1) : value > 0 ? value.toFixed(2) : '0');

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${rate(value)} ${units[unit]}`;
}

function time(seconds) {
  if (seconds === null) return '–';
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toPrecision(seconds < 0.1 ? 2 : 3)} ms`;
  return `${seconds.toPrecision(3)} s`;
}

function span(seconds) {
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24, minutes = Math.floor(seconds / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);

// ---- Polling

class HttpError extends Error {}

async function requestJson(path, options = {}) {
  const response = await fetch(path, { cache: 'no-store', credentials: 'same-origin', ...options });
  const text = await response.text();
  let body = null;
  try { body = JSON.parse(text); } catch { /* handled below */ }
  if (!response.ok || body === null) {
    const message = body && body.message ? body.message : text.trim().slice(0, 300) || response.statusText;
    throw new HttpError(`${response.status}: ${message}`);
  }
  return body;
}

async function poll() {
  clearTimeout(state.timer);
  if (state.paused || document.hidden || state.polling) return;
  state.polling = true;
  try {
    const wantsTop = state.polls++ % 2 === 0;
    const [status, stats, top] = await Promise.all([
      requestJson(`${API}status`), requestJson(`${API}stats`), wantsTop ? requestJson(`${API}top`) : state.top,
    ]);
    Object.assign(state, { status, top, failing: 0 });
    const last = samples[samples.length - 1];
    // Counters start at zero when the gateway restarts.
    if (last && total(stats, 'proxy_request_duration_seconds') < total(last, 'proxy_request_duration_seconds')) samples.length = 0;
    samples.push(stats);
    if (samples.length > MAX_SAMPLES) samples.shift();
    show();
    setLiveState('live', status.draining ? 'live, draining' : 'live');
  } catch (error) {
    state.failing += 1;
    setLiveState('lost', error instanceof HttpError ? `refused: ${error.message}` : 'the gateway does not respond');
  } finally {
    state.polling = false;
    if (!state.paused && !document.hidden) state.timer = setTimeout(poll, POLL_INTERVAL * Math.min(1 + state.failing, 5));
  }
}

function setLiveState(value, text) {
  id('live').dataset.state = value;
  if (id('live-text').textContent !== text) id('live-text').textContent = text;
}

function alarm(text) {
  const close = element('button', { type: 'button', onclick: () => { id('alarm').hidden = true; } }, 'Close');
  id('alarm').replaceChildren(element('span', {}, text), close);
  id('alarm').hidden = false;
}

// ---- Statistics

const family = (stats, name) => stats.families[name] || [];
const fits = (labels, wanted) => Object.entries(wanted).every(([key, value]) => labels[key] === value);
const total = (stats, name, wanted = {}, test = () => true) =>
  family(stats, name).filter((one) => fits(one.labels, wanted) && test(one.labels)).reduce((sum, one) => sum + (one.count ?? one.value), 0);

function perSecond(name, wanted, test) {
  if (samples.length < 2) return 0;
  const now = samples[samples.length - 1], then = samples[Math.max(0, samples.length - 4)];
  return Math.max(0, total(now, name, wanted, test) - total(then, name, wanted, test)) / (now.time - then.time);
}

// Sum of the histograms of one family: bucket bounds and cumulative counts between two samples.
function histogramDelta(then, now, name, wanted) {
  const bounds = [], counts = [];
  let all = 0;
  const add = (stats, sign) => {
    for (const one of family(stats, name)) {
      if (!fits(one.labels, wanted)) continue;
      all += sign * one.count;
      one.buckets.forEach(([bound, sum], place) => {
        bounds[place] = bound;
        counts[place] = (counts[place] || 0) + sign * sum;
      });
    }
  };
  add(now, 1);
  if (then) add(then, -1);
  return { bounds, counts, all };
}

function quantile({ bounds, counts, all }, share) {
  if (!(all > 0)) return null;
  const rank = share * all;
  const place = counts.findIndex((sum) => sum >= rank);
  if (place < 0) return bounds[bounds.length - 1] ?? null;
  const low = place > 0 ? bounds[place - 1] : 0, below = place > 0 ? counts[place - 1] : 0;
  return low + (bounds[place] - low) * ((rank - below) / Math.max(counts[place] - below, 1));
}

// Each point covers ten seconds, so that a low rate of requests still results in a line.
function timeline(name, wanted, share) {
  return samples.slice(1).map((now, place) => {
    const then = samples[Math.max(0, place - 4)];
    return { at: now.time, value: quantile(histogramDelta(then, now, name, wanted), share) };
  });
}

function latest(name, wanted, share) {
  if (samples.length === 0) return null;
  const now = samples[samples.length - 1], then = samples.length > 1 ? samples[Math.max(0, samples.length - 31)] : null;
  return quantile(histogramDelta(then, now, name, wanted), share);
}

// ---- Display

function show() {
  const { status } = state;
  id('about').textContent = `version ${status.version}, up for ${span(status.uptimeSeconds)}${status.synced ? '' : ', not all shards have been read yet'}`;
  showTiles();
  showShards(status.shards);
  showWorkspaces();
  showListeners(status.listeners);
  showCertificates(status.certificates);
  showReloads(status.reloads);
  showPlots();
}

function showTiles() {
  const now = samples[samples.length - 1];
  const requests = 'proxy_request_duration_seconds';
  const failed = perSecond(requests, {}, (labels) => Number(labels.code) >= 500);
  const tiles = [
    ['Requests/s', rate(perSecond(requests, {}))],
    ['Server errors/s', rate(failed), failed > 0 ? 'bad' : ''],
    ['Refused/s (4xx)', rate(perSecond(requests, {}, (labels) => labels.code >= '400' && labels.code < '500'))],
    ['Open watches', count.format(total(now, 'fairlead_gateway_requests_open', { class: 'watch' }))],
    ['Connections', count.format(total(now, 'fairlead_connections_open'))],
    ['Workspaces', count.format(state.status.shards.reduce((sum, shard) => sum + shard.workspaces, 0))],
  ];
  const made = tiles.map(([name, value, tone = '']) => element('div', { data: { tone } }, element('dt', {}, name), element('dd', {}, value)));
  id('tiles').replaceChildren(...made);
}

function shardTags(shard) {
  const tags = [];
  if (shard.circuitOpen) tags.push(tag('cannot be reached', 'bad'));
  else if (!shard.synced) tags.push(tag('not read yet', 'warn'));
  else if (!shard.watching) tags.push(tag('not watched', 'bad'));
  else if (shard.healthy === false) tags.push(tag('failing', 'bad'));
  else tags.push(tag('healthy', 'good'));
  if (shard.circuitOpenFor?.length) tags.push(tag(`cannot be reached by ${shard.circuitOpenFor.join(', ')}`, 'bad'));
  if (shard.ejected?.length) tags.push(tag(`${shard.ejected.length} of ${shard.addresses} addresses ejected`, 'warn'));
  if (shard.unschedulable) tags.push(tag('cordoned', 'warn'));
  if (shard.draining) tags.push(tag('draining', 'warn'));
  if (shard.excluded && !shard.unschedulable && !shard.draining) tags.push(tag(shard.excluded, 'warn'));
  return tags;
}

function shareOf(shard, most) {
  const width = most > 0 ? (100 * shard.workspaces) / most : 0;
  const bar = svgElement('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svgElement('rect', { width, height: 10 }));
  const of = shard.capacity ? ` of ${count.format(shard.capacity)}` : '';
  return element('div', { className: 'share' }, bar, element('span', {}, count.format(shard.workspaces) + of));
}

function showShards(shards) {
  const most = Math.max(...shards.map((shard) => shard.capacity || shard.workspaces), 1);
  const name = 'fairlead_gateway_request_duration_seconds';
  fill('shards', shards, (shard) => shard.name, (shard) => {
    const wanted = { shard: shard.name };
    const trouble = !shard.watching && shard.lastError ? element('small', {}, shard.lastError) : null;
    const work = shard.open === null ? '–' : `${count.format(shard.open)}${shard.limit === null ? '' : ` of ${count.format(shard.limit)}`}${shard.waiting ? `, ${count.format(shard.waiting)} wait` : ''}`;
    return [
      cell(element('strong', {}, shard.name), element('small', {}, shard.url)),
      cell(...shardTags(shard), trouble),
      cell(shareOf(shard, most)),
      number(rate(perSecond(name, wanted))),
      number(time(latest(name, { ...wanted, class: 'read' }, 0.5))),
      number(time(latest(name, { ...wanted, class: 'read' }, 0.99))),
      number(work),
      cell(element('div', { className: 'actions' },
        action(shard, 'cordon', shard.unschedulable ? 'Uncordon' : 'Cordon', CORDON, shard.unschedulable),
        action(shard, 'drain', shard.draining ? 'End drain' : 'Drain', DRAIN, shard.draining))),
    ];
  });
}

const ACTION_TEXTS = {
  Cordon: 'It gets no new workspaces. Existing ones stay and are served as before.',
  Uncordon: 'It gets new workspaces again.',
  Drain: 'It gets no new workspaces, because it is being drained. Existing ones stay until they are moved.',
  'End drain': 'It is no longer being drained and gets new workspaces again.',
};

function action(shard, name, text, annotation, isSet) {
  const button = element('button', { type: 'button', name, disabled: state.busy.has(shard.name) }, text);
  button.setAttribute('aria-label', `${text} shard ${shard.name}`);
  button.onclick = () => change(shard, text, annotation, isSet);
  return button;
}

async function change(shard, text, annotation, isSet) {
  if (!(await confirmed(`${text} shard ${shard.name}?`, ACTION_TEXTS[text], text))) return;
  state.busy.add(shard.name);
  showShards(state.status.shards);
  try {
    const body = JSON.stringify({ metadata: { annotations: { [annotation]: isSet ? null : 'true' } } });
    const headers = { 'content-type': 'application/merge-patch+json' };
    await requestJson(SHARDS + encodeURIComponent(shard.name), { method: 'PATCH', headers, body });
    id('alarm').hidden = true;
  } catch (error) {
    alarm(`${text} of shard ${shard.name} failed. ${error.message}`);
  } finally {
    state.busy.delete(shard.name);
    showShards(state.status.shards);
    poll();
  }
}

function confirmed(title, text, verb) {
  const dialog = id('confirm');
  id('confirm-title').textContent = title;
  id('confirm-text').textContent = text;
  id('confirm-yes').textContent = verb;
  return new Promise((resolve) => {
    let isConfirmed = false;
    id('confirm-yes').onclick = () => { isConfirmed = true; dialog.close(); };
    id('confirm-no').onclick = () => dialog.close();
    dialog.onclose = () => resolve(isConfirmed);
    dialog.showModal();
    id('confirm-no').focus();
  });
}

function showWorkspaces() {
  const all = new Map();
  const add = (list, key, value) => (list || []).forEach((one) => {
    const known = all.get(one.cluster) || { cluster: one.cluster, path: one.path, requests: 0, bytes: 0, errors: 0, watches: 0 };
    known[key] = one[value];
    all.set(one.cluster, known);
  });
  add(state.top?.requests, 'requests', 'perSecond');
  add(state.top?.bytes, 'bytes', 'perSecond');
  add(state.top?.errors, 'errors', 'perSecond');
  add(state.top?.watches, 'watches', 'open');
  const busiest = [...all.values()].sort((one, other) => other.requests - one.requests || other.watches - one.watches).slice(0, 12);
  fill('workspaces', busiest, (one) => one.cluster, (one) => [
    cell(element('strong', {}, one.path || one.cluster), one.path ? element('small', {}, one.cluster) : null),
    number(rate(one.requests)), number(bytes(one.bytes)), number(rate(one.errors)), number(count.format(one.watches)),
  ]);
  id('workspaces').hidden = busiest.length === 0;
  id('no-workspaces').hidden = busiest.length > 0;
}

function showListeners(listeners) {
  const now = samples[samples.length - 1];
  fill('listeners', listeners, (listener) => listener.name, (listener) => [
    named(listener.name), element('td', { className: 'name' }, listener.address),
    number(count.format(total(now, 'fairlead_connections_open', { listener: listener.name }))),
    number(rate(perSecond('fairlead_gateway_request_duration_seconds', { listener: listener.name }))),
    cell(...listener.policy.map((words) => tag(words))),
  ]);
  const select = id('explain-listener');
  const names = listeners.map((listener) => listener.name);
  if ([...select.options].map((option) => option.value).join('\n') !== names.join('\n')) {
    select.replaceChildren(...names.map((name) => element('option', {}, name)));
  }
}

function showCertificates(certificates) {
  const now = Date.now() / 1000;
  const sorted = [...certificates].sort((one, other) => (one.notAfter ?? 0) - (other.notAfter ?? 0));
  fill('certificates', sorted, (one) => one.object, (one) => {
    if (one.notAfter === null) return [cell(one.object), number(tag('unreadable', 'bad')), cell(one.error || '')];
    const days = Math.floor((one.notAfter - now) / 86400);
    const tone = days < 7 ? 'bad' : days < 30 ? 'warn' : '';
    return [cell(one.object), number(tone ? tag(days < 0 ? 'expired' : count.format(days), tone) : count.format(days)), cell(day(one.notAfter))];
  });
}

function showReloads(reloads) {
  const now = Date.now() / 1000;
  const sorted = [...reloads].sort((one, other) => Boolean(other.failure) - Boolean(one.failure) || other.loaded - one.loaded);
  fill('reloads', sorted, (one) => one.object, (one) => [
    cell(one.object, one.failure ? element('small', {}, one.failure) : null),
    cell(`${span(Math.max(0, now - one.loaded))} ago`, one.failure ? ' ' : null, one.failure ? tag('the previous version is in effect', 'bad') : null),
  ]);
}

// ---- Plots

function showPlots() {
  const chosen = (name) => Number(document.querySelector(`input[name="${name}"]:checked`).value);
  const phase = chosen('stages-quantile'), shard = chosen('latency-quantile');
  plot('stages', STAGES.map((name) => ({ name, points: timeline('fairlead_gateway_stage_duration_seconds', { stage: name }, phase) })));
  plot('latency', state.status.shards.slice(0, 8).map(({ name }) => (
    { name, points: timeline('fairlead_gateway_request_duration_seconds', { shard: name, class: 'read' }, shard) })));
}

function plot(place, series) {
  const width = Math.max(id(place).clientWidth, 260), height = 230, left = 52, right = 8, top = 10, bottom = 22;
  const values = series.flatMap((one) => one.points.map((point) => point.value)).filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...values, 1e-4))), high = Math.ceil(Math.log10(Math.max(...values, 1e-2)));
  const until = samples[samples.length - 1]?.time ?? 0;
  // The time range of the samples, at least a minute.
  const shown = Math.min(Math.max(until - (samples[0]?.time ?? until), 60), (MAX_SAMPLES * POLL_INTERVAL) / 1000), from = until - shown;
  const step = (shown <= 90 ? 15 : shown <= 180 ? 30 : 60) * (width < 420 ? 2 : 1);
  const x = (at) => left + ((at - from) / (until - from)) * (width - left - right);
  const y = (value) => height - bottom - ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (height - top - bottom);
  const summary = series.map((one) => `${one.name} ${time(one.points.at(-1)?.value ?? null)}`).join(', ');
  const svg = svgElement('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${id(`${place}-title`).textContent}, now: ${summary}` });
  for (let power = low; power <= high; power += 1) {
    const at = y(10 ** power);
    const label = svgElement('text', { x: left - 8, y: at + 4, 'text-anchor': 'end' });
    label.append(time(10 ** power));
    svg.append(svgElement('line', { class: 'grid', x1: left, x2: width - right, y1: at, y2: at }), label);
  }
  for (let ago = 0; ago <= shown; ago += step) {
    const label = svgElement('text', { x: x(until - ago), y: height - 4, 'text-anchor': ago === 0 ? 'end' : x(until - ago) < left + 20 ? 'start' : 'middle' });
    label.append(ago === 0 ? 'now' : step % 60 !== 0 ? `−${ago} s` : `−${ago / 60} min`);
    svg.append(label);
  }
  series.forEach((one, number) => {
    let path = '', isOn = false;
    for (const { at, value } of one.points) {
      if (value === null) { isOn = false; continue; }
      path += `${isOn ? 'L' : 'M'}${x(at).toFixed(1)},${y(value).toFixed(1)}`;
      if (!isOn) path += 'h0.1';
      isOn = true;
    }
    svg.append(svgElement('path', { class: `series s${number % 8}`, d: path || 'M0,0' }));
  });
  const legend = element('ul', { className: 'legend' });
  const label = (at) => series.forEach((one, number) => {
    legend.children[number].lastChild.textContent = time(one.points[at]?.value ?? null);
  });
  series.forEach((one, number) => {
    const mark = svgElement('svg', { viewBox: '0 0 26 10', 'aria-hidden': 'true' }, svgElement('path', { class: `series s${number % 8}`, d: 'M1,5H25', fill: 'none', 'stroke-width': 2.5 }));
    const isEmpty = one.points.every((point) => point.value === null);
    legend.append(element('li', { className: isEmpty ? 'none' : '' }, mark, element('span', {}, one.name), element('b', {}, '–')));
  });
  const last = samples.length - 2;
  label(last);
  const rule = svgElement('line', { class: 'rule', y1: top, y2: height - bottom, visibility: 'hidden' });
  svg.append(rule);
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const at = from + (((event.clientX - box.left) / box.width * width - left) / (width - left - right)) * (until - from);
    const nearest = samples.slice(1).reduce((best, one, number) => (
      Math.abs(one.time - at) < Math.abs((samples[best + 1]?.time ?? 0) - at) ? number : best), 0);
    if (!samples[nearest + 1]) return;
    const where = x(samples[nearest + 1].time);
    rule.setAttribute('x1', where);
    rule.setAttribute('x2', where);
    rule.setAttribute('visibility', 'visible');
    label(nearest);
  };
  svg.onpointerleave = () => { rule.setAttribute('visibility', 'hidden'); label(last); };
  id(place).replaceChildren(svg, legend);
}

// ---- Explain

async function explain(event) {
  event.preventDefault();
  const target = id('explain-path').value.trim();
  const credential = id('explain-credential').value.trim();
  const path = target.startsWith('/') ? target : `/clusters/${target}`;
  const body = { path, method: id('explain-method').value };
  if (id('explain-listener').value) body.listener = id('explain-listener').value;
  if (credential.includes('-----BEGIN')) {
    const found = credential.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g);
    body.certificate = (found || ['']).join('\n');
  } else if (credential) body.token = credential;
  const place = id('explained');
  place.replaceChildren(element('p', { className: 'quiet' }, 'Loading…'));
  try {
    const headers = { 'content-type': 'application/json' };
    place.replaceChildren(...explained(await requestJson(`${API}explain`, { method: 'POST', headers, body: JSON.stringify(body) })));
  } catch (error) {
    place.replaceChildren(element('p', { className: 'verdict', data: { tone: 'bad' } }, error.message));
  }
}

function explained({ request, steps, user, forward, response }) {
  const shown = [];
  if (forward) shown.push(element('p', { className: 'verdict', data: { tone: 'good' } }, `Forwarded to ${forward.server}: ${forward.url}`));
  else if (response) {
    const tone = response.code >= 400 ? 'bad' : '';
    shown.push(element('p', { className: 'verdict', data: { tone } }, `Response ${response.code} (${response.reason})${response.message ? `: ${response.message}` : ''}${response.location ? `, to ${response.location}` : ''}`));
  } else shown.push(element('p', { className: 'verdict', data: { tone: 'bad' } }, 'The connection is closed without a response'));
  if (user) {
    const dropped = user.droppedGroups.length ? `; dropped: ${user.droppedGroups.join(', ')}` : '';
    shown.push(element('p', {}, `User ${user.name}, authenticated by ${user.authenticatedBy}, in groups ${user.groups.join(', ')}${dropped}`));
  }
  shown.push(element('p', { className: 'quiet' }, `${request.method} ${request.url}, a ${request.class} at listener ${request.listener} from ${request.client}`));
  const marks = { passed: ['✓', 'passed'], refused: ['✗', 'refused'], info: ['·', 'info'] };
  shown.push(element('ol', { className: 'steps' }, ...steps.map((step, place) => {
    const [mark, word] = marks[step.result] || marks.info;
    return element('li', { data: { result: step.result } },
      element('span', { className: 'at' }, steps[place - 1]?.stage === step.stage ? '' : step.stage),
      element('span', { className: 'mark', title: word }, mark),
      element('span', {}, step.message));
  })));
  if (forward) shown.push(element('pre', {}, forward.headers.map(([name, value]) => `${name}: ${value}`).join('\n')));
  return shown;
}

// ---- Start

id('explain').addEventListener('submit', explain);
id('pause').addEventListener('click', () => {
  state.paused = !state.paused;
  id('pause').setAttribute('aria-pressed', String(state.paused));
  id('pause').textContent = state.paused ? 'Resume' : 'Pause';
  if (state.paused) setLiveState('paused', 'paused');
  else poll();
});
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); else clearTimeout(state.timer); });
for (const input of document.querySelectorAll('.choice input')) input.addEventListener('change', () => { if (state.status) showPlots(); });
addEventListener('resize', () => { if (state.status) showPlots(); });
poll();
