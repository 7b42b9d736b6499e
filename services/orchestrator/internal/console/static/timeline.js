// @ts-check
/** A timeline of stages, steps and attempts. The bars are in the last column of a table with the same data. */

import { absolute, badge, clock, colour, count, duration, errorLine, firstClock, firstStart, firstTry, lasting, name, plural, sign, spelled, told, tried } from './format.js';
import { h } from './vdom.js';

/**
 * @typedef {import('./format.js').Detail} Detail
 * @typedef {import('./format.js').Line} Line
 * @typedef {{from: number, to: number, colour: string, title: string, thin?: boolean, running?: boolean}} Bar
 */

/**
 * @param {Detail} o
 * @param {number} now
 */
export function timeline(o, now) {
  const begin = Date.parse(o.createdAt);
  const last = o.history.reduce((t, l) => Math.max(t, Date.parse(l.finishedAt)), begin);
  const end = Math.max(begin + 1000, o.finishedAt ? Math.max(last, Date.parse(o.finishedAt)) : now);
  const span = end - begin;
  const at = (/** @type {number} */ t) => `${(Math.min(1, Math.max(0, (t - begin) / span)) * 100).toFixed(3)}%`;

  /** @param {Bar} bar */
  const draw = (bar) => h('span', {
    class: `bar ${bar.thin ? 'thin' : ''} ${bar.running ? 'running' : ''} fill-${bar.colour}`, title: bar.title,
    style: { left: at(bar.from), width: `max(3px, ${(Math.max(0, (Math.min(bar.to, end) - bar.from) / span) * 100).toFixed(3)}%)` },
  });

  const marks = ticks(span);
  const axis = h('div', { class: 'axis' }, marks.map((t) => h('span', { class: t / span > 0.94 ? 'tick last' : 'tick', style: { left: at(begin + t) } }, t ? duration(t) : '0')));
  const grid = marks.map((t) => h('span', { class: 'gridline', style: { left: at(begin + t) } }));

  /** @type {Map<string, Line[]>} */
  const byStep = new Map();
  for (const l of o.history) {
    if (!l.step || l.outcome.startsWith('operation ')) continue;
    const list = byStep.get(l.step);
    if (list) list.push(l);
    else byStep.set(l.step, [l]);
  }

  const first = firstStart(o);
  const started = first ?? (o.finishedAt ? end : now);
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Stages and steps' },
    h('table', { class: 'timeline' },
      h('caption', { class: 'visually-hidden' }, 'Stages and steps with their attempts and durations, in order'),
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Step'), h('th', { scope: 'col' }, 'State'), h('th', { scope: 'col', class: 'number' }, 'Tries'),
        h('th', { scope: 'col', class: 'number' }, 'Took'),
        h('th', { scope: 'col', class: 'axis-cell' }, h('span', { class: 'visually-hidden' }, 'Time since the request'), axis))),
      h('tbody', null, h('tr', { class: 'turn' }, h('th', { scope: 'row' }, 'Waiting to start'), h('td', null, first === undefined ? badge('waiting') : badge('finished', 'started')),
        h('td', null), h('td', { class: 'number' }, duration(started - begin)),
        h('td', { class: 'track' }, h('div', { 'aria-hidden': 'true' }, grid, draw({ from: begin, to: started, colour: 'idle', thin: true, title: `waited to start: ${duration(started - begin)}` }))))),
      o.stages.map((stage) => h('tbody', { key: stage.name },
        h('tr', { class: 'stage' }, h('th', { scope: 'rowgroup', colspan: '5' }, h('span', { class: 'stage-name' }, stage.name), ' ',
          h('span', { class: `stage-state text-${colour(stage.state)}` }, sign(stage.state), stage.state),
          stage.attempt > 1 ? h('span', { class: 'muted' }, ` attempt ${stage.attempt}`) : null,
          stage.finally ? h('span', { class: 'muted' }, ' always runs') : null)),
        stage.steps.map((step) => {
          const lines = byStep.get(step.name) ?? [];
          const bars = attempts(lines, step, o, now);
          const failure = step.state === 'succeeded' ? '' : errorLine(step.error) || step.message || '';
          const here = o.state === 'in progress' && o.step === step.name;
          return h('tr', { key: step.name, class: `step-row ${here ? 'here' : ''}`, 'aria-current': here ? 'step' : undefined },
            h('th', { scope: 'row' }, h('span', { class: 'step-name' }, name(step.name)), h('span', { class: 'muted worker-name' }, step.worker),
              failure ? h('span', { class: `step-message text-${colour(step.state)}` }, failure) : null),
            h('td', null, badge(step.state)),
            h('td', { class: 'number' }, step.attempts > 0 ? String(step.attempts) : ''),
            h('td', { class: 'number nowrap' }, here && step.firstTriedAt ? lasting(now - Date.parse(step.firstTriedAt)) : took(lines)),
            h('td', { class: 'track' }, h('span', { class: 'visually-hidden' }, spoken(lines, begin)), h('div', { 'aria-hidden': 'true' }, grid, bars.map(draw))));
        })))));
}

/**
 * Returns the duration of the last run of a step, including its retries.
 * @param {Line[]} lines
 */
function took(lines) {
  const last = lines[lines.length - 1];
  if (!last) return '';
  const retries = (/** @type {Line} */ l) => l.outcome === 'retry' || l.outcome === 'no answer';
  let from = Date.parse(retries(last) ? firstTry(last) : last.startedAt);
  for (let i = lines.length - 2; i >= 0 && retries(lines[i]); i--) from = Math.min(from, Date.parse(firstTry(lines[i])));
  return duration(Date.parse(last.finishedAt) - from);
}

/**
 * Returns the bars of a step: its tries, the waits between them, and the current execution or wait. A line of several tries is a thin bar
 * from the first one on, and a bar of the last one.
 * @param {Line[]} lines
 * @param {import('./format.js').Step} step
 * @param {Detail} o
 * @param {number} now
 * @returns {Bar[]}
 */
function attempts(lines, step, o, now) {
  /** @type {Bar[]} */
  const bars = [];
  lines.forEach((l, i) => {
    const from = Date.parse(l.startedAt);
    const to = Date.parse(l.finishedAt);
    const first = Date.parse(firstTry(l));
    const before = lines[i - 1];
    const gap = before ? Date.parse(before.finishedAt) : first;
    if (before?.outcome === 'retry' && gap < first) {
      bars.push({ from: gap, to: first, colour: colour(tried(before)), thin: true, title: `waited ${duration(first - gap)} for the next attempt` });
    }
    if (l.first) {
      bars.push({ from: first, to: from, colour: colour(tried(l)), thin: true, title: `${tried(l)}: ${count(l.tries)} tries from ${firstClock(l)} to ${clock(l.finishedAt)}` });
    }
    const text = told(l);
    bars.push({ from, to, colour: colour(tried(l)), title: `${tried(l)} at ${clock(l.finishedAt)} after ${duration(to - from)}${text ? ': ' + text : ''}` });
  });
  if (o.state === 'in progress' && o.step === step.name) {
    const last = lines[lines.length - 1];
    const since = last ? Date.parse(last.finishedAt) : Date.parse(o.waiting?.since ?? step.firstTriedAt ?? o.createdAt);
    const reason = o.waiting?.reason ?? 'executing';
    const runs = !o.dueAt && !['no_worker', 'no_answer', 'held'].includes(reason);
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

/** Returns the positions of the marks on the axis, in milliseconds. @param {number} span */
export function ticks(span) {
  const seconds = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800];
  const step = (seconds.find((s) => (s * 1000) >= span / 6) ?? 2_592_000) * 1000;
  const out = [];
  for (let t = 0; t <= span && out.length < 20; t += step) out.push(t);
  return out;
}
