// @ts-check
/** A timeline of stages, steps and attempts. The bars are in the last column of a table with the same data. */

import { absolute, badge, clock, colour, count, duration, errorLine, firstClock, firstStart, firstTry, lasting, name, plural, sign, spelled, told, tried, usefulEnd } from './format.js';
import { h } from './vdom.js';

/**
 * @typedef {import('./format.js').Detail} Detail
 * @typedef {import('./format.js').Line} Line
 * @typedef {{from: number, to: number, colour: string, title: string, thin?: boolean, queue?: boolean, running?: boolean}} Bar
 */

/** The id of the row of a step. @param {number} stage @param {number} step */
const rowID = (stage, step) => `step-${stage}-${step}`;

/** Identifies a step of an operation. @param {string | undefined} stage @param {string | undefined} step */
export const stepKey = (stage, step) => `${stage}/${step}`;

/**
 * Renders the stages and steps as a diagram with the state of each.
 * @param {Detail} o
 * @param {(key: string) => void} select
 */
export function map(o, select) {
  return h('ol', { class: 'map', 'aria-label': 'Diagram of the stages' }, o.stages.map((stage, i) => h('li', { key: stage.name, class: `map-stage edge-${colour(stage.state)}` },
    h('span', { class: 'map-name' }, name(stage.name), stage.attempt > 1 ? h('span', { class: 'muted' }, ` ×${count(stage.attempt)}`) : null),
    h('ol', { 'aria-label': `Steps of ${stage.name}` }, stage.steps.map((step, j) => h('li', { key: step.name },
      h('a', {
        href: `#${rowID(i, j)}`, onclick: () => select(stepKey(stage.name, step.name)), class: `map-step text-${colour(step.state)} ${o.state === 'in progress' && o.step === step.name && o.stage === stage.name ? 'here' : ''}`,
        title: `${step.name}: ${spelled(step.state)}`, 'aria-label': `${step.name}: ${spelled(step.state)}`,
      }, sign(step.state))))))));
}

/** Returns the lines of the history by step. @param {Detail} o @returns {Map<string, Line[]>} */
export function linesByStep(o) {
  /** @type {Map<string, Line[]>} */
  const byStep = new Map();
  for (const l of o.history) {
    if (!l.step || l.outcome.startsWith('operation ')) continue;
    const key = stepKey(l.stage, l.step);
    const list = byStep.get(key);
    if (list) list.push(l);
    else byStep.set(key, [l]);
  }
  return byStep;
}

/**
 * @param {Detail} o
 * @param {number} now
 * @param {Map<string, Line[]>} byStep the lines of the history
 * @param {string} selected the key of the selected step
 * @param {(key: string) => void} select
 */
export function timeline(o, now, byStep, selected, select) {
  const begin = Date.parse(o.createdAt);
  const last = o.history.reduce((t, l) => Math.max(t, Date.parse(l.finishedAt)), begin);
  // The axis grows in steps, because every bar moves with it.
  const grain = Math.max(1000, (now - begin) / 40);
  const end = Math.max(begin + 1000, o.finishedAt ? Math.max(last, Date.parse(o.finishedAt)) : begin + Math.ceil((now - begin) / coarsened(grain)) * coarsened(grain));
  const span = end - begin;
  const at = (/** @type {number} */ t) => `${(Math.min(1, Math.max(0, (t - begin) / span)) * 100).toFixed(3)}%`;

  /** @param {Bar} bar */
  const draw = (bar) => h('span', {
    class: `bar ${bar.thin ? 'thin' : ''} ${bar.queue ? 'queue' : `fill-${bar.colour}`} ${bar.running ? 'running' : ''}`, title: bar.title,
    style: { left: at(bar.from), width: `max(3px, ${(Math.max(0, (Math.min(bar.to, end) - bar.from) / span) * 100).toFixed(3)}%)` },
  });

  const marks = ticks(span);
  const axis = h('div', { class: 'axis' }, marks.map((t) => h('span', { class: t / span > 0.94 ? 'tick last' : 'tick', style: { left: at(begin + t) } }, t ? duration(t) : '0')));
  const grid = marks.map((t) => h('span', { class: 'gridline', style: { left: at(begin + t) } }));

  const first = firstStart(o);
  const started = first ?? (o.finishedAt ? end : now);
  // Between the end of a run and the next one the operation waited for an operator, and then to start.
  const pauses = o.runs.slice(0, -1).flatMap((run, i) => (run.endedAt ? [{
    from: Date.parse(run.endedAt), to: Date.parse(o.runs[i + 1].startedAt), colour: colour(run.state ?? ''), thin: true,
    title: `${run.state} at ${clock(run.endedAt)}; ran again after ${duration(Date.parse(o.runs[i + 1].startedAt) - Date.parse(run.endedAt))}`,
  }] : []));
  const again = o.runs.length > 1 ? Date.parse(o.runs[o.runs.length - 1].startedAt) : 0;
  const queues = o.history.some((l) => l.queuedMs);
  return [h('ul', { class: 'legend bars', 'aria-label': 'Bars' }, h('li', null, h('span', { class: 'swatch fill-run' }), 'executing'), queues ? h('li', null, h('span', { class: 'swatch queue' }), 'in the queue of the worker') : null,
    h('li', null, h('span', { class: 'swatch thin fill-wait' }), 'waiting for the next try')),
  h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Stages and steps' },
    h('table', { class: 'timeline' },
      h('caption', { class: 'visually-hidden' }, 'Stages and steps with their attempts and durations, in order'),
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Step'), h('th', { scope: 'col' }, 'State'), h('th', { scope: 'col', class: 'number' }, 'Tries'),
        h('th', { scope: 'col', class: 'number' }, 'Took'),
        h('th', { scope: 'col', class: 'axis-cell' }, h('span', { class: 'visually-hidden' }, 'Time since the request'), axis))),
      h('tbody', null, h('tr', { class: 'turn' }, h('th', { scope: 'row' }, 'Waiting to start'), h('td', null, first === undefined ? badge('waiting') : badge('finished', 'started')),
        h('td', null), h('td', { class: 'number' }, duration(started - begin)),
        h('td', { class: 'track' }, h('div', { 'aria-hidden': 'true' }, grid, draw({ from: begin, to: started, colour: 'idle', thin: true, title: `waited to start: ${duration(started - begin)}` }), pauses.map(draw))))),
      o.stages.map((stage, i) => h('tbody', { key: stage.name },
        h('tr', { class: 'stage' }, h('th', { scope: 'rowgroup', colspan: '5' }, h('span', { class: 'stage-name' }, stage.name), ' ',
          h('span', { class: `stage-state text-${colour(stage.state)}` }, sign(stage.state), stage.state),
          stage.attempt > 1 ? h('span', { class: 'muted' }, ` attempt ${count(stage.attempt)}`) : null,
          stage.finally ? h('span', { class: 'muted' }, ' always runs') : null)),
        stage.steps.map((step, j) => {
          const key = stepKey(stage.name, step.name);
          const lines = byStep.get(key) ?? [];
          const here = o.state === 'in progress' && o.step === step.name && o.stage === stage.name;
          const bars = attempts(lines, step, o, here, now);
          const failure = step.state === 'succeeded' || step.state === 'waiting' ? '' : errorLine(step.error) || step.message || '';
          return h('tr', { key: step.name, id: rowID(i, j), tabindex: -1, class: `step-row ${here ? 'here' : ''} ${key === selected ? 'selected' : ''}`, 'aria-current': here ? 'step' : undefined,
            onclick: (/** @type {any} */ e) => { if (!e.target.closest('summary, a')) select(key); } },
            h('th', { scope: 'row' }, h('button', { type: 'button', class: 'step-name', 'aria-pressed': String(key === selected), title: 'Show the details of this step' }, name(step.name)), h('span', { class: 'muted worker-name' }, step.worker),
              failure ? message(failure, step) : null),
            h('td', null, badge(step.state)),
            h('td', { class: 'number' }, step.attempts > 0 ? count(step.attempts) : ''),
            h('td', { class: 'number nowrap' }, here && step.firstTriedAt ? lasting(now - Date.parse(step.firstTriedAt)) : took(lines, again)),
            h('td', { class: 'track' }, h('span', { class: 'visually-hidden' }, spoken(lines, begin)), h('div', { 'aria-hidden': 'true' }, grid, bars.map(draw))));
        })))))];
}

/**
 * Renders the message of a step; a long one opens on demand.
 * @param {string} text
 * @param {import('./format.js').Step} step
 */
function message(text, step) {
  const end = usefulEnd(text, step.error?.component);
  const className = `step-message text-${colour(step.state)}`;
  return end === text ? h('span', { class: className }, text) : h('details', { class: className }, h('summary', { title: 'Show the whole message' }, end), h('span', { class: 'whole' }, text));
}

/**
 * Returns the duration of the last run of a step, including its retries but not the time before an operator retried the operation.
 * @param {Line[]} all
 * @param {number} again the start of the last run of the operation
 */
function took(all, again) {
  const since = all.filter((l) => Date.parse(firstTry(l)) >= again);
  const lines = since.length ? since : all;
  const last = lines[lines.length - 1];
  if (!last) return '';
  const retries = (/** @type {Line} */ l) => l.outcome === 'retry' || l.outcome === 'no answer';
  let from = Date.parse(retries(last) ? firstTry(last) : last.startedAt);
  for (let i = lines.length - 2; i >= 0 && retries(lines[i]); i--) from = Math.min(from, Date.parse(firstTry(lines[i])));
  return duration(Date.parse(last.finishedAt) - from);
}

/**
 * Returns the bars of a step: its tries with their time in the queue of the worker, the waits between them, and the current execution or
 * wait. A line of several tries is a thin bar from the first one on, and a bar of the last one.
 * @param {Line[]} lines
 * @param {import('./format.js').Step} step
 * @param {Detail} o
 * @param {boolean} here whether the operation is at the step
 * @param {number} now
 * @returns {Bar[]}
 */
function attempts(lines, step, o, here, now) {
  /** @type {Bar[]} */
  const bars = [];
  lines.forEach((l, i) => {
    const from = Date.parse(l.startedAt);
    const to = Date.parse(l.finishedAt);
    const first = Date.parse(firstTry(l));
    const before = lines[i - 1];
    const gap = before ? Date.parse(before.finishedAt) : first;
    const queued = l.queuedMs ?? 0;
    const taken = l.first ? first : from - queued;
    if (before?.outcome === 'retry' && gap < taken) {
      bars.push({ from: gap, to: taken, colour: colour(tried(before)), thin: true, title: `waited ${duration(taken - gap)} for the next attempt` });
    }
    if (queued) bars.push({ from: from - queued, to: from, colour: '', queue: true, title: `in the queue of ${l.worker} for ${duration(queued)}` });
    if (l.first) {
      bars.push({ from: first, to: from - queued, colour: colour(tried(l)), thin: true, title: `${tried(l)}: ${count(l.tries)} tries from ${firstClock(l)} to ${clock(l.finishedAt)}` });
    }
    const text = told(l);
    bars.push({ from, to, colour: colour(tried(l)), title: `${tried(l)} at ${clock(l.finishedAt)} after ${duration(to - from)}${text ? ': ' + text : ''}` });
  });
  if (here) {
    const last = lines[lines.length - 1];
    const since = Math.max(last ? Date.parse(last.finishedAt) : 0, last && o.runs.length < 2 ? 0 : Date.parse(step.firstTriedAt ?? o.waiting?.since ?? o.createdAt));
    const reason = o.waiting?.reason ?? 'executing';
    const runs = !o.dueAt && !['no_worker', 'no_answer', 'held', 'limited'].includes(reason);
    bars.push({
      from: since, to: now, colour: colour(runs ? 'executing' : reason), thin: !runs, running: true,
      title: `${runs ? 'executing' : reason === 'no_worker' ? 'no live worker' : spelled(reason)} for ${lasting(now - since)}`,
    });
  }
  return bars;
}

/**
 * @param {Line[]} lines
 * @param {number} begin
 */
function spoken(lines, begin) {
  if (!lines.length) return 'not started';
  const first = lines.map(firstTry).sort()[0];
  const retries = lines.filter((l) => l.outcome === 'retry').reduce((n, l) => n + l.tries, 0);
  return `first tried ${duration(Date.parse(first) - begin)} after the request, ${absolute(first)}${retries ? `, ${plural(retries, 'retry', 'retries')}` : ''}`;
}

/** Returns the next duration that is a mark of an axis. @param {number} ms */
const coarsened = (ms) => (seconds.find((s) => s * 1000 >= ms) ?? 2_592_000) * 1000;

const seconds = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Returns the positions of the marks on the axis, in milliseconds. @param {number} span */
export function ticks(span) {
  const step = coarsened(span / 6);
  const out = [];
  for (let t = 0; t <= span && out.length < 20; t += step) out.push(t);
  return out;
}
