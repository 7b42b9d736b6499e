// @ts-check
/** The view of one operation: its state, its history, and the actions of operators. */

import { Refusal, Resource } from '../api.js';
import { operationActions, showTry } from '../dialogs.js';
import { absolute, badge, budgetWords, clock, colour, count, dryMark, duration, errorLine, extensionWords, firstClock, firstStart, instanceURL, kind, lasting, name, operationsURL, plural, progressWords, ranFor, relative, short, shownState, sign, stamp, time, told, tried, usefulEnd, waitingWords } from '../format.js';
import { code, copy, panes, shown, table, th, viewerNote } from '../parts.js';
import { Stream } from '../stream.js';
import { linesByStep, map, stepKey, timeline } from '../timeline.js';
import { h } from '../vdom.js';

/** @typedef {import('../format.js').Detail} Detail */

const linesPerPage = 50;
const triesShown = 20;

/** What the operations of a suspension do. @type {Record<string, string>} */
const purposes = {
  suspension: 'the runtime is removed, the instance stays', expiry: 'the instance has expired: its runtime is removed for good', unsuspension: 'the runtime of the suspended instance is made again',
};

/**
 * @param {import('../parts.js').Context} ctx
 * @returns {import('../parts.js').View}
 */
export function operation(ctx) {
  const id = ctx.parts[1];
  const url = `/operations/${encodeURIComponent(id)}`;
  let linesShown = linesPerPage;
  let lastState = '';
  let reading = false;
  /** The lines of the history whose details are shown, by the cursor of their first try. @type {Set<number>} */
  const opened = new Set();
  /** The key of the step that the user has selected; empty follows the operation. */
  let selected = '';
  const beside = panes('keb.panes', 'Width of the stages and steps', 64, ctx.update);
  /** @type {Stream | undefined} */
  let stream;
  const detail = new Resource(ctx.api, url, { changed });
  const others = new Resource(ctx.api, () => `/operations?page_size=6&instance=${encodeURIComponent(detail.data?.instanceId ?? '')}`, { changed: ctx.update });
  const log = new Resource(ctx.api, `/actions?page_size=20&target=${encodeURIComponent(id)}`, { changed: ctx.update });

  /** Follows the operation. The stream sends what the page does not have, and then what changes. */
  const follow = () => new Stream(() => `/stream?operation=${encodeURIComponent(id)}&detail=true&after=${detail.data?.history.at(-1)?.cursor ?? 0}`, {
    ondetail: (o) => {
      detail.data = { ...o, history: detail.data?.history ?? [] };
      changed();
    },
    onchange: (c) => {
      if (!detail.data) return;
      detail.data = applied(detail.data, c);
      changed();
    },
    onhistory: (lines) => {
      if (!detail.data) return;
      detail.data = { ...detail.data, history: merged(detail.data.history, lines) };
      ctx.update();
    },
    onstate: ctx.update,
    onlost: () => detail.refresh(),
  });

  function changed() {
    const o = /** @type {Detail | null} */ (detail.data);
    if (unknown()) stream?.close();
    else if (o) stream ??= follow();
    if (o && o.state !== lastState) {
      if (lastState) ctx.announce(`The operation is ${o.state}`);
      lastState = o.state;
      others.refresh();
      log.refresh();
    }
    ctx.update();
  }

  const unknown = () => detail.error instanceof Refusal && [400, 404].includes(detail.error.status);

  /** Reads the older lines of the history: the operation has only its newest ones. */
  async function readOlder() {
    if (reading) return;
    reading = true;
    ctx.update();
    const from = detail.data.history[0]?.cursor ?? 0;
    /** @type {import('../format.js').Line[]} */
    const older = [];
    try {
      for (let after = 0, page; !page || page.nextAfter && page.nextAfter < from; after = page.nextAfter) {
        page = await ctx.api.get(`${url}/history?page_size=1000&after=${after}`);
        older.push(...page.data.filter((/** @type {import('../format.js').Line} */ l) => l.cursor < from));
      }
      detail.data = { ...detail.data, history: merged(older, detail.data.history) };
    } catch {
      // The newest lines stay.
    }
    reading = false;
    ctx.update();
  }

  detail.refresh();

  /** @param {Detail} o */
  function buttons(o) {
    const viewer = ctx.me.role !== 'operator';
    const list = operationActions(ctx, o, () => log.refresh()).map((a) => h('button', {
      key: a.name, type: 'button', class: `button ${a.look}`, onclick: a.ask, disabled: viewer, 'aria-describedby': viewer ? 'viewer' : undefined,
    }, a.label));
    // It stays when there is nothing to do, because it gets the focus of a button that is gone.
    return h('div', { class: 'actions', 'data-home': true, tabindex: -1, role: 'group', 'aria-label': 'Actions' },
      list.length ? [h('div', { class: 'buttons' }, list), viewer ? viewerNote('viewer') : null] : null);
  }

  /** @param {string | undefined} text @param {string} what */
  const copies = (text, what) => copy(text, what, ctx.announce);

  /** Renders an error with its parts. @param {import('../format.js').OperationError} e */
  const failure = (e) => h('dl', { class: 'inline' }, e.component ? [h('dt', null, 'Component'), h('dd', null, e.component)] : null,
    e.reason ? [h('dt', null, 'Reason'), h('dd', null, e.reason)] : null,
    h('dt', null, 'Message'), h('dd', { class: 'message' }, e.message, ' ', copies(errorLine(e), 'the error')));

  /** Renders the time that the worker has asked for. @param {Detail} o */
  const extended = (o) => {
    const words = extensionWords(o.waiting);
    return words ? h('p', null, h('b', null, 'Time limit: '), words) : null;
  };

  /** Renders why the operation stands where it stands, the cause first. @param {Detail} o @param {number} now */
  function reason(o, now) {
    const w = o.waiting;
    const stuck = w && w.reason !== 'executing';
    const words = waitingWords(o, now);
    if (o.state === 'cancelled') {
      const c = o.cause;
      return h('div', { class: `callout edge-${c ? 'bad' : 'gone'}` }, sign('cancelled'), h('div', null,
        c ? [h('p', null, h('b', null, 'It was failing '), 'at ', h('code', null, c.step), ` in ${c.stage}`, c.attempts > 1 ? `, ${plural(c.attempts, 'try', 'tries')}` : '',
          ' since ', h('time', { datetime: c.since, title: absolute(c.since) }, stamp(c.since)), ', when it was cancelled:'), failure(c.error)] : null,
        h('p', { class: c ? 'muted' : '' }, h('b', null, 'Cancelled'), because(o.error?.message || o.message), c ? null : '. No step was failing.')));
    }
    if (stuck) {
      return h('div', { class: `callout edge-${colour(w.reason)}` }, sign(w.reason), h('div', null,
        h('p', null, h('b', null, 'Waiting: '), w.step && w.step !== o.step ? ['step ', h('code', null, w.step), ' '] : null, words),
        o.progress ? h('p', null, h('b', null, 'Progress: '), progressWords(o.progress, now)) : null,
        extended(o),
        o.error ? failure(o.error) : o.message ? h('p', { class: 'message' }, o.message) : null,
        o.budget ? h('p', { class: 'muted' }, budgetWords(o.budget, now)) : null));
    }
    if (o.progress || w?.extendedSeconds) {
      return h('div', { class: `callout edge-${colour('executing')}` }, sign('executing'), h('div', null,
        o.progress ? h('p', null, h('b', null, 'Progress'), o.step ? [' of ', h('code', null, o.step)] : null, ': ', progressWords(o.progress, now)) : null,
        extended(o),
        o.error ? failure(o.error) : null));
    }
    if (o.error && o.state !== 'succeeded') {
      return h('div', { class: 'callout edge-bad' }, sign('failed'), h('div', null,
        h('p', null, h('b', null, o.state === 'failed' ? 'Failed' : 'Last error'), o.step ? [' at ', h('code', null, o.step)] : null), failure(o.error)));
    }
    return null;
  }

  /** @param {Detail} o */
  function view(o) {
    const now = ctx.now();
    const name = [o.runtimeName, o.shootName && `(${o.shootName})`].filter(Boolean).join(' ');
    return [
      h('div', { class: 'title-row' },
        h('div', null, h('p', { class: 'crumb' }, h('a', { href: '/console/operations' }, 'Operations'), ' · ', h('a', { href: instanceURL(o.instanceId) }, 'Instance')),
          h('h1', null, capital(kind(o)), o.dryRun ? ' (dry run)' : '', name ? [' of ', name] : '', ' ', h('span', { class: 'id mono' }, o.id)), copies(o.id, 'the ID of the operation'),
          h('p', { class: 'state-line' }, badge(shownState(o)), ' ',
            o.step && o.state !== 'succeeded' ? h('span', null, o.state === 'failed' ? 'at ' : '', h('a', { href: `/console/processes/${encodeURIComponent(o.type)}?step=${encodeURIComponent(o.step)}` }, o.step), h('span', { class: 'muted' }, ` in ${o.stage}`)) : null)),
        buttons(o)),
      reason(o, now),
      o.cancelRequested ? h('div', { class: 'callout edge-gone' }, sign('cancelled'), h('p', null, h('b', null, 'Cancellation requested: '), o.cancelRequested, '. It takes effect with the next result of the step.')) : null,
      o.notCompleted.length ? h('div', { class: 'callout edge-wait' }, sign('not completed'), h('p', null, h('b', null, o.incomplete ? 'Incomplete. Not completed: ' : 'Not completed: '),
        o.notCompleted.map((s, i) => [i ? ', ' : '', h('code', null, s)]), '. The operation continued without these steps; their work is still to be done.')) : null,
      facts(o, now),
      h('section', { 'aria-labelledby': 'timeline' }, h('h2', { id: 'timeline' }, 'Stages and steps'), stages(o, now)),
      h('section', { 'aria-labelledby': 'history' }, h('h2', { id: 'history' }, 'History'), lines(o)),
      data(o),
      h('div', { class: 'columns' },
        h('section', { 'aria-labelledby': 'others' }, h('h2', { id: 'others' }, 'Operations of this instance'), shown(others, (d) => siblings(d, o, now))),
        h('section', { 'aria-labelledby': 'log' }, h('h2', { id: 'log' }, 'Actions of operators'), shown(log, (d) => actionLines(d, now)))),
    ];
  }

  /** Renders the stages and steps beside the details of the selected step. @param {Detail} o @param {number} now */
  function stages(o, now) {
    const byStep = linesByStep(o);
    const all = o.stages.flatMap((stage) => stage.steps.map((step) => ({ stage, step, key: stepKey(stage.name, step.name) })));
    const find = (/** @type {string} */ key) => all.find((s) => s.key === key);
    // Without a selection: where the operation stands, or has ended.
    const shownStep = find(selected) ?? find(stepKey(o.stage, o.step)) ?? all.findLast((s) => byStep.has(s.key)) ?? all[0];
    const select = (/** @type {string} */ key) => {
      selected = key;
      ctx.update();
    };
    return [map(o, select), beside(timeline(o, now, byStep, shownStep?.key ?? '', select), shownStep ? stepDetails(o, shownStep.stage, shownStep.step, byStep.get(shownStep.key) ?? [], now) : null)];
  }

  /**
   * @param {Detail} o
   * @param {import('../format.js').Stage} stage
   * @param {import('../format.js').Step} step
   * @param {import('../format.js').Line[]} tries
   * @param {number} now
   */
  function stepDetails(o, stage, step, tries, now) {
    const here = o.state === 'in progress' && o.step === step.name && o.stage === stage.name;
    const latest = tries.slice(-triesShown).reverse();
    return h('div', { class: 'step-details', role: 'region', 'aria-labelledby': 'step-title', tabindex: 0 },
      h('h3', { id: 'step-title' }, name(step.name)),
      h('p', { class: 'line' }, badge(step.state), ' ', h('span', { class: 'muted' }, 'in ', stage.name)),
      h('dl', { class: 'inline' }, [
        ['Worker', step.worker],
        ['Tries', step.attempts > 0 && count(step.attempts)],
        ['First tried', step.firstTriedAt && h('time', { datetime: step.firstTriedAt, title: absolute(step.firstTriedAt) }, stamp(step.firstTriedAt))],
        ['Progress', here && o.progress && progressWords(o.progress, now)],
        ['Waits for', here && o.waiting && o.waiting.reason !== 'executing' && waitingWords(o, now)],
      ].map(([label, value]) => (value ? [h('dt', null, label), h('dd', null, value)] : null)),
      step.error || step.message ? h('dt', null, step.error ? 'Last error' : 'Message') : null,
      step.error || step.message ? h('dd', { class: 'message' }, errorLine(step.error) || step.message, ' ', copies(errorLine(step.error) || step.message, 'the message of the step')) : null),
      here && o.budget ? h('p', { class: 'muted small' }, budgetWords(o.budget, now)) : null,
      here && ['executing', 'slow'].includes(o.waiting?.reason ?? '') ? h('p', null, h('button', {
        type: 'button', class: 'button small', onclick: () => showTry(ctx, o.id, 'running', step.name),
      }, 'Input of the running try')) : null,
      latest.length ? [h('h4', null, 'Tries, newest first'), h('ol', { class: 'tries' }, latest.map((l) => h('li', { key: firstCursor(l) },
        h('time', { datetime: l.finishedAt, title: absolute(l.finishedAt), class: 'muted' }, clock(l.finishedAt)), ' ', badge(tried(l)), l.tries > 1 ? ` ${plural(l.tries, 'try', 'tries')}` : null,
        h('span', { class: 'muted' }, ` ${duration(Date.parse(l.finishedAt) - Date.parse(l.startedAt))}`), inputOf(o, l), told(l) ? h('span', { class: 'told' }, usefulEnd(told(l), l.error?.component)) : null))),
      tries.length > latest.length ? h('p', { class: 'muted small' }, 'The history has the older ones.') : null]
        : h('p', { class: 'muted' }, step.state === 'skipped' ? 'The step was skipped.' : 'The step has not been tried yet.'),
      h('p', { class: 'small' }, h('a', { href: `/console/processes/${encodeURIComponent(o.type)}?step=${encodeURIComponent(step.name)}` }, 'Definition of the step')));
  }

  /** Renders the button that shows the input and the result of a try. @param {Detail} o @param {import('../format.js').Line} l */
  const inputOf = (o, l) => (l.stepAttempt && l.outcome !== 'event received' ? h('button', {
    type: 'button', class: 'button plain small', 'aria-label': `Input and result of ${l.step}, ${tried(l)} at ${clock(l.finishedAt)}`,
    onclick: () => showTry(ctx, o.id, l.cursor, l.step ?? ''),
  }, 'Input and result') : null);

  /** Renders the facts about an operation. @param {Detail} o @param {number} now */
  function facts(o, now) {
    const end = o.finishedAt ? Date.parse(o.finishedAt) : now;
    const first = firstStart(o);
    const id = (/** @type {string | undefined} */ value, /** @type {string} */ what, /** @type {string} */ href = '') =>
      value && [href ? h('a', { href, class: 'mono', title: value }, value) : h('span', { class: 'mono' }, value), copies(value, what)];
    /** @type {[string, import('../vdom.js').Child][]} */
    const list = [
      ['Instance', id(o.instanceId, 'the ID of the instance', instanceURL(o.instanceId))],
      ['Purpose', o.purpose && purposes[o.purpose]],
      ['Runtime', o.runtimeName],
      ['Shoot', id(o.shootName, 'the name of the shoot')],
      ['Plan', [o.plan, o.region ? h('span', { class: 'muted' }, ` ${o.region}`) : null]],
      ['Global account', id(o.globalAccountId, 'the global account')],
      ['Subaccount', id(o.subaccountId, 'the subaccount', operationsURL({ q: o.subaccountId }))],
      ['Orchestration', id(o.orchestrationId, 'the ID of the orchestration', `/console/orchestrations/${o.orchestrationId}`)],
      ['Requested', time(o.createdAt, now)],
      ['Waited to start', duration((first ?? end) - Date.parse(o.createdAt))],
      [o.finishedAt ? 'Took' : 'Running for', first && o.state !== 'pending' && [(o.finishedAt ? duration : lasting)(ranFor(o, now)), o.runs.length > 1 ? h('span', { class: 'muted' }, ` in ${o.runs.length} runs`) : null]],
      ['Ended', o.finishedAt && time(o.finishedAt, now)],
      ['Process version', o.processHash && [h('a', { href: `/console/processes/${encodeURIComponent(o.type)}`, class: 'mono', title: o.processHash }, o.processHash.slice(0, 12)),
        h('span', { class: 'muted' }, o.processCurrent ? ' current' : ' older than the current one'), copies(o.processHash, 'the version of the process')]],
      ['Trace', o.traceId && [h('span', { class: 'mono', title: o.traceId }, short(o.traceId)), copies(o.traceId, 'the trace ID')]],
      ['See also', o.links?.map((l, i) => [i ? ' · ' : '', h('a', { href: l.url, target: '_blank', rel: 'noopener noreferrer' }, l.name)])],
    ];
    return h('dl', { class: 'facts' }, list.map(([name, value]) => (value && !(Array.isArray(value) && !value.some(Boolean))
      ? h('div', { key: name }, h('dt', null, name), h('dd', null, value)) : null)));
  }

  /** Renders what the workers get and have saved. @param {Detail} o */
  function data(o) {
    const block = (/** @type {string} */ title, /** @type {any} */ value, /** @type {string} */ note) => {
      if (value === undefined || value === null) return null;
      const text = JSON.stringify(value, null, 2);
      return h('details', { class: 'data', key: title }, h('summary', null, title, note ? h('span', { class: 'muted' }, ` ${note}`) : null),
        code(text, title, ctx.announce));
    };
    const saved = Object.entries(o.details ?? {});
    if (!saved.length && !o.parameters && !o.update && !o.upgrade) return null;
    return h('section', { 'aria-labelledby': 'data' }, h('h2', { id: 'data' }, 'Data'),
      block('Parameters', o.parameters, 'with the defaults of the plan'), block('Changes of this update', o.update, ''), block('Target of this upgrade', o.upgrade, ''),
      saved.map(([worker, value]) => block(worker, value, 'saved by this worker')),
      h('p', { class: 'muted small' }, 'Passwords, tokens and the like are not shown.'));
  }

  /** @param {Detail} o */
  function lines(o) {
    const list = o.history.slice(-linesShown).reverse();
    if (!list.length) return h('p', { class: 'muted' }, 'The operation has not started.');
    const older = o.historyCount - o.history.length;
    return [
      table('History, newest first', [th('At'), th('Outcome'), th('Step'), th('Attempt', 'number'), th('Took', 'number'), th('Worker'), th('Message')],
        h('tbody', null, list.map((l) => line(o, l))), 'cards history'),
      o.history.length > linesShown ? h('button', {
        type: 'button', class: 'button', onclick: () => {
          linesShown += 200;
          ctx.update();
        },
      }, `Show older (${count(o.history.length - linesShown)} more)`) : older > 0 ? h('button', { type: 'button', class: 'button', disabled: reading, onclick: readOlder },
        reading ? 'Loading…' : `Load the first ${plural(older, 'line')}`) : null,
    ];
  }

  /** Renders a line of the history. @param {Detail} o @param {import('../format.js').Line} l */
  function line(o, l) {
    const key = firstCursor(l);
    const isOpen = opened.has(key);
    const text = told(l);
    const row = h('tr', { key, class: isOpen ? 'open' : '' },
      h('td', { class: 'nowrap' }, h('time', { datetime: l.finishedAt, title: absolute(l.finishedAt) }, clock(l.finishedAt)),
        l.first ? h('span', { class: 'muted' }, ' since ', h('time', { datetime: l.first.startedAt, title: absolute(l.first.startedAt) }, firstClock(l))) : null),
      h('td', { class: 'nowrap' }, badge(tried(l).replace(/^operation /, '').replace('started', 'in progress').replace('retried by operator', 'pending'), tried(l)),
        l.tries > 1 ? h('b', null, ` ${plural(l.tries, 'try', 'tries')}`) : null),
      h('td', null, l.step ?? ''), h('td', { class: 'number nowrap', 'data-label': l.stepAttempt ? 'attempt' : undefined }, numbers(l)),
      h('td', { class: 'number nowrap' }, l.step ? duration(Date.parse(l.finishedAt) - Date.parse(l.startedAt)) : ''),
      h('td', { class: 'nowrap' }, l.worker ?? '', l.workerVersion ? h('span', { class: 'muted' }, ` ${l.workerVersion}`) : null),
      h('td', { class: 'wide' }, h('span', { class: 'told' }, usefulEnd(text, l.error?.component)), l.step ? h('button', {
        type: 'button', class: 'button plain small', 'aria-expanded': String(isOpen), 'aria-label': `${isOpen ? 'Less' : 'More'} about ${l.step}, ${tried(l)}`,
        onclick: () => {
          if (!opened.delete(key)) opened.add(key);
          ctx.update();
        },
      }, isOpen ? 'Less' : 'More') : null));
    if (!isOpen) return row;
    const moment = (/** @type {string} */ iso) => h('time', { datetime: iso, title: absolute(iso) }, stamp(iso));
    return [row, h('tr', { key: `${key}+`, class: 'more-of' }, h('td', { colspan: 7 }, h('dl', { class: 'inline' },
      [
        ['Tries', l.first && `${count(l.tries)}: attempts ${l.first.stepAttempt} to ${l.stepAttempt} of the step`],
        ['First try', l.first && moment(l.first.startedAt)],
        [l.first ? 'Last try' : 'Executed', [moment(l.startedAt), ' to ', moment(l.finishedAt)]],
        ['Queued', l.queuedMs && `${duration(l.queuedMs)} before the worker took it`],
        ['Attempt of the stage', l.stageAttempt && l.stageAttempt > 1 && String(l.stageAttempt)],
        ['Component', l.error?.component], ['Reason', l.error?.reason],
      ].map(([name, value]) => (value ? [h('dt', null, name), h('dd', null, value)] : null)),
      text ? [h('dt', null, l.similar ? 'Last message' : 'Message'), h('dd', { class: 'message' }, l.error?.message ?? l.message, ' ', copies(text, 'the message'))] : null),
      inputOf(o, l)))];
  }

  return {
    title: () => {
      const o = /** @type {Detail | null} */ (detail.data);
      return o ? `${shownState(o).replace('_', ' ')}: ${kind(o)} ${o.runtimeName || o.id.slice(0, 8)}` : unknown() ? 'Operation not found' : 'Operation';
    },
    live: () => (unknown() ? undefined : stream?.live ?? false),
    resume: () => {
      if (detail.data && !unknown()) stream?.retry();
      if (!stream?.live) detail.refresh();
      log.refresh();
    },
    close: () => {
      stream?.close();
      detail.close();
      others.close();
      log.close();
    },
    render: () => {
      if (detail.data) return shown(detail, view);
      if (!unknown()) return [h('h1', null, 'Operation ', h('span', { class: 'id mono' }, id)), shown(detail, view)];
      return [h('h1', null, 'Operation not found'), h('p', null, 'There is no operation with the ID ', h('code', null, id), '. It may have been deleted long after its end. ',
        h('a', { href: '/console/operations' }, 'Go to the operations'), '.')];
    },
  };
}

/** Continues a sentence with the reason of a cancel. @param {string | undefined} text */
const because = (text) => (!text ? '' : text.startsWith('cancelled ') ? text.slice('cancelled'.length) : `: ${text}`);

/** Returns the cursor that identifies a line: it does not change when the line grows. @param {import('../format.js').Line} l */
const firstCursor = (l) => l.first?.cursor ?? l.cursor;

/**
 * Returns a history with new lines. A line that has grown replaces its earlier form.
 * @param {import('../format.js').Line[]} history
 * @param {import('../format.js').Line[]} lines
 */
function merged(history, lines) {
  const replaced = new Set(lines.map(firstCursor));
  return [...history.filter((l) => !replaced.has(firstCursor(l))), ...lines].sort((a, b) => a.cursor - b.cursor);
}

/**
 * Returns an operation with a change of the stream.
 * @param {Detail} o
 * @param {{set?: Record<string, any>, unset?: string[], stages?: {stage: number, state: string, attempt: number}[],
 *   steps?: {stage: number, step: number, to: import('../format.js').Step}[]}} change
 * @returns {Detail}
 */
function applied(o, change) {
  const next = /** @type {any} */ ({ ...o, ...change.set });
  for (const name of change.unset ?? []) delete next[name];
  if (change.stages || change.steps) next.stages = [...o.stages];
  for (const { stage, state, attempt } of change.stages ?? []) next.stages[stage] = { ...next.stages[stage], state, attempt };
  for (const { stage, step, to } of change.steps ?? []) next.stages[stage] = { ...next.stages[stage], steps: next.stages[stage].steps.with(step, to) };
  return next;
}

/** Returns the numbers of the attempts of a line. @param {import('../format.js').Line} l */
function numbers(l) {
  const first = l.first?.stepAttempt ?? l.stepAttempt;
  return first !== l.stepAttempt ? `${first} to ${l.stepAttempt}` : l.stepAttempt || '';
}

/** @param {string} text */
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/**
 * @param {any} d
 * @param {Detail} o
 * @param {number} now
 */
function siblings(d, o, now) {
  return [
    h('ul', { class: 'plain-list' }, d.data.map((/** @type {Detail} */ s) => h('li', { key: s.id, class: 'line' }, badge(shownState(s)), ' ',
      s.id === o.id ? [kind(s), h('span', { class: 'muted' }, ' (this one)')] : h('a', { href: `/console/operations/${s.id}` }, kind(s)), dryMark(s),
      ' ', h('span', { class: 'muted' }, relative(s.createdAt, now))))),
    d.totalCount > d.data.length ? h('a', { href: operationsURL({ instance: o.instanceId }) }, `All ${plural(d.totalCount, 'operation')}`) : null,
  ];
}

/**
 * @param {any} d
 * @param {number} now
 */
function actionLines(d, now) {
  if (!d.data.length) return h('p', { class: 'muted' }, 'Nothing.');
  return h('ul', { class: 'plain-list' }, d.data.map((/** @type {any} */ a) => h('li', { class: 'line' },
    h('b', null, a.name), ` ${a.action}`, a.detail ? [' ', h('code', null, a.detail)] : null, ': ', a.outcome, a.reason ? h('span', { class: 'muted' }, ` (${a.reason})`) : null, ' ',
    h('span', { class: 'muted' }, time(a.time, now)))));
}
