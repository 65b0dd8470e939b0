// The dashboard. Everything from Redis is put on the page as text (`textContent`), never as markup.
'use strict';

const main = document.getElementById('main');
const statusLine = document.getElementById('status');
const EVERY_MS = 5000;
const DAY_MS = 86_400_000;
let session = { can_act: false, handlers: [] };
let token = sessionStorage.getItem('token') || '';
let timer = null;
let turn = 0;

// Elements.

/** An element: its attributes, and its content as text or elements. */
function el(name, attributes, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === 'on') made.addEventListener(value[0], value[1]);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? '' : value);
  }
  for (const part of content.flat(Infinity)) {
    if (part === null || part === undefined) continue;
    made.append(part instanceof Node ? part : document.createTextNode(String(part)));
  }
  return made;
}

function place(...path) { return '#/' + path.map((part) => encodeURIComponent(part)).join('/'); }
function link(text, ...path) { return el('a', { href: place(...path) }, text); }
/** What to do where nothing is there yet: texts, and commands between them. */
function empty(...parts) {
  return el('p', { class: 'empty' }, parts.map((part, at) => at % 2 ? el('code', {}, part) : part));
}

function table(label, titles, rows, nothing) {
  if (rows.length === 0) return nothing || el('p', { class: 'note' }, 'none');
  const isNumber = titles.map((_, at) => rows.some((row) => typeof row[at] === 'number'));
  const head = el('tr', {}, titles.map((title, at) => el('th', { scope: 'col', class: isNumber[at] ? 'number' : null }, title)));
  const body = rows.map((row) => el('tr', {}, row.map((cell, at) => {
    if (at === 0) return el('th', { scope: 'row' }, cell);
    if (cell instanceof Node && cell.tagName === 'TD') return cell;
    return el('td', { class: isNumber[at] ? 'number' : null }, cell === null || cell === undefined ? '-' : cell);
  })));
  // Keys scroll it where it is wider than the screen.
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    el('table', {}, el('caption', { hidden: true }, label), el('thead', {}, head), el('tbody', {}, body)));
}

function wide(text) { return el('td', { class: 'wide' }, text === null || text === undefined ? '-' : text); }
function facts(pairs) {
  return el('dl', {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}
/** A moment in UTC, as the logs have it. The hint is the local time. */
function time(ms) {
  if (!ms) return '-';
  const at = new Date(ms);
  return el('time', { datetime: at.toISOString(), title: at.toString() }, at.toISOString().replace('T', ' ').slice(0, 19) + 'Z');
}
function age(ms) {
  if (ms === null || ms === undefined) return '-';
  const s = Math.floor(ms / 1000);
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d';
}
function short(value) {
  if (value >= 1e6) return +(value / 1e6).toFixed(1) + 'M';
  if (value >= 1e4) return +(value / 1e3).toFixed(1) + 'k';
  return String(+value.toFixed(value < 10 ? 2 : 1));
}
function many(count, word) { return `${short(count)} ${word}${count === 1 ? '' : 's'}`; }
const STATES = { unserved: 'no hosts', 'not-ready': 'not ready', refused: 'version refused' };
function digest(text) { return text ? text.slice(0, 19) : '-'; }
function say(text, isBad) {
  statusLine.textContent = text;
  statusLine.className = isBad ? 'bad' : '';
}

// What a queue does, in one line.

/** How many causes the dead letters of a key have, as they were at that count. */
const causes = new Map();
/** More dead letters than these are counted by cause only where they are shown. */
const COUNTED_MAX = 5000;

async function countCauses(key, count) {
  if (!key || !count || count > COUNTED_MAX || (causes.get(key) || {}).of === count) return false;
  const found = await get('groups', { key });
  causes.set(key, { of: count, causes: found.groups.length });
  return true;
}

function stateLine(queue) {
  const words = [];
  if (queue.attempts_per_second !== null) words.push(`${short(queue.attempts_per_second)}/s`);
  if (queue.oldest_pending_ms) words.push(`oldest ${age(queue.oldest_pending_ms)}`);
  const dead = queue.dead_letters;
  const known = causes.get(queue.dead_letter_key);
  const says = dead ? (known && known.of === dead ? many(known.causes, 'cause') : many(dead, 'dead letter')) : null;
  return [
    el('span', { class: `state ${queue.state}` }, STATES[queue.state] || queue.state),
    words.map((word) => `, ${word}`),
    says ? [', ', el('span', { class: 'dead' }, queue.dead_letter_key ? el('a', { href: place('queue', queue.queue, queue.group || '', 'dead') }, says) : says)] : null,
  ];
}

function troubles(queue) { return [...queue.trouble, queue.problem].filter(Boolean); }

/** How much a queue needs a person: the greatest first. */
function severity(queue) {
  const waits = (queue.lag || 0) + queue.pending > 0;
  if (queue.state === 'stopped') return 6;
  if (queue.state === 'unserved' && waits) return 5;
  if (queue.state === 'not-ready') return 4;
  if (queue.state === 'refused' || troubles(queue).length) return 3;
  if (queue.dead_letters) return 2;
  return queue.state === 'paused' ? 1 : 0;
}

function byTrouble(queues) {
  return [...queues].sort((a, b) => severity(b) - severity(a) || (b.oldest_pending_ms || 0) - (a.oldest_pending_ms || 0) || a.queue.localeCompare(b.queue));
}

// Charts. They stay while the page of their queue does, so that a look at one is not disturbed.

const CHARTS = [
  ['Attempts per second', '/s', [['attempts', (p) => p.rate]]],
  ['Age of the oldest message that a host has', ' s', [['oldest', (p) => p.oldest_ms === null ? null : p.oldest_ms / 1000]]],
  ['Run time', ' ms', [['mean', (p) => p.run_ms], ['99 % within', (p) => p.run_p99_ms]]],
  ['Messages', '', [['unread', (p) => p.lag], ['pending', (p) => p.pending]]],
  ['Dead letters', '', [['dead letters', (p) => p.dead]]],
];
const RANGES = [['15 min', 15], ['1 h', 60], ['6 h', 360], ['24 h', 1440]];
/** Points further apart than this have no line between them. */
const GAP_MS = 660_000;
let range = Number(sessionStorage.getItem('range')) || 15;
let charts = null;

/** A colour of the style, as the canvas needs it. */
function resolved(name) {
  const probe = document.getElementById('status');
  const before = probe.style.color;
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = before;
  return found;
}

/** The charts of a queue, with these points added. */
function chartsOf(key, points) {
  if (!charts || charts.key !== key) {
    endCharts();
    charts = makeCharts(key);
  }
  const known = charts.points;
  const last = known.length ? known[known.length - 1].at_ms : 0;
  known.push(...points.filter((point) => point.at_ms > last));
  while (known.length && known[0].at_ms < Date.now() - DAY_MS) known.shift();
  drawCharts();
  return charts.node;
}

function endCharts() {
  if (!charts) return;
  charts.observer.disconnect();
  for (const one of charts.all) one.plot.destroy();
  charts = null;
}

function makeCharts(key) {
  const all = CHARTS.map(([title, unit, lines]) => {
    const box = el('div', { role: 'img' });
    const figure = el('figure', {}, el('figcaption', {}, title), box);
    const axis = { stroke: () => resolved('--soft'), grid: { stroke: () => resolved('--line'), width: 1 }, ticks: { stroke: () => resolved('--line'), width: 1 } };
    const plot = new uPlot({
      width: 300, height: 170,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC'),
      cursor: { sync: { key: 'time' }, y: false, drag: { x: false, y: false } },
      scales: { x: { range: shownTime }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [
        { ...axis, space: 60, values: (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(11, splits[1] - splits[0] < 60 ? 19 : 16)) },
        { ...axis, size: 64, values: (_, splits) => splits.map((value) => short(value) + unit) },
      ],
      series: [
        { label: 'UTC', value: (_, at) => at === null ? '-' : new Date(at * 1000).toISOString().slice(11, 19) },
        ...lines.map(([label], at) => ({
          label, width: 2, stroke: () => resolved(at ? '--warn' : '--link'), points: { size: 4 },
          value: (_, value) => value === null || value === undefined ? '-' : short(value) + unit,
        })),
      ],
    }, [[], ...lines.map(() => [])], box);
    return { title, unit, lines, box, figure, plot };
  });
  const buttons = RANGES.map(([text, minutes]) => el('button', { type: 'button', on: ['click', () => {
    range = minutes;
    sessionStorage.setItem('range', String(minutes));
    drawCharts();
  }] }, text));
  const node = el('section', { 'aria-label': 'History' },
    el('div', { class: 'buttons', role: 'group', 'aria-label': 'Time range' }, buttons),
    el('div', { class: 'charts' }, all.map((one) => one.figure)));
  const observer = new ResizeObserver(() => {
    for (const { box, plot } of all) {
      if (box.clientWidth && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: 170 });
    }
  });
  for (const { box } of all) observer.observe(box);
  return { key, points: [], all, node, buttons, observer };
}

/** The moments at the ends of the charts: less than the range, if less is known. */
function shownTime() {
  const now = Date.now() / 1000;
  const first = charts && charts.points.length ? charts.points[0].at_ms / 1000 : now;
  return [Math.max(now - range * 60, Math.min(first, now - 120)), now];
}

function drawCharts() {
  if (!charts) return;
  charts.buttons.forEach((one, at) => one.setAttribute('aria-pressed', String(RANGES[at][1] === range)));
  const points = [];
  for (const point of charts.points) {
    const last = points[points.length - 1];
    if (last && point.at_ms - last.at_ms > GAP_MS) points.push({ at_ms: last.at_ms + 1 });
    points.push(point);
  }
  const at = points.map((point) => point.at_ms / 1000);
  for (const { title, unit, lines, box, plot } of charts.all) {
    const columns = lines.map(([, of]) => points.map((point) => {
      const value = of(point);
      return value === undefined || Number.isNaN(value) ? null : value;
    }));
    plot.setData([at, ...columns]);
    const words = lines.map(([label], line) => {
      const known = columns[line].filter((value) => value !== null);
      return known.length ? `${label} ${short(known[known.length - 1])}${unit} now, at most ${short(Math.max(...known))}${unit}` : `${label} not known yet`;
    });
    box.setAttribute('aria-label', `${title}: ${words.join('; ')}`);
    // Nothing is pointed at: the legend shows the newest.
    if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: at.length - 1 });
  }
}

// The server.

async function get(path, words) {
  const query = new URLSearchParams(Object.entries(words || {}).filter(([, v]) => v));
  const answer = await fetch(`/ui/api/${path}?${query}`, { headers: { accept: 'application/json' } });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error || answer.statusText);
  return body;
}

async function post(action, body) {
  const answer = await fetch(`/ui/api/act/${encodeURIComponent(action)}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-hostler-token': token },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  let result;
  try { result = JSON.parse(text); } catch (_) { result = { error: text }; }
  if (answer.status === 401) keepToken('');
  if (!answer.ok) throw new Error(result.error || answer.statusText);
  return result;
}

// Signing in. The token stays in this tab, and goes to the server in a header alone.

function keepToken(text) {
  token = text;
  if (text) sessionStorage.setItem('token', text);
  else sessionStorage.removeItem('token');
  document.getElementById('sign').textContent = text ? 'Sign out' : 'Sign in';
}

function canAct() { return session.can_act && token !== ''; }

function signIn() {
  const dialog = document.getElementById('sign-in');
  const input = document.getElementById('token');
  input.value = '';
  dialog.onclose = async () => {
    const given = input.value;
    input.value = '';
    if (dialog.returnValue !== 'sign' || !given) return;
    keepToken(given);
    try {
      await post('sign-in', { on: 'hostler', confirm: 'hostler' });
      await show();
      say('signed in');
    } catch (error) {
      keepToken('');
      say(error.message, true);
    }
  };
  dialog.returnValue = 'cancel';
  dialog.showModal();
  input.focus();
}

/** Ask a person, who types the name of what is concerned; then act. */
function act(title, text, action, body) {
  const dialog = document.getElementById('confirm');
  const name = document.getElementById('confirm-name');
  const button = document.getElementById('confirm-act');
  document.getElementById('confirm-title').textContent = title;
  document.getElementById('confirm-text').textContent = text;
  document.getElementById('confirm-label').textContent = `Type ${body.on} to confirm: `;
  button.textContent = title;
  name.value = '';
  button.disabled = true;
  name.oninput = () => { button.disabled = name.value !== body.on; };
  dialog.onclose = async () => {
    if (dialog.returnValue !== 'act' || name.value !== body.on) return;
    say(`${title} …`);
    try {
      const result = await post(action, { ...body, confirm: name.value });
      await show();
      const done = Object.entries(result).map(([what, value]) => `${what} ${value && typeof value === 'object' ? JSON.stringify(value) : value}`);
      say(action === 'try' ? verdict(title, result) : `${title}: done, ${done.join(', ')}`);
    } catch (error) {
      say(`${title}: ${error.message}`, true);
    }
  };
  dialog.returnValue = 'cancel';
  dialog.showModal();
  name.focus();
}

/** What a handler says to a dead letter, with the end of its log. */
function verdict(title, result) {
  const took = result.duration_us === null ? '' : ` in ${result.duration_us / 1000} ms`;
  const lines = [`${title}: ${result.verdict}${result.fault ? ` (${result.fault})` : ''}${took}`, result.detail, ...result.log];
  return lines.filter(Boolean).join('\n');
}

/** A button of an action; nothing where the page only reads. */
function button(title, text, action, body, isDanger) {
  if (!canAct()) return null;
  return el('button', { type: 'button', class: isDanger ? 'danger' : null, on: ['click', () => act(title, text, action, body)] }, title);
}
function buttons(...all) { return canAct() ? el('p', { class: 'buttons' }, all) : null; }

// Pages.

let wanted = '';

async function queuesPage() {
  const queues = byTrouble(await get('queues'));
  // The causes of those that a person looks at first.
  const first = queues.filter((queue) => queue.dead_letters).slice(0, 10);
  const mine = turn;
  (async () => {
    let isNew = false;
    for (const queue of first) isNew = await countCauses(queue.dead_letter_key, queue.dead_letters) || isNew;
    if (isNew && mine === turn) show();
  })().catch(() => {});
  const titles = ['queue', 'state', 'hosts', 'unread', 'pending', 'run', 'dead'];
  const list = () => table('Queues', titles, queues
    .filter((queue) => (queue.queue + ' ' + (queue.group || '')).includes(wanted))
    .map((queue) => [
      [link(queue.queue, 'queue', queue.queue, queue.group || ''), queue.group ? ` (${queue.group})` : ''],
      [stateLine(queue), troubles(queue).slice(0, 3).map((why) => el('div', { class: 'why' }, why))],
      queue.hosts, queue.lag, queue.pending, queue.run_ms === null ? null : queue.run_ms + ' ms', queue.dead_letters,
    ]), queues.length ? el('p', { class: 'note' }, 'no queue has this in its name')
    : empty('No queue is listed: a host lists its queue when it serves it. Run ', 'hostler run --config hostler.toml', ' or, in a project, ', 'hostler dev', '; ', 'hostler demo', ' shows a queue at work.'));
  const shown = el('div', { id: 'list' }, list());
  const input = el('input', { id: 'filter', type: 'search', autocomplete: 'off', on: ['input', () => {
    wanted = input.value;
    document.getElementById('list').replaceChildren(list());
  }] });
  input.value = wanted;
  const troubled = queues.filter((queue) => severity(queue) > 1).length;
  const rate = queues.reduce((sum, queue) => sum + (queue.attempts_per_second || 0), 0);
  const dead = queues.reduce((sum, queue) => sum + (queue.dead_letters || 0), 0);
  document.title = `${troubled ? `(${troubled}) ` : ''}Queues - hostler`;
  return [
    el('h2', {}, 'Queues'),
    el('p', { class: 'line' }, `${many(queues.length, 'queue')}, ${short(rate)}/s, ${many(dead, 'dead letter')}; `,
      troubled ? el('span', { class: 'dead' }, `${troubled} to look at`) : el('span', { class: 'state serving' }, 'all is well')),
    el('p', {}, el('label', { for: 'filter' }, 'Filter by name '), input),
    shown,
  ];
}

const TABS = [['', 'Overview'], ['dead', 'Dead letters'], ['hosts', 'Hosts'], ['versions', 'Versions'], ['schedules', 'Schedules'], ['limits', 'Limits'], ['policies', 'Policies']];

async function queuePage(name, group, tab, reason) {
  const key = `${name} ${group}`;
  const known = charts && charts.key === key ? charts.points : [];
  const since = known.length ? known[known.length - 1].at_ms : 0;
  const found = await get('queue', { queue: name, group, since });
  const { queue } = found;
  if (tab !== 'dead') countCauses(queue.dead_letter_key, queue.dead_letters).then((isNew) => { if (isNew) show(); }, () => {});
  const counts = { dead: queue.dead_letters, hosts: found.hosts.length, schedules: queue.schedules.length };
  const head = [
    el('h2', {}, name, group ? ` (${group})` : ''),
    el('p', { class: 'line' }, stateLine(queue)),
    troubles(queue).length ? el('ul', { class: 'trouble' }, troubles(queue).map((why) => el('li', {}, why))) : null,
    el('nav', { class: 'tabs', 'aria-label': `Parts of ${name}` }, TABS.map(([word, title]) =>
      el('a', { href: place('queue', name, group || '', ...(word ? [word] : [])), 'aria-current': word === (tab || '') ? 'page' : null },
        title, counts[word] ? ` ${short(counts[word])}` : ''))),
  ];
  const course = tab ? null : chartsOf(key, found.course);
  const parts = {
    dead: () => queue.dead_letter_key ? deadParts(queue.dead_letter_key, reason, ['queue', name, group || '', 'dead'])
      : [empty('This queue keeps no dead letters: messages are tried again without a cap. Set ', `hostler policy set --queue ${name} max_deliveries=5 dead_letter.key=${name}:dead`)],
    hosts: () => hostsParts(found), versions: () => versionsParts(found), schedules: () => schedulesParts(name, queue.schedules),
    limits: () => limitsParts(found),
    policies: () => policiesParts(name, found),
  }[tab] || (() => overviewParts(found, name, group, course));
  return [...head, ...await parts()];
}

function overviewParts({ queue }, name, group, course) {
  const on = { on: name };
  return [
    buttons(
      queue.state === 'paused'
        ? button('Resume', 'All hosts read from the queue again.', 'resume', on)
        : button('Pause', 'All hosts stop reading. Running attempts end.', 'pause', on, true)),
    course,
    el('h3', {}, 'Now'),
    facts([
      ['kind', queue.kind], ['unread', queue.lag], ['pending', queue.pending],
      ['oldest pending', age(queue.oldest_pending_ms)], ['delayed', queue.delayed],
      ['journals', queue.journals || null],
      ['held', queue.on_hold ? `${queue.on_hold}, uncharged` : null],
      ['running', queue.in_flight], ['attempts per second', queue.attempts_per_second],
      ['run time', queue.run_ms === null ? null : `${queue.run_ms} ms on average, 99 % within ${queue.run_p99_ms} ms`],
      ['dead letters', queue.dead_letter_key ? link(`${queue.dead_letters === null ? '?' : queue.dead_letters} in ${queue.dead_letter_key}`, 'queue', name, group || '', 'dead') : null],
    ]),
    canAct() && queue.kind !== 'channel' ? cancelForm(name, group) : null,
  ];
}

function hostsParts({ queue, hosts }) {
  return [table('Hosts', ['host', 'ready', 'running', 'rate/s', 'version', 'from', 'canary', 'refused', 'hostler'], hosts.map((host) => [
    host.consumer, host.not_ready.length ? wide(host.not_ready.join('; ')) : host.paused ? 'paused' : 'yes', host.in_flight,
    host.attempts_per_second, digest(host.handler.current.digest), host.handler.current.origin,
    host.handler.canary ? `${digest(host.handler.canary.digest)} (${host.handler.canary.share})` : null,
    host.handler.refused ? wide(`${host.handler.refused.origin} at ${host.handler.refused.step}: ${host.handler.refused.reason}`) : null,
    host.hostler,
  ]), empty('No host serves this queue. Run ', `hostler run --config FILE`, `, with a file that names ${queue.queue}.`))];
}

function versionsParts({ queue, versions, hosts }) {
  const on = { on: queue.queue };
  return [
    versions.length ? buttons(
      hosts.some((host) => host.handler.canary) ? button('Promote', 'The canary gets all messages, on every host.', 'promote', on) : null,
      button('Roll back', 'Every host goes back to the version before.', 'rollback', on, true)) : null,
    table('Versions', ['version', 'digest', 'by', 'when', 'verdict'], versions.map((version) => [
      String(version.version), digest(version.digest), version.by, time(version.at_ms),
      wide([version.is_wanted ? 'wanted' : '', version.given_up ? `given up by ${version.given_up}` : version.kept ? `kept by ${version.kept}` : ''].filter(Boolean).join(', ')),
    ]), empty('Nothing was deployed: hosts run the file that they were started with. Run ', `hostler deploy handler.wasm --queue ${queue.queue}`, '; hosts take it with ', '--accept-deploys', '.')),
  ];
}

function schedulesParts(on, all) {
  return [table('Schedules', ['schedule', 'when', 'next', 'last', 'missed', 'from', 'problem', ...(canAct() ? ['actions'] : [])], all.map((one) => {
    const of = { on, schedule: one.name };
    return [
      one.name, wide(`${one.cron} ${one.zone}`), wide(one.paused ? 'paused' : one.next_ms.flatMap((ms, at) => [at ? ', ' : '', time(ms)])),
      one.last_ms === null ? null : time(one.last_ms), one.missed, one.source, one.problem === null ? null : wide(one.problem),
      ...(canAct() ? [el('td', {}, button(`Run ${one.name}`, `Publish one message of ${one.name} now.`, 'schedule-run', of), ' ',
        one.paused ? button(`Resume ${one.name}`, 'It has ticks again, from now on.', 'schedule-resume', of)
          : button(`Pause ${one.name}`, 'It has no ticks until it is resumed.', 'schedule-pause', of, true))] : []),
    ];
  }), empty('Nothing is published by the clock. Run ', `hostler schedule add nightly --queue ${on} --help`))];
}

function limitsParts({ queue }) {
  const now = (one) => one.now === null ? null : one.now === 'free' ? 'free' : Object.entries(one.now).map(([word, value]) => `${word} ${value}`).join(', ');
  return [
    table('Limits', ['limit', 'allows', 'by', 'now', 'messages wait since', 'stopped at key'], queue.limits.map((one) => [
      one.name, [one.rate, one.burst ? `burst ${one.burst}` : null, one.concurrency ? `${one.concurrency} at a time` : null].filter(Boolean).join(', '),
      one.by || null, now(one), one.limited_seconds === null ? null : age(one.limited_seconds * 1000), one.key === null ? null : wide(one.key),
    ]), empty('As many messages start as there are slots. Allow fewer, over all hosts: ', `hostler policy set --queue ${queue.queue} 'flow.limit=[{"name":"api","rate":"100/s"}]'`)),
    el('h3', {}, 'Destinations'),
    table('Destinations', ['destination', 'rule', 'requests', 'allowed', 'waiting', 'state'], queue.destinations.map((one) => [
      one.destination, one.rule, one.in_flight, one.allowed, one.waiting,
      one.closed_on ? wide(`closed on ${one.closed_on} of ${one.hosts} hosts, for ${age(one.closed_ms)}: ${one.why}`) : 'open',
    ]), empty('No rule of ', '[[grant.http]]', ' has ', 'adaptive = true', '.')),
  ];
}

function policiesParts(name, { hosts, policies }) {
  const rules = new Map();
  for (const host of hosts) {
    for (const rule of host.rules) {
      const key = JSON.stringify([rule.setting, rule.value, rule.from]);
      rules.set(key, [...(rules.get(key) || []), host.consumer]);
    }
  }
  const ruleRows = [...rules].map(([key, consumers]) => {
    const [setting, value, from] = JSON.parse(key);
    return [setting, value, from, consumers.length === hosts.length ? 'all' : consumers.join(', ')];
  });
  return [
    table('Policies', ['setting', 'value', 'for'], policies.map((policy) => [policy.setting, wide(policy.value), policy.for]),
      empty('No rule of this queue is set in Redis. Hosts take a new one at once: ', `hostler policy set --queue ${name} max_deliveries=5`)),
    canAct() ? policyForm(name) : null,
    el('h3', {}, 'Rules that hosts follow'),
    table('Rules', ['rule', 'value', 'from', 'hosts'], ruleRows),
  ];
}

function policyForm(name) {
  const setting = el('input', { id: 'policy-setting', placeholder: 'max_deliveries', autocomplete: 'off' });
  const value = el('input', { id: 'policy-value', placeholder: '5; empty removes it', autocomplete: 'off' });
  const form = el('form', { class: 'buttons' },
    el('label', { for: 'policy-setting' }, 'Setting'), setting,
    el('label', { for: 'policy-value' }, 'Value'), value,
    el('button', { type: 'submit' }, 'Set the policy'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const text = value.value === '' ? `Remove ${setting.value}.` : `Set ${setting.value} to ${value.value}.`;
    act('Set the policy', text, 'policy', { on: name, setting: setting.value, value: value.value === '' ? null : value.value });
  });
  return form;
}

function cancelForm(name, group) {
  const id = el('input', { id: 'cancel-id', placeholder: 'id of a message', autocomplete: 'off' });
  const form = el('form', { class: 'buttons' },
    el('label', { for: 'cancel-id' }, 'Message'), id,
    el('button', { type: 'submit', class: 'danger' }, 'Cancel it'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    act('Cancel a message', `Cancel ${id.value}. If it runs, its attempt is cut off.`, 'cancel', { on: name, id: id.value, group: group || null });
  });
  return form;
}

/** The dead letters of a key. Links to one reason begin with this path. */
async function deadParts(key, reason, path) {
  const found = await get('dead', { key, reason, limit: '50' });
  const on = reason ? { on: key, reason } : { on: key };
  const list = el('div', { id: 'causes' }, el('p', { class: 'note' }, 'counting …'));
  const mine = turn;
  get('groups', { key }).then((groups) => {
    if (mine !== turn) return;
    causes.set(key, { of: found.total, causes: groups.groups.length });
    list.replaceChildren(table('Causes', ['count', 'what', 'first', 'last', 'newest', 'cause', ...(canAct() ? ['actions'] : [])], groups.groups.map((group) => [
      short(group.count), wide(group.signature), time(group.first_ms), time(group.last_ms), link(group.newest, 'letter', key, group.newest), group.id,
      ...(canAct() ? [el('td', {}, button('Replay these', `Replay ${group.count} dead letters: ${group.signature}`, 'replay', { on: key, signature: group.id }), ' ',
        button('Purge these', `Delete ${group.count} dead letters for good: ${group.signature}`, 'purge', { on: key, signature: group.id }, true))] : []),
    ])), groups.others ? el('p', { class: 'note' }, `of other causes: ${groups.others}`) : '');
  }).catch((error) => { list.textContent = error.message; });
  const reasons = Object.entries(found.by_reason).sort((a, b) => b[1] - a[1]);
  if (found.total === 0) return [empty(`There are no dead letters in ${key}. A message that is dropped, or that fails too often, comes here with its cause.`)];
  return [
    found.served_by ? el('p', { class: 'note' }, `This is a queue that is served: ${found.served_by}`) : null,
    el('p', {}, `${found.total} entries in ${key}`, reason ? ` for ${reason}. ` : '. ', reason ? link('All reasons', ...path) : null, ' ',
      el('button', { type: 'button', on: ['click', () => show(true)] }, 'Look again')),
    buttons(
      button('Replay all', `Move ${found.total} dead letters back.`, 'replay', on),
      button('Purge all', `Delete ${found.total} dead letters for good.`, 'purge', on, true)),
    el('h3', {}, 'By cause'), list,
    el('h3', {}, 'By reason'),
    table('By reason', ['reason', 'count'], reasons.map(([word, count]) => [link(word, ...path, word), count])),
    el('h3', {}, 'Newest'),
    table('Newest', ['id', 'died', 'reason', 'attempts', 'cause', 'detail'], found.entries.map((entry) => [
      link(entry.id, 'letter', key, entry.id), time(entry.died_ms), entry.reason, entry.attempts, entry.signature, wide(entry.detail),
    ])),
  ];
}

async function deadPage(key, reason) {
  return [el('h2', {}, `Dead letters in ${key}`), ...await deadParts(key, reason, ['dead', key])];
}

async function letterPage(key, id) {
  const found = await get('letter', { key, id });
  const on = { on: key, id };
  const named = found.headers.find(([name]) => name === 'x-message-id');
  return [
    el('h2', {}, `Dead letter ${id}`),
    el('p', {}, 'in ', link(key, 'dead', key), ' · ', link('the story of this message', 'message', named ? named[1] : found.source_id || id)),
    buttons(
      button('Replay', 'Move it back to the queue that it died in.', 'replay', on),
      button('Purge', 'Delete it for good.', 'purge', on, true),
      session.handlers.map((handler) => button(`Try ${handler.name}`,
        `Run ${handler.name} (${digest(handler.digest)}) on it once, here, and show its verdict. Nothing is written; what it requests by HTTP is sent.`,
        'try', { ...on, handler: handler.name }))),
    facts([
      ['died', time(found.row.died_ms)], ['reason', found.row.reason], ['detail', found.row.detail],
      ['cause', `${found.row.signature} ${found.cause}`], ['attempts', found.row.attempts],
      ['source', found.row.source], ['id there', found.source_id], ['group', found.group], ['handler', found.handler],
      ['recording', found.recording_bytes && `${found.recording_bytes} bytes: hostler dlq debug ${key} ${id} runs the attempt again`],
      ['not a message', found.defect],
    ]),
    el('h3', {}, 'Log of the last attempt'),
    found.log.length ? el('pre', { tabindex: '0' }, found.log.join('\n')) : el('p', { class: 'note' }, 'none is kept'),
    ...(found.calls.length ? [
      el('h3', {}, 'Calls of the last attempt'),
      ...(found.calls_before ? [el('p', { class: 'note' }, `${found.calls_before} calls before these are not kept`)] : []),
      table('Calls', ['at', 'call', 'answer', 'took', 'bytes'], found.calls.map((call) => [
        `${call.at_ms} ms`, wide(`${call.name} ${call.target}`),
        [call.status, call.error, call.replayed && '(recorded)'].filter(Boolean).join(' '), `${call.ms} ms`, call.bytes,
      ])),
    ] : []),
    el('h3', {}, 'Body'),
    el('p', { class: 'note' }, `${found.body_bytes} bytes${found.is_text ? '' : ', not text'}`),
    el('pre', { tabindex: '0', id: 'body' }, found.body),
    el('h3', {}, 'Deaths'),
    table('Deaths', ['died in', 'for', 'times', 'first', 'last'], found.history.map((d) => [d.queue, d.reason, d.count, time(d.first_ms), time(d.last_ms)])),
    el('h3', {}, 'Headers'),
    table('Headers', ['name', 'value'], found.headers.map(([name, value]) => [name, wide(value)])),
  ];
}

// The story of a message.

const NOW = {
  unread: ['warn', 'waits: no host has read it'], held: ['warn', 'is with a host'], delayed: ['warn', 'waits for its time'],
  settled: ['good', 'is settled'], dead: ['bad', 'is a dead letter'],
};

/** What is known of a copy of a message: moments with a kind, a title and a remark. What has no moment is now. */
function moments(found) {
  const where = found.group ? `${found.key} (${found.group})` : found.key;
  const all = [];
  const at = (ms, kind, title, note) => all.push({ ms, kind, title, note });
  const published = /^(\d{12,14})-\d+$/.exec(found.state === 'dead' ? found.id : found.entry || found.id);
  const origin = found.schedule ? `by the schedule ${found.schedule[0]}, tick ${found.schedule[1]}` : found.is_follow_up ? `follows from ${found.correlation}` : null;
  const deaths = found.history.map(([queue, reason, times]) => `died in ${queue} for ${reason}, ${many(times, 'time')}`).join('; ');
  // A copy that has died comes from a replay.
  if (published && deaths && found.state !== 'dead') at(Number(published[1]), 'warn', `${found.id} was brought back to ${found.queue}`, `it had ${deaths}`);
  else if (published) at(Number(published[1]), '', `${found.id} was published to ${found.queue}`, origin);
  for (const call of found.journal) at(call.at_ms, '', `${found.id} called ${call.name}`, `answered ${call.status}, ${call.bytes} bytes`);
  if (found.held_since_ms) at(found.held_since_ms, 'warn', `${found.id} was held by its handler`, `${many(found.holds, 'time')} since then, uncharged`);
  for (const answer of found.answers) at(answer.written_ms, 'good', `${found.id} was answered: ${answer.status}`, answer.reason);
  const attempts = found.attempts ? many(found.attempts, 'attempt') : null;
  const [kind, words] = NOW[found.state] || ['', found.state];
  if (found.state === 'dead') {
    at(found.died_ms, kind, [`${found.id} died after ${attempts || 'no attempt'}: `, link('see the dead letter', 'letter', found.key, found.entry)],
      [found.reason, found.detail].filter(Boolean).join(': '));
  } else {
    const host = found.host ? `on ${found.host}` : found.limit ? [`for limit ${found.limit[0]}, key ${found.limit[1]}, until `, time(found.due_ms)] : found.due_ms ? [`due `, time(found.due_ms)] : null;
    at(null, kind, `${found.id} ${words} in ${where}`, [attempts, attempts && host ? ', ' : null, host]);
  }
  return all;
}

async function messagePage(id) {
  const trace = await get('trace', { id });
  const story = trace.found.flatMap(moments).sort((a, b) => (a.ms === null) - (b.ms === null) || a.ms - b.ms);
  const seen = new Set();
  const items = story.map((one) => el('li', { class: one.kind },
    one.ms === null ? el('span', { class: 'note' }, 'now') : el('span', { class: 'note' }, time(one.ms)), one.title,
    one.note && one.note.length ? el('span', { class: 'note' }, one.note) : null))
    // Copies of a message begin with the same moment.
    .filter((item) => !seen.has(item.textContent) && seen.add(item.textContent));
  return [
    el('h2', {}, `Message ${id}`),
    items.length ? el('ol', { class: 'story' }, items)
      : empty(`None of ${many(trace.queues, 'queue')} has it, nor their dead letters. A settled message of a list is gone, and one of a stream when its entry is trimmed. Search further back by `, `hostler trace ${id} --newest 100000`),
    trace.cut.length ? el('p', { class: 'note' }, `Only the newest entries were searched of: ${trace.cut.slice(0, 20).join(', ')}`) : null,
    trace.problems.length ? el('ul', { class: 'trouble' }, trace.problems.slice(0, 20).map((why) => el('li', {}, why))) : null,
  ];
}

async function policiesPage() {
  const policies = await get('policies');
  return [
    el('h2', {}, 'Policies by pattern'),
    table('Policies', ['setting', 'value', 'pattern'], policies.map((policy) => [policy.setting, wide(policy.value), policy.for]),
      empty('No rule is set for several queues. Set one: ', "hostler policy set --match 'orders*' max_deliveries=5")),
    el('p', { class: 'note' }, 'The policies of one queue are on its page.'),
  ];
}

// The way between pages.

function route() {
  const parts = location.hash.replace(/^#\/?/, '').split('/').map((part) => {
    try { return decodeURIComponent(part); } catch (_) { return part; }
  });
  switch (parts[0]) {
    case '': return { page: queuesPage, again: true, title: 'Queues' };
    // To read dead letters costs the server more.
    case 'queue': return { page: () => queuePage(...parts.slice(1, 5)), again: parts[3] !== 'dead', title: parts[1] };
    case 'dead': return { page: () => deadPage(parts[1], parts[2]), again: false, title: parts[1] };
    case 'letter': return { page: () => letterPage(parts[1], parts[2]), again: false, title: parts[2] };
    case 'message': return { page: () => messagePage(parts[1]), again: false, title: parts[1] };
    case 'policies': return { page: policiesPage, again: true, title: 'Policies' };
    default: return { page: async () => [el('h2', {}, 'There is no such page')], again: false, title: 'hostler' };
  }
}

/** Put this on the page. Parts that are as before stay: with what is typed, marked, scrolled or pointed at. */
function put(content) {
  const old = [...main.children];
  const focused = document.activeElement;
  const mark = focused && main.contains(focused) && (focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute('href') ? `a[href="${CSS.escape(focused.getAttribute('href'))}"]` : null);
  if (old.length === content.length) {
    content.forEach((made, at) => { if (made !== old[at] && !made.isEqualNode(old[at])) old[at].replaceWith(made); });
  } else {
    main.replaceChildren(...content);
  }
  if (mark && !main.contains(document.activeElement)) (main.querySelector(mark) || main).focus({ preventScroll: true });
}

/** Show the page of the address. `isNew`: it is another one than before. */
async function show(isNew) {
  clearTimeout(timer);
  const mine = ++turn;
  const { page, again, title } = route();
  if (isNew) {
    document.title = `${title} - hostler`;
    say('loading …');
  }
  try {
    const content = (await page()).flat().filter(Boolean);
    if (mine !== turn) return;
    document.body.classList.remove('stale');
    if (isNew) main.replaceChildren(...content);
    else put(content);
    if (!main.contains(charts && charts.node)) endCharts();
    if (isNew) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
    say(again ? `as of ${new Date().toISOString().slice(11, 19)}Z` : '');
  } catch (error) {
    if (mine !== turn) return;
    document.body.classList.add('stale');
    say(again ? `${error.message}: trying again` : error.message, true);
    if (isNew) main.replaceChildren();
  }
  // A page that nobody sees asks for nothing.
  if (again && !document.hidden) timer = setTimeout(() => show(false), EVERY_MS);
}

const THEMES = ['auto', 'light', 'dark'];
function theme(word) {
  if (word === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = word;
  localStorage.setItem('theme', word);
  document.getElementById('theme').textContent = `Theme: ${word}`;
  drawCharts();
}
theme(THEMES.includes(localStorage.getItem('theme')) ? localStorage.getItem('theme') : 'auto');
document.getElementById('theme').addEventListener('click', () => {
  theme(THEMES[(THEMES.indexOf(localStorage.getItem('theme')) + 1) % THEMES.length]);
});
document.getElementById('search').addEventListener('submit', (event) => {
  event.preventDefault();
  const id = document.getElementById('search-id').value.trim();
  if (id) location.hash = place('message', id);
});
document.getElementById('sign').addEventListener('click', () => {
  if (!token) return signIn();
  keepToken('');
  show();
});
document.addEventListener('keydown', (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === 'k') {
    event.preventDefault();
    document.getElementById('search-id').focus();
  }
  // Arrows go from tab to tab.
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const tab = step && event.target.closest('.tabs a');
  if (!tab) return;
  const tabs = [...tab.parentElement.children];
  tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length].focus();
});
document.addEventListener('visibilitychange', () => { if (!document.hidden && route().again) show(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawCharts);
window.addEventListener('hashchange', () => show(true));
get('session').then((found) => {
  session = found;
  keepToken(session.can_act ? token : '');
  document.getElementById('sign').hidden = !session.can_act;
  document.getElementById('read-only').hidden = session.can_act;
  show(true);
}).catch((error) => say(error.message, true));
