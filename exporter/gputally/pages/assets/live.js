// Fills the landing page from /api/v1/stream. Every text is set with textContent: nothing from a snapshot becomes HTML.
'use strict';

const SNAPSHOT = 'api/v1/snapshot';
const HISTORY = 'api/v1/history';
const STREAM = 'api/v1/stream';
const POLL_SECONDS = 15; // while there is no stream
const STREAM_AGAIN_SECONDS = 60;
const LEAST_CHART_SECONDS = 300; // the hour grows from this
const GIB = 1024 ** 3;
const NONE = '–';
const SVG = 'http://www.w3.org/2000/svg';
const TIMELINES = {
  utilization_ratio: { title: 'Utilisation', text: percent, most: () => 1 },
  memory_used_ratio: { title: 'Memory', text: percent, most: () => 1 },
  power_watts: { title: 'Power', text: watts, most: (gpu) => gpu.power_limit_watts },
  temperature_celsius: { title: 'Temperature', text: celsius, most: (gpu) => gpu.temperature_slowdown_celsius },
};
const KINDS = { session: 'user session', process: 'host process', service: 'service', slurm: 'Slurm job' };

const page = { snapshot: null, receivedAt: 0, timeline: 'utilization_ratio', isPaused: false, connection: 'connecting' };
const hour = { step: 10, until: 0, steps: 0, gpus: new Map() };

// --- texts ---------------------------------------------------------------------------------------

function percent(ratio) {
  return ratio === null ? NONE : `${(ratio * 100).toFixed(0)} %`;
}

function gibibytes(bytes) {
  if (bytes === null) return NONE;
  return `${(bytes / GIB).toFixed(bytes < 100 * GIB ? 1 : 0)} GiB`;
}

function watts(power) {
  if (power === null) return NONE;
  return power < 9999.5 ? `${power.toFixed(0)} W` : `${(power / 1000).toFixed(1)} kW`;
}

function celsius(degrees) {
  return degrees === null ? NONE : `${degrees.toFixed(0)} °C`;
}

function energy(joules) {
  if (joules === null) return NONE;
  const wattHours = joules / 3600;
  const [number, unit] = wattHours < 1000 ? [wattHours, 'Wh'] : wattHours < 1e6 ? [wattHours / 1000, 'kWh'] : [wattHours / 1e6, 'MWh'];
  return `${number.toFixed(number < 10 ? 2 : number < 100 ? 1 : 0)} ${unit}`;
}

function duration(seconds) {
  if (seconds === null) return NONE;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(0)} h`;
}

function count(number, thing) {
  return `${number} ${thing}${number === 1 ? '' : 's'}`;
}

function sum(values) {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? known.reduce((total, value) => total + value, 0) : null;
}

function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? sum(known) / known.length : null;
}

// --- elements ------------------------------------------------------------------------------------

/** An element. Attributes named in `properties`, text or elements as content. */
function element(name, properties = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

function drawing(name, properties) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  return made;
}

/** Only a change is written, so that the page and screen readers are left in peace. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

function setLabel(node, text) {
  if (node.getAttribute('aria-label') !== text) node.setAttribute('aria-label', text);
}

/** The parts of one item stay the same elements for as long as its key is there. */
class List {
  /** They follow `head` where there is one. */
  constructor(parent, make, head = null) {
    this.parent = parent;
    this.make = make;
    this.head = head;
    this.parts = new Map();
  }

  show(items, keyOf, update) {
    const before = this.parts;
    this.parts = new Map();
    let place = this.head === null ? this.parent.firstElementChild : this.head.nextElementSibling;
    for (const item of items) {
      const key = keyOf(item);
      const part = before.get(key) ?? this.make(item);
      before.delete(key);
      this.parts.set(key, part);
      update(part, item);
      if (part.root === place) place = place.nextElementSibling;
      else this.parent.insertBefore(part.root, place);
    }
    for (const part of before.values()) part.root.remove();
  }
}

// --- the frame -----------------------------------------------------------------------------------

const pill = element('p', { class: 'pill waiting', role: 'status' }, 'connecting');
const heard = element('span', { class: 'heard' });
const pause = element('button', { type: 'button', 'aria-pressed': 'false' }, 'Pause');
const tiles = element('dl', { class: 'tiles' });
const notes = element('ul', { class: 'notes', 'aria-label': 'Faults', 'aria-live': 'polite' });
const cards = element('div', { class: 'cards' });
const gpusTitle = element('h2', { id: 'gpus' }, 'GPUs');
const chooser = element('fieldset', { class: 'chooser' }, element('legend', {}, 'Last hour'));
const sources = element('tbody');

function tile(title) {
  const value = element('span', { class: 'value' }, NONE);
  const detail = element('span', { class: 'detail' });
  const bar = element('span', { class: 'bar', 'aria-hidden': 'true' }, element('i'));
  const root = element('div', { class: 'tile' }, element('dt', {}, title), element('dd', {}, value, detail, bar));
  tiles.append(root);
  return { value, detail, bar };
}

const total = { busy: tile('Utilisation'), memory: tile('Memory'), power: tile('Power'), used: tile('In use') };

function buildFrame() {
  for (const [name, { title }] of Object.entries(TIMELINES)) {
    const input = element('input', { type: 'radio', name: 'timeline', value: name, id: `timeline-${name}` });
    input.checked = name === page.timeline;
    input.addEventListener('change', () => {
      page.timeline = name;
      show();
    });
    chooser.append(input, element('label', { for: `timeline-${name}` }, title));
  }
  const heads = ['Source', 'State', 'GPUs', 'Last success', 'Duration', 'Failures', 'Overruns'];
  const table = element(
    'table',
    { class: 'sources', 'aria-labelledby': 'sources' },
    element('thead', {}, element('tr', {}, ...heads.map((head, place) => element('th', { scope: 'col', class: place > 1 ? 'number' : '' }, head)))),
    sources,
  );
  const live = document.getElementById('live');
  live.append(
    tiles,
    notes,
    element('section', { 'aria-labelledby': 'gpus' }, element('div', { class: 'bench' }, gpusTitle, chooser), cards),
    element(
      'section',
      { 'aria-labelledby': 'sources' },
      element('h2', { id: 'sources' }, 'Sources'),
      element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Table of sources' }, table),
    ),
  );
  live.hidden = false;
  document.getElementById('status').append(pill, element('p', { class: 'connection' }, heard, pause));
  pause.addEventListener('click', () => {
    page.isPaused = !page.isPaused;
    pause.setAttribute('aria-pressed', String(page.isPaused));
    if (!page.isPaused) show();
    tick();
  });
}

// --- the parts -----------------------------------------------------------------------------------

function setBar(bar, ratio) {
  bar.classList.toggle('empty', ratio === null);
  bar.firstElementChild.style.width = `${Math.min(100, Math.max(0, (ratio ?? 0) * 100)).toFixed(1)}%`;
}

function ratio(part, whole) {
  return part === null || !whole ? null : part / whole;
}

function showTiles({ gpus }) {
  const up = gpus.filter((gpu) => gpu.up);
  const all = (name) => sum(up.map((gpu) => gpu[name]));
  const set = ({ value, detail, bar }, text, more, share) => {
    setText(value, text);
    setText(detail, more);
    setBar(bar, share);
  };
  const busy = mean(up.map((gpu) => gpu.utilization_ratio));
  set(total.busy, percent(busy), `mean of ${count(up.length, 'GPU')}`, busy);
  const [used, room] = [all('memory_used_bytes'), all('memory_total_bytes')];
  set(total.memory, gibibytes(used), room === null ? '' : `of ${gibibytes(room)}`, ratio(used, room));
  const [power, limit] = [all('power_watts'), all('power_limit_watts')];
  set(total.power, watts(power), limit === null ? '' : `of ${watts(limit)}`, ratio(power, limit));
  const inUse = up.filter((gpu) => gpu.owners.some((owner) => owner.active && owner.processes > 0)).length;
  const idle = up.filter((gpu) => isAllocatedIdle(gpu)).length;
  set(total.used, `${inUse} of ${gpus.length}`, idle > 0 ? `${idle} allocated, idle` : 'GPUs', ratio(inUse, gpus.length));
}

/** Allocated to containers of which none has a process on it. */
function isAllocatedIdle(gpu) {
  const holders = gpu.owners.filter((owner) => owner.active);
  return holders.length > 0 && holders.every((owner) => owner.processes === 0);
}

const noteList = new List(notes, () => {
  const [what, why, fix] = [element('strong'), element('span'), element('code')];
  return { root: element('li', {}, what, ' ', why, fix), what, why, fix };
});

function showNotes({ gpus, sources: states }) {
  const found = [
    ...gpus.flatMap((gpu) => gpu.faults.map((fault) => ({ what: `GPU ${gpu.index}`, key: gpu.uuid, ...fault }))),
    ...states
      .filter((source) => !source.up)
      .map((source) => ({ what: source.name, key: '', name: source.name, severity: 'warning', reason: source.reason || 'down', fix: source.fix })),
  ];
  found.sort((one, other) => (one.severity === 'critical' ? 0 : 1) - (other.severity === 'critical' ? 0 : 1));
  noteList.show(found, ({ key, name, reason }) => `${key} ${name} ${reason}`, (note, { what, severity, reason, fix }) => {
    setClass(note.root, severity);
    setText(note.what, what);
    setText(note.why, reason);
    setText(note.fix, fix);
    note.fix.hidden = fix === '';
  });
}

function makeMeter(name) {
  const value = element('span', { class: 'value' });
  const bar = element('span', { class: 'bar', 'aria-hidden': 'true' }, element('i'));
  return { root: element('div', { class: 'meter' }, element('dt', {}, name), element('dd', {}, value, bar)), value, bar };
}

function setMeter(meter, text, share) {
  setText(meter.value, text);
  setBar(meter.bar, share);
}

function makeCard(gpu) {
  const id = `gpu-${gpu.vendor}-${gpu.index}-${gpu.uuid}`;
  const title = element('h3', { id }, `GPU ${gpu.index}`);
  const [model, state, reason, left] = [element('p', { class: 'model' }), element('span'), element('p', { class: 'reason' }), element('p', { class: 'left' })];
  const meters = { busy: makeMeter('Utilisation'), memory: makeMeter('Memory'), power: makeMeter('Power'), heat: makeMeter('Temperature') };
  const line = drawing('path', { class: 'line' });
  const area = drawing('path', { class: 'area' });
  const chart = drawing('svg', { viewBox: '0 0 360 100', preserveAspectRatio: 'none', role: 'img' });
  chart.append(area, line);
  const [since, top] = [element('span'), element('span', { class: 'top', 'aria-hidden': 'true' })];
  const table = element('table', { class: 'owners', 'aria-labelledby': id });
  const heads = ['SM', 'Memory', 'Power', 'Energy'].map((head) => element('th', { scope: 'col' }, head));
  const head = element('thead', {}, element('tr', {}, ...heads));
  table.append(head);
  const unused = element('p', { class: 'unused' }, 'not in use');
  const partitions = element('ul', { class: 'partitions', 'aria-label': `Partitions of GPU ${gpu.index}` });
  const root = element(
    'article',
    { 'aria-labelledby': id },
    element('header', {}, title, model, state),
    reason,
    element('dl', { class: 'meters' }, ...Object.values(meters).map((meter) => meter.root)),
    element('div', { class: 'chart' }, top, chart, element('p', { 'aria-hidden': 'true' }, since, element('span', {}, 'now'))),
    partitions,
    table,
    unused,
    left,
  );
  const makePartition = () => {
    const [name, value] = [element('span'), element('span', { class: 'number' })];
    return { root: element('li', {}, name, value), name, value };
  };
  return { root, title, model, state, reason, meters, line, area, chart, since, top, table, unused, left, owners: new List(table, makeOwner, head), partitions, partitionList: new List(partitions, makePartition) };
}

function showCard(card, gpu) {
  const fault = gpu.faults[0];
  setClass(card.root, gpu.up ? gpu.severity : 'critical lost');
  setText(card.title, `GPU ${gpu.index}`);
  setText(card.model, gpu.model);
  setClass(card.state, `state ${gpu.severity}`);
  setText(card.state, gpu.up ? { ok: 'up', warning: 'warning', critical: 'fault' }[gpu.severity] : 'lost');
  setText(card.reason, fault ? fault.reason : '');
  card.reason.hidden = fault === undefined;
  setMeter(card.meters.busy, percent(gpu.utilization_ratio), gpu.utilization_ratio);
  const memory = ratio(gpu.memory_used_bytes, gpu.memory_total_bytes);
  const room = gpu.memory_total_bytes === null ? '' : ` / ${(gpu.memory_total_bytes / GIB).toFixed(0)}`;
  setMeter(card.meters.memory, gpu.memory_used_bytes === null ? NONE : `${(gpu.memory_used_bytes / GIB).toFixed(1)}${room} GiB`, memory);
  const limit = gpu.power_limit_watts === null ? '' : ` / ${gpu.power_limit_watts.toFixed(0)}`;
  setMeter(card.meters.power, gpu.power_watts === null ? NONE : `${gpu.power_watts.toFixed(0)}${limit} W`, ratio(gpu.power_watts, gpu.power_limit_watts));
  setMeter(card.meters.heat, celsius(gpu.temperature_celsius), ratio(gpu.temperature_celsius, gpu.temperature_slowdown_celsius));
  showChart(card, gpu);
  card.partitions.hidden = gpu.mig.length === 0;
  card.partitionList.show(gpu.mig, ({ uuid }) => uuid, (part, mig) => {
    setText(part.name, mig.name);
    const used = mig.memory_used_bytes === null ? '' : ` · ${gibibytes(mig.memory_used_bytes)}`;
    setText(part.value, `${percent(mig.utilization_ratio)}${used}`);
  });
  const names = new Map(gpu.mig.map((mig) => [mig.uuid, mig.name]));
  const holders = gpu.owners.filter((owner) => owner.active);
  card.table.hidden = holders.length === 0;
  card.unused.hidden = holders.length > 0 || !gpu.up;
  const rows = holders.flatMap((owner) => [{ owner }, ...(owner.process_list ?? []).map((process) => ({ owner, process }))]);
  card.owners.show(rows, keyOfOwner, (part, { owner, process }) => {
    if (process) showProcess(part, process);
    else showOwner(part, owner, names.get(owner.uuid));
  });
  setText(card.left, gpu.owners_left_out > 0 ? `and ${gpu.owners_left_out} more` : '');
  card.left.hidden = gpu.owners_left_out === 0;
}

// --- owners --------------------------------------------------------------------------------------

function keyOfOwner({ owner: { uuid, kind, namespace, pod, container, owner, reason }, process }) {
  return JSON.stringify([uuid, kind, namespace, pod, container, owner, reason, process?.pid, process?.name]);
}

/** A name with a line of values below it: it fits on a phone, and is one row group of the table. */
function makeOwner({ process }) {
  const [name, detail, chips] = [element('strong'), element('span', { class: 'detail' }), element('span', { class: 'chips' })];
  const values = Array.from({ length: 4 }, () => element('td'));
  const head = element('tr', {}, element('th', { scope: 'rowgroup', colspan: '4' }, name, chips, detail));
  const root = element('tbody', { class: process ? 'process' : 'owner' }, head, element('tr', {}, ...values));
  const chipList = new List(chips, () => ({ root: element('span', { class: 'chip' }) }));
  return { root, name, detail, values, chipList };
}

function showValues(cells, used) {
  const texts = [percent(used.sm_utilization_ratio), gibibytes(used.memory_used_bytes), watts(used.power_watts), energy(used.energy_joules)];
  texts.forEach((text, place) => setText(cells[place], text));
}

function showOwner(part, owner, device) {
  const isPod = owner.kind === 'pod';
  const isUnknown = owner.kind === 'unknown';
  setText(part.name, isPod ? owner.pod : isUnknown ? 'unknown owner' : owner.owner);
  const held = owner.held_seconds === null ? null : `for ${duration(owner.held_seconds)}`;
  const what = isPod ? [owner.namespace, owner.container] : [isUnknown ? owner.reason : KINDS[owner.kind] ?? owner.kind];
  const detail = [...what, device, held].filter((text) => text);
  setText(part.detail, detail.join(' · '));
  const chips = [
    ...(owner.allocated === false ? [{ text: 'not requested', tone: 'warning' }] : []),
    ...(owner.processes === 0 ? [{ text: 'allocated, idle', tone: 'idle' }] : []),
    ...(isPod && owner.allocated && owner.processes > 0 ? [{ text: 'allocated', tone: '' }] : []),
  ];
  part.chipList.show(chips, ({ text }) => text, (chip, { text, tone }) => {
    setClass(chip.root, `chip ${tone}`.trim());
    setText(chip.root, text);
  });
  showValues(part.values, owner);
}

function showProcess(part, process) {
  setText(part.name, process.name);
  setText(part.detail, `process ${process.pid}`);
  showValues(part.values, process);
}

// --- sources -------------------------------------------------------------------------------------

const sourceList = new List(sources, () => {
  const [name, state] = [element('th', { scope: 'row' }), element('span')];
  const values = Array.from({ length: 5 }, () => element('td', { class: 'number' }));
  return { root: element('tr', {}, name, element('td', {}, state), ...values), name, state, values };
});

function showSources({ sources: states, taken_at_seconds: now }) {
  sourceList.show(states, ({ name }) => name, (row, source) => {
    setText(row.name, source.name);
    setClass(row.state, `state ${source.up ? 'ok' : 'critical'}`);
    setText(row.state, source.up ? 'up' : 'down');
    const age = source.last_success_seconds === null ? null : Math.max(0, now - source.last_success_seconds);
    const ago = age === null ? 'never' : age < 1 ? 'just now' : `${duration(age)} ago`;
    [source.gpus, ago, duration(source.duration_seconds), source.failures, source.overruns].forEach((value, place) => setText(row.values[place], String(value)));
  });
}

// --- the last hour -------------------------------------------------------------------------------

async function readHour() {
  const answer = await fetch(HISTORY, { cache: 'no-store' });
  if (!answer.ok) return;
  const found = await answer.json();
  hour.step = found.step_seconds;
  hour.until = found.until_seconds;
  hour.gpus = new Map(found.gpus.map((gpu) => [gpu.uuid, gpu]));
  show();
}

/** The values of a snapshot, in the step that it is in: the last of a step counts. */
function addToHour({ gpus, taken_at_seconds: now }) {
  if (hour.until === 0) return;
  const begun = Math.max(0, Math.ceil((now - hour.until) / hour.step));
  hour.until += begun * hour.step;
  const most = Math.floor(3600 / hour.step);
  const length = Math.max(1, ...[...hour.gpus.values()].map((series) => series.power_watts.length));
  for (const gpu of gpus) {
    if (!hour.gpus.has(gpu.uuid)) hour.gpus.set(gpu.uuid, Object.fromEntries(Object.keys(TIMELINES).map((name) => [name, Array(length).fill(null)])));
  }
  const values = new Map(gpus.map((gpu) => [gpu.uuid, { ...gpu, memory_used_ratio: ratio(gpu.memory_used_bytes, gpu.memory_total_bytes) }]));
  for (const [uuid, series] of hour.gpus) {
    for (const name of Object.keys(TIMELINES)) {
      const line = series[name];
      for (let step = Math.min(begun, most); step > 0; step -= 1) line.push(null);
      line.splice(0, line.length - most);
      line[line.length - 1] = values.get(uuid)?.[name] ?? line[line.length - 1];
    }
  }
}

function showChart(card, gpu) {
  const { title, text, most } = TIMELINES[page.timeline];
  const values = hour.gpus.get(gpu.uuid)?.[page.timeline] ?? [];
  const known = values.filter((value) => value !== null);
  const top = Math.max(most(gpu) ?? 0, ...known) || 1;
  const steps = Math.max(LEAST_CHART_SECONDS / hour.step, values.length, 2);
  const at = (place) => ((steps - values.length + place) / (steps - 1)) * 360;
  // A gap where there was no value. A line from a point to itself is a dot.
  let [line, area, begun] = ['', '', null];
  values.forEach((value, place) => {
    if (value === null) return;
    const point = `${at(place).toFixed(1)} ${(100 - (value / top) * 100).toFixed(1)}`;
    const isFirst = place === 0 || values[place - 1] === null;
    const isLast = place === values.length - 1 || values[place + 1] === null;
    if (isFirst) begun = at(place).toFixed(1);
    line += isFirst ? `M${point}L${point}` : `L${point}`;
    area += isFirst ? `M${begun} 100L${point}` : `L${point}`;
    if (isLast) area += `L${at(place).toFixed(1)} 100Z`;
  });
  card.line.setAttribute('d', line);
  card.area.setAttribute('d', area);
  const said = known.length > 0 ? `mean ${text(mean(known))}, highest ${text(Math.max(...known))}` : 'no values';
  setText(card.since, `${duration(steps * hour.step)} ago`);
  setText(card.top, text(top));
  setLabel(card.chart, `${title} of GPU ${gpu.index} in the last hour: ${said}`);
}

// --- show ----------------------------------------------------------------------------------------

const cardList = new List(cards, makeCard);

function show() {
  const { snapshot } = page;
  if (snapshot === null || page.isPaused) return;
  setClass(pill, `pill ${snapshot.severity}`);
  setText(pill, snapshot.summary);
  document.body.classList.toggle('simulated', snapshot.exporter.simulated);
  setText(gpusTitle, snapshot.exporter.simulated ? 'Simulated GPUs' : 'GPUs');
  showTiles(snapshot);
  showNotes(snapshot);
  cardList.show(snapshot.gpus, ({ uuid, vendor, index }) => `${vendor} ${index} ${uuid}`, showCard);
  showSources(snapshot);
  showLinks(snapshot.links);
}

const linkList = new List(document.getElementById('links'), () => {
  const link = element('a');
  return { root: element('li', { class: 'grafana' }, link, ' in Grafana'), link };
});

function showLinks(links) {
  linkList.show(links.filter(({ url }) => /^https?:/.test(url)), ({ url }) => url, ({ link }, { title, url }) => {
    setText(link, title);
    if (link.getAttribute('href') !== url) link.setAttribute('href', url);
  });
}

/** Once a second: how old the values are. */
function tick() {
  const age = (performance.now() - page.receivedAt) / 1000;
  const due = page.snapshot === null ? 10 : 3 * page.snapshot.exporter.interval_seconds + 5;
  const isOld = page.snapshot !== null && age > Math.max(due, page.connection === 'polling' ? 3 * POLL_SECONDS : 0);
  const words = { live: 'live', polling: `every ${POLL_SECONDS} s`, connecting: 'connecting' };
  const state = page.isPaused ? 'paused' : isOld ? `no data for ${duration(age)}` : words[page.connection];
  setClass(heard, `heard ${page.isPaused ? 'paused' : isOld ? 'old' : page.connection}`);
  setText(heard, state);
}

// --- the connection ------------------------------------------------------------------------------

let stream = null;
let polling = null;
let again = null;

function take(text) {
  const snapshot = JSON.parse(text);
  if (snapshot.version !== 1) return;
  page.snapshot = snapshot;
  page.receivedAt = performance.now();
  addToHour(snapshot);
  show();
  tick();
}

function open() {
  close();
  stream = new EventSource(STREAM);
  stream.addEventListener('snapshot', ({ data }) => {
    page.connection = 'live';
    take(data);
  });
  stream.addEventListener('open', () => readHour().catch(() => undefined));
  stream.addEventListener('error', () => {
    page.connection = 'connecting';
    // The browser itself connects again, unless the stream was refused: all places are taken.
    if (stream.readyState === EventSource.CLOSED) poll();
    tick();
  });
}

function poll() {
  close();
  page.connection = 'polling';
  readHour().catch(() => undefined);
  readOnce();
  polling = setInterval(readOnce, POLL_SECONDS * 1000);
  again = setTimeout(open, STREAM_AGAIN_SECONDS * 1000);
}

async function readOnce() {
  try {
    const answer = await fetch(SNAPSHOT, { cache: 'no-store' });
    if (answer.ok) take(await answer.text());
  } catch {
    tick(); // the age of the last values is on the page
  }
}

function close() {
  stream?.close();
  clearInterval(polling);
  clearTimeout(again);
}

buildFrame();
open();
setInterval(tick, 1000);
// A hidden page costs nothing.
document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
