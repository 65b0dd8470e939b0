// The dashboard. Everything from Redis is put on the page as text (`textContent`), never as markup.
'use strict';

const main = document.getElementById('main');
const statusLine = document.getElementById('status');
const EVERY_MS = 5000;
let session = { can_act: false, handlers: [] };
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

function link(text, ...path) {
  return el('a', { href: '#/' + path.map(encodeURIComponent).join('/') }, text);
}

function table(label, titles, rows) {
  if (rows.length === 0) return el('p', { class: 'note' }, 'none');
  const head = el('tr', {}, titles.map((title) => el('th', { scope: 'col' }, title)));
  const body = rows.map((row) => el('tr', {}, row.map((cell, at) => {
    if (at === 0) return el('th', { scope: 'row' }, cell);
    if (cell instanceof Node && cell.tagName === 'TD') return cell;
    const isNumber = typeof cell === 'number';
    return el('td', { class: isNumber ? 'number' : null }, cell === null || cell === undefined ? '-' : cell);
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
function time(ms) { return ms ? new Date(ms).toISOString().replace('T', ' ').slice(0, 19) + 'Z' : '-'; }
function age(ms) {
  if (ms === null || ms === undefined) return '-';
  const s = Math.floor(ms / 1000);
  if (s < 60) return s + 's';
  if (s < 3600) return Math.floor(s / 60) + 'm ' + (s % 60) + 's';
  if (s < 86400) return Math.floor(s / 3600) + 'h ' + Math.floor(s % 3600 / 60) + 'm';
  return Math.floor(s / 86400) + 'd';
}
const STATES = { unserved: 'no hosts', 'not-ready': 'not ready', refused: 'version refused' };
function state(word) { return el('span', { class: 'state ' + word }, STATES[word] || word); }
function digest(text) { return text ? text.slice(0, 19) : '-'; }
function say(text, isBad) {
  statusLine.textContent = text;
  statusLine.className = isBad ? 'bad' : '';
}

/** A line over time, with its last value and its greatest in words. */
function chart(title, points, of, unit) {
  const values = points.map(of);
  // One point is a line, too.
  if (values.length === 1) values.push(values[0]);
  const known = values.filter((value) => value !== null && value !== undefined);
  const most = Math.max(1e-9, ...known);
  const last = known.length ? known[known.length - 1] : null;
  const words = known.length ? `${title}: ${last}${unit} now, at most ${Math.max(...known)}${unit}` : `${title}: not known yet`;
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 100 40');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', words);
  const line = document.createElementNS(space, 'polyline');
  const step = 100 / Math.max(1, values.length - 1);
  line.setAttribute('points', values.map((value, at) => value === null || value === undefined ? '' :
    `${(at * step).toFixed(2)},${(39 - 38 * value / most).toFixed(2)}`).filter(Boolean).join(' '));
  svg.append(line);
  return el('figure', {}, el('figcaption', {}, words), svg);
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
  const token = document.getElementById('token').value;
  const answer = await fetch(`/ui/api/act/${encodeURIComponent(action)}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-hostler-token': token },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  let result;
  try { result = JSON.parse(text); } catch (_) { result = { error: text }; }
  if (!answer.ok) throw new Error(result.error || answer.statusText);
  return result;
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
      say(action === 'try' ? verdict(title, result) : `${title}: done ${JSON.stringify(result)}`);
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
  if (!session.can_act) return null;
  return el('button', { type: 'button', class: isDanger ? 'danger' : null, on: ['click', () => act(title, text, action, body)] }, title);
}

// Pages.

let wanted = '';

async function queuesPage() {
  const queues = await get('queues');
  const rows = () => queues
    .filter((queue) => (queue.queue + ' ' + (queue.group || '')).includes(wanted))
    .map((queue) => [
      link(queue.queue, 'queue', queue.queue, queue.group || ''),
      queue.kind, queue.group, state(queue.state), queue.hosts, queue.lag, queue.pending,
      age(queue.oldest_pending_ms), queue.attempts_per_second, queue.run_ms === null ? null : queue.run_ms + ' ms',
      queue.dead_letter_key ? link(queue.dead_letters === null ? '?' : String(queue.dead_letters), 'dead', queue.dead_letter_key) : null,
    ]);
  const titles = ['queue', 'kind', 'group', 'state', 'hosts', 'lag', 'pending', 'oldest', 'rate/s', 'run', 'dead'];
  const list = el('div', { id: 'list' }, table('Queues', titles, rows()));
  const input = el('input', { id: 'filter', type: 'search', value: wanted, autocomplete: 'off' });
  input.addEventListener('input', () => {
    wanted = input.value;
    list.replaceChildren(table('Queues', titles, rows()));
  });
  const troubled = queues.filter((queue) => queue.trouble.length > 0 || queue.problem);
  const trouble = troubled.flatMap((queue) => [...queue.trouble, queue.problem].filter(Boolean)
    .map((why) => el('li', {}, `${queue.queue}: ${why}`)));
  return [
    el('h2', {}, 'Queues'),
    trouble.length ? el('ul', { class: 'trouble' }, trouble.slice(0, 50)) : null,
    el('p', {}, el('label', { for: 'filter' }, 'Filter by name '), input),
    list,
  ];
}

async function queuePage(name, group) {
  const found = await get('queue', { queue: name, group });
  const { queue, hosts, versions, policies, course } = found;
  const on = { on: name };
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
    el('h2', {}, name, group ? ` (${group})` : ''),
    el('p', {}, state(queue.state)),
    queue.trouble.length ? el('ul', { class: 'trouble' }, queue.trouble.map((why) => el('li', {}, why))) : null,
    queue.problem ? el('p', { class: 'note' }, queue.problem) : null,
    session.can_act ? el('p', { class: 'buttons' },
      queue.state === 'paused'
        ? button('Resume', 'All hosts read from the queue again.', 'resume', on)
        : button('Pause', 'All hosts stop reading. Running attempts end.', 'pause', on, true),
      button('Promote', 'The canary gets all messages, on every host.', 'promote', on),
      button('Roll back', 'Every host goes back to the version before.', 'rollback', on, true)) : null,
    facts([
      ['kind', queue.kind], ['unread', queue.lag], ['pending', queue.pending],
      ['oldest pending', age(queue.oldest_pending_ms)], ['delayed', queue.delayed],
      ['journals', queue.journals || null],
      ['held', queue.on_hold ? `${queue.on_hold} by their handler, uncharged` : null],
      ['running', queue.in_flight], ['attempts per second', queue.attempts_per_second],
      ['run time', queue.run_ms === null ? null : `${queue.run_ms} ms on average, 99 % within ${queue.run_p99_ms} ms`],
      ['dead letters', queue.dead_letter_key ? link(`${queue.dead_letters === null ? '?' : queue.dead_letters} in ${queue.dead_letter_key}`, 'dead', queue.dead_letter_key) : null],
    ]),
    el('h3', {}, 'Course'),
    el('div', { class: 'charts' },
      chart('attempts per second', course, (p) => p.rate, ''), chart('run time', course, (p) => p.run_ms, ' ms'),
      chart('run time of 99 %', course, (p) => p.run_p99_ms, ' ms'),
      chart('unread', course, (p) => p.lag, ''), chart('pending', course, (p) => p.pending, ''),
      chart('dead letters', course, (p) => p.dead, '')),
    queue.schedules.length ? [el('h3', {}, 'Schedules'), schedules(name, queue.schedules)] : null,
    el('h3', {}, 'Hosts'),
    table('Hosts', ['host', 'ready', 'running', 'rate/s', 'version', 'from', 'canary', 'refused', 'hostler'], hosts.map((host) => [
      host.consumer, host.not_ready.length ? host.not_ready.join('; ') : host.paused ? 'paused' : 'yes', host.in_flight,
      host.attempts_per_second, digest(host.handler.current.digest), host.handler.current.origin,
      host.handler.canary ? `${digest(host.handler.canary.digest)} (${host.handler.canary.share})` : null,
      host.handler.refused ? wide(`${host.handler.refused.origin} at ${host.handler.refused.step}: ${host.handler.refused.reason}`) : null,
      host.hostler,
    ])),
    el('h3', {}, 'Versions'),
    table('Versions', ['version', 'digest', 'by', 'when', 'verdict'], versions.map((version) => [
      String(version.version), digest(version.digest), version.by, time(version.at_ms),
      wide([version.is_wanted ? 'wanted' : '', version.given_up ? `given up by ${version.given_up}` : version.kept ? `kept by ${version.kept}` : ''].filter(Boolean).join(', ')),
    ])),
    el('h3', {}, 'Policies'),
    table('Policies', ['setting', 'value', 'for'], policies.map((policy) => [policy.setting, wide(policy.value), policy.for])),
    session.can_act ? policyForm(name) : null,
    session.can_act && queue.kind !== 'channel' ? cancelForm(name, group) : null,
    el('h3', {}, 'Rules that hosts follow'),
    table('Rules', ['rule', 'value', 'from', 'hosts'], ruleRows),
  ];
}

function schedules(on, all) {
  return table('Schedules', ['schedule', 'when', 'next', 'last', 'missed', 'from', 'problem', 'actions'], all.map((one) => {
    const of = { on, schedule: one.name };
    return [
      one.name, wide(`${one.cron} ${one.zone}`), wide(one.paused ? 'paused' : one.next_ms.map(time).join(', ')),
      one.last_ms === null ? null : time(one.last_ms), one.missed, one.source, one.problem === null ? null : wide(one.problem),
      el('td', {}, button(`Run ${one.name}`, `Publish one message of ${one.name} now.`, 'schedule-run', of), ' ',
        one.paused ? button(`Resume ${one.name}`, 'It has ticks again, from now on.', 'schedule-resume', of)
          : button(`Pause ${one.name}`, 'It has no ticks until it is resumed.', 'schedule-pause', of, true)),
    ];
  }));
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

async function deadPage(key, reason) {
  const found = await get('dead', { key, reason, limit: '50' });
  const on = reason ? { on: key, reason } : { on: key };
  const causes = el('div', { id: 'causes' }, el('p', { class: 'note' }, 'counting …'));
  const mine = turn;
  get('groups', { key }).then((groups) => {
    if (mine !== turn) return;
    causes.replaceChildren(table('Causes', ['cause', 'count', 'what', 'first', 'last', 'actions'], groups.groups.map((group) => [
      group.id, group.count, wide(group.signature), time(group.first_ms), time(group.last_ms),
      el('td', {}, button('Replay these', `Replay ${group.count} dead letters: ${group.signature}`, 'replay', { on: key, signature: group.id }), ' ',
        button('Purge these', `Delete ${group.count} dead letters for good: ${group.signature}`, 'purge', { on: key, signature: group.id }, true)),
    ])), groups.others ? el('p', { class: 'note' }, `of other causes: ${groups.others}`) : '');
  }).catch((error) => { causes.textContent = error.message; });
  const reasons = Object.entries(found.by_reason).sort((a, b) => b[1] - a[1]);
  return [
    el('h2', {}, `Dead letters in ${key}`),
    found.served_by ? el('p', { class: 'note' }, `This is a queue that is served: ${found.served_by}`) : null,
    el('p', {}, `${found.total} entries`, reason ? ` for ${reason}. ` : '. ', reason ? link('All reasons', 'dead', key) : null),
    session.can_act ? el('p', { class: 'buttons' },
      button('Replay all', `Move ${found.total} dead letters back.`, 'replay', on),
      button('Purge all', `Delete ${found.total} dead letters for good.`, 'purge', on, true)) : null,
    el('h3', {}, 'By reason'),
    table('By reason', ['reason', 'count'], reasons.map(([word, count]) => [link(word, 'dead', key, word), count])),
    el('h3', {}, 'By cause'), causes,
    el('h3', {}, 'Newest'),
    table('Newest', ['id', 'died', 'reason', 'attempts', 'cause', 'detail'], found.entries.map((entry) => [
      link(entry.id, 'letter', key, entry.id), time(entry.died_ms), entry.reason, entry.attempts, entry.signature, wide(entry.detail),
    ])),
  ];
}

async function letterPage(key, id) {
  const found = await get('letter', { key, id });
  const on = { on: key, id };
  return [
    el('h2', {}, `Dead letter ${id}`),
    el('p', {}, 'in ', link(key, 'dead', key)),
    session.can_act ? el('p', { class: 'buttons' },
      button('Replay', 'Move it back to the queue that it died in.', 'replay', on),
      button('Purge', 'Delete it for good.', 'purge', on, true),
      session.handlers.map((handler) => button(`Try ${handler.name}`,
        `Run ${handler.name} (${digest(handler.digest)}) on it once, here, and show its verdict. Nothing is written; what it requests by HTTP is sent.`,
        'try', { ...on, handler: handler.name }))) : null,
    facts([
      ['died', time(found.row.died_ms)], ['reason', found.row.reason], ['detail', found.row.detail],
      ['cause', `${found.row.signature} ${found.cause}`], ['attempts', found.row.attempts],
      ['source', found.row.source], ['id there', found.source_id], ['group', found.group], ['handler', found.handler],
      ['not a message', found.defect],
    ]),
    el('h3', {}, 'Log of the last attempt'),
    found.log.length ? el('pre', { tabindex: '0' }, found.log.join('\n')) : el('p', { class: 'note' }, 'none is kept'),
    el('h3', {}, 'History'),
    table('History', ['died in', 'for', 'times', 'first', 'last'], found.history.map((d) => [d.queue, d.reason, d.count, time(d.first_ms), time(d.last_ms)])),
    el('h3', {}, 'Headers'),
    table('Headers', ['name', 'value'], found.headers.map(([name, value]) => [name, wide(value)])),
    el('h3', {}, 'Body'),
    el('p', { class: 'note' }, `${found.body_bytes} bytes${found.is_text ? '' : ', not text'}`),
    el('pre', { tabindex: '0', id: 'body' }, found.body),
  ];
}

async function policiesPage() {
  const policies = await get('policies');
  return [
    el('h2', {}, 'Policies by pattern'),
    table('Policies', ['setting', 'value', 'pattern'], policies.map((policy) => [policy.setting, wide(policy.value), policy.for])),
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
    case 'queue': return { page: () => queuePage(parts[1], parts[2]), again: true, title: parts[1] };
    case 'dead': return { page: () => deadPage(parts[1], parts[2]), again: false, title: parts[1] };
    case 'letter': return { page: () => letterPage(parts[1], parts[2]), again: false, title: parts[2] };
    case 'policies': return { page: policiesPage, again: true, title: 'Policies' };
    default: return { page: async () => [el('p', {}, 'There is no such page.')], again: false, title: 'hostler' };
  }
}

/** Show the page of the address. `isNew`: it is another one than before. */
async function show(isNew) {
  clearTimeout(timer);
  const mine = ++turn;
  const { page, again, title } = route();
  document.title = `${title} - hostler`;
  if (isNew) say('loading …');
  try {
    const content = (await page()).flat().filter(Boolean);
    if (mine !== turn) return;
    const focused = document.activeElement && document.activeElement.id;
    const isTyping = ['filter', 'policy-setting', 'policy-value'].includes(focused);
    // What a person types stays.
    if (isNew || !isTyping) main.replaceChildren(...content);
    if (isNew) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
    say(again ? `as of ${new Date().toISOString().slice(11, 19)}Z` : '');
  } catch (error) {
    if (mine !== turn) return;
    say(error.message, true);
    if (isNew) main.replaceChildren();
  }
  if (again) timer = setTimeout(() => show(false), EVERY_MS);
}

document.getElementById('access').addEventListener('submit', (event) => event.preventDefault());
window.addEventListener('hashchange', () => show(true));
get('session').then((found) => {
  session = found;
  document.getElementById('access').hidden = !session.can_act;
  document.getElementById('read-only').hidden = session.can_act;
  document.getElementById('access-note').textContent = 'needed for actions';
  show(true);
}).catch((error) => say(error.message, true));
