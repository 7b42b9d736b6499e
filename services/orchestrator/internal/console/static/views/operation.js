// @ts-check
/** The view of one operation: its state, its history, and the actions of operators. */

import { Resource } from '../api.js';
import { ask } from '../dialogs.js';
import { absolute, badge, budgetWords, clock, colour, count, duration, errorLine, firstClock, firstStart, lasting, operationsURL, plural, relative, sign, time, told, tried, typeNames, waitingWords } from '../format.js';
import { select, shown, table, th, viewerNote } from '../parts.js';
import { Stream } from '../stream.js';
import { timeline } from '../timeline.js';
import { h } from '../vdom.js';

/** @typedef {import('../format.js').Detail} Detail */

/** The minimum time between two requests for the whole operation, in milliseconds. */
const pace = 500;
/** The refresh interval in addition to the stream, in case a change was lost, in milliseconds. */
const every = 20_000;
const linesPerPage = 50;

/** What becomes of a step after a retry. @type {Record<string, string>} */
const plans = { again: 'runs again', first: 'runs for the first time', unknown: 'condition not known yet' };

const final = new Set(['succeeded', 'failed', 'cancelled']);

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
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let soon;
  const detail = new Resource(ctx.api, url, { every, changed });
  const others = new Resource(ctx.api, () => `/operations?page_size=6&instance=${encodeURIComponent(detail.data?.instanceId ?? '')}`, { changed: ctx.update });
  const log = new Resource(ctx.api, `/actions?page_size=20&target=${encodeURIComponent(id)}`, { changed: ctx.update });
  const stream = new Stream(`/stream?operation=${encodeURIComponent(id)}`, {
    onoperation: (o) => {
      // Update the header first; the steps follow.
      if (detail.data && o.cursor >= detail.data.cursor) detail.data = { ...detail.data, ...cleared, ...o };
      changed();
      later();
    },
    onhistory: later,
    onresync: later,
    onstate: ctx.update,
    onlost: () => ctx.api.check(),
  });

  function later() {
    soon ??= setTimeout(() => {
      soon = undefined;
      detail.refresh();
    }, pace);
  }

  function changed() {
    const o = /** @type {Detail | null} */ (detail.data);
    if (o && o.state !== lastState) {
      if (lastState) ctx.announce(`The operation is ${o.state}`);
      lastState = o.state;
      others.refresh();
    }
    if (o && o.historyCount > o.history.length) readAll();
    ctx.update();
  }

  /** Reads the whole history, of which the operation has only the newest lines. */
  async function readAll() {
    if (reading) return;
    reading = true;
    /** @type {import('../format.js').Line[]} */
    const all = [];
    try {
      for (let after = 0, page; !page || page.nextAfter; after = page.nextAfter) {
        page = await ctx.api.get(`${url}/history?page_size=1000&after=${after}`);
        all.push(...page.data);
      }
      detail.data = { ...detail.data, history: all, historyCount: all.length };
    } catch {
      // The newest lines stay.
    }
    reading = false;
    ctx.update();
  }

  detail.refresh();
  log.refresh();

  /**
   * @param {string} action
   * @param {object} body
   * @param {string} done
   */
  const act = (action, body, done) => async () => {
    try {
      await ctx.api.send('POST', `${url}/${action}`, body);
    } finally {
      detail.refresh();
      log.refresh();
    }
    ctx.notice('ok', done);
  };

  /** @param {Detail} o */
  function askCancel(o) {
    const inFlight = o.state === 'in progress' && !o.dueAt;
    ask({
      title: 'Cancel this operation?',
      body: [
        h('p', null, `The ${typeNames[o.type] ?? o.type} of instance `, h('code', null, o.instanceId), ' ends as ', h('b', null, 'cancelled'), ' and does not continue.'),
        h('ul', null,
          inFlight ? h('li', null, 'A worker has its command: it ends with the result of step ', h('code', null, o.step), ', or when the step\'s execution limit is reached.') : h('li', null, 'It ends immediately.'),
          h('li', null, 'The objects that it created remain until a deprovisioning removes them.'),
          h('li', null, 'It cannot be resumed.')),
      ],
      action: 'Cancel the operation', danger: true, typed: o.step || o.type,
      run: act('cancel', {}, 'Cancellation requested.'),
    });
  }

  /** @param {Detail} o */
  function askSkip(o) {
    const step = o.step ?? '';
    ask({
      title: 'Skip this step?',
      body: [
        h('p', null, 'Step ', h('code', null, step), ' is recorded as ', h('b', null, 'not completed'), ', and the operation continues with the next step.'),
        h('ul', null,
          h('li', null, 'The work of the step is not done. Later steps may need it and fail.'),
          h('li', null, 'A later result of a worker for this step is ignored.'),
          o.type === 'deprovision' ? h('li', null, 'A later deprovisioning runs it again.') : null),
      ],
      action: 'Skip the step', danger: true, typed: step,
      run: act('skip', { step }, `Step ${step} is skipped.`),
    });
  }

  /** @param {Detail} o */
  function askRetry(o) {
    const failed = o.stages.findIndex((s) => s.name === o.stage);
    const reached = o.stages.slice(0, failed + 1).map((s) => s.name);
    let stage = o.stage ?? '';
    /** @type {{stage: string, step: string, plan: string, reason?: string}[] | undefined} */
    let steps;
    let problem = '';
    const preview = async (/** @type {() => void} */ update) => {
      const wanted = stage;
      steps = undefined;
      problem = '';
      update();
      try {
        const answer = await ctx.api.send('POST', `${url}/retry`, { stage, dryRun: true });
        if (stage === wanted) steps = answer.steps;
      } catch (error) {
        if (stage === wanted) problem = /** @type {Error} */ (error).message;
      }
      update();
    };
    let begun = false;
    ask({
      title: 'Retry this operation?',
      body: (update) => {
        if (!begun) {
          begun = true;
          queueMicrotask(() => preview(update));
        }
        return [
          h('p', null, 'It becomes pending and runs again from the first step of a stage.'),
          reached.length > 1 && select('Stage', 'stage', reached.map((name) => [name, name === o.stage ? `${name} (failed)` : name]), stage, (v) => {
            stage = v;
            preview(update);
          }),
          h('ul', null,
            stage === (o.stage ?? '') ? h('li', null, 'Completed stages are not repeated.') : h('li', null, 'The stages from ', h('code', null, stage), ' on are repeated, although they are finished.'),
            h('li', null, 'It is rejected if the instance has a newer operation.')),
          problem ? h('p', { class: 'refusal' }, problem) : h('details', null,
            h('summary', null, steps ? `${plural(steps.filter((s) => s.plan === 'again').length, 'step runs', 'steps run')} again` : 'Looking up the steps…'),
            h('ul', null, (steps ?? []).map((s) => h('li', { key: s.step }, h('code', null, s.step), ' ', plans[s.plan] ?? s.plan, s.reason ? `: ${s.reason}` : '')))),
        ];
      },
      action: 'Retry', run: () => act('retry', stage === (o.stage ?? '') ? {} : { stage }, 'The operation runs again.')(),
    });
  }

  /** @param {Detail} o */
  function buttons(o) {
    const viewer = ctx.me.role !== 'operator';
    const button = (/** @type {string} */ name, /** @type {string} */ label, /** @type {() => void} */ onclick, kind = '') => h('button', {
      key: name, type: 'button', class: `button ${kind}`, onclick, disabled: viewer, 'aria-describedby': viewer ? 'viewer' : undefined,
    }, label);
    const list = [
      o.state === 'failed' ? button('retry', 'Retry…', () => askRetry(o), 'primary') : null,
      o.state === 'in progress' && o.step ? button('skip', 'Skip step…', () => askSkip(o)) : null,
      !final.has(o.state) && !o.cancelRequested ? button('cancel', 'Cancel…', () => askCancel(o), 'danger-quiet') : null,
    ].filter(Boolean);
    if (!list.length) return null;
    return h('div', { class: 'actions' }, h('div', { class: 'buttons' }, list), viewer ? viewerNote('viewer') : null);
  }

  /** @param {Detail} o */
  function view(o) {
    const now = ctx.now();
    const words = waitingWords(o, now);
    const stuck = o.waiting && o.waiting.reason !== 'executing';
    const failure = errorLine(o.error);
    return [
      h('div', { class: 'title-row' },
        h('div', null, h('p', { class: 'crumb' }, h('a', { href: '/console/operations' }, 'Operations')),
          h('h1', null, `${capital(typeNames[o.type] ?? o.type)} `, h('span', { class: 'id mono' }, o.id)),
          h('p', { class: 'state-line' }, badge(o.state), ' ',
            o.step && o.state !== 'succeeded' ? h('span', null, o.state === 'failed' ? 'at ' : '', h('a', { href: `/console/processes/${encodeURIComponent(o.type)}?step=${encodeURIComponent(o.step)}` }, o.step), h('span', { class: 'muted' }, ` in ${o.stage}`)) : null)),
        buttons(o)),
      stuck ? h('div', { class: `callout edge-${colour(o.waiting?.reason ?? '')}` }, sign(o.waiting?.reason ?? ''), h('div', null,
        h('p', null, h('b', null, 'Waiting: '), o.waiting?.step && o.waiting.step !== o.step ? ['step ', h('code', null, o.waiting.step), ' '] : null, words),
        failure || o.message ? h('p', { class: 'message' }, failure || o.message) : null,
        o.budget ? h('p', { class: 'muted' }, budgetWords(o.budget, now)) : null)) : null,
      o.cancelRequested ? h('div', { class: 'callout edge-gone' }, sign('cancelled'), h('p', null, h('b', null, 'Cancellation requested: '), o.cancelRequested, '. It takes effect with the next result of the step.')) : null,
      !stuck && failure && o.state !== 'succeeded' ? h('div', { class: 'callout edge-bad' }, sign('failed'), h('div', null,
        h('p', null, h('b', null, final.has(o.state) ? 'Failed' : 'Last error'), o.step ? [' at ', h('code', null, o.step)] : null),
        h('dl', { class: 'inline' }, o.error?.component ? [h('dt', null, 'Component'), h('dd', null, o.error.component)] : null,
          o.error?.reason ? [h('dt', null, 'Reason'), h('dd', null, o.error.reason)] : null,
          h('dt', null, 'Message'), h('dd', { class: 'message' }, o.error?.message)))) : null,
      o.notCompleted.length ? h('div', { class: 'callout edge-wait' }, sign('not completed'), h('p', null, h('b', null, 'Not completed: '),
        o.notCompleted.map((s, i) => [i ? ', ' : '', h('code', null, s)]), '. The operation continued without these steps; their work is still to be done.')) : null,
      facts(o, now),
      h('section', { 'aria-labelledby': 'timeline' }, h('h2', { id: 'timeline' }, 'Stages and steps'), timeline(o, now)),
      h('section', { 'aria-labelledby': 'history' }, h('h2', { id: 'history' }, 'History'), lines(o)),
      h('div', { class: 'columns' },
        h('section', { 'aria-labelledby': 'others' }, h('h2', { id: 'others' }, 'Operations of this instance'), shown(others, (d) => siblings(d, o, now))),
        h('section', { 'aria-labelledby': 'log' }, h('h2', { id: 'log' }, 'Actions of operators'), shown(log, (d) => actionLines(d, now)))),
    ];
  }

  /** @param {Detail} o */
  function lines(o) {
    const list = o.history.slice(-linesShown).reverse();
    if (!list.length) return h('p', { class: 'muted' }, 'The operation has not started.');
    return [
      table('History, newest first', [th('At'), th('Outcome'), th('Step'), th('Attempt', 'number'), th('Took', 'number'), th('Worker'), th('Message')],
        h('tbody', null, list.map((l) => h('tr', { key: l.first?.cursor ?? l.cursor },
          h('td', { class: 'nowrap' }, h('time', { datetime: l.finishedAt, title: absolute(l.finishedAt) }, clock(l.finishedAt)),
            l.first ? h('span', { class: 'muted' }, ' since ', h('time', { datetime: l.first.startedAt, title: absolute(l.first.startedAt) }, firstClock(l))) : null),
          h('td', { class: 'nowrap' }, badge(tried(l).replace(/^operation /, '').replace('started', 'in progress').replace('retried by operator', 'pending'), tried(l)),
            l.tries > 1 ? h('b', null, ` ${plural(l.tries, 'try', 'tries')}`) : null),
          h('td', null, l.step ?? ''), h('td', { class: 'number nowrap', 'data-label': l.stepAttempt ? 'attempt' : undefined }, numbers(l)),
          h('td', { class: 'number nowrap' }, l.step ? duration(Date.parse(l.finishedAt) - Date.parse(l.startedAt)) : ''),
          h('td', { class: 'nowrap' }, l.worker ?? '', l.workerVersion ? h('span', { class: 'muted' }, ` ${l.workerVersion}`) : null),
          h('td', { class: 'wide' }, told(l))))), 'cards'),
      o.history.length > linesShown ? h('button', {
        type: 'button', class: 'button', onclick: () => {
          linesShown += 200;
          ctx.update();
        },
      }, `Show older (${count(o.history.length - linesShown)} more)`) : null,
    ];
  }

  return {
    title: () => {
      const o = /** @type {Detail | null} */ (detail.data);
      return o ? `${o.state}: ${typeNames[o.type] ?? o.type} ${o.id.slice(0, 8)}` : 'Operation';
    },
    live: () => stream.live,
    resume: () => {
      stream.retry();
      detail.refresh();
      log.refresh();
    },
    close: () => {
      clearTimeout(soon);
      stream.close();
      detail.close();
      others.close();
      log.close();
    },
    render: () => (detail.data ? shown(detail, view) : [h('h1', null, 'Operation ', h('span', { class: 'id mono' }, id)), shown(detail, view)]),
  };
}

/** Resets the fields that a change of an operation omits when they no longer apply. */
const cleared = {
  stage: undefined, step: undefined, stageAttempt: undefined, stepAttempt: undefined, message: undefined, error: undefined, waitingFor: undefined,
  waiting: undefined, budget: undefined, cancelRequested: undefined, dueAt: undefined, finishedAt: undefined,
};

/** Returns the numbers of the attempts of a line. @param {import('../format.js').Line} l */
function numbers(l) {
  const first = l.first?.stepAttempt ?? l.stepAttempt;
  return first !== l.stepAttempt ? `${first} to ${l.stepAttempt}` : l.stepAttempt || '';
}

/** @param {string} text */
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/**
 * @param {Detail} o
 * @param {number} now
 */
function facts(o, now) {
  const end = o.finishedAt ? Date.parse(o.finishedAt) : now;
  const first = firstStart(o);
  /** @type {[string, import('../vdom.js').Child][]} */
  const list = [
    ['Instance', h('a', { href: operationsURL({ instance: o.instanceId }), class: 'mono' }, o.instanceId)],
    ['Plan', [o.plan, o.region ? h('span', { class: 'muted' }, ` ${o.region}`) : null]],
    ['Runtime', [o.runtimeName, o.shootName ? h('span', { class: 'muted mono' }, ` ${o.shootName}`) : null]],
    ['Global account', o.globalAccountId && h('span', { class: 'mono' }, o.globalAccountId)],
    ['Subaccount', o.subaccountId && h('a', { href: operationsURL({ q: o.subaccountId }), class: 'mono' }, o.subaccountId)],
    ['Orchestration', o.orchestrationId && h('a', { href: `/console/orchestrations/${o.orchestrationId}`, class: 'mono' }, o.orchestrationId)],
    ['Requested', time(o.createdAt, now)],
    ['Waited to start', duration((first ?? end) - Date.parse(o.createdAt))],
    [o.finishedAt ? 'Took' : 'Running for', first && (o.finishedAt ? duration : lasting)(end - first)],
    ['Ended', o.finishedAt && time(o.finishedAt, now)],
  ];
  return h('dl', { class: 'facts' }, list.map(([name, value]) => (value && !(Array.isArray(value) && !value.some(Boolean))
    ? h('div', { key: name }, h('dt', null, name), h('dd', null, value)) : null)));
}

/**
 * @param {any} d
 * @param {Detail} o
 * @param {number} now
 */
function siblings(d, o, now) {
  return [
    h('ul', { class: 'plain-list' }, d.data.map((/** @type {Detail} */ s) => h('li', { key: s.id, class: 'line' }, badge(s.state), ' ',
      s.id === o.id ? [typeNames[s.type], h('span', { class: 'muted' }, ' (this one)')] : h('a', { href: `/console/operations/${s.id}` }, typeNames[s.type] ?? s.type),
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
