// @ts-check
/** Dialogs: confirmations, the help, the actions on operations, and holds. */

import { badge, count, duration, kind, plural, stamp, tried, typeNames } from './format.js';
import { code, select } from './parts.js';
import { h, render } from './vdom.js';

const root = /** @type {HTMLElement} */ (document.getElementById('dialogs'));

/** Shows the error of an action whose dialog was closed before the answer. @type {(text: string) => void} */
let reportLate = () => {};

/** @param {(text: string) => void} report shows the error of an action whose dialog was closed before the answer */
export function onLateError(report) {
  reportLate = report;
}

/**
 * Shows a dialog until it is closed, and then restores the focus.
 * @param {(close: () => void, update: () => void) => import('./vdom.js').VNode[]} content
 * @param {string} label the id of the heading
 * @returns {() => boolean} reports whether the dialog is closed
 */
function open(content, label) {
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const home = /** @type {HTMLElement | null | undefined} */ (before?.closest('[data-home]'));
  let closed = false;
  const close = () => {
    if (closed) return; // another dialog may be open
    closed = true;
    const dialog = root.querySelector('dialog');
    dialog?.close();
    render(root);
    // The element may be gone, such as a button for an action that is no longer possible.
    (before?.isConnected ? before : home)?.focus?.();
  };
  const update = () => !closed && render(root, h('dialog', {
    'aria-labelledby': label,
    oncancel: (/** @type {Event} */ e) => {
      e.preventDefault();
      close();
    },
  }, content(close, update)));
  update();
  const dialog = /** @type {HTMLDialogElement} */ (root.querySelector('dialog'));
  dialog.showModal();
  dialog.querySelector(/** @type {'input'} */ ('[data-first]'))?.focus();
  return () => closed;
}

export const isOpen = () => root.querySelector('dialog[open]') !== null;

/**
 * Asks for a confirmation. A body that changes is a function, which is given a function that draws it again. If the action fails, the dialog stays open and shows the error;
 * if it was closed, the page shows the error.
 * @param {{title: string, body: import('./vdom.js').Child | ((update: () => void) => import('./vdom.js').Child), action: string, danger?: boolean,
 *   typed?: string | (() => string), run: () => Promise<void>}} question the user must type `typed` first, unless it is empty
 */
export function ask(question) {
  let busy = false;
  let text = '';
  let refusal = '';
  let wanted = '';
  /** Returns the text to type. What was typed for another text does not count. */
  const typed = () => {
    const now = (typeof question.typed === 'function' ? question.typed() : question.typed) ?? '';
    if (now !== wanted) text = '';
    wanted = now;
    return now;
  };
  const isClosed = open((close, update) => [
    h('form', {
      method: 'dialog',
      onsubmit: async (/** @type {Event} */ e) => {
        e.preventDefault();
        if (busy) return;
        if (typed() && text.trim() !== typed()) {
          refusal = `Type ${typed()} to continue.`;
          update();
          return;
        }
        busy = true;
        refusal = '';
        update();
        try {
          await question.run();
        } catch (error) {
          busy = false;
          refusal = /** @type {Error} */ (error).message;
          if (isClosed()) reportLate(`${question.action}: ${refusal}`);
          else update();
          return;
        }
        close();
      },
    },
      h('h2', { id: 'dialog-title' }, question.title),
      h('div', { class: 'dialog-body' }, typeof question.body === 'function' ? question.body(update) : question.body),
      typed() && h('label', { class: 'field' },
        h('span', null, 'Type ', h('code', null, typed()), ' to continue'),
        h('input', {
          name: 'typed', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off', value: text, 'data-first': true,
          'aria-describedby': 'dialog-refusal',
          oninput: (/** @type {any} */ e) => {
            text = e.target.value;
            update();
          },
        })),
      h('p', { id: 'dialog-refusal', class: 'refusal', role: 'alert' }, refusal),
      h('div', { class: 'buttons' },
        h('button', { type: 'button', class: 'button', onclick: close, 'data-first': !typed() }, 'Close'),
        h('button', {
          type: 'submit', class: question.danger ? 'button danger' : 'button primary',
          disabled: busy || Boolean(typed() && text.trim() !== typed()),
        }, busy ? 'Working…' : question.action))),
  ], 'dialog-title');
}

/**
 * Shows the help.
 * @param {[keys: string[], what: string][]} shortcuts
 * @param {{enabled: () => boolean, toggle: () => void}} setting
 */
export function help(shortcuts, setting) {
  open((close, update) => [
    h('h2', { id: 'dialog-title' }, 'Keyboard'),
    h('table', { class: 'keys' }, h('caption', { class: 'visually-hidden' }, 'Shortcuts'),
      h('thead', { class: 'visually-hidden' }, h('tr', null, h('th', { scope: 'col' }, 'Keys'), h('th', { scope: 'col' }, 'Action'))),
      h('tbody', null, shortcuts.map(([keys, what]) => h('tr', null,
        h('td', null, keys.map((key, i) => [i ? ' ' : '', h('kbd', null, key)])), h('td', null, what))))),
    h('label', { class: 'check' }, h('input', {
      type: 'checkbox', checked: setting.enabled(),
      onchange: () => {
        setting.toggle();
        update();
      },
    }), ' Enable single-key shortcuts'),
    h('p', { class: 'muted' }, 'Tab and Shift+Tab reach everything; Enter opens a link, Space presses a button.'),
    h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'button primary', onclick: close, 'data-first': true }, 'Close')),
  ], 'dialog-title');
}

/**
 * Shows what a worker was sent in one try of a step, and what it answered.
 * @param {import('./parts.js').Context} ctx
 * @param {string} operation the ID of the operation
 * @param {number | string} line the cursor of the line of the history, or `running`
 * @param {string} step
 */
export function showTry(ctx, operation, line, step) {
  /** @type {any} */
  let found;
  let problem = '';
  open((close, update) => {
    if (!found && !problem) {
      problem = 'Looking up the try…';
      ctx.api.get(`/operations/${encodeURIComponent(operation)}/tries/${line}`).then((/** @type {any} */ answer) => {
        found = answer;
        update();
      }, (/** @type {Error} */ e) => {
        problem = e.message;
        update();
      });
    }
    return [
      h('h2', { id: 'dialog-title' }, 'Input and result of ', h('code', null, step)),
      h('div', { class: 'dialog-body try' }, found ? [sent(found, ctx), answered(found, ctx),
        h('p', { class: 'muted small' }, 'Passwords, tokens and the like are not shown.')] : h('p', { role: 'status' }, problem)),
      h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'button primary', onclick: close, 'data-first': true }, 'Close')),
    ];
  }, 'dialog-title');
}

/** @param {[string, import('./vdom.js').Child][]} list */
const terms = (list) => h('dl', { class: 'inline' }, list.map(([label, value]) => (value ? [h('dt', null, label), h('dd', null, value)] : null)));

/** @param {any} t @param {import('./parts.js').Context} ctx */
function sent(t, ctx) {
  const s = t.sent;
  const what = t.tries > 1 ? `Sent with the first of ${plural(t.tries, 'try', 'tries')}` : 'Sent';
  if (!s) return [h('h3', null, what), h('p', null, 'No worker was sent a command.')];
  return [h('h3', null, what), terms([
    ['Worker', t.worker], ['Attempt', t.stageAttempt > 1 ? `${t.stepAttempt} of the step, ${t.stageAttempt} of the stage` : `${t.stepAttempt} of the step`],
  ]), sentParts(s, ctx)];
}

/** @param {any} s @param {import('./parts.js').Context} ctx */
const sentParts = (s, ctx) => [
  terms([
    ['Limits', [`execution ${duration(s.executionMs)}`, s.retryTimeoutMs ? `, retries ${duration(s.retryTimeoutMs)}` : '', s.waitTimeoutMs ? `, waiting ${duration(s.waitTimeoutMs)}` : '']],
    ['Credentials it could claim', s.credentials.join(', ')], ['Event', s.event],
  ]),
  json(ctx, 'Parameters', s.parameters), json(ctx, 'Changes of the update', s.update), json(ctx, 'Target of the upgrade', s.upgrade),
  json(ctx, 'Saved data of the workers', s.details),
  s.unknown ? h('p', { class: 'muted' }, `Not recorded, because too large: ${s.unknown.join(', ')}`) : null,
  s.detailsRecorded ? null : h('p', { class: 'muted' }, 'The saved data was not recorded: the operation started with an earlier release.'),
];

/** @param {any} t @param {import('./parts.js').Context} ctx */
function answered(t, ctx) {
  const a = t.answer;
  if (!a) return [h('h3', null, 'Answer'), h('p', null, 'The try is running.')];
  return [h('h3', null, t.tries > 1 ? 'Answer of the last try' : 'Answer'), terms([
    ['Outcome', badge(tried(a))], ['Component', a.error?.component], ['Reason', a.error?.reason], ['Message', a.error?.message || a.message],
    ['Next try after', a.retryAfterMs && duration(a.retryAfterMs)], ['Executed', `${stamp(a.startedAt)}, for ${duration(Date.parse(a.finishedAt) - Date.parse(a.startedAt))}`],
    ['Queued before', a.queuedMs && duration(a.queuedMs)], ['Worker version', a.workerVersion],
  ]),
  a.saved ? json(ctx, t.tries > 1 ? 'Saved by these tries' : 'Saved', a.saved) : t.sent?.detailsRecorded && !a.unknown ? h('p', { class: 'muted' }, 'It saved nothing new.') : null,
  a.unknown ? h('p', { class: 'muted' }, `Also changed, values not recorded: ${a.unknown.join(', ')}`) : null];
}

/** @param {import('./parts.js').Context} ctx @param {string} title @param {any} value */
function json(ctx, title, value) {
  return value === undefined ? null : [h('h4', null, title), code(JSON.stringify(value, null, 2), title, ctx.announce)];
}

/**
 * Shows an explanation.
 * @param {string} title
 * @param {import('./vdom.js').Child} body
 */
export function tell(title, body) {
  open((close) => [
    h('h2', { id: 'dialog-title' }, title),
    h('div', { class: 'dialog-body' }, body),
    h('div', { class: 'buttons' }, h('button', { type: 'button', class: 'button primary', onclick: close, 'data-first': true }, 'Close')),
  ], 'dialog-title');
}

/** What becomes of a step after a retry. @type {Record<string, string>} */
const plans = { again: 'runs again', first: 'runs for the first time', unknown: 'condition not known yet' };

const final = new Set(['succeeded', 'failed', 'cancelled']);

/**
 * Returns the actions that an operation allows now, each with its dialog.
 * @param {import('./parts.js').Context} ctx
 * @param {import('./format.js').Detail} o
 * @param {() => void} tried is called when the API has answered an action
 * @returns {{name: string, label: string, look: string, ask: () => void}[]}
 */
export function operationActions(ctx, o, tried) {
  const url = `/operations/${encodeURIComponent(o.id)}`;

  /**
   * @param {string} action
   * @param {object} body
   * @param {string} done
   */
  const act = (action, body, done) => async () => {
    try {
      await ctx.api.send('POST', `${url}/${action}`, body);
    } finally {
      tried();
    }
    ctx.notice('ok', done);
  };

  function askCancel() {
    const inFlight = o.state === 'in progress' && !o.dueAt;
    ask({
      title: 'Cancel this operation?',
      body: [
        h('p', null, `The ${kind(o)} of instance `, h('code', null, o.instanceId), ' ends as ', h('b', null, 'cancelled'), ' and does not continue.'),
        h('ul', null,
          inFlight ? h('li', null, 'A worker has its command: it ends with the result of step ', h('code', null, o.step), ', or when the step\'s execution limit is reached.') : h('li', null, 'It ends immediately.'),
          h('li', null, 'The objects that it created remain until a deprovisioning removes them.'),
          h('li', null, 'It cannot be resumed.')),
      ],
      action: 'Cancel the operation', danger: true, typed: o.step || o.type,
      run: act('cancel', {}, 'Cancellation requested.'),
    });
  }

  function askSkip() {
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

  function askRetry() {
    const failed = o.stages.findIndex((s) => s.name === o.stage);
    const reached = o.stages.slice(0, failed + 1).map((s) => s.name);
    let stage = o.stage ?? '';
    let step = '';
    const stepsOf = () => {
      const names = o.stages.find((s) => s.name === stage)?.steps.map((s) => s.name) ?? [];
      return stage === o.stage ? names.slice(0, names.indexOf(o.step ?? '') + 1) : names;
    };
    let losesMemory = false;
    /** @type {any} */
    let next;
    /** @type {{stage: string, step: string, plan: string, reason?: string}[] | undefined} */
    let steps;
    let problem = '';
    const preview = async (/** @type {() => void} */ update) => {
      const wanted = `${stage}/${step}`;
      steps = undefined;
      problem = '';
      update();
      try {
        const answer = await ctx.api.send('POST', `${url}/retry`, { stage, step: step || undefined, dryRun: true });
        if (`${stage}/${step}` === wanted) ({ steps, losesMemory, sent: next } = answer);
      } catch (error) {
        if (`${stage}/${step}` === wanted) problem = /** @type {Error} */ (error).message;
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
          h('p', null, 'It becomes pending and runs again from the first step of a stage, or from a later step.'),
          reached.length > 1 && select('Stage', 'stage', reached.map((name) => [name, name === o.stage ? `${name} (failed)` : name]), stage, (v) => {
            stage = v;
            step = '';
            preview(update);
          }),
          stepsOf().length > 1 && select('Step', 'step', stepsOf().map((name, i) => [i ? name : '', i ? name : `${name} (first)`]), step, (v) => {
            step = v;
            preview(update);
          }),
          h('ul', null,
            stage === (o.stage ?? '') ? h('li', null, 'Completed stages are not repeated.') : h('li', null, 'The stages from ', h('code', null, stage), ' on are repeated, although they are finished.'),
            step ? h('li', null, 'The steps before ', h('code', null, step), ' stay as they are.') : null,
            steps && losesMemory ? h('li', null, 'If a step needs what the steps before it put into the stage memory, the stage starts at its first step: the memory is deleted when an operation ends.') : null,
            h('li', null, 'It is rejected if the instance has a newer operation.')),
          problem ? h('p', { class: 'refusal' }, problem) : h('details', null,
            h('summary', null, steps ? `${plural(steps.filter((s) => s.plan === 'again').length, 'step runs', 'steps run')} again` : 'Looking up the steps…'),
            h('ul', null, (steps ?? []).map((s) => h('li', { key: s.step }, h('code', null, s.step), ' ', plans[s.plan] ?? s.plan, s.reason ? `: ${s.reason}` : '')))),
          steps && next && !problem ? h('details', null, h('summary', null, 'What the first of them is sent'), sentParts(next, ctx)) : null,
        ];
      },
      action: 'Retry', run: () => act('retry', stage === (o.stage ?? '') && !step ? {} : { stage, step: step || undefined }, 'The operation runs again.')(),
    });
  }

  return [
    { name: 'retry', label: 'Retry…', look: 'primary', ask: askRetry, possible: o.state === 'failed' },
    { name: 'skip', label: 'Skip step…', look: '', ask: askSkip, possible: o.state === 'in progress' && Boolean(o.step) },
    { name: 'cancel', label: 'Cancel…', look: 'danger-quiet', ask: askCancel, possible: !final.has(o.state) && !o.cancelRequested },
  ].filter((action) => action.possible);
}

/** The members of a scope with their labels and the parameters of GET /operations. @type {[member: string, label: string, parameter: string][]} */
const members = [
  ['plan', 'Plan (name)', 'plan'], ['globalAccount', 'Global account', 'global_account'], ['region', 'Region', 'region'], ['instance', 'Instance', 'instance'],
  ['system', 'System', 'system'], ['worker', 'Worker', 'worker'], ['step', 'Step', 'step'], ['operation', 'Operation', 'q'],
];
/** The members that only operations in progress have. */
const ofSteps = ['system', 'worker', 'step'];
/** The lengths of a hold in minutes. @type {[string, string][]} */
const ends = [['', 'when it is released'], ['30', 'after 30 minutes'], ['120', 'after 2 hours'], ['480', 'after 8 hours'], ['1440', 'after a day']];
const previewDelay = 300;

/** @param {Record<string, string>} scope */
const words = (scope) => [
  ...members.map(([member, label]) => [label.replace(' (name)', '').toLowerCase(), scope[member]]), ['type', typeNames[scope.type] ?? scope.type],
].filter(([, value]) => value);

/** @param {Record<string, string>} scope */
export const scopeWords = (scope) => words(scope).map(([label, value], i) => [i ? ', ' : '', h('span', { class: 'muted' }, label, ' '), h('b', null, value)]);

/**
 * @param {import('./parts.js').Context} ctx
 * @param {any} hold
 * @param {() => void} released
 */
export function askRelease(ctx, hold, released) {
  ask({
    title: 'Release this hold?',
    body: [
      h('p', null, scopeWords(hold.scope)), h('p', null, hold.reason),
      h('p', null, hold.operations ? `${plural(hold.operations, 'operation')} will continue, unless another hold contains them.` : 'It holds no operation now.',
        hold.orders === 'reject' ? ' New orders will be accepted again.' : ''),
    ],
    action: 'Release',
    run: async () => {
      await ctx.api.send('DELETE', `/holds/${encodeURIComponent(hold.id)}`);
      ctx.notice('ok', 'The hold is released.');
      released();
    },
  });
}

/**
 * @param {import('./parts.js').Context} ctx
 * @param {() => void} created
 * @param {Record<string, string>} [scope] the members that are set at first
 */
export function askHold(ctx, created, scope = {}) {
  /** The process definitions. @type {any[]} */
  let definitions = [];
  let begun = false;
  let reason = '', end = '', orders = 'wait';
  /** What the scope contains now. */
  let preview = '';
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let asked = 0;

  /** Counts the operations in the scope after a pause in typing. @param {() => void} update */
  function look(update) {
    clearTimeout(timer);
    const turn = ++asked;
    if (!words(scope).length) {
      preview = '';
      update();
      return;
    }
    preview = 'Counting the operations in the scope…';
    update();
    timer = setTimeout(async () => {
      const query = new URLSearchParams({ state: 'pending,in progress', page_size: '1' });
      for (const [member, , parameter] of members) if (scope[member]) query.set(parameter, scope[member]);
      if (scope.type) query.set('type', scope.type);
      let text;
      try {
        const found = await ctx.api.get(`/operations?${query}`);
        const n = `${count(found.totalCount)}${found.totalCountCapped ? ' or more' : ''} unfinished ${found.totalCount === 1 ? 'operation' : 'operations'}`;
        text = ofSteps.some((m) => scope[m]) ? `${n} at such a step now. Others are held when they reach one.` : `${n} in the scope now.`;
      } catch (e) {
        text = /** @type {Error} */ (e).message;
      }
      if (turn !== asked) return;
      preview = text;
      update();
    }, previewDelay);
  }

  /**
   * @param {() => void} update
   * @param {string} member
   * @param {string} value
   */
  function set(update, member, value) {
    if (value.trim()) scope[member] = value.trim();
    else delete scope[member];
    look(update);
  }

  /** Counts the operations in the scope and loads the names that can be chosen. @param {() => void} update */
  async function begin(update) {
    if (words(scope).length) look(update);
    try {
      definitions = (await ctx.api.get('/processes')).data;
      update();
    } catch {
      // Names can be entered without suggestions.
    }
  }

  ask({
    title: 'Create a hold',
    body: (update) => {
      if (!begun) {
        begun = true;
        queueMicrotask(() => begin(update));
      }
      return [
        h('p', null, 'Operations in the scope do not start and send no command. Commands in flight finish. All fields that are set must match.'),
        h('div', { class: 'fields' },
          select('Type', 'type', [['', 'Any type'], ...Object.entries(typeNames)], scope.type ?? '', (v) => set(update, 'type', v)),
          members.map(([member, label]) => h('label', { class: 'field', key: member }, h('span', null, label),
            h('input', {
              name: member, list: known(definitions, member).length ? `known-${member}` : undefined, autocomplete: 'off', spellcheck: 'false', value: scope[member] ?? '',
              oninput: (/** @type {any} */ e) => set(update, member, e.target.value),
            })))),
        ['system', 'worker', 'step'].map((member) => h('datalist', { id: `known-${member}`, key: `known-${member}` }, known(definitions, member).map((value) => h('option', { value })))),
        h('p', { class: 'preview', role: 'status' }, preview || 'The scope is empty.'),
        h('div', { class: 'fields' },
          h('label', { class: 'field whole' }, h('span', null, 'Reason, shown with every held operation'),
            h('input', { name: 'reason', required: true, autocomplete: 'off', value: reason, oninput: (/** @type {any} */ e) => { reason = e.target.value; } })),
          select('Ends', 'end', ends, end, (v) => { end = v; update(); }),
          select('New orders', 'orders', [['wait', 'wait'], ['reject', 'are rejected with the reason']], orders, (v) => { orders = v; update(); })),
        orders === 'reject' ? h('p', { class: 'muted small' }, 'Only type (provisioning or update), plan, global account, region and instance may be set. Without a type, bindings are rejected, too.') : null,
      ];
    },
    action: 'Create the hold',
    run: async () => {
      const until = end ? new Date(Date.now() + Number(end) * 60_000).toISOString() : undefined;
      await ctx.api.send('POST', '/holds', { scope, reason, orders, until });
      ctx.notice('ok', 'The hold applies within a second.');
      created();
    },
  });
}

/**
 * Returns the names of the process definitions that a member can have.
 * @param {any[]} definitions
 * @param {string} member
 * @returns {string[]}
 */
function known(definitions, member) {
  /** @type {Set<string>} */
  const names = new Set();
  for (const p of definitions) {
    for (const stage of p.stages) {
      for (const s of stage.steps) {
        if (s.worker === 'orchestrator') continue;
        if (member === 'step') names.add(s.name);
        if (member === 'worker') names.add(s.worker);
        if (member === 'system') (s.systems ?? [s.worker]).forEach((/** @type {string} */ x) => names.add(x));
      }
    }
  }
  return [...names].sort();
}
